"""Times one decoder step on this CPU: the reference operations, compiled float32 and compiled int8, in turns.

Prints one JSON line per batch: milliseconds of the fastest of some runs of each, and their ratio to the reference.
Only ratios within one run compare; the machine may be busy.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from backend.kv.storage import KVLayout, allocate  # noqa: E402
from backend.model.batch import StepInputs  # noqa: E402
from backend.model.config import ModelConfig  # noqa: E402
from backend.model.decoder import Decoder  # noqa: E402
from backend.model.weights import load_weights  # noqa: E402
from kernels.table import Operations, cpu_operations, reference_operations  # noqa: E402

BLOCK_SIZE = 16
TABLES: dict[str, Callable[[int], Operations]] = {
    "reference": lambda threads: reference_operations(),
    "float32": lambda threads: cpu_operations(threads, "float32"),
    "int8": lambda threads: cpu_operations(threads, "int8"),
}


def batch(sequences: int, rows: int, keys: int) -> StepInputs:
    """``sequences`` of ``rows`` new rows each, with ``keys`` keys after the step; blocks in a shuffled order."""
    blocks = -(-keys // BLOCK_SIZE)
    tables = (torch.randperm(sequences * blocks) + 1).view(sequences, blocks).int()
    positions = torch.arange(keys - rows, keys).repeat(sequences)
    owner = torch.arange(sequences).repeat_interleave(rows)
    return StepInputs(
        token_ids=torch.randint(0, 10_000, (sequences * rows,)),
        positions=positions,
        query_start=torch.arange(sequences + 1, dtype=torch.int32) * rows,
        kv_lengths=torch.full((sequences,), keys, dtype=torch.int32),
        block_tables=tables,
        slot_mapping=tables[owner, positions // BLOCK_SIZE].long() * BLOCK_SIZE + positions % BLOCK_SIZE,
        logit_rows=torch.arange(1, sequences + 1) * rows - 1,
    )


def pool_of(config: ModelConfig, inputs: StepInputs) -> Tensor:
    """A pool filled with something, as a cache in use is."""
    layout = KVLayout(
        num_layers=config.num_layers, num_kv_heads=config.num_kv_heads, head_dim=config.head_dim, block_size=BLOCK_SIZE
    )
    return allocate(layout, int(inputs.block_tables.max()) + 1).normal_()


def measure(decoders: dict[str, Decoder], threads: int, shape: tuple[int, int, int], repeats: int) -> dict[str, float]:
    """Milliseconds of each decoder's fastest step. torch's threads rest while the compiled operations run."""
    inputs = batch(*shape)
    pool = pool_of(next(iter(decoders.values())).config, inputs)
    best = dict.fromkeys(decoders, float("inf"))
    for _ in range(repeats):
        for name, decoder in decoders.items():
            torch.set_num_threads(threads if name == "reference" else 1)
            decoder.forward(inputs, pool)
            began = time.perf_counter()
            decoder.forward(inputs, pool)
            best[name] = min(best[name], (time.perf_counter() - began) * 1000)
    return best


def main() -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=REPOSITORY / ".cache/models/SmolLM2-135M-Instruct")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--keys", type=int, default=200, help="keys per decoding sequence (%(default)s)")
    parser.add_argument("--sequences", type=int, nargs="*", default=[1, 8, 32, 64])
    parser.add_argument("--prompts", type=int, nargs="*", default=[512], help="lengths of lone prompts")
    options = parser.parse_args()
    torch.manual_seed(0)
    config = ModelConfig.from_directory(options.model)
    decoders = {}
    for name in options.tables:
        operations = TABLES[name](options.threads)
        weights = load_weights(options.model, config, progress=False, pack=operations.pack_linear)
        decoders[name] = Decoder(config, weights, operations)
    shapes = [(count, 1, options.keys) for count in options.sequences] + [(1, n, n) for n in options.prompts]
    for shape in shapes:
        best = measure(decoders, options.threads, shape, options.repeats)
        line = {"sequences": shape[0], "rows_each": shape[1], "keys_each": shape[2]}
        print(json.dumps(line | {f"{name}_ms": round(value, 2) for name, value in best.items()}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
