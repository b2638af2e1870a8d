"""What is compiled: every kernel, launched on tensors without memory as the executor would, in each configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.add_rms_norm import triton_kernel as add_rms_norm
from kernels.block_copy import triton_kernel as block_copy
from kernels.gated_activation import triton_kernel as gated_activation
from kernels.kv_write import triton_kernel as kv_write
from kernels.paged_attention import triton_decode
from kernels.paged_attention import triton_kernel as paged_attention
from kernels.penalties import triton_kernel as penalties
from kernels.quantized_kv import triton_kernel as quantized_kv
from kernels.quantized_linear import triton_kernel as quantized_linear
from kernels.quantized_linear.weights import ChannelWeight, GroupWeight
from kernels.rms_norm import triton_kernel as rms_norm
from kernels.rope import triton_kernel as rope
from kernels.rope_and_write import triton_kernel as rope_and_write
from kernels.sampling import triton_kernel as sampling
from kernels.token_log_probs import triton_kernel as token_log_probs

from .targets import meta

PROMPT, DECODE, VOCAB = 4096, 64, 128256
_FP8 = torch.float8_e4m3fn
_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.int8: "int8", _FP8: "fp8"}


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration. hot: runs in every step. few: one of the few that continuous integration compiles."""

    name: str
    launch: Callable[[], object]
    hot: bool = True
    fp8: bool = False
    few: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Heads:
    """A model's attention, as far as kernels are compiled for it."""

    size: int = 128
    group: int = 4
    kv_heads: int = 8
    block_size: int = 16
    dtype: torch.dtype = torch.bfloat16
    pool: torch.dtype | None = None
    window: int | None = None
    softcap: float | None = None

    @property
    def kind(self) -> torch.dtype:
        """The pool's dtype."""
        return self.pool or self.dtype

    def label(self) -> str:
        """What tells this configuration from others."""
        extras = [f"window {self.window}"] if self.window else []
        extras += ["capped"] if self.softcap else []
        kinds = _NAMES[self.dtype] + (f" on {_NAMES[self.pool]}" if self.pool else "")
        return " ".join([f"D{self.size} group {self.group} block {self.block_size} {kinds}", *extras])

    def make_pool(self) -> tuple[Tensor, Tensor | None]:
        """A pool and, in 8 bits, its scales."""
        shape = (1000, 32, 2, self.kv_heads, self.block_size, self.size)
        return meta(shape, self.kind), meta(shape[:-1], torch.float32) if self.pool else None


def all_cases() -> list[Case]:
    """Every configuration, the attention kernels first: they take longest."""
    return [*_attention(), *_quantized_linear(), *_rows(), *_sampling(), *_copies()]


def _heads() -> Iterator[tuple[Heads, bool]]:
    """From the usual configuration, one thing changed at a time: every tile shape, type and flag there is.

    What is left out differs from one of these in constants alone: a group of 2 fills its 16 rows as one of 4 does.
    """
    for size in (64, 80, 96, 128, 256):
        yield Heads(size=size), size in (80, 128)
    for block_size in (32, 64):
        yield Heads(block_size=block_size), False
    for size, group in ((64, 1), (64, 3), (128, 7), (128, 8), (128, 32)):
        yield Heads(size=size, group=group, kv_heads=32 // group), False
    yield Heads(dtype=torch.float16), False
    yield Heads(window=4096), False
    yield Heads(size=256, group=2, window=4096, softcap=50.0), False
    yield Heads(pool=torch.int8), True
    yield Heads(size=256, pool=torch.int8), False
    yield Heads(pool=_FP8), False


def _attention() -> Iterator[Case]:
    for heads, few in _heads():
        fp8 = heads.kind == _FP8
        for name, launcher, rows in (
            ("prompt attention", paged_attention.paged_attention, PROMPT),
            ("mixed attention", paged_attention.paged_attention, DECODE),
            ("decode attention", triton_decode.paged_attention, DECODE),
        ):
            yield Case(f"{name} {heads.label()}", _attention_launch(heads, launcher, rows), fp8=fp8, few=few)


def _attention_launch(heads: Heads, launcher: Callable[..., object], rows: int) -> Callable[[], object]:
    def launch() -> object:
        q = meta((rows, heads.group * heads.kv_heads, heads.size), heads.dtype)
        pool, scales = heads.make_pool()
        batch = (meta((DECODE, 512), torch.int32), meta((DECODE + 1,), torch.int32), meta((DECODE,), torch.int32))
        return launcher(q, pool, 3, *batch, 0.1, heads.window, heads.softcap, scales)

    return launch


def _quantized_linear() -> Iterator[Case]:
    for rows, dtype in ((1, torch.int8), (64, torch.int8), (512, torch.int8), (1, _FP8), (512, _FP8)):
        weight = ChannelWeight(meta((4096, 4096), dtype), meta((4096,), torch.float32))
        few = rows == 512 and dtype == torch.int8
        yield Case(f"linear {rows} rows {_NAMES[dtype]}", _product(rows, weight), fp8=dtype == _FP8, few=few)
    for rows, group_size in ((1, 32), (1, 128), (64, 128), (512, 128)):
        scale = meta((4096 // group_size, 4096), torch.float32)
        weight4 = GroupWeight(meta((4096, 2048), torch.uint8), scale, scale, group_size)
        few = (rows, group_size) == (1, 128)
        yield Case(f"linear {rows} rows int4 groups of {group_size}", _product(rows, weight4), few=few)


def _product(rows: int, weight: ChannelWeight | GroupWeight) -> Callable[[], object]:
    return lambda: quantized_linear.linear(meta((rows, 4096), torch.bfloat16), weight, None)


def _rows() -> Iterator[Case]:
    for size in (576, 4096, 8192):
        x, weight = meta((DECODE, size), torch.bfloat16), meta((size,), torch.bfloat16)
        yield Case(f"rms_norm {size}", lambda x=x, w=weight: rms_norm.rms_norm(x, w, 1e-5, 0.0))
        yield Case(f"add_rms_norm {size}", lambda x=x, w=weight: add_rms_norm.add_rms_norm(x, x, w, 1e-5, 0.0))
    for activation in ("silu", "gelu_tanh"):
        gate_up = meta((DECODE, 2 * 14336), torch.bfloat16)
        yield Case(activation, lambda g=gate_up, a=activation: gated_activation.gated_activation(g, a), few=True)
    for size, kind, normed in (
        *((64, None, False), (80, None, False), (128, None, False), (256, None, False), (128, None, True)),
        *((128, torch.int8, True), (128, _FP8, True)),
    ):
        of_model = Heads(size=size, pool=kind)
        label = f"rope_and_write {of_model.label()}{' with norm' if normed else ''}"
        yield Case(label, _rope_launch(of_model, normed), fp8=kind == _FP8)
    heads = meta((DECODE, 8, 128), torch.bfloat16)
    angles, slots = meta((DECODE, 64), torch.float32), meta((DECODE,), torch.int64)
    pool, _ = Heads().make_pool()
    yield Case("rope D128", lambda: rope.rope(heads, angles, angles), hot=False)
    yield Case("kv_write D128 bf16", lambda: kv_write.kv_write(heads, heads, pool, 3, slots), hot=False)
    narrow, scales = Heads(pool=torch.int8).make_pool()
    yield Case("kv_write D128 int8", lambda: quantized_kv.kv_write(heads, heads, narrow, scales, 3, slots), hot=False)


def _rope_launch(heads: Heads, normed: bool) -> Callable[[], object]:
    def launch() -> object:
        pool, scales = heads.make_pool()
        qkv = meta((DECODE, (heads.group + 2) * heads.kv_heads * heads.size), heads.dtype)
        angles, slots = meta((DECODE, heads.size // 2), torch.float32), meta((DECODE,), torch.int64)
        norm = meta((heads.size,), heads.dtype) if normed else None
        return rope_and_write.rope_and_write(qkv, angles, angles, pool, 3, slots, norm, norm, 1e-5, 0.0, scales)

    return launch


def _sampling() -> Iterator[Case]:
    def row(dtype: torch.dtype) -> Tensor:
        return meta((DECODE,), dtype)

    logits, counts, seen = (meta((DECODE, VOCAB), kind) for kind in (torch.float32, torch.int32, torch.bool))
    rows = sampling.RowSampling(
        temperature=row(torch.float32),
        top_k=row(torch.int32),
        top_p=row(torch.float32),
        min_p=row(torch.float32),
        seed=row(torch.int64),
        position=row(torch.int32),
    )
    yield Case("sample, no filter", lambda: sampling.sample(logits, rows, False))
    yield Case("sample, filtered", lambda: sampling.sample(logits, rows, True), few=True)
    factors, ids, bias = [row(torch.float32)] * 3, meta((DECODE, 300), torch.int32), meta((DECODE, 300), torch.float32)
    yield Case("penalise", lambda: penalties.penalise(logits, counts, seen, *factors, ids, bias), hot=False)
    yield Case("token_log_probs", lambda: token_log_probs.token_log_probs(logits, row(torch.int64)), hot=False)


def _copies() -> Iterator[Case]:
    pool, _ = Heads().make_pool()
    ids = meta((16,), torch.int64)
    yield Case("copy_blocks", lambda: block_copy.copy_blocks(pool, ids, ids), hot=False)
    yield Case("gather_blocks", lambda: block_copy.gather_blocks(pool, ids, pool), hot=False)
    yield Case("scatter_blocks", lambda: block_copy.scatter_blocks(pool, ids, pool), hot=False)
