import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.penalties import reference as penalties_reference
from kernels.penalties import triton_kernel as penalties_triton
from kernels.sampling import reference
from kernels.sampling.triton_kernel import RowSampling, find_cuts, sample, uniform
from kernels.token_log_probs import reference as log_probs_reference
from kernels.token_log_probs import triton_kernel as log_probs_triton

Row = tuple[float, int, float, float, int, int]  # temperature, top_k, top_p, min_p, seed, position


def packed(rows: list[Row]) -> RowSampling:
    temperature, top_k, top_p, min_p, seed, position = zip(*rows, strict=True)
    return RowSampling(
        temperature=torch.tensor(temperature),
        top_k=torch.tensor(top_k, dtype=torch.int32),
        top_p=torch.tensor(top_p),
        min_p=torch.tensor(min_p),
        seed=torch.from_numpy(np.array(seed, dtype=np.uint64).view(np.int64)),
        position=torch.tensor(position, dtype=torch.int32),
    )


def expected_token(logits: torch.Tensor, row: Row) -> int:
    temperature, top_k, top_p, min_p, seed, position = row
    if temperature == 0:
        return int(logits.argmax())
    scaled = reference.filter_logits(logits, temperature, top_k, top_p, min_p)
    return int(reference.draw(scaled, seed, position))


@triton.jit
def uniform_kernel(out, seed, position, first, COLUMNS: tl.constexpr):
    values = uniform(tl.load(seed), tl.load(position), first, COLUMNS)
    tl.store(out + tl.arange(0, COLUMNS), values)


@pytest.mark.parametrize("first", [0, 64, 128000])
@pytest.mark.parametrize(("seed", "position"), [(0, 0), (1, 7), (2**64 - 1, 2**31 - 1), (0x123456789ABCDEF0, 131071)])
def test_uniform_numbers_are_the_references_bit_by_bit(seed: int, position: int, first: int) -> None:
    index = np.arange(first // 4, first // 4 + 16, dtype=np.uint64)
    nothing = np.zeros_like(index)
    key = (seed & 0xFFFFFFFF, seed >> 32)
    words = reference.philox4x32((index, nothing + np.uint64(position), nothing, nothing), key)
    expected = ((np.stack(words, axis=1).reshape(-1) >> np.uint64(9)).astype(np.float64) + 0.5) * 2.0**-23
    found = torch.empty(64)
    seeds = torch.from_numpy(np.array([seed], dtype=np.uint64).view(np.int64))
    uniform_kernel[(1,)](found, seeds, torch.tensor([position], dtype=torch.int32), first, COLUMNS=64)
    assert np.array_equal(found.double().numpy(), expected)


FILTERS = [(0, 1.0, 0.0), (5, 1.0, 0.0), (1, 1.0, 0.0), (0, 0.7, 0.0), (0, 1.0, 0.1), (40, 0.9, 0.02), (0, 1e-6, 0.0)]


@pytest.mark.parametrize("vocab", [50, pytest.param(5000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("rounded", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_tokens_are_the_references(vocab: int, rounded: bool) -> None:
    """Rounded logits tie often, so the choice among equals is tested too."""
    torch.manual_seed(vocab)
    rows: list[Row] = [
        (heat, *filters, seed, 11 * seed)
        for seed, (heat, filters) in enumerate([(heat, filters) for heat in (0.7, 1.5) for filters in FILTERED_ALL])
    ]
    logits = torch.randn(len(rows), vocab) * 3
    if rounded:
        logits = (logits * 2).round() / 2
    found = sample(logits, packed(rows)).tolist()
    assert found == [expected_token(logits[i], row) for i, row in enumerate(rows)]


FILTERED_ALL = [*FILTERS, (10_000, 1.0, 0.0), (3, 0.999, 0.5)]


def kept_tokens(logits: torch.Tensor, row: Row) -> list[int]:
    thresholds, last_ties = (int(x) for x in find_cuts(logits[None], packed([row])))
    bits = (logits / row[0] + 0.0).view(torch.int32)
    keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    ids = torch.arange(len(logits))
    return ids[(keys > thresholds) | ((keys == thresholds) & (ids <= last_ties))].tolist()


def test_ties_with_the_kth_stay_and_ties_on_the_mass_are_cut_by_id() -> None:
    logits = torch.tensor([0.0, 3.0, 1.0, 3.0, 2.0, 1.0, 1.0, -1.0]) * 1e-3
    assert kept_tokens(logits, (1.0, 4, 1.0, 0.0, 0, 0)) == [1, 2, 3, 4, 5, 6]
    # Each has about 1/8: three of them reach 0.3, in order of likelihood, then of id.
    assert kept_tokens(logits, (1.0, 0, 0.3, 0.0, 0, 0)) == [1, 3, 4]
    # 0.45 takes the 4 likeliest; the first of the three equal ones is the fourth.
    assert kept_tokens(logits, (1.0, 0, 0.45, 0.0, 0, 0)) == [1, 2, 3, 4]


@pytest.mark.parametrize("filters", FILTERED_ALL)
@pytest.mark.parametrize("rounded", [False, True])
def test_the_tokens_kept_are_the_references(rounded: bool, filters: tuple[int, float, float]) -> None:
    torch.manual_seed(5)
    logits = torch.randn(700) * 3
    if rounded:
        logits = (logits * 2).round() / 2
    scaled = reference.filter_logits(logits, 0.9, *filters)
    assert kept_tokens(logits, (float(torch.tensor(0.9)), *filters, 0, 0)) == scaled.isfinite().nonzero()[:, 0].tolist()


def test_greedy_rows_take_the_first_of_the_likeliest_and_no_noise() -> None:
    logits = torch.zeros(2, 3000)
    logits[0, [1500, 2500]] = 4.0
    logits[1, [2999]] = 1.0
    assert sample(logits, packed([(0.0, 3, 0.5, 0.1, 9, 9), (0.0, 0, 1.0, 0.0, 9, 9)])).tolist() == [1500, 2999]


def test_a_token_does_not_depend_on_the_batch_and_the_search_may_be_saved() -> None:
    torch.manual_seed(0)
    logits = torch.randn(4, 2000)
    rows: list[Row] = [(1.0, 0, 1.0, 0.0, seed, 5) for seed in range(4)]
    together = sample(logits, packed(rows))
    assert torch.equal(sample(logits, packed(rows), filtered=False), together)
    assert torch.equal(sample(logits[2:3], packed(rows[2:3])), together[2:3])


def test_masked_tokens_are_never_drawn() -> None:
    logits = torch.full((2, 100), -torch.inf)
    logits[:, [3, 77]] = 0.0
    found = sample(logits, packed([(1.0, 50, 0.99, 0.01, seed, 0) for seed in range(2)]))
    assert set(found.tolist()) <= {3, 77}


@settings(max_examples=4, deadline=None)
@given(
    vocab=st.integers(1, 300),
    heat=st.floats(0.1, 5),
    top_k=st.integers(0, 40),
    top_p=st.floats(0.05, 1),
    min_p=st.sampled_from([0.0, 0.01, 0.3]),
    seed=st.integers(0, 2**64 - 1),
)
def test_any_row(vocab: int, heat: float, top_k: int, top_p: float, min_p: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed % 1000)
    logits = torch.randn(1, vocab, generator=generator) * 2
    row: Row = (heat, top_k, top_p, min_p, seed, 3)
    row = (*(float(torch.tensor(x)) if isinstance(x, float) else x for x in row),)  # type: ignore[assignment]
    assert sample(logits, packed([row])).tolist() == [expected_token(logits[0], row)]


@pytest.mark.parametrize("width", [0, 3])
def test_penalties_and_bias(width: int) -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 3000)
    counts = torch.randint(-5, 4, logits.shape, dtype=torch.int32).clamp(min=0)
    in_prompt = torch.rand(logits.shape) < 0.1
    ids = torch.tensor([[5, 2999, 17], [3, -1, -1], [-1, -1, -1]], dtype=torch.int32)[:, :width].contiguous()
    arguments = (
        *(counts, in_prompt, torch.tensor([1.3, 1.0, 0.5]), torch.tensor([0.5, 0.0, -0.2])),
        *(torch.tensor([0.1, 0.0, 2.0]), ids, torch.randn(3, width)),
    )
    found = penalties_triton.penalise(logits, *arguments)
    torch.testing.assert_close(found, penalties_reference.penalise(logits, *arguments))
    if width == 0:
        assert torch.equal(found[1], logits[1])


@pytest.mark.parametrize("vocab", [10, 9000])
def test_token_log_probabilities(vocab: int) -> None:
    logits = torch.randn(3, vocab) * 5
    logits[1, 4:] = -torch.inf
    tokens = torch.tensor([vocab - 1, 2, 0])
    found = log_probs_triton.token_log_probs(logits, tokens)
    torch.testing.assert_close(found, log_probs_reference.token_log_probs(logits, tokens))
