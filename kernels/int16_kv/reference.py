"""A pool of int16 in plain torch: its layout, what is written, and what is read.

A block holds, for each key head, its keys, then the steps of its tokens; likewise the values:

    keys    int16   [block_size / 16, size / 2, 16 (token), 2]      pairs of dimensions
    values  int16   [block_size / 2, size, 2 (token)]               pairs of tokens
    steps   float32 [block_size]                                    what a whole number of that token is worth

so that attention reads vectors of 16 pairs where they lie. A token's key, or value, in one head is rounded by its own
largest element, so that nothing written later changes it.
"""

from math import sqrt

import torch
from torch import Tensor

RUN = 16  # tokens that lie side by side
SIZES = 64  # the size of a head is a multiple of it
KEYS = 64  # that attention works on at a time
_INT32 = 2**31 - 1


def supported(block_size: int, size: int) -> bool:
    """Whether blocks of so many tokens and heads of that size can be laid out so."""
    return block_size % RUN == 0 and size % SIZES == 0


def largest(size: int) -> int:
    """Of a rounded key or query of so many dimensions: int32 holds the sum of the products of any two."""
    return int(sqrt(_INT32 // size))


def largest_weight(size: int) -> int:
    """Of a rounded weight: int32 holds the sum of its products with 64 values."""
    return min(2**15 - 1, _INT32 // (KEYS * int(sqrt(_INT32 // size))))


def step_rows(block_size: int, size: int) -> int:
    """How many rows of int16 ``[size]`` the steps of a block take, behind its ``block_size``."""
    return -(-2 * block_size // size)


def slots(blocks: Tensor, block_size: int) -> Tensor:
    """What operations take as the pool, ``[N, L, 2, Hkv, block_size, D]``, of all that blocks hold.

    Args:
        blocks: int16 ``[N, L, 2, Hkv, block_size + step_rows, D]``.
        block_size: tokens of a block.
    """
    return blocks[:, :, :, :, :block_size]


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Float32 ``[..., D]`` -> int16 of that shape and float32 steps ``[...]``; their product is about ``x``."""
    tops = x.abs().amax(dim=-1)
    factor = torch.full_like(tops, largest(x.shape[-1])) / tops
    numbers = torch.round(x.double() * factor.double()[..., None]).nan_to_num().to(torch.int16)
    step = torch.where(tops == 0, 0.0, torch.ones_like(tops) / factor)
    return numbers, torch.where(x.isfinite().all(dim=-1), step, torch.nan)


def kv_write(k: Tensor, v: Tensor, pool: Tensor, layer: int, slot_mapping: Tensor) -> None:
    """Store each row's key and value in its slot, in place.

    Args:
        k, v, layer, slot_mapping: see ``kernels.kv_write.reference.kv_write``.
        pool: what ``slots`` gives; changed.
    """
    keys, values, steps = _parts(pool, layer)
    for row, slot in enumerate(slot_mapping.tolist()):
        block, offset = divmod(slot, pool.shape[4])
        run, token = divmod(offset, RUN)
        for part, x in enumerate((k[row], v[row])):
            numbers, step = quantize(x)
            steps[block, part, :, offset] = step
            if part == 0:
                keys[block, :, run, :, token] = numbers.view(len(x), -1, 2)
            else:
                values[block, :, offset // 2, :, offset % 2] = numbers


def widened(pool: Tensor, layer: int) -> Tensor:
    """What the numbers are worth: float32 ``[N, 1, 2, Hkv, block_size, D]``."""
    keys, values, steps = _parts(pool, layer)
    count, heads, block_size, size = len(pool), pool.shape[3], pool.shape[4], pool.shape[5]
    of_keys = keys.permute(0, 1, 2, 4, 3, 5).reshape(count, heads, block_size, size)
    of_values = values.transpose(3, 4).reshape(count, heads, block_size, size)
    return (torch.stack((of_keys, of_values), dim=1) * steps[..., None])[:, None]


def _parts(pool: Tensor, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    """Views of a layer: keys ``[N, Hkv, bs / 16, D / 2, 16, 2]``, values ``[N, Hkv, bs / 2, D, 2]``, steps."""
    count, _, _, heads, block_size, size = pool.shape
    shape = (count, 2, heads, (block_size + step_rows(block_size, size)) * size)
    strides = (pool.stride(0), pool.stride(2), pool.stride(3), 1)
    words = pool[:, layer].as_strided(shape, strides, pool[:, layer].storage_offset())
    numbers, behind = words[..., : block_size * size], words[..., block_size * size :]
    # Views, as the last dimension is contiguous.
    keys = numbers[:, 0].view(count, heads, block_size // RUN, size // 2, RUN, 2)
    values = numbers[:, 1].view(count, heads, block_size // 2, size, 2)
    return keys, values, behind[..., : 2 * block_size].view(torch.float32)
