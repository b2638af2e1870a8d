"""Many requests in a pool far too small for them: every text is the lone run's, and every block comes back."""

import random
from typing import Any

import pytest

from backend.endings import FinishReason
from backend.request import Request, Sequence
from tests.engine.engines import BLOCK, idle, oracle_engine, request, run
from tests.oracle import VOCAB, lone_run

MODES = pytest.mark.parametrize("mode", ["recompute", "swap"])


def text(length: int, source: random.Random) -> tuple[int, ...]:
    return tuple(source.randrange(VOCAB) for _ in range(length))


def check(sequences: list[Sequence]) -> None:
    for sequence in sequences:
        asked: Request = sequence.request
        assert sequence.finish_reason is FinishReason.LENGTH
        assert list(sequence.output) == lone_run(asked.prompt, asked.sampling.max_tokens)


@MODES
def test_a_thousand_requests_with_shared_prefixes_where_every_admission_evicts(mode: Any) -> None:
    source = random.Random(2)
    prefixes = [text(3 * BLOCK, source) for _ in range(12)]
    engine, _ = oracle_engine(blocks=24, slots=4, step_tokens=24, host_slots=8, mode=mode)
    sequences = []
    for number in range(1000):
        while engine.scheduler.num_waiting > 3:
            engine.step()
        prompt = source.choice(prefixes) + text(source.randint(1, 6), source)
        sequences.append(engine.add(request(prompt, source.randint(1, 9), 1 + number % 3)))
        engine.scheduler.check_integrity()
    run(engine)
    check(sequences)
    assert engine.scheduler.residency.hit_tokens > 0
    assert idle(engine)


@MODES
@pytest.mark.parametrize("seed", range(10))
def test_sixty_four_at_once_half_of_them_sharing_prefixes_of_lengths_around_a_block_at_a_third_of_the_pool(
    seed: int, mode: Any
) -> None:
    source = random.Random(seed)
    shared = text(4 * BLOCK, source)
    sequences = []
    # Each comes to hold about 9 blocks: 64 would fill 576, and there are 173.
    engine, _ = oracle_engine(blocks=173, slots=64, step_tokens=80, host_slots=60, mode=mode)
    for number in range(64):
        own = text(2 * BLOCK, source)
        length = (BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK)[number // 2 % 4]
        prompt = shared[:length] + own if number % 2 else own
        sequences.append(engine.add(request(prompt, 20, source.randint(1, 3))))
    run(engine)
    check(sequences)
    assert sum(s.num_preemptions for s in sequences) > 0
    assert idle(engine)


@MODES
def test_no_tenant_ever_sees_the_marker_of_another_under_constant_preemption(mode: Any) -> None:
    """A prompt is its tenant's marker over and over; the text that follows depends on every one of its tokens."""
    engine, _ = oracle_engine(blocks=40, slots=8, step_tokens=32, host_slots=12, mode=mode)
    sequences = [
        engine.add(request((marker,) * (6 + marker % 9), 40, 1 + marker % 3, tenant=str(marker), salt=str(marker)))
        for marker in range(24)
    ]
    run(engine)
    check(sequences)
    assert sum(s.num_preemptions for s in sequences) > 10
    assert all(s.num_output for s in sequences), "an empty answer is no way to signal anything"


@pytest.mark.parametrize("edge", [-1, 0, 1])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_a_prompt_that_ends_around_a_chunks_end_samples_once_when_it_is_complete(chunks: int, edge: int) -> None:
    engine, executor = oracle_engine(step_tokens=16, blocks=100)
    sequence = engine.add(request(16 * chunks + edge, 6))
    run(engine)
    check([sequence])
    works = [chunk for plan in executor.plans for chunk in plan.chunks]
    assert [c.samples for c in works] == [False] * (len(works) - 1) + [True]
    assert len(works) == chunks + (edge == 1)


@MODES
def test_of_several_sequences_of_one_request_one_may_end_early_be_cancelled_or_preempted_and_the_others_go_on(
    mode: Any,
) -> None:
    engine, executor = oracle_engine(slots=4, blocks=60, step_tokens=32, host_slots=40, mode=mode)
    prompt = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3)
    first = request(prompt, 30, 3)
    early = lone_run(prompt, 30)[4]
    own = [{}, {"end_ids": frozenset({early})}, {}, {}]
    members = [engine.add(first)] + [engine.add(request(prompt, 30, 3, leader=first.request_id, **f)) for f in own[1:]]
    while members[0].num_output < 6:
        engine.step()
    assert members[1].finish_reason is FinishReason.EOS
    engine.cancel(members[2])
    urgent = [engine.add(request(5, 8, 1)) for _ in range(3)]
    run(engine)
    check([members[0], members[3], *urgent])
    assert list(members[1].output) == lone_run(prompt, 30)[:5]
    assert members[2].finish_reason is FinishReason.CANCELLED
    assert members[0].num_preemptions + members[3].num_preemptions > 0
    # The prompt was computed once: its full blocks are shared, and each further member computed its last token only.
    starts = [c.start for plan in executor.plans[:3] for c in plan.chunks if c.sequence in members]
    assert starts[0] == 0
    assert starts[1:] == [len(prompt) - 1] * 3
    assert idle(engine)


@pytest.mark.parametrize(("share", "finishes"), [(0.8, True), (1.2, False)])
def test_below_capacity_the_least_urgent_gets_on_and_above_it_strict_levels_let_it_wait(
    share: float, finishes: bool
) -> None:
    """Four slots; each urgent request holds one for twelve steps, so one every three steps is capacity."""
    engine, _ = oracle_engine(slots=4, blocks=200, step_tokens=64)
    low = engine.add(request(6, 30, 3))
    every, due, steps = 3 / share, 0.0, 0
    while low.finish_reason is None and steps < 1500:
        while due <= steps:
            engine.add(request(5, 11, 1))
            due += every
        engine.step()
        steps += 1
    assert (low.finish_reason is FinishReason.LENGTH) == finishes
    assert engine.scheduler.num_waiting == 0 if finishes else low.num_output < 30
    run(engine)  # once the flood is over it finishes all the same
    check([low])
