"""What a guide's repetitions come to is counted as by hand, and in a time that its length bounds."""

import pytest

from backend.text.guide_size import elements


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        ("", 0),
        ("abc", 3),
        ("a{3}(b[cd]{2}){10}", 3 + 3 * 10),
        ("a{99999999}", 99999999),
        ("(a{1000}){1000}", 10**6),
        ("((a{10}|b){10}c){10}", (11 * 10 + 1) * 10),
        ("a{2}{3}", 6),
        ("a{,5}", 5),
        ("a{2,}", 2),
        ("a{2,7}", 7),
        ("a{0}", 1),
        ("é{4}", 4),
        ("[{9999}]{3}", 3),
        (r"[\]{99}]{3}", 3),
        ("[]a]{4}[^]a]{4}", 8),
        (r"\{99", 3),
        ("{5}", 0),
        ("((((", 0),
        ("a)b{3}", 5),
        ("(a{1000})+{1000}", 10**6),
        ("(a{30}){30}?", 900),
    ],
)
def test_the_count_is_that_of_a_hand(expression: str, count: int) -> None:
    assert elements(expression) == count


@pytest.mark.parametrize(
    ("piece", "each"),
    [("(", 0), ("[", 1), ("{", 1), ("{1", 2), ("[\\]", 2), ("[[", 2), ("\\][", 2), ("{1,", 3), ("[^", 2), ("a{1}", 1)],
)
def test_what_is_not_closed_is_looked_for_once_so_that_a_long_text_is_counted_at_all(piece: str, each: int) -> None:
    """A search from each of so many places would take hours."""
    assert elements(piece * 100_000) == each * 100_000
