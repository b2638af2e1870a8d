"""The operations that a decoder runs on, by what each takes and gives."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


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


class RopeAndWrite(Protocol):
    """See ``kernels.rope_and_write.reference.rope_and_write``."""

    def __call__(
        self,
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
        """Normalise and rotate queries and keys, store keys and values, return the queries."""
        ...


class RmsNorm(Protocol):
    """See ``kernels.rms_norm.reference.rms_norm``."""

    def __call__(self, x: Tensor, weight: Tensor, eps: float, offset: float) -> Tensor:
        """Normalise the last dimension."""
        ...


class AddRmsNorm(Protocol):
    """See ``kernels.add_rms_norm.reference.add_rms_norm``."""

    def __call__(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float) -> tuple[Tensor, Tensor]:
        """Add to the residual stream; the sum's norm and the sum."""
        ...


class GatedActivation(Protocol):
    """See ``kernels.gated_activation.reference.gated_activation``."""

    def __call__(self, gate_up: Tensor, activation: str) -> Tensor:
        """Gate the second half of the columns with the first."""
        ...


class Linear(Protocol):
    """See ``kernels.linear.reference.linear``."""

    def __call__(self, x: Tensor, weight: Any, bias: Tensor | None) -> Tensor:
        """Multiply by a weight that ``pack_linear`` has laid out."""
        ...


class GatedLinear(Protocol):
    """What ``gated_activation`` makes of a linear map's result, ``[T, out]`` -> ``[T, out / 2]``."""

    def __call__(self, x: Tensor, weight: Any, bias: Tensor | None, activation: str) -> Tensor:
        """Multiply, and gate the second half of the columns with the first."""
        ...


class PackLinear(Protocol):
    """See ``kernels.linear.reference.pack_linear``."""

    def __call__(self, weight: Tensor) -> Any:
        """Lay out a weight stored output-major, once, for ``linear``."""
        ...


class Recorder(Protocol):
    """Runs again, in one call, what a set of operations has run, on what the same memory holds by then."""

    def recording(self) -> AbstractContextManager[Any]:
        """Record what runs within the context; gives what ``replay`` takes."""
        ...

    def replay(self, recording: Any) -> None:
        """Run all of it again, in its order."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Operations:
    """One callable per operation. Every set of them computes the same; they differ in speed and device.

    workspace: within its context what an operation gives holds only until the same one has run twice more.
    recorder: of sets that can record, else None.
    """

    paged_attention: PagedAttention
    rope_and_write: RopeAndWrite
    rms_norm: RmsNorm
    add_rms_norm: AddRmsNorm
    gated_activation: GatedActivation
    pack_linear: PackLinear
    linear: Linear
    gated_linear: GatedLinear
    workspace: Callable[[], AbstractContextManager[None]] = nullcontext
    recorder: Recorder | None = None
