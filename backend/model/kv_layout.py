"""How a model's keys and values lie in the pool."""

import torch

from backend.kv.storage import KVLayout
from backend.model.config import ModelConfig


def layout_of(model: ModelConfig, block_size: int, dtype: torch.dtype = torch.float32) -> KVLayout:
    """Blocks of so many tokens, in these numbers."""
    return KVLayout(
        num_layers=model.num_layers,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        block_size=block_size,
        dtype=dtype,
    )
