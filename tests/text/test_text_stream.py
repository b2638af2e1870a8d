"""Streams: the chunks, joined, are the text, and none holds half a character or a piece of a stop string."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.text.text_stream import TextStream
from backend.text.token_bytes import TokenBytes

SINGLE_BYTES = TokenBytes(tuple(bytes([b]) for b in range(256)), byte_fallback=False, strips_first_space=False)
VARIED = "naïve 😀👩‍👩‍👧🇫🇷 देवनागरी 漢字 Привет  two  spaces\n\ttab don't ."


def table_of(cuts: list[bytes]) -> TokenBytes:
    return TokenBytes(tuple(cuts), byte_fallback=False, strips_first_space=False)


def stream(token_bytes: TokenBytes, ids: list[int], stops: list[str], every: int) -> list[str]:
    """Chunks as a client gets them, one for every ``every`` tokens and one at the end."""
    text, chunks = TextStream(token_bytes, stops), []
    for n, token in enumerate(ids):
        if text.push(token):
            break
        if n % every == every - 1:
            chunks.append(text.take(final=False).text(token_bytes))
    return [*chunks, text.take(final=True).text(token_bytes)]


@given(text=st.text(max_size=40) | st.just(VARIED), data=st.data(), every=st.integers(1, 8))
@settings(max_examples=200, deadline=None)
def test_chunks_join_to_the_text_however_bytes_are_cut_into_tokens(text: str, data: st.DataObject, every: int) -> None:
    left, cuts = text.encode(), []
    while left:
        size = data.draw(st.integers(1, 5))
        cuts.append(left[:size])
        left = left[size:]
    chunks = stream(table_of(cuts), list(range(len(cuts))), [], every)
    assert "".join(chunks) == text
    if "\ufffd" not in text:
        assert all("\ufffd" not in chunk for chunk in chunks)


@given(data=st.binary(max_size=30), every=st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_invalid_bytes_give_the_same_text_streamed_and_whole(data: bytes, every: int) -> None:
    assert "".join(stream(SINGLE_BYTES, list(data), [], every)) == data.decode("utf-8", "replace")


def test_an_invalid_byte_does_not_hold_up_what_follows_and_half_a_character_comes_out_at_the_end() -> None:
    assert stream(SINGLE_BYTES, list(b"\xf0A"), [], 1) == ["", "\ufffdA", ""]
    assert stream(SINGLE_BYTES, list("é".encode()[:1]), [], 1) == ["", "\ufffd"]


@pytest.mark.parametrize("every", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("stops", "shown"),
    [
        (["DEF GHI"], "abc "),
        (["F G"], "abc DE"),
        (["DEFX"], "abc DEF GHI jkl"),
        (["DEF", "DEF GHI"], "abc "),
        (["abc"], ""),
        (["jkl"], "abc DEF GHI "),
        (["never"], "abc DEF GHI jkl"),
    ],
)
def test_text_is_cut_before_the_stop_string_and_no_piece_of_it_is_ever_shown(
    stops: list[str], shown: str, every: int
) -> None:
    chunks = stream(SINGLE_BYTES, list(b"abc DEF GHI jkl"), stops, every)
    assert "".join(chunks) == shown


def test_a_stop_string_inside_one_token_cuts_that_token() -> None:
    assert stream(table_of([b"one STOP two"]), [0], ["STOP"], 1) == ["one "]


@pytest.mark.parametrize("stop", ["漢", "😀"])
def test_a_stop_string_of_several_bytes_is_found_across_tokens(stop: str) -> None:
    text = f"ab{stop}cd"
    assert "".join(stream(SINGLE_BYTES, list(text.encode()), [stop], 1)) == "ab"


def test_near_miss_is_released_at_once() -> None:
    text = TextStream(SINGLE_BYTES, ["DEFX"])
    chunks = []
    for byte in b"DEFG":
        text.push(byte)
        chunks.append(text.take(final=False).text(SINGLE_BYTES))
    assert chunks == ["", "", "", "DEFG"]


def test_spans_stay_short_in_a_long_stream() -> None:
    text = TextStream(SINGLE_BYTES)
    for n in range(5000):
        text.push(65 + n % 26)
        assert len(text.take(final=False).ids) == 1


def test_an_echoed_prompt_comes_first_and_loses_the_space_that_the_tokenizer_put_there() -> None:
    spm = TokenBytes((b" Hello", b" world"), byte_fallback=True, strips_first_space=True)
    echoed, continued = TextStream(spm, echo=[0]), TextStream(spm)
    for text in (echoed, continued):
        text.push(1)
    assert echoed.take(final=True).text(spm) == "Hello world"
    assert continued.take(final=True).text(spm) == " world"


def test_a_token_that_ends_the_sequence_is_no_text_even_where_it_has_a_word() -> None:
    table = table_of([b"Yes", b" END", b" sir"])
    text = TextStream(table, stop_strings=["END"], ends=frozenset({1}))
    assert [text.push(0), text.push(2), text.push(1)] == [False] * 3
    assert text.take(final=True).text(table) == "Yes sir"
    echoed = TextStream(table, echo=(0, 1), ends=frozenset({1}))
    echoed.push(2)
    assert echoed.take(final=True).text(table) == "Yes END sir", "a prompt is shown as it is"
