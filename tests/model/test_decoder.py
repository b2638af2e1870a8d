import dataclasses
import random
from collections.abc import Callable
from itertools import pairwise, zip_longest

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.weights import load_weights
from kernels.operations import Operations
from kernels.table import reference_operations
from tests.model.paged_run import PagedRun
from tests.model.tiny_models import TINY, Saved

GetSaved = Callable[[str], Saved]
GetDecoder = Callable[[str], Decoder]
TOLERANCE = 1e-4
WHOLE = [[(0, 29)], [(1, 18)]]
MIXED = [[(0, 5)], [(0, 7), (1, 1)], [(1, 9), (0, 1)], [(0, 1), (1, 1)], [(1, 7), (0, 15)]]
ONE_BY_ONE = [[(0, 1), (1, 1)]] * 18 + [[(0, 1)]] * 11


def prompts(lengths: tuple[int, ...] = (29, 18)) -> list[list[int]]:
    rng = random.Random(7)
    return [[rng.randrange(3, 101) for _ in range(length)] for length in lengths]


def worst_difference(saved: Saved, decoder: Decoder, steps: list[list[tuple[int, int]]], **layout: int) -> float:
    found = PagedRun(decoder, prompts(), **layout).run(steps)
    expected = [saved.logits(prompt) for prompt in prompts()]
    return max((f - e).abs().max().item() for f, e in zip(found, expected, strict=True))


@pytest.mark.parametrize("steps", [WHOLE, MIXED, ONE_BY_ONE], ids=["whole", "mixed", "one-by-one"])
@pytest.mark.parametrize("name", TINY)
def test_logits_of_every_position_equal_transformers(
    name: str, steps: list[list[tuple[int, int]]], saved: GetSaved, decoder: GetDecoder
) -> None:
    assert worst_difference(saved(name), decoder(name), steps) < TOLERANCE


@pytest.mark.parametrize(
    "name", ["llama-untied-sharded", "llama-biases", "mistral-window", "qwen3", "gemma3-final-cap"]
)
def test_compiled_operations_give_the_same_logits(name: str, saved: GetSaved, compiled: Operations) -> None:
    config = ModelConfig.from_directory(saved(name).path)
    weights = load_weights(saved(name).path, config, progress=False, pack=compiled.pack_linear)
    found = Decoder(config, weights, compiled)
    for steps in (WHOLE, MIXED, ONE_BY_ONE):
        assert worst_difference(saved(name), found, steps) < TOLERANCE


@pytest.mark.parametrize("name", ["llama-tied", "mistral-window", "gemma3"])
@settings(max_examples=25, deadline=None)
@given(
    cuts=st.tuples(st.sets(st.integers(1, 28)), st.sets(st.integers(1, 17))),
    delay=st.integers(0, 5),
    block_size=st.sampled_from([1, 4, 16]),
    seed=st.integers(0, 99),
)
def test_prompts_may_be_cut_anywhere(
    name: str,
    cuts: tuple[set[int], set[int]],
    delay: int,
    block_size: int,
    seed: int,
    saved: GetSaved,
    decoder: GetDecoder,
) -> None:
    chunks = []
    for sequence, (length, points) in enumerate(zip((29, 18), cuts, strict=True)):
        edges = [0, *sorted(points), length]
        chunks.append([(sequence, end - start) for start, end in pairwise(edges)])
    paired = zip_longest(chunks[0], [None] * delay + chunks[1])
    steps = [step for pair in paired if (step := [chunk for chunk in pair if chunk is not None])]
    assert worst_difference(saved(name), decoder(name), steps, block_size=block_size, seed=seed) < TOLERANCE


def test_only_the_rows_asked_for_come_back_in_that_order(decoder: GetDecoder) -> None:
    run = PagedRun(decoder("qwen3"), prompts())
    inputs = run.inputs([(0, 29), (1, 18)])
    every = run.decoder.forward(inputs, run.pool)
    some = run.decoder.forward(dataclasses.replace(inputs, logit_rows=torch.tensor([46, 28])), run.pool)
    torch.testing.assert_close(some, every[[46, 28]])
    none = run.decoder.forward(dataclasses.replace(inputs, logit_rows=torch.tensor([], dtype=torch.int64)), run.pool)
    assert none.shape == (0, 101)


def test_what_nobody_asked_for_changes_neither_the_other_rows_nor_the_pool(
    saved: GetSaved, compiled: Operations
) -> None:
    config = ModelConfig.from_directory(saved("qwen3").path)
    weights = load_weights(saved("qwen3").path, config, progress=False, pack=compiled.pack_linear)
    found = {}
    for rows in (list(range(47)), [46, 28], []):
        run = PagedRun(Decoder(config, weights, compiled), prompts())
        inputs = dataclasses.replace(run.inputs([(0, 29), (1, 18)]), logit_rows=torch.tensor(rows, dtype=torch.int64))
        found[len(rows)] = run.decoder.forward(inputs, run.pool), run.pool.nan_to_num()
    (every, pool), (some, after_some), (none, after_none) = found.values()
    assert torch.equal(some, every[[46, 28]])
    assert none.shape == (0, 101)
    assert torch.equal(after_some, pool)
    assert torch.equal(after_none, pool)


def test_a_step_that_nobody_asks_for_computes_no_attention_in_the_last_layer(decoder: GetDecoder) -> None:
    layers = []
    real = reference_operations()

    def spy(q: torch.Tensor, pool: torch.Tensor, layer: int, *args: object, **options: object) -> torch.Tensor:
        layers.append(layer)
        return real.paged_attention(q, pool, layer, *args, **options)  # type: ignore[arg-type]

    plain = decoder("qwen3")
    run = PagedRun(Decoder(plain.config, plain._weights, dataclasses.replace(real, paged_attention=spy)), prompts())
    inputs = run.inputs([(0, 29)])
    run.decoder.forward(inputs, run.pool)
    everything = plain.config.num_layers
    assert layers == list(range(everything))
    layers.clear()
    run.decoder.forward(dataclasses.replace(inputs, logit_rows=torch.tensor([], dtype=torch.int64)), run.pool)
    assert layers == list(range(everything - 1))


def test_a_step_writes_its_own_slots_only(decoder: GetDecoder) -> None:
    run = PagedRun(decoder("llama-tied"), prompts())
    inputs = run.inputs([(0, 6), (1, 3)])
    run.decoder.forward(inputs, run.pool)
    written = ~run.pool.isnan().any(dim=(1, 2, 3, 5)).flatten()
    assert set(written.nonzero().flatten().tolist()) == set(inputs.slot_mapping.tolist())


def test_the_attention_cap_reaches_every_layer(decoder: GetDecoder) -> None:
    caps = []
    real = reference_operations()

    def spy(*args: object, softcap: float | None, **options: object) -> torch.Tensor:
        caps.append(softcap)
        return real.paged_attention(*args, softcap=softcap, **options)  # type: ignore[arg-type]

    plain = decoder("gemma3")
    config = dataclasses.replace(plain.config, attention_softcap=2.5)
    capped = Decoder(config, plain._weights, dataclasses.replace(real, paged_attention=spy))
    PagedRun(capped, prompts()).run(WHOLE)
    assert caps == [2.5] * 6


def _with_window(config: ModelConfig, by: int) -> ModelConfig:
    kinds = tuple(dataclasses.replace(kind, window=kind.window and kind.window + by) for kind in config.layer_kinds)
    return dataclasses.replace(config, layer_kinds=kinds)


def _with_theta(config: ModelConfig, times: float) -> ModelConfig:
    kinds = tuple(
        dataclasses.replace(kind, rope=dataclasses.replace(kind.rope, theta=kind.rope.theta * times))
        for kind in config.layer_kinds
    )
    return dataclasses.replace(config, layer_kinds=kinds)


def _with_rope(config: ModelConfig, **changes: object) -> ModelConfig:
    kinds = tuple(
        dataclasses.replace(kind, rope=dataclasses.replace(kind.rope, **changes)) for kind in config.layer_kinds
    )
    return dataclasses.replace(config, layer_kinds=kinds)


def _with_scaling(config: ModelConfig, **changes: object) -> ModelConfig:
    return _with_rope(config, scaling=dataclasses.replace(config.layer_kinds[0].rope.scaling, **changes))


def _with_kinds_swapped(config: ModelConfig) -> ModelConfig:
    ropes = [config.layer_kinds[1].rope, config.layer_kinds[0].rope, config.layer_kinds[1].rope]
    kinds = tuple(dataclasses.replace(kind, rope=rope) for kind, rope in zip(config.layer_kinds, ropes, strict=True))
    return dataclasses.replace(config, layer_kinds=kinds)


MISTAKES: dict[str, tuple[str, Callable[[ModelConfig], ModelConfig]]] = {
    "window one too wide": ("mistral-window", lambda c: _with_window(c, 1)),
    "window one too narrow": ("gemma3", lambda c: _with_window(c, -1)),
    "rope base off by a tenth": ("llama-tied", lambda c: _with_theta(c, 1.1)),
    "linear scaling forgotten": ("llama-linear-rope", lambda c: _with_rope(c, scaling=None)),
    "llama 3 scaling forgotten": ("llama-llama3-rope", lambda c: _with_rope(c, scaling=None)),
    "llama 3 ramp moved": ("llama-llama3-rope", lambda c: _with_scaling(c, high_freq_factor=8.0)),
    "yarn without its attention factor": ("llama-yarn-rope", lambda c: _with_rope(c, attention_factor=1.0)),
    "yarn ramp moved": ("llama-yarn-rope-tuned", lambda c: _with_scaling(c, beta_fast=32.0)),
    "yarn ramp truncated": ("llama-yarn-rope-tuned", lambda c: _with_scaling(c, truncate=True)),
    "rope of the other layer type": ("gemma3", _with_kinds_swapped),
    "norm offset forgotten": ("gemma3", lambda c: dataclasses.replace(c, norm_offset=0.0)),
    "embedding not scaled": ("gemma3", lambda c: dataclasses.replace(c, embedding_scale=1.0)),
    "attention scaled by head size": ("gemma3", lambda c: dataclasses.replace(c, attention_scale=16**-0.5)),
    "the other activation": ("qwen2", lambda c: dataclasses.replace(c, activation="gelu_tanh")),
    "no final cap": ("gemma3-final-cap", lambda c: dataclasses.replace(c, final_softcap=None)),
    "queries not normalised": ("qwen3", lambda c: dataclasses.replace(c, qk_norm=False)),
    "biases dropped": ("qwen2", lambda c: dataclasses.replace(c, qkv_bias=False)),
    "norm epsilon": ("qwen3", lambda c: dataclasses.replace(c, rms_norm_eps=1e-2)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_comparison_sees_a_wrong_config(mistake: str, saved: GetSaved) -> None:
    name, spoil = MISTAKES[mistake]
    config = spoil(ModelConfig.from_directory(saved(name).path))
    wrong = Decoder(config, load_weights(saved(name).path, config, progress=False), reference_operations())
    assert worst_difference(saved(name), wrong, MIXED) > 100 * TOLERANCE


def test_the_comparison_sees_a_block_of_another_sequence(saved: GetSaved, decoder: GetDecoder) -> None:
    # Two blocks of one sequence in the wrong order would not do: full attention does not care about order.
    run = PagedRun(decoder("llama-tied"), prompts())
    run.run([[(0, 20), (1, 18)]])
    run.tables[0][1] = run.tables[1][1]
    found = run.run([[(0, 9)]])[0]
    assert (found - saved("llama-tied").logits(prompts()[0]))[20:].abs().max() > 100 * TOLERANCE
