"""The draw: known answers of the generator, filters against transformers, frequencies against the distribution."""

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from backend.sampling.sampler import SamplingRow, sample
from backend.sampling_params import SamplingParams
from kernels.sampling.reference import draw, filter_logits, gumbel_noise, philox4x32


# Known-answer vectors published with the generator (Random123, kat_vectors, philox4x32 with 10 rounds).
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    c0, c1, c2, c3 = (np.array([word], dtype=np.uint64) for word in counter)
    assert tuple(int(word[0]) for word in philox4x32((c0, c1, c2, c3), key)) == expected


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"), [(0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.7, 0.0), (0, 1.0, 0.2), (9, 0.8, 0.05)]
)
def test_filters_keep_what_transformers_keeps(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    logits = torch.randn(40, 200, generator=torch.Generator().manual_seed(3)) * 3
    ids = torch.zeros(40, 1, dtype=torch.long)
    expected = TemperatureLogitsWarper(temperature)(ids, logits.clone())
    if top_k:
        expected = TopKLogitsWarper(top_k)(ids, expected)
    if top_p < 1:
        expected = TopPLogitsWarper(top_p)(ids, expected)
    if min_p:
        expected = MinPLogitsWarper(min_p)(ids, expected)
    for row in range(40):
        torch.testing.assert_close(filter_logits(logits[row], temperature, top_k, top_p, min_p), expected[row])


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -torch.inf, 0.5])
    count = 4000
    drawn = torch.bincount(torch.stack([draw(logits, seed=11, position=n) for n in range(count)]), minlength=6)
    expected = torch.softmax(logits, 0) * count
    assert drawn[4] == 0
    chi_square = (((drawn - expected) ** 2)[expected > 0] / expected[expected > 0]).sum()
    assert chi_square < 20.5  # 0.1 % point of chi-square with 4 degrees of freedom is 18.5; the seed is fixed


def test_noise_depends_on_seed_and_position_and_not_on_the_vocabulary_around_it() -> None:
    noise = gumbel_noise(5, 9, 1000)
    assert torch.equal(noise, gumbel_noise(5, 9, 1000))
    assert torch.equal(noise[:333], gumbel_noise(5, 9, 333))
    assert not torch.equal(noise, gumbel_noise(6, 9, 1000))
    assert not torch.equal(noise, gumbel_noise(5, 10, 1000))
    assert not torch.equal(noise, gumbel_noise(5 + (1 << 32), 9, 1000)), "the seed's upper half counts"
    assert torch.isfinite(noise).all()


def test_a_row_is_sampled_alike_whatever_its_neighbours() -> None:
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(1))
    rows = [
        SamplingRow(SamplingParams(max_tokens=1, temperature=t, seed=s), 40 + s)
        for s, t in enumerate((0, 1, 0.7, 0, 3))
    ]
    together = sample(logits, rows)
    alone = [sample(logits[n : n + 1], rows[n : n + 1])[0] for n in range(5)]
    assert together == alone
    assert together[0] == int(logits[0].argmax())


@pytest.mark.parametrize("temperature", [0.0, 1e-9, 1e-6])
def test_no_temperature_and_a_tiny_one_are_greedy(temperature: float) -> None:
    logits = torch.randn(1, 300, generator=torch.Generator().manual_seed(2))
    params = SamplingParams(max_tokens=1, temperature=temperature, top_k=50, top_p=0.9, seed=1)
    assert sample(logits, [SamplingRow(params, 3)]) == [int(logits.argmax())]


def test_eight_seeds_give_different_tokens_and_the_same_again() -> None:
    logits = torch.zeros(8, 5000)
    rows = [SamplingRow(SamplingParams(max_tokens=1, temperature=1.0, seed=seed), 7) for seed in range(8)]
    assert len(set(sample(logits, rows))) >= 7
    assert sample(logits, rows) == sample(logits, rows)
