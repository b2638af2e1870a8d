"""Lists of token sequences as TensorRT-LLM's clients send them: INT32 ``[2, N]``.

    row 0    ids of all words, one word after the other, then padding
    row 1    where each word ends in row 0, then -1

A list without words is all padding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from backend.errors import InvalidRequest
from backend.sampling_params import MAX_WORD_IDS, MAX_WORDS, Words
from backend.serving.inputs import Inputs


def words_of(inputs: Inputs, name: str) -> Words:
    """The words of an input ``[2, N]`` or ``[1, 2, N]``; () when absent. Raises InvalidRequest."""
    if name not in inputs:
        return ()
    shown = inputs.shown(name)
    rows = inputs.array(name)
    if rows.ndim == 3 and rows.shape[0] == 1:
        rows = rows[0]
    if rows.ndim != 2 or rows.shape[0] != 2:
        raise InvalidRequest(shown, f"shape {list(rows.shape)}, expected is [2, N]")
    if rows.shape[1] > MAX_WORDS * MAX_WORD_IDS:
        raise InvalidRequest(shown, f"{rows.shape[1]} ids, at most {MAX_WORDS * MAX_WORD_IDS} are allowed")
    ids, offsets = rows.tolist()
    ends = offsets[: offsets.index(-1)] if -1 in offsets else offsets
    if any(offset != -1 for offset in offsets[len(ends) :]):
        raise InvalidRequest(shown, "an offset after the padding, -1")
    return tuple(_cut(shown, ids, ends))


def _cut(shown: str, ids: list[int], ends: list[int]) -> list[tuple[int, ...]]:
    words, start = [], 0
    for end in ends:
        if not start < end <= len(ids):
            raise InvalidRequest(shown, f"offset {end} ends no word: {start} is before it, {len(ids)} ids there are")
        words.append(tuple(ids[start:end]))
        start = end
    return words


def as_rows(words: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    """The list ``[2, N]`` of these words."""
    ids = [token for word in words for token in word]
    rows = np.full((2, len(ids)), -1, dtype=np.int32)
    rows[0] = ids
    rows[1, : len(words)] = np.cumsum([len(word) for word in words])
    return rows
