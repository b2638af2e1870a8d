"""A pool of int16: what is written to it, and attention over it in whole numbers."""

import dataclasses
import random
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.int16_kv import reference as int16_kv
from kernels.operations import Operations
from kernels.paged_attention.reference import paged_attention
from kernels.table import cpu_operations

Shape = tuple[int, int]  # (query rows, keys) of one sequence
LAYER, LAYERS = 1, 3


@pytest.fixture(scope="module")
def int16() -> Operations:
    return cpu_operations(2, pool=torch.int16)


def noise(blocks: int, kv_heads: int, block_size: int, size: int) -> Tensor:
    """A pool that holds whatever, NaN steps among it."""
    rows = block_size + int16_kv.step_rows(block_size, size)
    words = torch.randint(-(2**15), 2**15, (blocks, LAYERS, 2, kv_heads, rows, size), dtype=torch.int16)
    words[:, :, :, :, block_size:] = -1  # of float32, NaN
    return int16_kv.slots(words, block_size)


def words_of(pool: Tensor) -> Tensor:
    """All that a pool's blocks hold."""
    assert pool._base is not None
    return pool._base


@dataclass(frozen=True)
class Case:
    """A batch whose keys and values were written to shuffled blocks of a pool of noise."""

    q: Tensor
    pool: Tensor
    tables: Tensor
    starts: Tensor
    lengths: Tensor
    scale: float = 0.125
    window: int | None = None
    softcap: float | None = None

    def run(self, operations: Operations) -> Tensor:
        return operations.paged_attention(
            self.q, self.pool, LAYER, self.tables, self.starts, self.lengths, self.scale, self.window, self.softcap
        )

    def expected(self) -> Tensor:
        """Of the numbers as they are rounded, but for weights."""
        numbers, steps = int16_kv.quantize(self.q)
        pool = int16_kv.widened(self.pool, LAYER)
        return paged_attention(
            numbers * steps[..., None], pool, 0, self.tables, self.starts, self.lengths, self.scale, self.window,
            self.softcap,
        )  # fmt: skip

    def row(self, sequence: int, row: int) -> "Case":
        """A row of a sequence as it would be computed in a step of its own."""
        first, end = self.starts[sequence : sequence + 2].tolist()
        return dataclasses.replace(
            self,
            q=self.q[first + row : first + row + 1],
            tables=self.tables[sequence : sequence + 1],
            starts=torch.tensor([0, 1], dtype=torch.int32),
            lengths=self.lengths[sequence : sequence + 1] - (end - first - 1 - row),
        )


def written(operations: Operations, k: Tensor, v: Tensor, pool: Tensor, slots: Tensor) -> None:
    """Through the operation that decoders use, unrotated, without queries."""
    flat = torch.cat((torch.zeros(len(k), k.shape[2]), k.flatten(1), v.flatten(1)), dim=1)
    cos, sin = torch.ones(len(k), k.shape[2] // 2), torch.zeros(len(k), k.shape[2] // 2)
    operations.rope_and_write(flat, cos, sin, pool, LAYER, slots, None, None, 1e-6, 0.0)


def make_case(
    operations: Operations, shapes: list[Shape], kv_heads: int = 2, group: int = 3, size: int = 64,
    block_size: int = 16, seed: int = 0, **options: float | None,
) -> Case:  # fmt: skip
    torch.manual_seed(seed)
    counts = [-(-length // block_size) for _, length in shapes]
    ids = list(range(1, sum(counts) + 1))
    random.Random(seed).shuffle(ids)
    pool = noise(len(ids) + 1, kv_heads, block_size, size)
    tables = torch.zeros(len(shapes), max(counts, default=0) + 2, dtype=torch.int32)
    for s, (_, length) in enumerate(shapes):
        blocks = [ids.pop() for _ in range(counts[s])]
        tables[s, : counts[s]] = torch.tensor(blocks, dtype=torch.int32)
        slots = torch.tensor(
            [blocks[n // block_size] * block_size + n % block_size for n in range(length)], dtype=torch.int64
        )
        k, v = torch.randn(2, length, kv_heads, size) * torch.rand(2, length, 1, 1) * 3
        written(operations, k, v, pool, slots)
    rows = torch.tensor([0, *(n for n, _ in shapes)])
    return Case(
        q=torch.randn(int(rows.sum()), kv_heads * group, size) * 2,
        pool=pool,
        tables=tables,
        starts=rows.cumsum(0).int(),
        lengths=torch.tensor([length for _, length in shapes], dtype=torch.int32),
        **options,  # type: ignore[arg-type]
    )


def tolerance(case: Case) -> float:
    """What the rounding of weights may cost.

    Each is off by half a step of the heaviest of its tile at most; of 64 keys some are one way and some the other, so
    that their sum is not expected beyond the root of 64 such errors.
    """
    values = int16_kv.widened(case.pool, LAYER)[:, 0, 1].nan_to_num().abs()
    written_to = values.amax(dim=(1, 2, 3)) < 100  # a step of noise that is no NaN would be far larger
    steps = 2 * int16_kv.largest_weight(case.q.shape[2])
    return float(values[written_to].max()) * 8 / steps if written_to.any() else 0.0


def check(operations: Operations, case: Case) -> None:
    """Within what rounding weights may cost, and the same bits for rows by themselves."""
    found, expected = case.run(operations), case.expected()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=tolerance(case))
    for sequence in range(len(case.lengths)):
        rows = int(case.starts[sequence + 1] - case.starts[sequence])
        for row in {0, rows // 2, rows - 1} if rows else ():
            alone = case.row(sequence, row).run(operations)
            assert torch.equal(alone[0], found[case.starts[sequence] + row])


@pytest.mark.parametrize(("block_size", "size"), [(16, 64), (32, 128), (64, 256), (16, 192)])
def test_what_is_written_is_the_references_bit_for_bit(int16: Operations, block_size: int, size: int) -> None:
    torch.manual_seed(0)
    pool = noise(5, 3, block_size, size)
    theirs = int16_kv.slots(words_of(pool).clone(), block_size)
    slots = torch.randperm(5 * block_size)[: 2 * block_size + 7]
    k, v = torch.randn(2, len(slots), 3, size) * torch.logspace(-6, 6, len(slots))[:, None, None]
    k[0], v[1] = 0.0, 0.0
    written(int16, k, v, pool, slots)
    int16_kv.kv_write(k, v, theirs, LAYER, slots)
    assert torch.equal(words_of(pool), words_of(theirs))


def test_what_is_read_is_off_by_half_a_step_at_most(int16: Operations) -> None:
    torch.manual_seed(0)
    pool, slots = noise(4, 2, 16, 64), torch.randperm(64)[:40]
    k, v = torch.randn(2, 40, 2, 64)
    written(int16, k, v, pool, slots)
    read = int16_kv.widened(pool, LAYER)[slots // 16, 0, :, :, slots % 16]
    for part, x in enumerate((k, v)):
        half_a_step = x.abs().amax(dim=2, keepdim=True) / int16_kv.largest(64) / 2
        assert ((read[:, part] - x).abs() <= half_a_step * 1.001).all()
        assert ((read[:, part] - x).abs() > half_a_step * 0.5).any()


@pytest.mark.parametrize("group", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize(("size", "block_size"), [(64, 16), (128, 32), (256, 16), (192, 64)])
def test_head_sizes_groups_and_block_sizes(int16: Operations, size: int, block_size: int, group: int) -> None:
    check(int16, make_case(int16, [(1, 33), (3, 17), (1, 5), (20, 70)], 2, group, size, block_size, scale=size**-0.5))


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 63, 64, 65, 511, 512, 513, 1100])
def test_lengths_around_the_edges_of_runs_tiles_and_parts(int16: Operations, length: int) -> None:
    check(int16, make_case(int16, [(1, length), (length, length), (-(-length // 2), length)]))


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("window", [1, 16, 100, 700, None])
def test_windows_and_caps(int16: Operations, window: int | None, softcap: float | None) -> None:
    shapes = [(7, 19), (1, 13), (70, 570), (1, 1300), (5, 1300), (300, 300)]
    check(int16, make_case(int16, shapes, window=window, softcap=softcap))


@settings(max_examples=30, deadline=None)
@given(
    shapes=st.lists(
        st.integers(1, 150).flatmap(lambda length: st.tuples(st.integers(1, length), st.just(length))), max_size=5
    ),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 5),
    window=st.none() | st.integers(1, 160),
    seed=st.integers(0, 999),
)
def test_any_ragged_batch(
    int16: Operations, shapes: list[Shape], kv_heads: int, group: int, window: int | None, seed: int
) -> None:
    check(int16, make_case(int16, shapes, kv_heads, group, seed=seed, window=window))


def test_one_thread_and_three_give_the_same_bits(int16: Operations) -> None:
    case = make_case(int16, [(1, 1500), (90, 800), (3, 40)])
    for threads in (1, 3):
        assert torch.equal(case.run(cpu_operations(threads, pool=torch.int16)), case.run(int16))


def test_the_largest_numbers_do_not_overflow(int16: Operations) -> None:
    for size in (64, 128, 256):
        case = make_case(int16, [(1, 130), (60, 130)], size=size, scale=1e-3)
        ones = torch.ones(130, 2, size)
        for table in case.tables.tolist():
            written(int16, ones, -ones, case.pool, torch.tensor([table[n // 16] * 16 + n % 16 for n in range(130)]))
        full = dataclasses.replace(case, q=torch.ones_like(case.q))
        torch.testing.assert_close(full.run(int16), -torch.ones_like(case.q), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 30.0])
def test_scores_far_apart_neither_overflow_nor_vanish(int16: Operations, scale: float) -> None:
    case = make_case(int16, [(1, 300), (70, 300)], scale=scale)
    found = case.run(int16)
    assert found.isfinite().all()
    torch.testing.assert_close(found, case.expected(), rtol=1e-3, atol=tolerance(case))


def test_a_key_a_value_or_a_query_that_is_not_finite_makes_nan_of_those_who_see_it_alone(int16: Operations) -> None:
    case = make_case(int16, [(10, 100), (10, 100), (10, 100)])
    clean = case.run(int16)
    for sequence, (key, value) in enumerate([(torch.nan, 1.0), (1.0, torch.inf)]):
        k, v = torch.ones(1, 2, 64), torch.ones(1, 2, 64)
        k[0, 1, 5], v[0, 1, 9] = key, value
        table = case.tables[sequence].tolist()
        written(int16, k, v, case.pool, torch.tensor([table[95 // 16] * 16 + 95 % 16]))  # rows 5 .. 9 see it
    case.q[20 + 7, 2, 3] = torch.nan
    found = case.run(int16)
    seen = torch.zeros(30, 6, dtype=torch.bool)
    seen[5:10, 3:] = seen[15:20, 3:] = True
    seen[27, 2] = True
    assert torch.equal(found.isnan().all(dim=2), seen)
    assert torch.equal(found.isnan().any(dim=2), seen)
    untouched = torch.cat((torch.arange(5), torch.arange(10, 15), torch.arange(20, 27)))
    assert torch.equal(found[untouched], clean[untouched])


def test_sequences_without_keys_and_rows_without_sequence_stay_zero(int16: Operations) -> None:
    case = make_case(int16, [(2, 5), (1, 0), (1, 30)])
    padded = dataclasses.replace(case, q=torch.cat((case.q, torch.full((4, 6, 64), 3.0))))
    found = padded.run(int16)
    assert not found[2].any()
    assert not found[4:].any()
    torch.testing.assert_close(found[[0, 1, 3]], case.expected()[[0, 1, 3]], rtol=1e-3, atol=tolerance(case))


def test_the_comparison_sees_a_window_off_by_one_and_a_missing_cap(int16: Operations) -> None:
    case = make_case(int16, [(7, 19), (1, 13)], window=5, softcap=1.5)
    for wrong in ({"window": 6}, {"softcap": None}):
        other = dataclasses.replace(case, **wrong)  # type: ignore[arg-type]
        assert (case.run(int16) - other.expected()).abs().max() > 0.01
