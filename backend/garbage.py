"""Python's cyclic collector, set up for a process that serves for days and allocates tuples by the million."""

from __future__ import annotations

import gc

_THRESHOLDS = (50_000, 20, 50)
"""New containers before a young collection, and so on. At Python's 700 a busy engine collects in every step."""


def settle() -> None:
    """Collect once, leave what is loaded out of all later rounds, and make those rare.

    Without it they cost a third of the scheduler's time with a thousand sequences (``scripts/simulate cost``).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def collect_all() -> None:
    """Collect what nothing refers to any more, that which ``settle`` left out, too."""
    gc.unfreeze()
    gc.collect()
