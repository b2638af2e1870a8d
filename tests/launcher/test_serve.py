"""scripts/serve.py with a real Triton Server and models of a few lines."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from scripts.launcher import leftovers
from scripts.launcher.from_outside import mark_of, server_of, stub_of, stubs_of
from scripts.launcher.server import LOOK_SECONDS
from tests.server_fixture import STARTED_AGAIN, RunningServer, ServerStartError, command_line

from .tiny_models import (
    ANSWER_CONFIG,
    ANSWERS,
    BUSY,
    DIES_LOADING,
    ECHO_CONFIG,
    FAILS,
    LOADS_SLOWLY,
    REFUSES,
    WARM_CONFIG,
    add_model,
)

pytestmark = pytest.mark.server


def _ask_echo(server, words):
    tensor = {"name": "x", "shape": [len(words)], "datatype": "BYTES", "data": words}
    body = json.dumps({"inputs": [tensor]}).encode()
    with urllib.request.urlopen(f"{server.http_url}/v2/models/echo/infer", body, timeout=60) as reply:
        return json.load(reply)["outputs"][0]["data"]


def _left(mark):
    workspaces = list(Path(tempfile.gettempdir()).glob(f"{mark}*"))
    return leftovers.marked_processes(mark), leftovers.shared_memory(mark), workspaces


NOTHING = ([], [], [])
ANSWER = "The capital of France is|16"


def _wait_until_nothing_is_left(mark, seconds):
    deadline = time.monotonic() + seconds
    while _left(mark) != NOTHING and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _left(mark) == NOTHING


def _failed_start(repository, **options):
    """Exit code and the lines of standard error of a start that must fail."""
    line = command_line(model_repository=repository, **options)
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


def test_two_servers_serve_side_by_side_and_leave_nothing(tmp_path):
    repository = add_model(tmp_path, "echo")
    with (
        RunningServer.start(model_repository=repository) as one,
        RunningServer.start(model_repository=repository) as two,
    ):
        words = ["", "plain", "é ü 漢字", "x" * 5000]
        assert _ask_echo(one, words) == words
        assert _ask_echo(two, words) == words
        with urllib.request.urlopen(one.metrics_url) as page:
            assert "nv_inference_request_success" in page.read().decode()
        marks = [mark_of(server.process.pid) for server in (one, two)]
        assert len(leftovers.marked_processes(marks[0])) >= 2  # the detector below sees what it should
        assert leftovers.shared_memory(marks[0])
        assert one.stop(signal.SIGTERM) == 0
        assert _left(marks[0]) == NOTHING
        assert _ask_echo(two, words) == words
    assert two.stop() == 0
    assert _left(marks[1]) == NOTHING
    assert two.log().splitlines()[1:] == ["ending the server (Ctrl-C again: at once)"]


def test_a_port_in_use_is_told_in_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, lines = _failed_start(add_model(tmp_path, "echo"), grpc_port=port)
    assert code == 1
    assert lines[-1] == (
        f"error: port {port} on 127.0.0.1 is already in use; choose another with --grpc-port (0 = any free port)"
    )
    assert len(lines) == 2


def test_the_message_of_a_model_that_refuses_to_load_is_the_error(tmp_path):
    add_model(tmp_path, "bad", REFUSES.format(message="the pool needs 12 GiB,\n4 GiB is free"))
    code, lines = _failed_start(add_model(tmp_path, "echo"))
    assert (code, lines[1:]) == (1, ["error: bad: the pool needs 12 GiB, 4 GiB is free"])


def test_a_model_whose_process_dies_while_it_loads_is_named(tmp_path):
    code, lines = _failed_start(add_model(tmp_path, "bad", DIES_LOADING))
    assert code == 1
    assert lines[1].startswith("error: bad: its process died while it loaded")
    assert len(lines) == 2


def test_a_config_that_the_server_refuses_is_the_error(tmp_path):
    code, lines = _failed_start(add_model(tmp_path, "bad", config='backend: "nobody"'))
    assert code == 1
    assert lines[1].startswith("error: bad: ")
    assert len(lines) == 2


@pytest.mark.nightly
def test_a_model_whose_warm_up_fails_is_never_ready(tmp_path):
    code, lines = _failed_start(add_model(tmp_path, "cold", FAILS, WARM_CONFIG))
    assert code == 1
    assert lines[1].startswith("error: cold: ")
    assert "no such weights" in lines[-1]


def test_a_missing_repository_is_told(tmp_path):
    code, lines = _failed_start(tmp_path / "nowhere")
    assert code == 1
    assert lines[-1].startswith("error: no model in ")


def test_ctrl_c_ends_a_server_whose_stub_is_busy_within_ten_seconds(tmp_path):
    flag = tmp_path / "busy"
    repository = add_model(tmp_path / "repository", "echo", BUSY.format(flag=str(flag)))
    with RunningServer.start(model_repository=repository) as server:
        mark = mark_of(server.process.pid)
        threading.Thread(target=_swallow, args=(_ask_echo, server, ["x"]), daemon=True).start()
        while not flag.exists():
            time.sleep(0.05)
        began = time.monotonic()
        assert server.stop(signal.SIGINT) == 0
        assert time.monotonic() - began < 10
    assert _left(mark) == NOTHING


def test_ctrl_c_while_a_model_loads_ends_at_once(tmp_path):
    repository = add_model(tmp_path, "slow", LOADS_SLOWLY)
    launcher = subprocess.Popen(command_line(model_repository=repository), stderr=subprocess.DEVNULL)
    mark = mark_of(launcher.pid)
    while len(leftovers.marked_processes(mark)) < 2:  # the server and the stub that sleeps in initialize()
        time.sleep(0.05)
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(5) == 0
    assert _left(mark) == NOTHING


def test_a_killed_launcher_takes_its_server_with_it(tmp_path):
    with RunningServer.start(model_repository=add_model(tmp_path, "echo")) as server:
        mark = mark_of(server.process.pid)
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        _wait_until_nothing_is_left(mark, 6)


def test_a_server_that_dies_is_reported_with_its_signal(tmp_path):
    with RunningServer.start(model_repository=add_model(tmp_path, "echo"), no_restart=True) as server:
        mark = mark_of(server.process.pid)
        leftovers.send(mark, server_of(mark), signal.SIGKILL)
        assert server.process.wait(15) == 128 + signal.SIGKILL
        assert server.log().splitlines()[-1] == "error: the server ended unexpectedly (signal SIGKILL)"
        assert _left(mark) == NOTHING


def test_a_model_whose_process_dies_later_is_named_and_ends_the_server(tmp_path, capsys):
    add_model(tmp_path, "other")
    with RunningServer.start(model_repository=add_model(tmp_path, "echo"), no_restart=True) as server:
        mark = mark_of(server.process.pid)
        leftovers.send(mark, stub_of(mark, "echo"), signal.SIGKILL)
        assert server.process.wait(15) == 1
        assert server.log().splitlines()[-1].startswith("error: echo: the model's process died")
        assert _left(mark) == NOTHING
        assert capsys.readouterr().err == ""
    assert "error: echo: the model's process died" in capsys.readouterr().err, "for a test that failed for it"


def _until_it_answers(server, words, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            return _ask_echo(server, words)
        time.sleep(0.05)
    raise AssertionError(server.log())


def _open_files(pid):
    """Those that stay open: the launcher reads of its processes now and then, and has one more open for that moment."""

    def now():
        time.sleep(0.02)
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    return min(now() for _ in range(20))


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("echo", "echo: the model's process died (often for want of memory)"),
        pytest.param("", "the server ended unexpectedly (signal SIGKILL)", marks=pytest.mark.nightly),
    ],
)
def test_a_server_whose_parts_die_is_started_again_on_the_same_ports_and_leaves_nothing(tmp_path, capsys, part, told):
    with RunningServer.start(model_repository=add_model(tmp_path, "echo")) as server:
        first, files = mark_of(server.process.pid), _open_files(server.process.pid)
        leftovers.send(first, stub_of(first, part) if part else server_of(first), signal.SIGKILL)
        second = mark_of(server.process.pid, other_than=first)
        assert _until_it_answers(server, ["again"]) == ["again"]
        assert _left(first) == NOTHING
        assert _open_files(server.process.pid) == files
        assert server.announcement().count("ready in") == 1
        assert server.stop(signal.SIGTERM) == 0
    restarts = [line for line in server.log().splitlines() if STARTED_AGAIN in line]
    assert [line.partition("; ")[0] for line in restarts] == [told]
    assert told in capsys.readouterr().err, "for a test that failed for it"
    assert [_left(mark) for mark in (first, second)] == [NOTHING] * 2


def test_of_a_model_with_two_processes_the_death_of_one_is_seen_and_loading_it_anew_is_none(tmp_path):
    two = f"{ECHO_CONFIG}\ninstance_group [ {{ count: 2 kind: KIND_CPU }} ]"
    repository = add_model(tmp_path, "echo", config=two)
    with RunningServer.start(model_repository=repository, no_restart=True, model_control=True) as server:
        mark = mark_of(server.process.pid)
        first = stubs_of(mark, "echo")
        for action in ("unload", "load"):
            assert _status(server, f"repository/models/echo/{action}", b"{}") == 200
        assert _until_it_answers(server, ["x"]) == ["x"]
        deadline = time.monotonic() + 20
        while set(first) & set(second := stubs_of(mark, "echo")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (len(first), len(second)) == (2, 2)
        time.sleep(2 * LOOK_SECONDS)
        assert server.process.poll() is None, server.log()
        leftovers.send(mark, second[1], signal.SIGKILL)
        assert server.process.wait(15) == 1
        assert server.log().splitlines()[-1].startswith("error: echo: the model's process died")


def test_models_of_a_second_repository_are_served_and_watched_too(tmp_path):
    beside = add_model(tmp_path / "beside", "other")
    repository = add_model(tmp_path / "repository", "echo")
    with RunningServer.start(model_repository=repository, also_serve=beside, no_restart=True) as server:
        mark = mark_of(server.process.pid)
        assert _ask_echo(server, ["x"]) == ["x"]
        assert "models: echo, other" in server.announcement()
        leftovers.send(mark, stub_of(mark, "other"), signal.SIGKILL)
        assert server.process.wait(15) == 1
        assert server.log().splitlines()[-1].startswith("error: other: the model's process died")
        assert _left(mark) == NOTHING


def _status(server, path, body=None):
    try:
        with urllib.request.urlopen(f"{server.http_url}/v2/{path}", body, timeout=10) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def _is_refused(call):
    try:
        call()
    except InferenceServerException as error:
        return "restricted" in error.message()
    return False


@pytest.mark.parametrize("model_control", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_what_no_client_needs_is_kept_from_everybody(tmp_path, model_control):
    options = {"model_control": True} if model_control else {}
    with RunningServer.start(model_repository=add_model(tmp_path, "echo"), **options) as server:
        for private in ("systemsharedmemory/status", "cudasharedmemory/status", "trace/setting", "logging"):
            assert _status(server, private) == 403, private
        assert _status(server, "repository/models/echo/load", b"{}") == (200 if model_control else 403)
        for public in ("health/ready", "models/echo", "models/echo/config", "models/stats"):
            assert _status(server, public) == 200, public
        with grpcclient.InferenceServerClient(server.grpc_url) as client:
            assert _is_refused(client.get_system_shared_memory_status)
            assert _is_refused(client.get_trace_settings)
            assert _is_refused(client.get_log_settings)
            assert _is_refused(lambda: client.load_model("echo")) == (not model_control)
            assert client.is_server_ready()
        assert _ask_echo(server, ["still served"]) == ["still served"]


def test_the_printed_commands_work_as_they_stand(tmp_path, capsys):
    repository = add_model(tmp_path, "ensemble", ANSWERS, ANSWER_CONFIG)
    with RunningServer.start(model_repository=repository) as server:
        curl, python, ask = (line for line in server.announcement().splitlines() if line.startswith("  "))
        assert json.loads(subprocess.check_output(curl, shell=True))["text_output"] == ANSWER
        assert subprocess.check_output(python, shell=True, text=True) == f"{ANSWER}\n"
        assert ask.split()[:3] == ["scripts/ask", "--url", server.grpc_url]
    assert capsys.readouterr().err == "", "nothing failed"


def test_the_fixture_shows_the_log_of_a_failed_start(tmp_path):
    repository = add_model(tmp_path, "bad", REFUSES.format(message="no such weights"))
    with pytest.raises(ServerStartError, match="error: bad: no such weights"):
        RunningServer.start(model_repository=repository)


def _swallow(function, *arguments):
    with contextlib.suppress(OSError):
        function(*arguments)
