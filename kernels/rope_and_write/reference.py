"""Query and key norm, rotation and pool write in plain torch: the separate operations, one after another."""

from torch import Tensor

from kernels.kv_write.reference import kv_write
from kernels.quantized_kv import reference as quantized_kv
from kernels.rms_norm.reference import rms_norm
from kernels.rope.reference import rope


def rope_and_write(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    pool: Tensor,
    layer: int,
    slot_mapping: Tensor,
    query_norm: Tensor | None,
    key_norm: Tensor | None,
    eps: float,
    offset: float,
    scales: Tensor | None = None,
) -> Tensor:
    """Normalise queries and keys where the model does, rotate them, and store keys and values.

    Args:
        qkv: ``[T, (Hq + 2 * Hkv) * D]``: queries, then keys, then values.
        cos, sin: float32 ``[T, D/2]``, see ``kernels.rope.reference.rope``.
        pool, layer, slot_mapping: see ``kernels.kv_write.reference.kv_write``; Hkv and D are the pool's.
        query_norm, key_norm: ``[D]``, weights of an RMSNorm over each head; both or neither.
        eps, offset: of that norm.
        scales: with a pool in 8 bits, see ``kernels.quantized_kv.reference.kv_write``.

    Returns:
        The queries, ``[T, Hq, D]`` in qkv's dtype.
    """
    num_kv_heads, size = pool.shape[3], pool.shape[5]
    heads = qkv.reshape(qkv.shape[0], -1, size)
    q, k, v = heads.tensor_split((heads.shape[1] - 2 * num_kv_heads, heads.shape[1] - num_kv_heads), dim=1)
    if query_norm is not None and key_norm is not None:
        q, k = rms_norm(q, query_norm, eps, offset), rms_norm(k, key_norm, eps, offset)
    k = rope(k, cos, sin)
    if scales is None:
        kv_write(k, v, pool, layer, slot_mapping)
    else:
        quantized_kv.kv_write(k, v, pool, scales, layer, slot_mapping)
    return rope(q, cos, sin)
