"""The GPU as a ``Device``, through torch's ``cuda`` module, which is also the name that AMD's GPUs answer to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor


def why_unavailable() -> str | None:
    """None where torch can use a GPU; else what it found instead, to stand within a sentence."""
    if torch.cuda.is_available():
        return None
    build = f"torch {torch.__version__}"
    if torch.version.cuda is None and torch.version.hip is None:
        return f"{build} is built without support for GPUs"
    return f"{build} finds no GPU that it can use"


class Accelerator:
    """The current GPU and a stream of its own on it."""

    def __init__(self) -> None:
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        self._stream = torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]
        # All graphs share one: a replay needs its memory only until the next one begins.
        self._graph_memory = torch.cuda.graph_pool_handle()

    def stream(self) -> AbstractContextManager[object]:
        """Within, launches of torch and of the Triton kernels go to the stream."""
        return torch.cuda.stream(self._stream)

    def event(self) -> torch.cuda.Event:
        """An event without a time stamp, which would cost more."""
        return torch.cuda.Event()  # type: ignore[no-untyped-call]

    def host_tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Page-locked memory. torch rounds its size up to a power of two."""
        return torch.zeros(shape, dtype=dtype, pin_memory=0 not in shape)

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        """A graph. The first, plain run compiles kernels and sets libraries up, which a capture must not contain."""
        with self.stream():
            run()
        self.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads of the server may use the GPU meanwhile: only this thread's calls are to be judged.
        with torch.cuda.graph(
            graph, pool=self._graph_memory, stream=self._stream, capture_error_mode="thread_local"
        ):  # fmt: skip
            run()
        return graph.replay

    def synchronize(self) -> None:
        """Wait for all streams."""
        torch.cuda.synchronize(self.torch_device)

    def free_bytes(self) -> int:
        """What the driver has left once torch has given back what it only keeps for later."""
        self.synchronize()
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self.torch_device)[0])

    def peak_bytes(self, run: Callable[[], None]) -> int:
        """As torch's allocator counts it; libraries' own memory shows in ``free_bytes`` afterwards."""
        self.synchronize()
        torch.cuda.reset_peak_memory_stats(self.torch_device)
        before = torch.cuda.memory_allocated(self.torch_device)
        run()
        self.synchronize()
        return int(torch.cuda.max_memory_allocated(self.torch_device)) - before
