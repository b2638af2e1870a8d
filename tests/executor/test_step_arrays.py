"""What the GPU executor sends is what the CPU executor's batch holds, and padding points at the null block."""

import numpy as np
import pytest

from backend.executor.sequence_rows import SequenceRows
from backend.executor.staging import room_for
from backend.executor.step_arrays import (
    UNKNOWN,
    StepArrays,
    bytes_per_step,
    null_arrays,
    padded_decode,
    step_arrays,
)
from backend.executor.step_inputs import build_batch
from backend.request import Sequence
from backend.scheduler.plan import BlockCopies, Chunk, StepPlan
from tests.engine.engines import request

BLOCK = 4


def sequence(tokens: list[int], blocks: list[int], num_computed: int, **sampling: float) -> Sequence:
    made = Sequence(request(tuple(tokens[:1]), 50, **sampling))
    made.tokens, made.blocks, made.num_computed = list(tokens), blocks, num_computed
    return made


@pytest.fixture
def plan() -> StepPlan:
    """Two decodes, one of a token that is not known yet; a chunk inside a prompt; a chunk that ends one."""
    known = sequence([10, 11, 12, 13, 14, 15], [7, 3], 6)
    unknown = sequence([20, 21, 22, 23], [9, 2], 5, temperature=0.5, top_p=0.9, seed=11)
    middle = sequence(list(range(30, 43)), [4, 8, 5, 1], 9)
    last = sequence([50, 51, 52], [6], 3)
    return StepPlan(
        1, [known, unknown], [Chunk(middle, 3, 6, False), Chunk(last, 1, 2, True)], BlockCopies([], [], [], [])
    )


def arrays_of(plan: StepPlan) -> tuple[StepArrays, SequenceRows]:
    table = SequenceRows(4, 8)
    rows, _ = table.place(plan.works())
    return step_arrays(plan.works(), rows, table, BLOCK), table


def test_the_arrays_are_the_batch_that_the_cpu_executor_builds(plan: StepPlan) -> None:
    arrays, table = arrays_of(plan)
    inputs = build_batch(plan, BLOCK).inputs
    assert arrays.known.tolist() == [15, UNKNOWN, *inputs.token_ids[2:].tolist()]
    for name, theirs in (
        ("positions", inputs.positions),
        ("slots", inputs.slot_mapping),
        ("query_start", inputs.query_start),
        ("kv_lengths", inputs.kv_lengths),
        ("logit_rows", inputs.logit_rows),
    ):
        assert getattr(arrays, name).tolist() == theirs.tolist(), name
        assert str(getattr(arrays, name).dtype) == str(theirs.dtype).removeprefix("torch."), name
    assert table.tables[arrays.rows, :4].tolist() == inputs.block_tables.tolist()


def test_rows_that_sample_and_how(plan: StepPlan) -> None:
    arrays, _ = arrays_of(plan)
    assert arrays.sampled_rows.tolist() == [arrays.rows[0], arrays.rows[1], arrays.rows[3]]
    assert arrays.temperature.tolist() == [0.0, 0.5, 0.0]
    assert arrays.seed.tolist() == [0, 11, 0]
    assert arrays.draw_positions.tolist() == [6, 5, 3]
    assert arrays.filtered
    assert not arrays._replace(top_p=np.ones(3, dtype=np.float32)).filtered


def test_padding_has_no_keys_and_writes_to_the_first_slot_of_the_null_block(plan: StepPlan) -> None:
    arrays, table = arrays_of(plan._replace(chunks=[]))
    padded = padded_decode(arrays, 4, table.null_row)
    assert padded.query_start.tolist() == [0, 1, 2, 3, 4]
    assert padded.logit_rows.tolist() == [0, 1, 2, 3]
    assert padded.kv_lengths.tolist() == [6, 5, 0, 0]
    assert padded.slots.tolist() == [*arrays.slots.tolist(), 0, 0]
    assert padded.rows[2:].tolist() == padded.sampled_rows[2:].tolist() == [table.null_row] * 2
    assert (padded.temperature[2:].tolist(), padded.top_p[2:].tolist()) == ([0.0, 0.0], [1.0, 1.0])
    assert [array.dtype for array in padded] == [array.dtype for array in arrays]
    assert padded_decode(arrays, 2, table.null_row) is arrays


def test_null_sequences_lie_in_the_null_block(plan: StepPlan) -> None:
    arrays = null_arrays([6, 1], SequenceRows(4, 8), BLOCK)
    assert arrays.slots.tolist() == [0, 1, 2, 3, 0, 1, 0]
    assert arrays.kv_lengths.tolist() == [6, 1]
    assert arrays.rows.tolist() == [4, 4]


def test_the_size_of_a_step_is_known_beforehand() -> None:
    arrays = null_arrays([3, 2, 2], SequenceRows(4, 8), BLOCK)
    assert [array.nbytes for array in arrays] == bytes_per_step(7, 3)
    assert room_for(bytes_per_step(7, 3)) == room_for(array.nbytes for array in arrays)
