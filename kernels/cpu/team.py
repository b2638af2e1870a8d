"""A team of threads that runs compiled kernels together, one kernel after another.

Why not numba's own threads: its workqueue takes 70 us to begin and end a loop, and a decoder's step has some 250;
its OpenMP brings a second pool of spinning threads beside torch's. Here a worker spins for a moment after each
kernel, as the next one is rarely further than microseconds away, and then sleeps until it is woken.

    caller             publish, open   take tasks until none is left   close   wait for those who entered
    worker             spin or sleep        enter, take tasks, leave           spin or sleep
    a worker too late  (its core is busy with something else)          find it closed, spin or sleep

Nobody waits for a worker that has not entered: on cores that other processes use as well, the caller does the work
alone rather than wait for its turn to come.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from struct import pack_into
from typing import Any

import numba
import numpy as np
import torch
from numba.core import types
from torch import Tensor

from kernels.cpu.jit import Kernel, compile_cached, inline
from kernels.cpu.memory import exchange, fetch_add, invoke, load, longs, relax, store
from kernels.cpu.recording import Recording, Workspace, argument_block

# POSIX semaphores of the C library, at an address; Any, as numba's stubs do not know what compiled code may call.
_sem_post: Any = types.ExternalFunction("sem_post", types.int32(types.int64))
_sem_wait: Any = types.ExternalFunction("sem_wait", types.int32(types.int64))
_sem_init: Any = types.ExternalFunction("sem_init", types.int32(types.int64, types.int32, types.uint32))
_sched_yield: Any = types.ExternalFunction("sched_yield", types.int32())

_LINE = 64  # bytes of a cache line; words that different threads write lie on different lines
# Byte offsets into the control block. Behind come three lines of each member: how many of its tasks are taken, and
# of a worker its sleep flag and its semaphore.
_GENERATION, _ENTERED, _LEFT, _CODE, _ARGUMENTS, _MEMBERS = (line * _LINE for line in range(6))
_OF_MEMBER = 3 * _LINE
_CLOSED = 1 << 32  # what _ENTERED counts on from once the caller has closed the kernel
_SPINS, _BEFORE_YIELD = 20_000, 2_000  # turns of some 15 ns: 0.3 ms until a worker sleeps


@inline
def _flag(control: int, member: int) -> int:
    """Address of a worker's sleep flag; its semaphore is on the next line."""
    return _taken(control, member) + _LINE


@inline
def _taken(control: int, member: int) -> int:
    """Address of the number of a member's own tasks that have been taken."""
    return control + _MEMBERS + member * _OF_MEMBER


@inline
def take_task(control: int, tasks: int, member: int, members: int) -> Any:
    """One of the running kernel's tasks ``0 ... tasks - 1`` that nobody has; ``tasks`` when there is none left.

    Each member has a run of neighbouring tasks of its own and, once it is through with them, takes those of others.
    Where tasks go up with the rows of a batch, a member so meets in one kernel the rows that it wrote in the one
    before: they are in its core's cache, and the cores of a machine may share none.
    """
    for turn in range(members):
        owner = (member + turn) % members
        first = tasks * owner // members
        count = tasks * (owner + 1) // members - first
        taken = _taken(control, owner)
        if load(taken) < count:
            task = fetch_add(taken, 1)
            if task < count:
                return first + task
    return tasks


@inline
def _await_job(control: int, member: int, seen: int) -> Any:
    """Wait until there is another generation than ``seen``; return it."""
    spins = 0
    while load(control + _GENERATION) == seen:
        relax()
        spins += 1
        if spins > _SPINS:
            # The flag goes up before the last look, as the caller looks at it after its store: one of the two sees.
            store(_flag(control, member), 1)
            if load(control + _GENERATION) == seen:
                _sem_wait(_flag(control, member) + _LINE)
            elif exchange(_flag(control, member), 0) == 0:
                _sem_wait(_flag(control, member) + _LINE)  # the caller has posted already
            spins = 0
    return load(control + _GENERATION)


def _serve(control: int, member: int, members: int) -> None:
    """The life of a worker: until a job without code comes."""
    seen = 0
    while True:
        seen = _await_job(control, member, seen)
        if fetch_add(control + _ENTERED, 1) >= _CLOSED:
            continue
        # Read only now: whoever has entered may read the job, even if it is a later one than the one seen.
        code = load(control + _CODE)
        if code == 0:
            break
        invoke(code, load(control + _ARGUMENTS), member, members)
        fetch_add(control + _LEFT, 1)


@inline
def _publish(control: int, code: int, arguments: int, members: int) -> None:
    store(control + _CODE, code)
    store(control + _ARGUMENTS, arguments)
    for member in range(members):
        store(_taken(control, member), 0)
    store(control + _LEFT, 0)
    store(control + _ENTERED, 0)
    fetch_add(control + _GENERATION, 1)
    for member in range(1, members):
        if exchange(_flag(control, member), 0) == 1:
            _sem_post(_flag(control, member) + _LINE)


@inline
def _run_one(control: int, code: int, arguments: int, members: int) -> None:
    """Run one kernel to its end with up to ``members`` members, the caller among them."""
    if members == 1:
        store(_taken(control, 0), 0)
        invoke(code, arguments, 0, 1)
        return
    _publish(control, code, arguments, members)
    invoke(code, arguments, 0, members)
    entered = exchange(control + _ENTERED, _CLOSED)
    spins = 0
    while load(control + _LEFT) < entered:
        relax()
        spins += 1
        if spins > _BEFORE_YIELD:
            _sched_yield()


def _run(control: int, code: int, arguments: int, members: int) -> None:
    _run_one(control, code, arguments, members)


def _run_all(control: int, calls: Any, count: int) -> None:
    """Run ``[count, 3]`` calls, (code, arguments, members) each, one after another."""
    words = longs(calls, count * 3)
    for n in range(0, count * 3, 3):
        _run_one(control, words[n], words[n + 1], words[n + 2])


def _open(control: int, members: int) -> None:
    store(control + _ENTERED, _CLOSED)
    for member in range(1, members):
        _sem_init(_flag(control, member) + _LINE, 0, 0)


def _close(control: int, members: int) -> None:
    _publish(control, 0, 0, members)


def _entry(function: Any, words: int) -> Any:
    signature = types.void(*[types.int64] * words)
    name = f"{__name__}.{function.__name__}"
    options = {"nogil": True, "cache": True, "error_model": "numpy"}
    return compile_cached(name, lambda: numba.njit(signature, **options)(function))


class Team:
    """Threads for one engine. Not for use by two threads at a time."""

    def __init__(self, num_threads: int, niceness: int = 0) -> None:
        """Start ``num_threads - 1`` workers; the caller of ``run`` is the last member. niceness: of the workers."""
        self.num_threads = num_threads
        self._memory = np.zeros(_LINE + _MEMBERS + num_threads * _OF_MEMBER, dtype=np.uint8)
        # Kernels find the counter of their tasks here, so it goes into their arguments.
        self.control = -(-self._memory.ctypes.data // _LINE) * _LINE
        self._words, self._arguments = argument_block()
        self._run, self._run_all = _entry(_run, 4), _entry(_run_all, 3)
        self._recording: Recording | None = None
        self._workspace, self._in_workspace = Workspace(), False
        serve, close = _entry(_serve, 3), _entry(_close, 2)
        _entry(_open, 2)(self.control, num_threads)
        for member in range(1, num_threads):
            arguments = (serve, self._memory, self.control, member, num_threads, niceness)
            threading.Thread(target=_work, args=arguments, name=f"kernels-{member}", daemon=True).start()
        self._finalizer = weakref.finalize(self, close, self.control, num_threads)
        self._finalizer.atexit = False  # workers are daemons: the process's end ends them

    def run(self, kernel: Kernel, layout: str, *arguments: float, alone: bool = False) -> None:
        """Run a kernel to its end; alone where the work is too little to share.

        Args:
            kernel: compiled.
            layout: the kinds of the arguments for ``struct``: q for an integer, d for a float.
            arguments: at most 64.
            alone: the caller does all the work.
        """
        if self._recording is not None:
            self._words, self._arguments = self._recording.arguments()
        pack_into(layout, self._words, 0, *arguments)
        self.again(kernel, alone=alone)

    def again(self, kernel: Kernel, *, alone: bool = False) -> None:
        """Run a kernel on the arguments of the one before."""
        members = 1 if alone else self.num_threads
        if self._recording is not None:
            self._recording.add(kernel.address, self._arguments, members)
        self._run(self.control, kernel.address, self._arguments, members)

    def empty(self, user: str, *shape: int) -> Tensor:
        """Float32 memory for what an operation gives, whose name is ``user``."""
        if self._recording is not None:
            return self._recording.empty(user, shape)
        return self._workspace.empty(user, shape) if self._in_workspace else torch.empty(shape)

    def keep(self, *tensors: Tensor) -> None:
        """Memory that a kernel was just given and nobody else may hold for long."""
        if self._recording is not None:
            self._recording.keep(*tensors)

    @property
    def recorded(self) -> bool:
        """Whether what runs now will run again, on other values."""
        return self._recording is not None

    @contextmanager
    def workspace(self) -> Iterator[None]:
        """Until the end of the context, results go where those of earlier ones were: see ``Workspace``."""
        self._in_workspace = True
        try:
            yield
        finally:
            self._in_workspace = False

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Record the kernels that run until the end of the context."""
        before = self._words, self._arguments
        self._recording = recording = Recording()
        try:
            yield recording
        finally:
            self._recording = None
            self._words, self._arguments = before

    def replay(self, recording: Recording) -> None:
        """Run all kernels of a recording again, on what their memory holds now."""
        self._run_all(self.control, *recording.calls())

    def close(self) -> None:
        """End the workers."""
        self._finalizer()


def _work(serve: Any, _memory: Any, control: int, member: int, members: int, niceness: int) -> None:
    """A worker's thread. It holds the control block's memory for as long as it looks at it."""
    if niceness:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
    serve(control, member, members)
