"""Words as text -> token ids: what clients of the ensemble write, as the engine takes it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.errors import InvalidRequest
from backend.sampling_params import MAX_WORD_IDS
from backend.serving.inputs import Inputs, word_list
from backend.serving.word_lists import as_rows
from backend.text.spellings import Spellings

MAX_WORDS = 128
MAX_WORD_BYTES = 1024


def word_outputs(inputs: Inputs, spellings: Spellings) -> dict[str, NDArray[Any]]:
    """Outputs of preprocessing, without the batch dimension, for the words that were given. Raises InvalidRequest.

    Bad words are forbidden in every spelling. A bias goes to the spellings of one token where there are any; else to
    all tokens of the word as it was written, as TensorRT-LLM does it.
    """
    outputs: dict[str, NDArray[Any]] = {}
    if bad := _words(inputs, "BAD_WORDS_DICT"):
        outputs["BAD_WORDS_IDS"] = as_rows([ids for word in bad for ids in _spelt(inputs, word, spellings)])
    if bias := _bias(inputs, spellings):
        outputs["LOGIT_BIAS_IDS"] = np.array(list(bias.keys()), dtype=np.int32)
        outputs["LOGIT_BIAS_WEIGHTS"] = np.array(list(bias.values()), dtype=np.float32)
    return outputs


def _words(inputs: Inputs, name: str) -> list[str]:
    words, shown = word_list(inputs.strings(name)), inputs.shown(name)
    if len(words) > MAX_WORDS:
        raise InvalidRequest(shown, f"{len(words)} words, at most {MAX_WORDS} are allowed")
    for word in words:
        if len(word.encode()) > MAX_WORD_BYTES:
            raise InvalidRequest(shown, f"{len(word.encode())} bytes, at most {MAX_WORD_BYTES} are allowed")
    return words


def _spelt(inputs: Inputs, word: str, spellings: Spellings) -> list[tuple[int, ...]]:
    found = spellings.of(word)
    longest = max(len(ids) for ids in found)
    if longest > MAX_WORD_IDS:
        raise InvalidRequest(
            inputs.shown("BAD_WORDS_DICT"), f"a word of {longest} tokens, at most {MAX_WORD_IDS} are allowed"
        )
    return found


def _bias(inputs: Inputs, spellings: Spellings) -> dict[int, float]:
    """Token id -> weight. A word that occurs twice, or whose token another word has too, adds up."""
    names = ("EMBEDDING_BIAS_WORDS", "EMBEDDING_BIAS_WEIGHTS")
    given = inputs.strings(names[0])
    weights = inputs.array(names[1]).reshape(-1).tolist() if names[1] in inputs else []
    if len(given) != len(weights):
        raise InvalidRequest(inputs.shown(names[1]), f"{len(weights)} weights for {len(given)} words")
    _words(inputs, names[0])
    bias: dict[int, float] = {}
    for word, weight in zip(given, weights, strict=True):
        for token in _biased(word, spellings) if word else ():
            bias[token] = bias.get(token, 0.0) + weight
    return bias


def _biased(word: str, spellings: Spellings) -> set[int]:
    found = spellings.of(word)
    single = {ids[0] for ids in found if len(ids) == 1}
    return single or set(found[0])
