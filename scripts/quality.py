"""Measures a model's mean negative log-likelihood on English and on code, for each weight precision.

The texts come with every Python: its licence, its documentation strings and its library's sources. Prints one JSON line
per precision. Exit status 1 where a precision is worse than float32 by more than the quality line, half a percent.
"""

import argparse
import importlib
import inspect
import json
import os
import site
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from backend.config import EngineConfig  # noqa: E402
from backend.cpu_precision import cpu_numbers  # noqa: E402
from backend.kv.storage import allocate, token_slots  # noqa: E402
from backend.model.batch import StepInputs  # noqa: E402
from backend.model.config import ModelConfig  # noqa: E402
from backend.model.decoder import Decoder  # noqa: E402
from backend.model.kv_layout import layout_of  # noqa: E402
from backend.model.weights import load_weights  # noqa: E402
from backend.text.prompt_tokenizer import PromptTokenizer  # noqa: E402

QUALITY_LINE = 0.005
WINDOW = 512  # tokens that are scored together; each sees those before it in its window
BLOCK_SIZE = 16
_DOCUMENTED = ("argparse", "asyncio", "collections", "decimal", "email", "logging", "pathlib", "typing", "unittest")
_SOURCES = ("textwrap", "heapq", "bisect", "csv", "shlex", "statistics", "queue", "sched")


def english() -> Iterator[str]:
    """Licence texts of what is installed, then documentation strings of the standard library, longest first."""
    for directory in site.getsitepackages():
        for file in sorted(Path(directory).glob("*.dist-info/**/LICENSE*")):
            if file.is_file() and file.stat().st_size > 4000:
                yield file.read_text(encoding="utf-8", errors="ignore")
    modules = [importlib.import_module(name) for name in _DOCUMENTED]
    objects = [value for module in modules for _, value in inspect.getmembers(module) if inspect.isclass(value)]
    yield from sorted({inspect.getdoc(value) or "" for value in [*modules, *objects]}, key=len, reverse=True)


def code() -> Iterator[str]:
    """Sources of the standard library."""
    yield from (inspect.getsource(importlib.import_module(name)) for name in _SOURCES)


def windows(tokenizer: PromptTokenizer, texts: Iterator[str], tokens: int) -> list[list[int]]:
    """Distinct stretches of the texts, of ``WINDOW`` tokens each, ``tokens`` altogether or more."""
    found: dict[tuple[int, ...], None] = {}
    for text in texts:
        ids = tokenizer.encode(text)
        # Few windows of each text, so that no one text is most of the measure.
        for start in range(0, min(len(ids) - WINDOW + 1, 3 * WINDOW), WINDOW):
            found.setdefault(tuple(ids[start : start + WINDOW]))
            if len(found) * WINDOW >= tokens:
                return [list(window) for window in found]
    return [list(window) for window in found]


def negative_log_likelihoods(decoder: Decoder, window: list[int], dtype: torch.dtype) -> Tensor:
    """Of each token but the first, given those before it, in nats: float32 ``[len(window) - 1]``."""
    count = len(window)
    blocks = -(-count // BLOCK_SIZE)
    positions = torch.arange(count)
    inputs = StepInputs(
        token_ids=torch.tensor(window),
        positions=positions,
        query_start=torch.tensor([0, count], dtype=torch.int32),
        kv_lengths=torch.tensor([count], dtype=torch.int32),
        block_tables=torch.arange(1, blocks + 1, dtype=torch.int32)[None],
        slot_mapping=positions + BLOCK_SIZE,
        logit_rows=positions[:-1],
    )
    layout = layout_of(decoder.config, BLOCK_SIZE, dtype)
    logits = decoder.forward(inputs, token_slots(allocate(layout, blocks + 1), layout))
    return torch.nn.functional.cross_entropy(logits, inputs.token_ids[1:], reduction="none")


def measure(decoder: Decoder, kinds: dict[str, list[list[int]]], dtype: torch.dtype) -> dict[str, float]:
    """Mean over all tokens of each kind of text, and over all."""
    each = {
        kind: torch.cat([negative_log_likelihoods(decoder, window, dtype) for window in texts])
        for kind, texts in kinds.items()
    }
    means = {kind: values.double().mean().item() for kind, values in each.items()}
    return means | {"all": torch.cat(list(each.values())).double().mean().item()}


_PRECISIONS = (
    "of weights, then after colons of activations and of keys and values, as the knobs take them; what is left out is "
    "as the engine chooses; all are held to the first (%(default)s)"
)


def _knobs(text: str) -> dict[str, str]:
    """``int8:int16:float32`` -> the knobs of those; what is left out is as the engine chooses."""
    names = ("weight_precision", "activation_precision", "kv_cache_precision")
    return dict(zip(names, text.split(":"), strict=False))


def main() -> int:
    """Exit status: 0, or 1 where a precision misses the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=REPOSITORY / ".cache/models/SmolLM2-135M-Instruct")
    parser.add_argument("--tokens", type=int, default=4096, help="of English, and as many of code (%(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8"], help=_PRECISIONS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer, config = PromptTokenizer(options.model), ModelConfig.from_directory(options.model)
    texts = {"english": english(), "code": code()}
    kinds = {kind: windows(tokenizer, found, options.tokens) for kind, found in texts.items()}
    held_to, missed = None, False
    for precision in options.precisions:
        knobs = EngineConfig(model_dir=str(options.model), tokens_per_block=BLOCK_SIZE, **_knobs(precision))
        numbers = cpu_numbers(knobs, config.head_dim)
        operations = numbers.operations(options.threads)
        weights = load_weights(options.model, config, progress=False, pack=operations.pack_linear)
        means = measure(Decoder(config, weights, operations), kinds, numbers.pool)
        held_to = held_to or means["all"]
        worse = means["all"] / held_to - 1
        missed |= worse > QUALITY_LINE
        line = {"model": options.model.name, "weight_precision": numbers.weights}
        line |= {"activation_precision": numbers.activations, "pool": str(numbers.pool)}
        line["worse_by"] = round(worse, 6)
        line |= {f"tokens_{kind}": (WINDOW - 1) * len(found) for kind, found in kinds.items()}
        print(json.dumps(line | {f"nll_{kind}": round(mean, 5) for kind, mean in means.items()}), flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
