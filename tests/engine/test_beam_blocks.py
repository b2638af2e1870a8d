"""Beams on the oracle model, where any wrong block, copy or fork changes what is found: whatever happens, in whatever
order, each search finds what it finds alone, and nothing is left behind."""

import contextlib
import os
import random
from typing import Any

import pytest

from backend.beam_params import BeamParams
from backend.beam_search import Answer
from backend.endings import FinishReason
from backend.engine import Engine, StepFailedError
from backend.errors import InvalidRequest
from backend.request import Sequence
from backend.scheduler.beam_residency import BeamResidency
from tests.engine.engines import Clock, check_lone_runs, idle, oracle_engine, request
from tests.oracle import lone_search

HISTORIES = 4000 if os.environ.get("TESTS_NIGHTLY") else 150


def answers(sequence: Sequence) -> list[Answer]:
    assert sequence.group is not None
    return sequence.group.answers


def searching(
    prompt: int | tuple[int, ...], max_tokens: int, width: int, level: int = 2, beams: Any = None, **fields: Any
) -> Any:
    params = BeamParams(width=width, num_returned=width, **(beams or {}))
    return request(prompt, max_tokens, level, beams=params, **fields)


def run(engine: Engine, most_steps: int = 4000) -> None:
    for _ in range(most_steps):
        if not engine.has_work:
            break
        engine.step()
        engine.scheduler.check_integrity()
    assert idle(engine), "something never ends, or keeps its blocks"


def check(sequences: list[Sequence]) -> None:
    for sequence in sequences:
        if sequence.group is None:
            check_lone_runs([sequence])
        elif sequence.finish_reason is not FinishReason.CANCELLED:
            assert answers(sequence) == lone_search(sequence.request.prompt, sequence.request.sampling)


class History:
    """Searches and others of all levels arrive at random in a small pool; steps are interrupted, requests cancelled."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        choose = self.random.choice
        ahead = choose([True, False])
        self.interruptible = not ahead and choose([True, False])
        self.engine, self.executor = oracle_engine(
            blocks=self.random.randint(9, 24),
            slots=self.random.randint(3, 6),
            step_tokens=self.random.randint(6, 20),
            host_slots=choose([0, 6, 40]),
            mode=choose(["recompute", "swap", "swap"]),
            overlap=choose([True, True, False]),
            ahead=ahead,
            interruptible=self.interruptible,
            guaranteed_no_evict=choose([True, False, False]),
            preemption_cap=choose([0, 1, 3]),
            prefix_cache=choose([True, False]),
        )
        self.sequences: list[Sequence] = []

    def run(self) -> None:
        for _ in range(self.random.randint(3, 8)):
            self.arrive()
            for _ in range(self.random.randint(0, 8)):
                self.engine.step()
                self.engine.scheduler.check_integrity()
            if self.random.random() < 0.1 and self.sequences:
                self.engine.cancel(self.random.choice(self.sequences))
                self.engine.scheduler.check_integrity()
        run(self.engine)
        check(self.sequences)

    def arrive(self) -> None:
        level, prompt, output = self.random.randint(1, 3), self.random.randint(1, 20), self.random.randint(1, 12)
        asked = request(prompt, output, level)
        if self.random.random() < 0.6:
            beams = {
                "length_penalty": self.random.choice([0.0, 1.0, -1.0]),
                "early_stopping": self.random.randint(0, 2),
                "diversity_rate": self.random.choice([0.0, 0.0, 0.3]),
            }
            ends = frozenset(self.random.sample(range(1000), self.random.choice([0, 3, 300])))
            asked = searching(prompt, output, self.random.randint(2, 3), level, beams, end_ids=ends)
        if self.interruptible:
            self.engine.interrupt(level)
        with contextlib.suppress(InvalidRequest):  # more than the pool could ever hold
            self.sequences.append(self.engine.add(asked))


def test_any_history_leaves_each_search_what_it_finds_alone() -> None:
    preempted = {"swap": 0, "recompute": 0}
    for seed in range(HISTORIES):
        history = History(seed)
        history.run()
        if any(sequence.group is not None and sequence.num_preemptions for sequence in history.sequences):
            for (_, mode), count in history.engine.scheduler.population.preemptions.items():
                preempted[mode] += count
    assert min(preempted.values()) > HISTORIES / 50


def caught() -> bool:
    """Whether some history does not end as it should; most bugs need one or two, some a rare moment."""
    for seed in range(600):
        try:
            History(seed).run()
        except (AssertionError, StepFailedError, KeyError, IndexError, MemoryError):
            return True
    return False


BUGS = ["no copies", "tail shared", "swapped in disorder", "swapped before its copy is made", "copies of who is gone"]


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_what_is_done_to_blocks_is_caught(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    plant(monkeypatch, bug)
    assert caught()


def plant(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    right = {name: getattr(BeamResidency, name) for name in ("_fork", "swap_out", "let_go")}

    def fork(beams: BeamResidency, group: Any, parent: Sequence) -> Sequence:
        child: Sequence = right["_fork"](beams, group, parent)
        if bug == "no copies":
            group.due.clear()
        elif group.due:
            child.blocks[-1] = parent.blocks[-1]
        return child

    def swap_out(beams: BeamResidency, group: Any, slots: Any) -> None:
        right["swap_out"](beams, group, slots)
        for branch in group.branches:
            branch.host_slots.reverse()

    def let_go(beams: BeamResidency, group: Any, fence: int) -> None:
        due = group.due
        right["let_go"](beams, group, fence)
        group.due = due

    planted: dict[str, tuple[str, Any]] = {
        "no copies": ("_fork", fork),
        "tail shared": ("_fork", fork),
        "swapped in disorder": ("swap_out", swap_out),
        "swapped before its copy is made": ("sources", lambda beams, group, blocks: blocks),
        "copies of who is gone": ("let_go", let_go),
    }
    monkeypatch.setattr(BeamResidency, *planted[bug])


def test_beams_hold_the_prompt_once_and_what_they_have_in_common() -> None:
    engine, _ = oracle_engine(blocks=40, slots=4)
    sequence = engine.add(searching(18, 12, 4))
    while sequence.group is None or not sequence.group.search.started:
        engine.step()
    engine.step()
    tables = [branch.blocks for branch in sequence.group.branches]
    assert all(table[:4] == sequence.blocks[:4] for table in tables), "18 tokens fill four blocks of four"
    assert len({table[4] for table in tables} | {sequence.blocks[4]}) == 5, "the fifth is each one's own"
    run(engine)
    check([sequence])


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("ending", ["cancel", "deadline"])
def test_a_search_that_is_ended_gives_all_back_and_the_best_so_far(steps: int, ending: str) -> None:
    clock = Clock()
    engine, _ = oracle_engine(clock=clock)
    sequence = engine.add(searching(9, 20, 3, deadline=5.0))
    for _ in range(steps):
        engine.step()
    if ending == "cancel":
        assert engine.cancel(sequence)
        assert not engine.cancel(sequence)
    else:
        clock.now = 6.0
        engine.step()
    engine.scheduler.check_integrity()
    run(engine)
    reason = FinishReason.CANCELLED if ending == "cancel" else FinishReason.TIMEOUT
    assert sequence.finish_reason is reason
    found = answers(sequence)
    assert {answer.reason for answer in found} == ({reason} if found else set())
    assert len(found) == (3 if steps >= 2 else 0)
    if found:
        assert list(sequence.output) == found[0].output


@pytest.mark.parametrize("place", ["run", "launch"])
def test_a_step_that_fails_ends_the_search_it_touched_and_gives_all_back(place: str) -> None:
    engine, executor = oracle_engine()
    sequence = engine.add(searching(9, 20, 3))
    for _ in range(5):
        engine.step()
    works = getattr(executor, place)
    setattr(executor, place, lambda *_: 1 / 0)
    with pytest.raises(StepFailedError) as failure:
        run(engine)
    setattr(executor, place, works)
    assert failure.value.sequences == [sequence]
    assert sequence.finish_reason is FinishReason.ERROR
    run(engine)
    other = engine.add(searching(9, 6, 3))
    run(engine)
    check([other])
