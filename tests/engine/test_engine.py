"""The engine on the oracle model: every output equals the lone run, and the pool is whole and empty afterwards."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.endings import FinishReason
from backend.engine import StepFailedError, StepTrace
from backend.errors import InvalidRequest
from backend.kv.block_pool import PoolIntegrityError
from tests.engine.engines import BLOCK, check_lone_runs, idle, oracle_engine, outputs, request, run
from tests.oracle import lone_run

shapes = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 20), st.integers(1, 3), st.integers(0, 12)), min_size=1, max_size=14
)


@given(
    asked=shapes, slots=st.integers(1, 5), step_tokens=st.integers(5, 24), blocks=st.integers(15, 40), data=st.data()
)
@settings(max_examples=100, deadline=None)
def test_any_mix_of_arrivals_and_cancellations_leaves_every_other_text_untouched(
    asked: list[tuple[int, int, int, int]], slots: int, step_tokens: int, blocks: int, data: st.DataObject
) -> None:
    engine, _ = oracle_engine(blocks=blocks, slots=slots, step_tokens=step_tokens, overlap=data.draw(st.booleans()))
    arrivals = sorted(asked, key=lambda shape: shape[3])
    sequences = []
    step = 0
    while engine.has_work or len(sequences) < len(arrivals):
        while len(sequences) < len(arrivals) and arrivals[len(sequences)][3] <= step:
            prompt, max_tokens, level, _ = arrivals[len(sequences)]
            sequences.append(engine.add(request(prompt, max_tokens, level)))
        if sequences and data.draw(st.booleans()) and data.draw(st.booleans()):
            engine.cancel(data.draw(st.sampled_from(sequences)))
        engine.step()
        engine.scheduler.check_integrity()
        step += 1
        assert step < 2000
    check_lone_runs(sequences)
    assert idle(engine)


def test_a_request_that_joins_while_others_decode_gets_its_first_token_in_the_next_step() -> None:
    engine, executor = oracle_engine(slots=9, blocks=200, step_tokens=32, overlap=False)
    others = [engine.add(request(4, 40)) for _ in range(8)]
    for _ in range(5):
        engine.step()
    late = engine.add(request(12, 3))
    before = len(executor.plans)
    engine.step()
    assert late.num_output == 1
    assert all(s.finish_reason is None for s in others)
    assert set(executor.plans[before].sequences) == {*others, late}


def test_decoding_goes_on_in_every_step_while_a_long_prompt_is_computed_in_chunks() -> None:
    engine, executor = oracle_engine(slots=4, blocks=200, step_tokens=8, overlap=False)
    decoding = engine.add(request(3, 50))
    engine.step()
    long = engine.add(request(60, 2))
    while long.num_output == 0:
        engine.step()
    chunks = [w.num_tokens for plan in executor.plans for w in plan.chunks if w.sequence is long]
    assert chunks == [7] * 8 + [4]
    assert decoding.num_output == len(executor.plans)


def test_urgent_requests_are_admitted_before_less_urgent_ones_that_came_earlier() -> None:
    engine, executor = oracle_engine(slots=1)
    low, urgent, normal = (engine.add(request(4, 2, level)) for level in (3, 1, 2))
    run(engine)
    order = list(dict.fromkeys(s for plan in executor.plans for s in plan.sequences))
    assert order == [urgent, normal, low]


def test_a_large_request_is_not_passed_over_by_small_ones_behind_it() -> None:
    engine, executor = oracle_engine(slots=4, blocks=12, guaranteed_no_evict=True)
    first = engine.add(request(20, 8))
    engine.step()
    large = engine.add(request(30, 10))
    small = [engine.add(request(2, 2)) for _ in range(3)]
    run(engine)
    order = list(dict.fromkeys(s for plan in executor.plans for s in plan.sequences))
    assert order == [first, large, *small]


@pytest.mark.parametrize("excess", [0, 1])
def test_what_can_never_fit_the_pool_is_refused_with_the_numbers_and_what_just_fits_is_answered(excess: int) -> None:
    engine, _ = oracle_engine(blocks=5, max_seq_len=1000)
    pool = 5 * BLOCK
    asked = request(pool - 2, 3 + excess)  # the last token is never read back, so it takes no slot
    if excess:
        with pytest.raises(InvalidRequest, match=f"needs {pool + 2} tokens .* the KV pool holds {pool} tokens"):
            engine.add(asked)
    else:
        sequence = engine.add(asked)
        run(engine)
        assert list(sequence.output) == lone_run(asked.prompt, 3)
    assert idle(engine)


def test_a_request_beyond_the_length_limit_is_refused_with_the_numbers() -> None:
    engine, _ = oracle_engine(max_seq_len=50)
    with pytest.raises(
        InvalidRequest, match=r"max_tokens: needs 51 tokens \(prompt 41 \+ max_tokens 10\), max_seq_len is 50"
    ):
        engine.add(request(41, 10))
    assert idle(engine)


def test_sequences_end_by_eos_stop_id_and_length_each_with_its_reason() -> None:
    prompt = (1, 2, 3)
    expected = lone_run(prompt, 8)
    engine, _ = oracle_engine()
    by_eos = engine.add(request(prompt, 8, end_ids=frozenset({expected[4]})))
    by_stop = engine.add(request(prompt, 8, stop_ids=frozenset({expected[2]})))
    by_length = engine.add(request(prompt, 8))
    run(engine)
    assert outputs([by_eos, by_stop, by_length]) == [expected[:5], expected[:3], expected]
    assert [s.finish_reason for s in (by_eos, by_stop, by_length)] == [
        FinishReason.EOS,
        FinishReason.STOP,
        FinishReason.LENGTH,
    ]


def test_cancelling_in_any_state_any_number_of_times_frees_the_blocks_once() -> None:
    engine, _ = oracle_engine(slots=1, overlap=False)
    running, waiting = engine.add(request(4, 9)), engine.add(request(4, 9))
    engine.step()
    assert [engine.cancel(s) for s in (running, running, waiting, waiting)] == [True, False, True, False]
    engine.scheduler.check_integrity()
    assert idle(engine)


def test_a_failing_step_ends_the_sequences_it_touched_and_no_others() -> None:
    engine, executor = oracle_engine(slots=2, overlap=False)
    touched = [engine.add(request(4, 9)) for _ in range(2)]
    untouched = engine.add(request(4, 9))
    launch, executor.launch = executor.launch, lambda plan: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    with pytest.raises(StepFailedError) as caught:
        engine.step()
    executor.launch = launch  # type: ignore[method-assign]
    assert caught.value.sequences == touched
    run(engine)
    assert list(untouched.output) == lone_run(untouched.request.prompt, 9)
    assert idle(engine)


def test_every_step_is_shown_to_the_watch() -> None:
    engine, _ = oracle_engine()
    seen: list[StepTrace] = []
    engine.watch = seen.append
    sequence = engine.add(request(20, 3))
    run(engine)
    number = sequence.request.request_id
    assert [trace.work for trace in seen] == [
        [(number, 0, 16)],
        [(number, 16, 4)],
        [(number, 20, 1)],
        [(number, 21, 1)],
    ]


def test_the_oracle_notices_a_block_that_belongs_to_another() -> None:
    engine, _ = oracle_engine(overlap=False)
    one, other = engine.add(request(6, 8)), engine.add(request(6, 8))
    engine.step()
    one.blocks[0] = other.blocks[0]
    engine.step()
    assert list(one.output) != lone_run(one.request.prompt, 8)[: one.num_output]
    with pytest.raises(PoolIntegrityError):
        engine.scheduler.check_integrity()
