"""scripts/loadtest: what it runs, and what it refuses to load."""

import itertools
import socket
import subprocess
import sys

import pytest

from scripts import loadtest


def words(*flags):
    arguments = loadtest.parse(list(flags))
    return loadtest.locust_command(arguments, loadtest._doors(arguments))


def test_a_profile_becomes_locusts_command_line():
    line = words("--profile", "burst", "--minutes", "2", "--users", "5", "--report", "r.html", "--json", "t.json")
    pairs = dict(itertools.pairwise(line))
    expected = {"--load": "burst", "--run-time": "120s", "--users": "5", "--html": "r.html", "--json-file": "t"}
    assert {flag: pairs[flag] for flag in expected} == expected
    assert line[-2:] == ["GrpcClient", "HttpClient"]


def test_the_gateway_is_loaded_when_it_has_an_address():
    assert words("--gateway-url", "http://127.0.0.1:9000")[-3:] == ["GrpcClient", "HttpClient", "OpenaiClient"]
    assert words("--gateway-url", "http://127.0.0.1:9000", "--doors", "openai")[-2:] == [
        "http://127.0.0.1:9000",
        "OpenaiClient",
    ]


@pytest.mark.parametrize("flags", [("--doors", "smtp"), ("--doors", "openai")])
def test_a_door_that_is_not_there_is_refused(flags):
    with pytest.raises(ValueError, match="--doors"):
        words(*flags)


@pytest.mark.parametrize("flags", [("--minutes", "0"), ("--minutes", "121"), ("--users", "0"), ("--profile", "none")])
def test_it_is_bounded(flags, capsys):
    with pytest.raises(SystemExit):
        loadtest.parse(list(flags))
    assert flags[0] in capsys.readouterr().err


def test_an_address_of_this_machine_is_one_that_a_socket_can_have():
    assert loadtest.is_of_this_machine("127.0.0.1")
    assert loadtest.is_of_this_machine("localhost")
    # Addresses that are kept for documentation belong to nobody.
    assert not loadtest.is_of_this_machine("192.0.2.1")
    assert not loadtest.is_of_this_machine("198.51.100.7")


def _run(*flags):
    line = [sys.executable, "scripts/loadtest.py", *flags]
    return subprocess.run(line, cwd=loadtest.ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "flags",
    [("--url", "192.0.2.1:8001"), ("--http-url", "http://192.0.2.1:8000"), ("--gateway-url", "http://192.0.2.1:9000")],
)
def test_other_machines_are_not_loaded(flags):
    done = _run(*flags)
    assert done.returncode == loadtest.UNUSABLE
    assert done.stderr == f"error: {flags[1]} is not an address of this machine; run the load test there\n"


def test_where_no_server_answers_it_says_so():
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"127.0.0.1:{free.getsockname()[1]}"
    done = _run("--url", url)
    assert done.returncode == loadtest.UNUSABLE
    assert done.stderr.startswith(f"error: no server answers at {url}")
