"""The engine's sign of life, as the engine gives it and as the launcher reads it."""

from __future__ import annotations

import pytest

from backend.serving.heartbeat import Heartbeat
from scripts.launcher.pulse import LONGEST_LOOK_SECONDS, Pulse


class Pair:
    """Both sides, on the launcher's clock."""

    def __init__(self, directory, limit=5.0):
        self.now = 100.0
        self.heart = Heartbeat(str(directory), limit)
        self.pulse = Pulse(directory, clock=lambda: self.now)

    def after(self, seconds, looks=1):
        """What the launcher sees at the last of so many looks."""
        for _ in range(looks):
            self.now += seconds / looks
            lost = self.pulse.lost()
        return lost


def test_a_heart_that_beats_is_alive_and_one_that_stops_is_lost_after_its_own_limit(tmp_path):
    pair = Pair(tmp_path, limit=5.0)
    for _ in range(20):
        pair.heart.beat()
        assert pair.after(0.9) == 0
    assert pair.after(4.9, looks=10) == 0
    assert pair.after(0.2) == pytest.approx(5.1)
    pair.heart.beat()
    assert pair.after(0.5) == 0


def test_nobody_is_missed_before_the_first_beat_or_after_the_end(tmp_path):
    pair = Pair(tmp_path)
    assert pair.after(1000.0, looks=1000) == 0
    pair.heart.beat()
    assert pair.after(0.5) == 0
    pair.heart.close()
    assert pair.after(1000.0, looks=1000) == 0
    pair.heart.close()


def test_time_in_which_the_launcher_itself_did_not_run_is_no_silence(tmp_path):
    pair = Pair(tmp_path, limit=5.0)
    pair.heart.beat()
    assert pair.after(0.1) == 0
    assert pair.after(3600.0, looks=1) == 0
    assert pair.after(5.0 - LONGEST_LOOK_SECONDS, looks=10) == pytest.approx(5.0)


def test_without_a_launcher_there_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    heart = Heartbeat("", 5.0)
    heart.beat()
    heart.close()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_gone_does_not_stop_the_engine(tmp_path):
    heart = Heartbeat(str(tmp_path / "gone"), 5.0)
    heart.beat()
    heart.close()
    assert list(tmp_path.iterdir()) == []
