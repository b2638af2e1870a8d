"""The launcher's supervisor with servers that are told when to die, on a clock that stands still but for its sleep."""

from __future__ import annotations

import contextlib

import pytest

from scripts.launcher.errors import LaunchError, LeftoversError
from scripts.launcher.ports import Ports
from scripts.launcher.supervisor import MOST_RESTARTS, STABLE_SECONDS, Supervisor

ANY, CHOSEN = Ports(0, 0, 0), Ports(1, 2, 3)
DIED = LaunchError("echo: the model's process died", 7)
FOR_EVER = 10_000.0


class FakeServer(contextlib.AbstractContextManager):
    """Serves for so many seconds, then dies; `refuses`: cannot start at all; `stays`: cannot be ended."""

    def __init__(self, world, seconds=FOR_EVER, *, refuses=False, enters=True, stays=False):
        self.world, self.seconds, self.refuses, self.enters, self.stays = world, seconds, refuses, enters, stays
        self.ports, self.ended = ANY, False

    def __enter__(self):
        if not self.enters:
            raise LaunchError("port 1 is already in use")
        self.ports = CHOSEN
        self.began = self.world.now
        return self

    def __exit__(self, *_):
        assert self.ended

    def wait_ready(self, stop):
        if self.refuses:
            raise LaunchError("bad: no such weights", 3)
        return not stop()

    def check(self):
        if self.world.now - self.began >= self.seconds:
            raise DIED

    def stop(self, hurry, patient=False):
        self.ended, self.patient = True, patient
        return not self.stays


class World:
    """Hands out one server after another; asks for an end at `until`."""

    def __init__(self, *servers, until=FOR_EVER):
        self.now, self.until = 0.0, until
        self.servers = [FakeServer(self, *args, **kwargs) for args, kwargs in servers]
        self.started_at, self.given_ports, self.announced = [], [], 0

    def make(self, ports):
        assert all(server.ended or not server.enters for server in self.servers[: len(self.started_at)])
        self.started_at.append(round(self.now))
        self.given_ports.append(ports)
        return self.servers[len(self.started_at) - 1]

    def requested(self):
        return self.now >= self.until

    def patient(self):
        return True

    def urgent(self):
        return False

    def sleep(self, seconds):
        self.now = round(self.now + seconds, 6)  # tenths do not add up

    def announce(self, server):
        self.announced += 1

    def run(self, **options):
        Supervisor(self.make, self, self.announce, clock=lambda: self.now, sleep=self.sleep, **options).run()


def server(*args, **kwargs):
    return args, kwargs


def test_a_server_that_dies_is_followed_by_another_on_the_same_ports_at_once(capsys):
    world = World(server(100.0), server(), until=200.0)
    world.run()
    assert world.started_at == [0, 100]
    assert world.given_ports == [None, CHOSEN]
    assert world.announced == 1
    assert world.servers[1].patient
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        f"{DIED}; starting the server again now (restart 1 of {MOST_RESTARTS} in a row)",
        "ready again in 0.0 s",
        "ending the server (Ctrl-C again: at once)",
    ]


def test_a_server_that_never_was_ready_is_not_started_again():
    world = World(server(refuses=True))
    with pytest.raises(LaunchError, match="bad: no such weights") as caught:
        world.run()
    assert (caught.value.exit_code, world.started_at) == (3, [0])


def test_without_restarts_the_first_death_is_the_end():
    world = World(server(100.0))
    with pytest.raises(LaunchError, match="process died"):
        world.run(restarts=False)
    assert world.started_at == [0]


def test_deaths_in_a_row_wait_longer_each_time_and_are_given_up_with_the_last_ones_words_and_code():
    world = World(*[server(1.0)] * (MOST_RESTARTS + 1))
    with pytest.raises(LaunchError, match=f"given up after {MOST_RESTARTS} restarts in a row: {DIED}") as caught:
        world.run()
    assert caught.value.exit_code == 7
    # One second of life each; before them 0, 1, 2, 4 and 8 seconds of waiting.
    assert world.started_at == [0, 1, 3, 6, 11, 20]


def test_a_restart_that_fails_to_start_counts_among_those_in_a_row():
    world = World(server(100.0), server(enters=False), server(refuses=True), server(), until=300.0)
    world.run()
    assert world.started_at == [0, 100, 101, 103]


def test_one_that_was_ready_long_enough_begins_a_new_row():
    lives = [server(STABLE_SECONDS + 1)] * (2 * MOST_RESTARTS)
    world = World(*lives, server(), until=2000.0)
    world.run()
    assert len(world.started_at) == len(lives) + 1
    assert [b - a for a, b in zip(world.started_at, world.started_at[1:], strict=False)] == [61] * len(lives)


def test_an_end_that_is_asked_for_while_it_waits_is_the_end():
    world = World(*[server(1.0)] * 6, until=15.0)
    world.run()
    assert world.started_at == [0, 1, 3, 6, 11]
    assert 15 <= world.now < 16


def test_what_cannot_be_ended_is_not_started_again():
    world = World(server(5.0, stays=True), server())
    with pytest.raises(LeftoversError):
        world.run()
    assert world.started_at == [0]
