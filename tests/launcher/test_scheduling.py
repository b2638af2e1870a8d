"""The system's scheduling policy of what the launcher starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.launcher import leftovers
from scripts.launcher.from_outside import mark_of, server_of
from scripts.launcher.scheduling import without_wake_up_preemption
from tests.server_fixture import RunningServer

from .tiny_models import add_model

POLICY = "import os; print(os.sched_getscheduler(0))"


def policy_of_a_child() -> int:
    return int(subprocess.run([sys.executable, "-c", POLICY], capture_output=True, check=True).stdout)


def test_what_is_started_meanwhile_waits_its_turn_and_nothing_after_it() -> None:
    with without_wake_up_preemption():
        assert policy_of_a_child() == os.SCHED_BATCH
    assert (os.sched_getscheduler(0), policy_of_a_child()) == (os.SCHED_OTHER, os.SCHED_OTHER)


def test_a_policy_that_somebody_has_chosen_stays() -> None:
    """``chrt --idle 0 scripts/serve``, say."""
    idle = "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))"
    shown = "import os; from scripts.launcher.scheduling import without_wake_up_preemption as meanwhile\n" + idle
    shown += "\nwith meanwhile(): print(os.sched_getscheduler(0))\nprint(os.sched_getscheduler(0))"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(os.SCHED_IDLE)] * 2


def test_where_the_system_refuses_it_the_policy_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("as a container's seccomp profile may")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with without_wake_up_preemption():
        assert policy_of_a_child() == os.SCHED_OTHER


@pytest.mark.server
def test_every_thread_of_a_server_and_of_its_models_waits_its_turn(tmp_path: Path) -> None:
    with RunningServer.start(model_repository=add_model(tmp_path, "echo")) as server:
        mark = mark_of(server.process.pid)
        pids = leftovers.marked_processes(mark)
        assert server_of(mark) in pids
        assert len(pids) >= 2
        threads = [int(task.name) for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
        assert {os.sched_getscheduler(thread) for thread in threads} == {os.SCHED_BATCH}
        assert os.sched_getscheduler(server.process.pid) == os.SCHED_OTHER
