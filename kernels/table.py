"""The table of operations a decoder runs on: chosen once, at load, by device."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from kernels.gated_activation import reference as gated_activation_reference
from kernels.kv_write import reference as kv_write_reference
from kernels.linear import reference as linear_reference
from kernels.paged_attention import reference as paged_attention_reference
from kernels.rms_norm import reference as rms_norm_reference
from kernels.rope import reference as rope_reference


class PagedAttention(Protocol):
    """See ``kernels.paged_attention.reference.paged_attention``."""

    def __call__(
        self,
        q: Tensor,
        pool: Tensor,
        layer: int,
        block_tables: Tensor,
        query_start: Tensor,
        kv_lengths: Tensor,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """Attend each query row to its sequence's keys in the pool."""
        ...


class Rope(Protocol):
    """See ``kernels.rope.reference.rope``."""

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate every head of every row."""
        ...


class KvWrite(Protocol):
    """See ``kernels.kv_write.reference.kv_write``."""

    def __call__(self, k: Tensor, v: Tensor, pool: Tensor, layer: int, slot_mapping: Tensor) -> None:
        """Store keys and values in their slots, in place."""
        ...


class RmsNorm(Protocol):
    """See ``kernels.rms_norm.reference.rms_norm``."""

    def __call__(self, x: Tensor, weight: Tensor, eps: float, offset: float) -> Tensor:
        """Normalise the last dimension."""
        ...


class GatedActivation(Protocol):
    """See ``kernels.gated_activation.reference.gated_activation``."""

    def __call__(self, gate_up: Tensor, activation: str) -> Tensor:
        """Gate the second half of the columns with the first."""
        ...


class Linear(Protocol):
    """See ``kernels.linear.reference.linear``."""

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Multiply by a weight stored output-major."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Operations:
    """One callable per operation. Every set of them computes the same; they differ in speed and device."""

    paged_attention: PagedAttention
    rope: Rope
    kv_write: KvWrite
    rms_norm: RmsNorm
    gated_activation: GatedActivation
    linear: Linear


def reference_operations() -> Operations:
    """The plain torch operations: right on every device, the oracle of all others."""
    return Operations(
        paged_attention=paged_attention_reference.paged_attention,
        rope=rope_reference.rope,
        kv_write=kv_write_reference.kv_write,
        rms_norm=rms_norm_reference.rms_norm,
        gated_activation=gated_activation_reference.gated_activation,
        linear=linear_reference.linear,
    )
