import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import carray
from numba.core.errors import NumbaWarning

from kernels.cpu import jit
from kernels.cpu.jit import Kernel
from kernels.cpu.memory import longs
from kernels.cpu.team import Team, take_task

TASKS = 1000


def _count(arguments: Any, member: int, members: int) -> None:
    a = carray(arguments, (3,))
    done, seen = longs(a[1], 1000), longs(a[2], 16)
    seen[member] = members
    task = take_task(a[0], TASKS, member, members)
    while task < TASKS:
        done[task] += 1
        task = take_task(a[0], TASKS, member, members)


COUNT = Kernel(_count)


def run(team: Team, done: np.ndarray, seen: np.ndarray, **options: bool) -> None:
    COUNT.compile()
    team.run(COUNT, "3q", team.control, done.ctypes.data, seen.ctypes.data, **options)


@numba.njit
def _next(control: int, tasks: int, member: int, members: int) -> int:
    return take_task(control, tasks, member, members)  # type: ignore[no-any-return]


def test_a_member_takes_its_own_run_of_tasks_first_and_then_those_of_others() -> None:
    team = Team(3)  # whose workers find no kernel to run
    take = partial(_next, team.control, 10)
    assert [take(1, 3) for _ in range(4)] == [3, 4, 5, 6]
    assert [take(2, 3), take(0, 3), take(2, 3)] == [7, 0, 8]
    assert [take(1, 3) for _ in range(5)] == [9, 1, 2, 10, 10]
    assert [take(member, 3) for member in range(3)] == [10, 10, 10]
    team.close()


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_each_task_is_done_once_by_each_of_many_runs(threads: int) -> None:
    team = Team(threads)
    done, seen = np.zeros(TASKS, np.int64), np.zeros(16, np.int64)
    for _ in range(50):
        run(team, done, seen)
    assert (done == 50).all()
    assert set(seen.tolist()) <= {0, threads}
    assert seen[0] == threads  # the caller; the others may have come too late each time
    team.close()


def test_workers_that_fell_asleep_wake_up() -> None:
    team = Team(3)
    done, seen = np.zeros(TASKS, np.int64), np.zeros(16, np.int64)
    for pause in (0.0, 0.0003, 0.001, 0.05):  # around the moment when they stop spinning
        for _ in range(10):
            time.sleep(pause)
            run(team, done, seen)
    assert (done == 40).all()
    team.close()


def _slow_first_task(arguments: Any, member: int, members: int) -> None:
    a = carray(arguments, (3,))
    done, seen = longs(a[1], 1000), longs(a[2], 16)
    task = take_task(a[0], 100, member, members)
    while task < 100:
        if task == 0 or member > 0:
            for turn in range(100_000):
                done[task] += turn & 1
        seen[member] += 1
        task = take_task(a[0], 100, member, members)


SLOW = Kernel(_slow_first_task)


def test_a_run_ends_when_the_slowest_who_entered_has_left() -> None:
    team = Team(2)
    SLOW.compile()
    for _ in range(20):
        done, seen = np.zeros(TASKS, np.int64), np.zeros(16, np.int64)
        team.run(SLOW, "3q", team.control, done.ctypes.data, seen.ctypes.data)
        assert seen.sum() == 100
        assert set(done[:100].tolist()) <= {0, 50_000}
    team.close()


def test_a_run_alone_leaves_the_workers_alone() -> None:
    team = Team(2)
    done, seen = np.zeros(TASKS, np.int64), np.zeros(16, np.int64)
    run(team, done, seen, alone=True)
    assert (done == 1).all()
    assert seen[:2].tolist() == [1, 0]


def test_workers_end_with_their_team() -> None:
    before = set(threading.enumerate())  # a team of a test before may be about to end
    team = Team(4)
    own = set(threading.enumerate()) - before
    assert len(own) == 3
    del team
    for _ in range(200):
        if not own & set(threading.enumerate()):
            break
        time.sleep(0.01)
    assert not own & set(threading.enumerate())


def test_a_process_ends_though_its_team_is_alive() -> None:
    code = "from kernels.cpu.team import Team; team = Team(3); print('made')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "made\n"


def test_compiled_code_goes_to_the_first_place_that_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))  # no directory can be made in it
    monkeypatch.setattr(jit, "_SOURCES", tmp_path / "file" / "kernels")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    jit.cache_directory.cache_clear()
    try:
        assert jit.cache_directory().parent == tmp_path / "user" / "inflight-batcher" / "numba"
    finally:
        jit.cache_directory.cache_clear()


def test_in_a_workspace_an_operation_gets_its_two_pieces_in_turns_and_outside_it_new_ones() -> None:
    team = Team(1)
    with team.workspace():
        first, second, third = (team.empty("norm", 6, 4) for _ in range(3))
        other, wide, fewer = team.empty("sum", 6, 4), team.empty("norm", 6, 8), team.empty("norm", 2, 4)
        assert fewer.shape == (2, 4)
        more = [team.empty("norm", 9, 4) for _ in range(2)]
    assert first.data_ptr() == third.data_ptr()
    held = [first, second, other, wide, *more, team.empty("norm", 6, 4)]
    assert len({tensor.data_ptr() for tensor in held}) == len(held)
    assert fewer.data_ptr() == second.data_ptr()
    assert [tensor.shape for tensor in more] == [(9, 4)] * 2


def test_code_that_could_not_be_kept_is_refused() -> None:
    table = np.zeros(1 << 18)  # so large that it stays where it is

    def kernel(arguments: Any, member: int, _members: int) -> None:
        carray(arguments, (1,))[0] = table[member]

    with pytest.raises(NumbaWarning, match="Cannot cache"):
        Kernel(kernel).compile()
