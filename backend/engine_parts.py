"""What an engine is assembled from, and how it is made for the CPU."""

from __future__ import annotations

import os
import threading
from typing import NamedTuple

import torch

from backend import sizing
from backend.config import EngineConfig
from backend.cpu_precision import cpu_numbers
from backend.executor.base import MeasuredExecutor
from backend.executor.cpu import CpuExecutor
from backend.executor.interruption import Interruption
from backend.executor.recorded_decode import RecordedDecode
from backend.free_memory import available_memory
from backend.kv.storage import allocate, token_slots, touch
from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.kv_layout import layout_of
from backend.model.weights import load_weights

_TORCH_THREADS = 1
_NICENESS = 5
"""Of threads that compute: what server, tokenizer and senders do takes microseconds, and a client waits for it."""
_SHARE_OF_MAIN_MEMORY = 0.25
_MEASURED_TOKENS = 64
_TOUCHED_BYTES = 128 << 20
"""Of the pool, written at load: the first requests would have to wait for the system to find and clear these pages."""


class EngineParts(NamedTuple):
    """num_blocks: of the pool, the null block among them. ahead: steps may be launched while others run.

    measured_tokens: of the prompt that says what computing a token again costs. no_guides: why this executor cannot
    guide what it samples; "" if it can. no_host_logits: why it can neither search over beams nor give
    logits of prompts, as above.
    """

    executor: MeasuredExecutor
    num_blocks: int
    num_host_slots: int
    max_seq_len: int
    ahead: bool
    measured_tokens: int
    no_guides: str
    no_host_logits: str


def cpu_parts(config: EngineConfig, model: ModelConfig, progress: bool) -> EngineParts:
    """Executor and sizes on the CPU. Raises LoadError or MemoryError."""
    numbers = cpu_numbers(config, model.head_dim)
    layout = layout_of(model, config.tokens_per_block, numbers.pool)
    operations = numbers.operations(config.num_threads or os.cpu_count() or 1, _NICENESS)
    weights = load_weights(config.model_dir, model, progress=progress, pack=operations.pack_linear)
    free = available_memory()
    num_blocks = 1 + sizing.usable_blocks(config, model, layout, free, _SHARE_OF_MAIN_MEMORY)
    num_host_slots = sizing.host_slots(config, layout)
    limit = sizing.max_seq_len(config, model, (num_blocks - 1) * layout.block_size)
    host = torch.empty((num_host_slots, *layout.block_shape), dtype=layout.dtype)
    interruption = Interruption()
    decoder = Decoder(model, weights, operations, interruption.check)
    blocks = allocate(layout, num_blocks, "cpu")
    touch(blocks, _TOUCHED_BYTES)
    pool = token_slots(blocks, layout)
    assert operations.recorder is not None
    decode = RecordedDecode(decoder, pool, operations.recorder, -(-limit // layout.block_size))
    executor = CpuExecutor(
        decode.forward,
        blocks,
        layout.block_size,
        host,
        prepare_thread=_prepare_compute_thread,
        interruption=interruption,
    )
    return EngineParts(
        executor, num_blocks, num_host_slots, limit, False, min(_MEASURED_TOKENS, config.max_num_tokens), "", ""
    )


def _prepare_compute_thread() -> None:
    torch.set_num_threads(_TORCH_THREADS)  # OpenMP keeps a team per calling thread
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
