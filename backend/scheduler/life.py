"""What happens to a sequence between its arrival and its end, for whoever watches."""

from __future__ import annotations

import enum
from collections.abc import Callable

from backend.request import Sequence


class Change(enum.StrEnum):
    """A step in a sequence's life. SWAPPED and DROPPED are the two kinds of preemption: its blocks are copied to host
    memory, or given up and to be computed again.
    """

    QUEUED = "queued"
    ADMITTED = "admitted"
    SWAPPED = "swapped"
    DROPPED = "dropped"
    RESUMED = "resumed"
    ENDED = "ended"


PREEMPTIONS = {Change.SWAPPED: "swap", Change.DROPPED: "recompute"}
"""Kinds of preemption, by the names that parameters and metrics give them."""

LifeWatch = Callable[[Sequence, Change], None]


def unwatched(sequence: Sequence, change: Change) -> None:
    """The watch where nobody looks."""
