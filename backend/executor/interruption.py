"""How a step that computes a prompt is ended early, for someone more urgent than all who are in it."""

from __future__ import annotations

from backend.errors import StepInterruptedError

_NOBODY = 0  # no level is more urgent


class Interruption:
    """``begin`` and ``end`` enclose each step; ``check`` stands between its layers; ``interrupt`` comes from anywhere.

    The flag is one attribute, set by whoever arrives and read by the thread that computes: at worst a step ends a
    layer later.
    """

    def __init__(self) -> None:
        self._level = _NOBODY
        self._asked = False

    def begin(self, most_urgent: int | None) -> None:
        """A step is launched. most_urgent: level of the most urgent in it; None if it is to run to its end."""
        self._asked = False
        self._level = _NOBODY if most_urgent is None else most_urgent

    def end(self) -> None:
        """The step has come to its end."""
        self._level = _NOBODY

    def interrupt(self, level: int) -> None:
        """Someone of this level has arrived."""
        if level < self._level:
            self._asked = True

    def check(self) -> None:
        """Raise StepInterruptedError if someone more urgent has arrived in this step."""
        if self._asked:
            self._asked = False
            raise StepInterruptedError
