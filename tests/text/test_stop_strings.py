"""Stop strings against plain string search, for every cut into pieces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.text.stop_strings import StopStrings

words = st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=3)


def first_match(text: str, stops: list[str]) -> int | None:
    """Start of the match that is complete first, the longest of those complete at the same place: by plain search."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return min(starts)
    return None


def could_become(text: str, stops: list[str]) -> int:
    return max(n for n in range(max(map(len, stops))) if any(n < len(s) and text.endswith(s[:n]) for s in stops))


@given(text=st.text(alphabet="abc", max_size=30), stops=words, data=st.data())
@settings(max_examples=300, deadline=None)
def test_the_first_complete_match_is_found_and_the_held_back_tail_is_exact(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    watch, seen = StopStrings(stops), ""
    while seen != text:
        piece = text[len(seen) : len(seen) + data.draw(st.integers(1, 5))]
        seen += piece
        back = watch.push(piece.encode())
        assert (None if back is None else len(seen) - back) == first_match(seen, stops)
        if back is not None:
            return
        assert watch.held == could_become(seen, stops)


@pytest.mark.parametrize(
    ("stops", "text", "cut"),
    [
        (["DEF GHI"], "abc DEF GHI jkl", 4),
        (["F G"], "abc DEF GHI jkl", 6),
        (["DEFX"], "abc DEF GHI jkl", None),
        (["DEF", "DEF GHI"], "abc DEF GHI jkl", 4),
        (["aab"], "aaab", 1),
        (["aab", "b"], "aaab", 1),
        (["abc"], "abc DEF", 0),
        (["", "jkl"], "abc DEF GHI jkl", 12),
    ],
)
def test_known_cases(stops: list[str], text: str, cut: int | None) -> None:
    back = StopStrings(stops).push(text.encode())
    assert (None if back is None else len(text) - back) == cut
