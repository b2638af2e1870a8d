"""Writing keys and values into the pool in plain torch."""

from torch import Tensor


def kv_write(k: Tensor, v: Tensor, pool: Tensor, layer: int, slot_mapping: Tensor) -> None:
    """Store each row's key and value in its slot, in place.

    Args:
        k: ``[T, Hkv, D]``, already rotated.
        v: ``[T, Hkv, D]``.
        pool: ``[num_blocks, num_layers, 2 (key, value), Hkv, block_size, D]``; changed.
        layer: which layer's part of the pool to write.
        slot_mapping: int64 ``[T]``, ``block * block_size + offset``. Slots of padding rows lie in block 0 and
            may repeat; all others are distinct.
    """
    block_size = pool.shape[4]
    blocks, offsets = slot_mapping // block_size, slot_mapping % block_size
    of_layer = pool[:, layer]
    of_layer[blocks, 0, :, offsets] = k.to(pool.dtype)
    of_layer[blocks, 1, :, offsets] = v.to(pool.dtype)
