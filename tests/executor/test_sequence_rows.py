"""Rows of the device's tables, written down by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.executor.sequence_rows import SequenceRows
from backend.request import Sequence
from backend.scheduler.plan import Chunk
from tests.engine.engines import request


def work(blocks: list[int], epoch: int = 0, **sampling: float) -> Chunk:
    sequence = Sequence(request(3, 5, **sampling))
    sequence.blocks, sequence.num_preemptions = blocks, epoch
    return Chunk(sequence, 0, 1, True)


def test_a_sequence_keeps_its_row_and_only_new_blocks_are_sent() -> None:
    table = SequenceRows(num_rows=2, max_blocks=5)
    one, other = work([7, 8]), work([3])
    rows, edits = table.place([one, other])
    assert rows.tolist() == [0, 1]
    assert (edits.places.tolist(), edits.blocks.tolist()) == ([0, 1, 16], [7, 8, 3])
    one.sequence.blocks.append(9)
    rows, edits = table.place([other, one])
    assert rows.tolist() == [1, 0]
    assert (edits.places.tolist(), edits.blocks.tolist()) == ([2], [9])
    assert not len(table.place([one])[1].places)


def test_after_a_preemption_the_whole_table_is_sent_again() -> None:
    table = SequenceRows(2, 5)
    one = work([7, 8])
    table.place([one])
    one.sequence.blocks, one.sequence.num_preemptions = [8, 7], 1
    rows, edits = table.place([one])
    assert (rows.tolist(), edits.places.tolist(), edits.blocks.tolist()) == ([0], [0, 1], [8, 7])
    assert table.tables[0, :2].tolist() == [8, 7]


def test_the_row_of_whoever_was_planned_least_recently_is_given_away_never_one_of_this_step() -> None:
    table = SequenceRows(2, 5)
    one, two, three = work([1]), work([2]), work([3])
    table.place([one, two])
    table.place([one])
    rows, edits = table.place([three, one])
    assert rows.tolist() == [1, 0]
    assert edits.blocks.tolist() == [3]
    assert table.place([two, three])[0].tolist() == [0, 1]


def test_a_row_given_back_is_sent_whole() -> None:
    table = SequenceRows(1, 5)
    one, two = work([1, 4]), work([2])
    for each in (one, two, one):
        _, edits = table.place([each])
    assert edits.blocks.tolist() == [1, 4]


def test_how_a_row_samples() -> None:
    table = SequenceRows(4, 1)
    table.place([work([1], temperature=0.5, top_k=2**31, top_p=0.25, min_p=0.125, seed=2**64 - 1)])
    assert (table.temperature[0], table.top_k[0], table.top_p[0], table.min_p[0]) == (0.5, 2**31 - 1, 0.25, 0.125)
    assert table.seed[0].astype(np.uint64) == 2**64 - 1


@pytest.mark.parametrize("sampling", [{}, {"temperature": 9e-6}, {"temperature": 1.0, "top_k": 1}])
def test_greedy_rows_have_no_temperature(sampling: dict[str, float]) -> None:
    table = SequenceRows(4, 1)
    table.place([work([1], **sampling)])
    assert table.temperature[0] == 0.0


def test_rows_are_a_whole_number_of_16_entries_wide_and_the_last_is_nobodys() -> None:
    assert [SequenceRows(3, most).tables.shape for most in (1, 16, 17)] == [(4, 16), (4, 16), (4, 32)]
    table = SequenceRows(3, 4)
    table.place([work([n + 1] * 4) for n in range(3)])
    assert not table.tables[table.null_row].any()


@settings(max_examples=60, deadline=None)
@given(data=st.data(), num_rows=st.integers(1, 4))
def test_the_devices_table_is_always_that_of_the_sequences(data: st.DataObject, num_rows: int) -> None:
    """A copy that gets the edits alone holds each planned sequence's blocks in its row."""
    table, works = SequenceRows(num_rows, 6), [work([]) for _ in range(6)]
    device = table.tables.copy().reshape(-1)
    for _ in range(12):
        planned = data.draw(st.lists(st.sampled_from(works), max_size=num_rows, unique_by=id))
        for each in planned:
            if data.draw(st.booleans()):
                each.sequence.num_preemptions += 1
                each.sequence.blocks = []
            if len(each.sequence.blocks) < 6:
                each.sequence.blocks.append(data.draw(st.integers(1, 99)))
        rows, edits = table.place(planned)
        device[edits.places] = edits.blocks
        assert len(set(rows.tolist())) == len(planned)
        assert len(set(edits.places.tolist())) == len(edits.places)
        for row, each in zip(rows, planned, strict=True):
            assert device.reshape(table.tables.shape)[row, : len(each.sequence.blocks)].tolist() == each.sequence.blocks
