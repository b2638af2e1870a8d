"""docs/interfaces.md: one row per input with its meaning, range, default and the entries that take it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from backend.serving.entries import vllm_parameters
from scripts.interface_table.configs import ENTRIES, Model, Tensor, models
from scripts.interface_table.meanings import INPUTS, Meaning
from scripts.interface_table.output_meanings import OUTPUTS
from scripts.interface_table.vllm_meanings import VLLM_KEYS

PLACE = Path(__file__).resolve().parents[2] / "docs" / "interfaces.md"
_HEAD = """# Inputs and outputs

Written by `scripts/interfaces` from the models' config.pbtxt files and `scripts/interface_table/*meanings.py`; a test
compares it with what they say now. Wire shapes have a batch dimension in front (`[1, 1]` for one number), except those
of `vllm_model` and `llmapi`, which have none (`[1]`).

An input out of its range is refused with an error that names it, its value and what is allowed. An input that is
"refused" is declared only so that the refusal can say why. Unknown inputs are refused, too.
"""


def document() -> str:
    """The whole file. Raises KeyError for a declared tensor without a meaning."""
    found = models()
    entries = {name: model for name, model in found.items() if name in ENTRIES}
    inside = {name: model for name, model in found.items() if name not in ENTRIES}
    parts = [
        _HEAD,
        "## Inputs\n",
        _table(("input", "type", "meaning", "range", "default", "entries"), _inputs(entries)),
        "## Keys of `sampling_parameters` (`vllm_model`)\n",
        "A JSON object; numbers and truth values may be strings, null means not given. The request's custom\n"
        "parameters (further keys of `/generate`) are read in the same way.\n",
        _table(("key", "meaning", "range", "default"), _vllm_keys()),
        "## Outputs\n",
        _table(("output", "type", "meaning", "entries"), _outputs(entries)),
        "## Between the models\n",
        "Inputs of the models behind the ensembles; no client sends them.\n",
        _table(("input", "type", "meaning", "range", "default", "models"), _inputs(inside)),
    ]
    return "\n".join(parts)


def _inputs(found: Mapping[str, Model]) -> list[tuple[str, ...]]:
    rows = []
    for name, by_model in _by_name({m.name: m.inputs for m in found.values()}).items():
        meaning, types = INPUTS[name], _types(by_model)
        words = (meaning.text, meaning.range, _default(meaning, by_model))
        rows.append((f"`{name}`", types, *words, _names(by_model)))
    return rows


def _outputs(found: Mapping[str, Model]) -> list[tuple[str, ...]]:
    by_name = _by_name({m.name: m.outputs for m in found.values()})
    return [(f"`{name}`", _types(tensors), OUTPUTS[name], _names(tensors)) for name, tensors in by_name.items()]


def _vllm_keys() -> list[tuple[str, ...]]:
    refused = {key: Meaning(f"refused: {each.why}", _neutral(each)) for key, each in vllm_parameters.UNSERVED.items()}
    known = {key: VLLM_KEYS[key] for key in sorted(vllm_parameters.KNOWN - refused.keys())} | refused
    return [(f"`{key}`", meaning.text, meaning.range, meaning.default) for key, meaning in known.items()]


def _neutral(unserved: vllm_parameters.Unserved) -> str:
    values = [value for value in unserved.neutral if not isinstance(value, str)]
    return "null" + "".join(f", {str(value).lower()}" for value in values)


def _by_name(declared: Mapping[str, Iterable[Tensor]]) -> dict[str, dict[str, Tensor]]:
    """Tensor name -> model -> declaration, in the order in which the models first name them."""
    found: dict[str, dict[str, Tensor]] = {}
    for model, tensors in declared.items():
        for tensor in tensors:
            found.setdefault(tensor.name, {})[model] = tensor
    return found


def _types(by_model: Mapping[str, Tensor]) -> str:
    """Type and dims; where an entry differs from the first one, its own are named."""
    shown = {model: f"{t.datatype} [{', '.join(map(str, t.dims))}]" for model, t in by_model.items()}
    first = next(iter(shown.values()))
    return "; ".join([first, *(f"{model}: {each}" for model, each in shown.items() if each != first)])


def _default(meaning: Meaning, by_model: Mapping[str, Tensor]) -> str:
    requiring = [model for model, tensor in by_model.items() if tensor.required]
    if not requiring:
        return meaning.default
    return "required" if len(requiring) == len(by_model) else f"required by {', '.join(requiring)}"


def _names(by_model: Mapping[str, Tensor]) -> str:
    return ", ".join(by_model)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
