"""The token sequences of a word: those that a tokenizer writes it with, inside a text and after a space."""

from pathlib import Path

import pytest

from backend.text.prompt_tokenizer import PromptTokenizer
from backend.text.spellings import Spellings
from backend.text.token_bytes import TokenBytes

PIECES = ["▁", "L", "o", "n", "d", "▁London", "on", "don", "\n", ".", "▁New", "▁York", "N", "ew"]


class PrefixEncoder:
    """Longest match first, as sentencepiece with a dummy prefix: a text begins with a space that nobody wrote."""

    def encode_plain(self, text: str) -> list[int]:
        left, ids = "▁" + text.replace(" ", "▁"), []
        while left:
            piece = max((p for p in PIECES if left.startswith(p)), key=len)
            ids.append(PIECES.index(piece))
            left = left[len(piece) :]
        return ids


def names(found: list[tuple[int, ...]]) -> list[list[str]]:
    return [[PIECES[token] for token in ids] for ids in found]


def test_a_tokenizer_that_puts_a_space_before_a_text_spells_a_word_inside_one_too() -> None:
    table = TokenBytes(
        tuple(piece.replace("▁", " ").encode() for piece in PIECES), byte_fallback=True, strips_first_space=True
    )
    spellings = Spellings(PrefixEncoder(), table)
    assert names(spellings.of("London")) == [["▁London"], ["L", "on", "don"]]
    assert names(spellings.of("New York")) == [["▁New", "▁York"], ["N", "ew", "▁York"]]


@pytest.fixture(scope="module")
def smollm2(smollm2_dir: Path) -> tuple[Spellings, TokenBytes, PromptTokenizer]:
    tokenizer, table = PromptTokenizer(smollm2_dir), TokenBytes.from_directory(smollm2_dir)
    return Spellings(tokenizer, table), table, tokenizer


@pytest.mark.parametrize("word", ["Paris", "Schwarzenegger", "New York", "don't", "é", "\n", "日本", " spaced", "😀"])
def test_every_spelling_of_a_byte_level_tokenizer_is_the_word_with_or_without_a_space(
    smollm2: tuple[Spellings, TokenBytes, PromptTokenizer], word: str
) -> None:
    spellings, table, tokenizer = smollm2
    found = spellings.of(word)
    assert {table.join(ids) for ids in found} == {word.encode(), f" {word}".encode()}
    assert len(set(found)) == len(found)
    # A spelling is what stands in the ids of a text that has the word.
    ids = tokenizer.encode(f"He said {word}")
    assert any(tuple(ids[len(ids) - len(one) :]) == one for one in found)
