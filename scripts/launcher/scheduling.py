"""How the system schedules the server's threads, where they share their cores with an engine that computes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def without_wake_up_preemption() -> Iterator[None]:
    """What this thread starts in the meantime, and all that comes of it, waits its turn when it wakes up (SCHED_BATCH).

    A thread of Triton Server's that executes a request wakes the one that fills the next batch a few microseconds
    before it is free for it. If the woken one gets a core at once, in the place of a thread that computes, it finds
    nobody free and looks again half a second later: a queue of requests stands as long, for an engine with nothing to
    do. Read in triton-inference-server/core, dynamic_batch_scheduler.cc, and seen with 2.51, where of 32 requests at
    once some came in up to four seconds late. One that lets the running thread have its turn comes late enough. And
    who computes is interrupted less often.

    Where the system does not allow it, everything is as it was before.
    """
    before, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    changed = before == os.SCHED_OTHER and _set(os.SCHED_BATCH, parameters)
    try:
        yield
    finally:
        if changed:
            _set(before, parameters)


def _set(policy: int, parameters: os.sched_param) -> bool:
    try:
        os.sched_setscheduler(0, policy, parameters)
    except PermissionError:
        return False
    return True
