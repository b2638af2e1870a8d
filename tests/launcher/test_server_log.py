from __future__ import annotations

import io

import pytest

from scripts.launcher.server_log import ServerLog, load_failure

HEAD = "E1129 13:09:12.457612 4326 model_lifecycle.cc:642] "
FAILED = (
    HEAD + r""""failed to load 'bad' version 1: Internal: TritonModelException: the pool \"p\" needs 12 GiB, """
    r'''4 GiB is free\n\nAt:\n  repo/bad/1/model.py(4): initialize\n"'''
)
NOISE = 'W1129 13:09:11.158787 4326 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory, ..."'
WARNING = 'W1129 13:09:11.158787 4326 model.cc:1] "mind the gap"'


def _log(*lines, live=False):
    log = ServerLog(io.BytesIO("\n".join(lines).encode()), live=live)
    log.join(5)
    return log


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (FAILED, 'bad: the pool "p" needs 12 GiB, 4 GiB is free'),
        (HEAD + "failed to load 'old' version 1: Invalid argument: not quoted", "old: not quoted"),
        (HEAD + '''"Poll failed for model directory 'm': Invalid model name"''', "m: Invalid model name"),
        (HEAD + '"something else"', None),
        ("a model's own print", None),
    ],
)
def test_a_failed_load_is_told_in_the_models_words(line, reason):
    assert load_failure(line) == reason


def test_a_dead_stub_is_explained():
    line = HEAD + '''"failed to load 'big' version 1: Internal: Stub process 'big_0_0' is not healthy."'''
    assert load_failure(line).startswith("big: its process died while it loaded")


def test_the_first_failed_load_is_the_reason():
    log = _log(FAILED, HEAD + '''"failed to load 'ensemble' version 1: Invalid argument: needs bad"''')
    assert log.failure().startswith("bad:")


def test_a_fatal_line_or_else_the_last_line_is_the_reason():
    assert _log("x", "error: creating server: Internal - why", "y").failure() == "creating server: Internal - why"
    assert _log("first", "last").failure() == "last"
    assert _log().failure() is None


def test_lines_are_held_until_release_and_noise_is_dropped(capsys):
    log = _log(NOISE, WARNING)
    assert capsys.readouterr().err == ""
    log.release()
    assert capsys.readouterr().err == WARNING + "\n"


def test_a_live_log_shows_everything(capsys):
    _log(NOISE, WARNING, live=True)
    assert capsys.readouterr().err == f"{NOISE}\n{WARNING}\n"


def test_of_a_progress_bar_the_last_state_is_kept(capsys):
    _log("\r10%\r50%\r100%", "next", live=True)
    assert capsys.readouterr().err == "100%\nnext\n"


def test_an_output_that_has_ended_is_closed():
    output = io.BytesIO(b"the last line\n")
    ServerLog(output, live=False).join(5)
    assert output.closed, "a launcher that starts servers again and again would keep a pipe of each"
