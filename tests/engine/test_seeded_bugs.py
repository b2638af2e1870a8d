"""The oracle and the integrity checks are worth something: each bug planted here is caught by them."""

from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from backend.kv.block_pool import BlockPool
from backend.kv.prefix_cache import PrefixCache
from backend.scheduler.residency import Residency
from backend.scheduler.results import Results
from backend.scheduler.scheduler import Scheduler
from tests.engine.test_any_history import EngineMachine

# Shrinking would only cost time: it is enough that a failure is found.
SEARCH = settings(
    max_examples=400, stateful_step_count=30, deadline=None, database=None, phases=[Phase.generate], derandomize=True
)


def expect_it_is_caught() -> None:
    with pytest.raises(BaseException) as found:
        run_state_machine_as_test(EngineMachine, settings=SEARCH)
    assert not isinstance(found.value, KeyboardInterrupt | SystemExit)


def test_without_a_bug_nothing_is_found() -> None:
    run_state_machine_as_test(EngineMachine, settings=SEARCH)


def test_an_allocator_that_hands_a_held_block_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    allocate = BlockPool.allocate

    def twice(pool: BlockPool, count: int) -> list[int]:
        blocks = allocate(pool, count)
        if len(pool._free) > 3:
            pool._free.append(blocks[-1]) if blocks else None
        return blocks

    monkeypatch.setattr(BlockPool, "allocate", twice)
    expect_it_is_caught()


def test_a_swap_that_copies_blocks_in_the_wrong_order_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    copy_in = Residency._copy_in

    def reversed_slots(residency: Residency, sequence: Any, first: int, fence: int) -> None:
        sequence.host_slots.reverse()
        copy_in(residency, sequence, first, fence)

    monkeypatch.setattr(Residency, "_copy_in", reversed_slots)
    expect_it_is_caught()


def test_a_shared_prefix_found_by_less_than_its_tokens_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    match = PrefixCache.match

    def any_child(cache: PrefixCache, salt: str, tokens: Any) -> list[Any]:
        found = match(cache, salt, tokens)
        children = (found[-1] if found else cache.root(salt)).children()
        more = (len(found) + 1) * cache._block_size < len(tokens)
        return [*found, children[0]] if children and more else found

    monkeypatch.setattr(PrefixCache, "match", any_child)
    expect_it_is_caught()


def test_blocks_published_before_their_data_is_in_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    bring_in = Residency.bring_in

    def published_at_once(residency: Residency, sequence: Any, *rest: Any) -> None:
        bring_in(residency, sequence, *rest)
        residency.publish(sequence, sequence.num_tokens - 1)

    monkeypatch.setattr(Residency, "bring_in", published_at_once)
    expect_it_is_caught()


def test_a_resume_that_skips_a_token_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    bring_in = Residency.bring_in

    def one_too_far(residency: Residency, sequence: Any, *rest: Any) -> None:
        bring_in(residency, sequence, *rest)
        if sequence.num_preemptions and sequence.num_computed + 1 < sequence.num_tokens:
            sequence.num_computed += 1

    monkeypatch.setattr(Residency, "bring_in", one_too_far)
    expect_it_is_caught()


def test_a_late_token_that_is_dropped_and_not_computed_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Results._append

    def forgetful(results: Results, sequence: Any, token: int, *rest: Any) -> None:
        if sequence.num_preemptions == 1 and sequence.awaits_token:
            token = (token + 1) % 1000
        append(results, sequence, token, *rest)

    monkeypatch.setattr(Results, "_append", forgetful)
    expect_it_is_caught()


@pytest.mark.nightly  # 20 s: few steps are interrupted; test_interruption.py has its daily form
def test_cursors_that_an_interrupted_step_leaves_moved_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "retract", lambda *_: None)
    expect_it_is_caught()
