"""What could never run, however empty the pool: refused at once, with the numbers."""

from __future__ import annotations

from backend.errors import InvalidRequest
from backend.kv.block_table import blocks_for
from backend.request import Request
from backend.scheduler.settings import SchedulerSettings


def check_fits(request: Request, settings: SchedulerSettings, num_blocks: int) -> None:
    """Raise InvalidRequest, with what is needed and what there is. num_blocks: that sequences can hold at all."""
    prompt, output = len(request.prompt), request.sampling.max_tokens
    asked = f"needs {prompt + output} tokens (prompt {prompt} + max_tokens {output})"
    if prompt + output > settings.max_seq_len:
        raise InvalidRequest("max_tokens", f"{asked}, max_seq_len is {settings.max_seq_len}")
    available = num_blocks * settings.block_size
    if request.max_tokens_held > available:
        raise InvalidRequest("max_tokens", f"{asked}, the KV pool holds {available} tokens")
    if request.sampling.beams is not None:
        _check_beams(request, request.sampling.beams.width, settings, num_blocks)


def _check_beams(request: Request, width: int, settings: SchedulerSettings, num_blocks: int) -> None:
    """All beams are to fit together: the prompt, and for each its output and what it does not share of the prompt."""
    if width > settings.max_batch_size:
        raise InvalidRequest("beam_width", f"{width} is out of range, max_batch_size is {settings.max_batch_size}")
    prompt, shared = len(request.prompt), len(request.prompt) // settings.block_size
    own = blocks_for(request.max_tokens_held, settings.block_size) - shared
    needed = blocks_for(prompt, settings.block_size) + width * max(own, 0)
    if needed > num_blocks:
        raise InvalidRequest(
            "beam_width",
            f"{width} beams of {request.sampling.max_tokens} tokens (max_tokens) after {prompt} need {needed} blocks, "
            f"the KV pool has {num_blocks}",
        )
