"""The tensors of a step, written down by hand."""

import pytest
import torch

from backend.executor.step_inputs import build_batch
from backend.model.batch import StepInputs
from backend.request import Sequence
from backend.scheduler.plan import BlockCopies, Chunk, StepPlan
from tests.engine.engines import request

NOTHING = BlockCopies([], [], [], [])
BLOCK = 4


def sequence(tokens: list[int], blocks: list[int], num_computed: int) -> Sequence:
    made = Sequence(request(tuple(tokens[:1]), 50))
    made.tokens = list(tokens)
    made.blocks = blocks
    made.num_computed = num_computed
    return made


def check(inputs: StepInputs, **expected: list) -> None:
    for name, values in expected.items():
        assert getattr(inputs, name).tolist() == values, name


@pytest.fixture
def mixed() -> tuple[StepPlan, list[Sequence]]:
    """Two decodes, one of a token that is not known yet; a chunk inside a prompt; a chunk that ends one."""
    known = sequence([10, 11, 12, 13, 14, 15], blocks=[7, 3], num_computed=6)  # token 15 at position 5
    unknown = sequence([20, 21, 22, 23], blocks=[9, 2], num_computed=5)  # position 4, its token still under way
    middle = sequence(list(range(30, 43)), blocks=[4, 8, 5, 1], num_computed=9)  # positions 3 .. 8 of 13
    last = sequence([50, 51, 52], blocks=[6], num_computed=3)  # positions 1 .. 2
    chunks = [Chunk(middle, 3, 6, False), Chunk(last, 1, 2, True)]
    return StepPlan(1, [known, unknown], chunks, NOTHING), [known, unknown, middle, last]


def test_a_mixed_plan_becomes_one_batch_without_padding(mixed: tuple[StepPlan, list[Sequence]]) -> None:
    plan, (_, unknown, _, _) = mixed
    batch = build_batch(plan, BLOCK)
    check(
        batch.inputs,
        token_ids=[15, 0, 33, 34, 35, 36, 37, 38, 51, 52],
        positions=[5, 4, 3, 4, 5, 6, 7, 8, 1, 2],
        query_start=[0, 1, 2, 8, 10],
        kv_lengths=[6, 5, 9, 3],
        block_tables=[[7, 3, 0, 0], [9, 2, 0, 0], [4, 8, 5, 1], [6, 0, 0, 0]],
        slot_mapping=[3 * 4 + 1, 2 * 4 + 0, 4 * 4 + 3, 32, 33, 34, 35, 5 * 4 + 0, 25, 26],
        logit_rows=[0, 1, 9],
    )
    assert batch.unknown == [(1, unknown.request.request_id)]


def test_the_rows_whose_logits_are_wanted_are_those_of_the_sampling_sequences_in_their_order(
    mixed: tuple[StepPlan, list[Sequence]],
) -> None:
    plan, (known, unknown, _, last) = mixed
    assert plan.sampling() == [known, unknown, last]
    assert len(build_batch(plan, BLOCK).inputs.logit_rows) == len(plan.sampling())
    assert plan.num_tokens == len(build_batch(plan, BLOCK).inputs.token_ids) == 10


def test_a_token_of_the_step_before_is_filled_in_by_its_request(mixed: tuple[StepPlan, list[Sequence]]) -> None:
    plan, (known, unknown, _, _) = mixed
    batch = build_batch(plan, BLOCK)
    filled = batch.fill({known.request.request_id: 777, unknown.request.request_id: 24})
    assert filled.token_ids.tolist() == [15, 24, 33, 34, 35, 36, 37, 38, 51, 52]


def test_a_token_that_the_step_before_did_not_bring_is_an_error(mixed: tuple[StepPlan, list[Sequence]]) -> None:
    with pytest.raises(KeyError):
        build_batch(mixed[0], BLOCK).fill({})


def test_the_batch_is_a_copy_that_later_changes_of_the_sequences_do_not_reach(
    mixed: tuple[StepPlan, list[Sequence]],
) -> None:
    plan, sequences = mixed
    batch = build_batch(plan, BLOCK)
    tables, ids = batch.inputs.block_tables.tolist(), batch.inputs.token_ids.tolist()
    for one in sequences:
        one.blocks.clear()
        one.tokens.append(99)
        one.num_computed = 0
    assert batch.inputs.block_tables.tolist() == tables
    assert batch.inputs.token_ids.tolist() == ids


def test_kinds_of_numbers_are_what_the_decoder_is_promised(mixed: tuple[StepPlan, list[Sequence]]) -> None:
    inputs = build_batch(mixed[0], BLOCK).inputs
    wide = (inputs.token_ids, inputs.positions, inputs.slot_mapping, inputs.logit_rows)
    assert {t.dtype for t in wide} == {torch.int64}
    assert {t.dtype for t in (inputs.query_start, inputs.kv_lengths, inputs.block_tables)} == {torch.int32}


def test_a_step_that_samples_nothing_wants_no_logits() -> None:
    prompt = sequence(list(range(9)), blocks=[1, 2, 3], num_computed=4)
    inputs = build_batch(StepPlan(1, [], [Chunk(prompt, 0, 4, False)], NOTHING), BLOCK).inputs
    check(inputs, logit_rows=[], token_ids=[0, 1, 2, 3], slot_mapping=[4, 5, 6, 7], query_start=[0, 4], kv_lengths=[4])


def test_a_resumed_sequence_computes_its_own_output_like_a_prompt() -> None:
    resumed = sequence([1, 2, 3, 4, 5, 6, 7], blocks=[5, 2], num_computed=7)
    inputs = build_batch(StepPlan(1, [], [Chunk(resumed, 4, 3, True)], NOTHING), BLOCK).inputs
    check(inputs, token_ids=[5, 6, 7], positions=[4, 5, 6], slot_mapping=[8, 9, 10], kv_lengths=[7], logit_rows=[2])
