"""How large the pool is and how long a request may be, from the knobs, the model and the memory that is free."""

from __future__ import annotations

from backend.config import EngineConfig
from backend.errors import ConfigError
from backend.free_memory import available_memory
from backend.kv.block_table import blocks_for
from backend.kv.storage import KVLayout
from backend.model.config import ModelConfig


def usable_blocks(
    config: EngineConfig, model: ModelConfig, layout: KVLayout, free: int, default_share: float
) -> int:  # fmt: skip
    """Blocks without the null block: as asked, or a share of free memory, but no more than all slots could fill.

    free: bytes of the memory that the pool is to lie in. default_share: of them, where the config names none.
    """
    asked = config.max_tokens_in_paged_kv_cache
    if asked:
        blocks = blocks_for(asked, layout.block_size)
        _check_room(f"a pool of {asked} tokens (max_tokens_in_paged_kv_cache)", blocks * layout.bytes_per_block, free)
        return blocks
    longest = config.max_seq_len or model.max_position_embeddings
    most = config.max_batch_size * blocks_for(longest, layout.block_size)
    fraction = config.kv_cache_free_gpu_mem_fraction or default_share
    share = int(max(free, 0) * fraction) // layout.bytes_per_block
    if share < 2:
        raise ConfigError(
            f"too little memory: the pool's share ({fraction} of {free / 2**30:.2f} GiB, "
            f"kv_cache_free_gpu_mem_fraction) holds {share} blocks of {layout.bytes_per_block} bytes"
        )
    return min(most, share)


def host_slots(config: EngineConfig, layout: KVLayout, *, page_locked: bool = False) -> int:
    """Blocks that the host memory set aside for swapping holds; none unless asked for.

    page_locked: torch allocates such memory in powers of two, and this much must be there.
    """
    asked = config.kv_cache_host_memory_bytes
    if config.preemption_mode == "recompute" or not asked:
        return 0
    taken = 1 << (asked - 1).bit_length() if page_locked else asked
    _check_room("kv_cache_host_memory_bytes" + " (page-locked)" * page_locked, taken, available_memory())
    return asked // layout.bytes_per_block


def max_seq_len(config: EngineConfig, model: ModelConfig, pool_tokens: int) -> int:
    """The asked limit, checked; or what model and pool allow. The last token of a request takes no slot."""
    if not config.max_seq_len:
        return min(model.max_position_embeddings, pool_tokens + 1)
    if config.max_seq_len > model.max_position_embeddings:
        raise ConfigError(
            f"parameter max_seq_len: {config.max_seq_len} is above the model's {model.max_position_embeddings}"
        )
    if config.max_seq_len > pool_tokens + 1:
        raise ConfigError(
            f"parameter max_seq_len: {config.max_seq_len} is above the {pool_tokens} tokens that the KV pool holds "
            "(max_tokens_in_paged_kv_cache)"
        )
    return config.max_seq_len


def _check_room(what: str, needed: int, free: int) -> None:
    if needed > free:
        raise ConfigError(f"too little memory: {what} needs {needed / 2**30:.2f} GiB, {free / 2**30:.2f} GiB are free")
