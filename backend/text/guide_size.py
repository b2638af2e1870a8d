"""How large a regular expression is with its repetitions written out: known before a library does so for minutes.

Counted are elements (a character, a class, an escape) times the counts of all repetitions around them:

    a{3}(b[cd]{2}){10}      3 + (1 + 2) * 10 = 33
"""

from __future__ import annotations

import re

MAX_ELEMENTS = 50_000
"""llguidance takes a tenth of a second for so many one after the other, and for ever for some nested ones of 10^7."""
_REPEAT = re.compile(r"\{\s*(\d*)\s*(?:,\s*(\d*)\s*)?\}")
_CLASS_BEGINS = re.compile(r"\[\^?\]?")
_CLASS_GOES_ON = re.compile(r"(?:[^\]\\]|\\.)*+\]", re.DOTALL)
_MOST_DIGITS = 9


def elements(expression: str) -> int:
    """Of a regular expression; what is ill-formed counts as it stands."""
    sums, last, at = [0], 0, 0
    classes = True
    while at < len(expression):
        char = expression[at]
        if char in "?*+":  # of what stands before, which a repetition may follow yet
            at += 1
            continue
        end, size = at + 1, int(char != "|")
        if char == "(":
            sums.append(0)
            size = 0
        elif char == ")" and len(sums) > 1:
            size = sums.pop()
        elif char == "\\":
            end = at + 2
        elif char == "[" and classes:
            end = _end_of_class(expression, at)
            classes = end > 0  # else no class ends behind this place, and none is looked for
            end = end or at + 1
        elif char == "{" and (found := _REPEAT.match(expression, at)):
            end, size = found.end(), last * (_count(found) - 1)
        sums[-1] += size
        last, at = size if char != "{" else last + size, end
    return sum(sums)


def _end_of_class(expression: str, start: int) -> int:
    """Where the class that begins here ends; 0 if it does not."""
    begun = _CLASS_BEGINS.match(expression, start)
    assert begun is not None
    found = _CLASS_GOES_ON.match(expression, begun.end())
    return found.end() if found else 0


def _count(found: re.Match[str]) -> int:
    """The larger of the two numbers, at least 1."""
    return max(1, *(int(digits[:_MOST_DIGITS]) for digits in found.groups() if digits), 0)
