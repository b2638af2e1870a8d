"""What an engine on a GPU is assembled from, and how its memory is shared out.

weights, measured by loading them; then the workspace, measured by a rehearsal of the largest steps on a pool of two
blocks; of what is free then, less that workspace, the pool takes its fraction; the graphs are captured on it last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from backend import sizing
from backend.config import EngineConfig
from backend.device_choice import gpu_dtype
from backend.engine_parts import EngineParts
from backend.errors import ConfigError
from backend.executor.decode_graphs import graph_sizes
from backend.executor.device import Device
from backend.executor.gpu import Decoders, GpuExecutor, StepLimits
from backend.kv.storage import MIN_BLOCKS, KVLayout, allocate
from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.kv_layout import layout_of
from backend.model.weights import load_weights
from kernels.launch_operations import decode_operations, mixed_operations

_SHARE_OF_GPU = 0.9
_NO_GUIDES = "there is no guided decoding with device=cuda, where a step begins before the last token is known"
_NO_HOST_LOGITS = "not with device=cuda, where logits stay on the device"
_BYTES_PER_GRAPH = 32 << 20
"""An estimate of what the driver keeps for a captured graph of some hundreds of launches."""


def gpu_parts(config: EngineConfig, model: ModelConfig, device: Device, progress: bool) -> EngineParts:
    """Executor and sizes on a GPU. Raises LoadError or MemoryError; out of memory says which knob to lower."""
    dtype = gpu_dtype(config)
    layout = layout_of(model, config.tokens_per_block, dtype)
    with out_of_memory("the weights", "choose a narrower dtype or a smaller model"):
        decoders = _decoders(config, model, dtype, device, progress)
    sizes = graph_sizes(config.max_batch_size)
    with out_of_memory("a step of max_num_tokens", "lower max_num_tokens or max_batch_size"):
        workspace = _workspace(config, model, layout, device, decoders, sizes)
    free = device.free_bytes() - workspace
    num_blocks = 1 + sizing.usable_blocks(config, model, layout, free, _SHARE_OF_GPU)
    num_host_slots = sizing.host_slots(config, layout, page_locked=True)
    limit = sizing.max_seq_len(config, model, (num_blocks - 1) * layout.block_size)
    pool = allocate(layout, num_blocks, device.torch_device)
    with out_of_memory("captured graphs", "lower kv_cache_free_gpu_mem_fraction, max_batch_size or the pool's tokens"):
        host = device.host_tensor((num_host_slots, *layout.block_shape), dtype)
        executor = GpuExecutor(device, decoders, pool, host, _limits(config, limit), sizes)
        executor.warm_up()
    # A GPU computes few tokens hardly faster than many: what recomputing costs shows in a full step.
    return EngineParts(
        executor, num_blocks, num_host_slots, limit, True, config.max_num_tokens, _NO_GUIDES, _NO_HOST_LOGITS
    )


@contextmanager
def out_of_memory(what: str, remedy: str) -> Iterator[None]:
    """Turn torch's error into one line that says what to change."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ConfigError(f"too little GPU memory for {what}: {remedy} ({str(error).splitlines()[0]})") from error


def _decoders(
    config: EngineConfig, model: ModelConfig, dtype: torch.dtype, device: Device, progress: bool
) -> Decoders:  # fmt: skip
    mixed, decode = mixed_operations(), decode_operations()
    weights = load_weights(
        config.model_dir, model, dtype=dtype, device=device.torch_device, progress=progress, pack=mixed.pack_linear
    )
    return Decoders(Decoder(model, weights, mixed), Decoder(model, weights, decode))


def _limits(config: EngineConfig, max_seq_len: int) -> StepLimits:
    return StepLimits(config.max_num_tokens, config.max_batch_size, max_seq_len, config.tokens_per_block)


def _workspace(
    config: EngineConfig, model: ModelConfig, layout: KVLayout, device: Device, decoders: Decoders, sizes: list[int]
) -> int:
    """Bytes that steps take beside weights and pool: of the largest mixed step, and of the graphs, which share theirs.

    The rehearsal's executor is as large as the real one beside its pool, and goes when this returns.
    """
    longest = config.max_seq_len or model.max_position_embeddings
    made: list[GpuExecutor] = []

    def make() -> None:
        pool = allocate(layout, MIN_BLOCKS, device.torch_device)
        made.append(GpuExecutor(device, decoders, pool, _no_host_space(layout), _limits(config, longest), ()))

    own = device.peak_bytes(make)
    mixed = device.peak_bytes(lambda: made[0].rehearse(config.max_num_tokens, config.max_batch_size))
    decode = device.peak_bytes(lambda: made[0].rehearse_decode(min(sizes[0], config.max_batch_size)))
    made.clear()
    return own + mixed + 2 * decode + len(sizes) * _BYTES_PER_GRAPH


def _no_host_space(layout: KVLayout) -> Tensor:
    return torch.empty((0, *layout.block_shape), dtype=layout.dtype)
