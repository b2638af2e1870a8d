"""Values for an input, by its declaration: what a client would send, and what none should.

An input is known by its name where it is one of those below, else by its type alone, so a new one is fuzzed by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from backend.serving.entries import retention
from backend.serving.entries.refusals import UNSERVED
from scripts.interface_table.configs import Tensor
from tests.fuzz import texts
from tests.fuzz.wire import DTYPES, WireTensor, packed

VOCABULARY = 49152
"""Of SmolLM2's tokenizer, which the small model has too."""
_PREFIXES = ("runtime_", "sampling_param_")
_ids = st.integers(0, VOCABULARY - 1)


def _word_rows(words: Sequence[Sequence[int]]) -> list[int]:
    """[2, N] flat: ids, then where each word ends and -1."""
    ids = [token for word in words for token in word]
    ends = np.cumsum([len(word) for word in words]).tolist()
    return [*ids, *ends, *[-1] * (len(ids) - len(ends))]


def _bias(value: float) -> list[float]:
    return [value if place % 7 == 0 else 0.0 for place in range(VOCABULARY)]


_words = st.lists(st.lists(_ids, min_size=1, max_size=3), min_size=1, max_size=3).map(_word_rows)
_few = st.integers(1, 6).map(lambda n: [n])
_text_list = st.lists(st.sampled_from([b"", b"the", b"Paris", " é".encode(), b"\n"]), max_size=3)

SOUND: Mapping[str, st.SearchStrategy[Sequence[Any]]] = {
    "text_input": texts.prompts.map(lambda text: [text.encode()]),
    "input_ids": st.lists(_ids, min_size=1, max_size=12),
    "max_tokens": _few,
    "request_output_len": _few,
    "temperature": st.floats(0, 2, width=32).map(lambda x: [x]),
    "top_k": st.integers(0, 40).map(lambda n: [n]),
    "top_p": st.floats(0.125, 1, width=32).map(lambda x: [x]),
    "min_p": st.floats(0, 1, width=32).map(lambda x: [x]),
    "end_id": _ids.map(lambda n: [n]),
    "pad_id": _ids.map(lambda n: [n]),
    "num_return_sequences": st.integers(1, 3).map(lambda n: [n]),
    "repetition_penalty": st.floats(0.5, 2, width=32).map(lambda x: [x]),
    "presence_penalty": st.floats(-2, 2, width=32).map(lambda x: [x]),
    "frequency_penalty": st.floats(-2, 2, width=32).map(lambda x: [x]),
    "min_tokens": st.integers(0, 2).map(lambda n: [n]),
    "min_length": st.integers(0, 2).map(lambda n: [n]),
    "embedding_bias": st.floats(-9, 9, width=32).map(_bias),
    "embedding_bias_words": st.just([b"the", b"Paris"]),
    "embedding_bias_weights": st.just([1.0, -2.0]),
    "logit_bias_ids": st.just([5, 9]),
    "logit_bias_weights": st.just([3.0, -4.0]),
    "stop_words_list": _words,
    "bad_words_list": _words,
    "stop_token_ids": st.lists(_ids, max_size=4),
    "num_log_probs": st.integers(0, 5).map(lambda n: [n]),
    "priority": st.integers(0, 3).map(lambda n: [n]),
    "beam_width": st.integers(1, 2).map(lambda n: [n]),
    "length_penalty": st.sampled_from([[0.0], [1.0]]),
    "len_penalty": st.sampled_from([[0.0], [1.0]]),
    "early_stopping": st.just([True]),
    "beam_search_diversity_rate": st.just([0.0]),
    "runtime_top_p_min": st.just([0.0]),
    "runtime_top_p_decay": st.just([1.0]),
    "runtime_top_p_reset_ids": st.just([-1]),
    "best_of": st.just([1]),
    "stop_words": _text_list,
    "bad_words": _text_list,
    "stop": st.just([False]),
    "tenant": st.sampled_from([[b""], [b"a"], [b"b"]]),
    "cache_salt": st.sampled_from([[b""], [b"a"], [b"b"]]),
    "guided_decoding_guide_type": st.sampled_from([[kind.encode()] for kind in texts.GUIDES]),
    "guided_decoding_guide": st.sampled_from([[text.encode()] for kind in texts.GUIDES.values() for text in kind]),
    "sampling_parameters": texts.sampling_parameters(wild=False).map(lambda v: [texts.as_json(v).encode()]),
}
_FULL = {("sampling_param_stop", "BYTES"): "stop_words"}
"""Names whose end is another's: ``stop`` is a flag but here."""


def known_as(declared: Tensor) -> str:
    """The name by which SOUND may have the input."""
    name = _FULL.get((declared.name, declared.datatype), declared.name)
    for prefix in _PREFIXES:
        name = name if name in SOUND else name.removeprefix(prefix)
    return name


NEVER_SOUND = frozenset({*UNSERVED, *retention.NAMES})
"""Inputs that are refused whatever they say."""


def sound(declared: Tensor) -> st.SearchStrategy[Sequence[Any]]:
    """Flat values for one row, as a well-meaning client sends them."""
    name = known_as(declared)
    return SOUND[name] if name in SOUND else _of_type(declared)


def _of_type(declared: Tensor) -> st.SearchStrategy[Sequence[Any]]:
    count = int(np.prod([dim if dim > 0 else 2 for dim in declared.dims]))
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "BOOL": st.booleans(),
        "BYTES": texts.plain_text.map(str.encode),
        "FP16": st.floats(-2, 2, width=16),
        "FP32": st.floats(-2, 2, width=32),
    }
    each = kinds.get(declared.datatype, st.integers(0, 9))
    return st.lists(each, min_size=count, max_size=count)


def hostile(declared: Tensor) -> st.SearchStrategy[Sequence[Any]]:
    """Flat values of the right type that are out of every range, or as far as the type goes."""
    if declared.datatype == "BYTES":
        return _hostile_strings(declared)
    if declared.datatype == "BOOL":
        return st.lists(st.booleans(), max_size=3)
    dtype = np.dtype(DTYPES[declared.datatype])
    if dtype.kind == "f":
        edges = [np.nan, np.inf, -np.inf, -0.0, 1e-40, 3e38, -3e38, 1e-6, 0.0, 1.0, -1.0, 65504.0]
        one = st.sampled_from([float(np.asarray(edge).astype(dtype)) for edge in edges])
    else:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        edges = [-1, 0, 1, 65, 300, VOCABULARY - 1, VOCABULARY, 2**31 - 1, 2**63, low, high, high - 1]
        one = st.sampled_from([edge for edge in edges if low <= edge <= high]) | st.integers(low, high)
    few = st.lists(one, min_size=1, max_size=4)
    repeated = st.tuples(one, st.sampled_from([17, 257, 4097, 40_000])).map(lambda pair: [pair[0]] * pair[1])
    return st.one_of(one.map(lambda x: [x]), one.map(lambda x: [x]), few, repeated, st.just([]))


def _hostile_strings(declared: Tensor) -> st.SearchStrategy[Sequence[bytes]]:
    name = known_as(declared)
    if "guide" in name:
        one = texts.guides.map(str.encode) | texts.odd_bytes
    elif name == "sampling_parameters":
        wild = texts.sampling_parameters(wild=True).map(texts.as_json)
        one = st.one_of(wild, wild, texts.broken_json, texts.deep_json).map(
            lambda text: text.encode("utf-8", "surrogatepass")
        )
    else:
        one = texts.odd_bytes
    many = st.tuples(one, st.sampled_from([33, 129, 600])).map(lambda pair: [pair[0][:80]] * pair[1])
    return st.one_of(one.map(lambda x: [x]), one.map(lambda x: [x]), st.lists(one, max_size=3), many)


def shape_of(declared: Tensor, count: int, rows: int | None) -> tuple[int, ...]:
    """The wire shape for so many values in each row; rows: None where there is no batch dimension."""
    if len(declared.dims) == 2 and declared.dims[0] == 2:
        dims: tuple[int, ...] = (2, count // 2)
    elif len(declared.dims) == 2:
        last = declared.dims[1] if declared.dims[1] > 0 else 1
        dims = (count // last, last)
    else:
        dims = (count,)
    return dims if rows is None else (rows, *dims)


def whole(declared: Tensor, values: Sequence[Any], rows: int | None) -> WireTensor:
    """The tensor of these values, the same in each row."""
    shape = shape_of(declared, len(values), rows)
    each = packed(declared.datatype, values[: int(np.prod(shape[rows is not None :], dtype=np.int64))])
    return WireTensor(declared.name, declared.datatype, shape, each * (rows or 1))


@st.composite
def spoilt(draw: st.DrawFn, tensor: WireTensor) -> WireTensor:
    """The same with another shape, type, length or content, or without any."""
    way = draw(st.sampled_from(["shape", "rank", "type", "cut", "longer", "empty", "lengths", "noise"]))
    if way == "shape":
        dims = st.lists(st.sampled_from([0, 1, 2, 3, 70, -1, 2**31, 2**40]), max_size=4)
        return tensor._replace(shape=tuple(draw(dims)))
    if way == "rank":
        return tensor._replace(shape=draw(st.sampled_from([(1, *tensor.shape), tensor.shape[1:], (*tensor.shape, 1)])))
    if way == "type":
        return tensor._replace(datatype=draw(st.sampled_from([*DTYPES, "BF16", "STRING", "", "int32"])))
    if way == "cut":
        return tensor._replace(content=tensor.content[: draw(st.integers(0, max(len(tensor.content) - 1, 0)))])
    if way == "longer":
        return tensor._replace(content=tensor.content + draw(st.binary(min_size=1, max_size=9)))
    if way == "empty":
        return tensor._replace(shape=tuple(0 for _ in tensor.shape), content=b"")
    if way == "lengths":
        return tensor._replace(content=draw(st.sampled_from([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7fa", b"\x00"])))
    return tensor._replace(content=draw(st.binary(min_size=len(tensor.content), max_size=len(tensor.content))))
