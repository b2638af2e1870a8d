"""How large pool and host space become. A block: 2 layers x 2 x 1 head x 16 slots x 8 numbers x 4 bytes = 2 KiB."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from backend import sizing
from backend.config import EngineConfig
from backend.errors import ConfigError
from backend.kv.storage import KVLayout

LAYOUT = KVLayout(num_layers=2, num_kv_heads=1, head_dim=8, block_size=16, dtype=torch.float32)
MODEL: Any = SimpleNamespace(max_position_embeddings=1600)
BLOCK = 2048


def config(**knobs: Any) -> EngineConfig:
    return EngineConfig(model_dir="anywhere", max_batch_size=4, **knobs)


@pytest.mark.parametrize(
    ("fraction", "free", "blocks"),
    [
        (0.0, 100 * BLOCK, 90),  # the device's own share, here nine tenths
        (0.25, 100 * BLOCK, 25),
        (0.5, 10_000 * BLOCK, 400),  # four slots of 1,600 tokens can use no more
    ],
)
def test_an_automatic_pool_is_a_share_of_what_is_free(fraction: float, free: int, blocks: int) -> None:
    knobs = config(kv_cache_free_gpu_mem_fraction=fraction)
    assert sizing.usable_blocks(knobs, MODEL, LAYOUT, free, 0.9) == blocks


def test_of_two_on_one_device_the_second_takes_its_share_of_what_the_first_has_left() -> None:
    knobs, free = config(kv_cache_free_gpu_mem_fraction=0.5), 100 * BLOCK
    first = sizing.usable_blocks(knobs, MODEL, LAYOUT, free, 0.9)
    second = sizing.usable_blocks(knobs, MODEL, LAYOUT, free - first * BLOCK, 0.9)
    assert (first, second) == (50, 25)


def test_more_host_memory_than_there_is_is_refused_and_none_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "available_memory", lambda: 7 * BLOCK)
    assert sizing.host_slots(config(), LAYOUT) == 0
    assert sizing.host_slots(config(kv_cache_host_memory_bytes=BLOCK - 1), LAYOUT) == 0
    with pytest.raises(ConfigError, match="kv_cache_host_memory_bytes needs"):
        sizing.host_slots(config(kv_cache_host_memory_bytes=8 * BLOCK), LAYOUT)


def test_a_pool_that_was_asked_for_is_made_or_refused() -> None:
    knobs = config(max_tokens_in_paged_kv_cache=161)
    assert sizing.usable_blocks(knobs, MODEL, LAYOUT, 11 * BLOCK, 0.9) == 11
    with pytest.raises(ConfigError, match=r"a pool of 161 tokens \(max_tokens_in_paged_kv_cache\) needs"):
        sizing.usable_blocks(knobs, MODEL, LAYOUT, 10 * BLOCK, 0.9)


@pytest.mark.parametrize("free", [BLOCK, 0, -5 * BLOCK])
def test_too_little_memory_for_any_pool_is_refused(free: int) -> None:
    with pytest.raises(ConfigError, match=r"too little memory: the pool's share \(0.9 of .* holds 0 blocks of 2048"):
        sizing.usable_blocks(config(), MODEL, LAYOUT, free, 0.9)


def test_page_locked_memory_must_be_there_in_powers_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "available_memory", lambda: 7 * BLOCK)
    knobs = config(kv_cache_host_memory_bytes=5 * BLOCK)
    assert sizing.host_slots(knobs, LAYOUT) == 5
    with pytest.raises(ConfigError, match=r"kv_cache_host_memory_bytes \(page-locked\) needs"):
        sizing.host_slots(knobs, LAYOUT, page_locked=True)
    assert sizing.host_slots(config(kv_cache_host_memory_bytes=4 * BLOCK), LAYOUT, page_locked=True) == 4
    assert sizing.host_slots(config(), LAYOUT, page_locked=True) == 0
