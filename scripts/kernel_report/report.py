"""docs/kernels.md: the tables, and what they do not say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .resources import Resources
from .targets import TARGETS
from .work import H100, H200, Work, all_work

_HEAD = """# Kernels

Written by `scripts/compile_kernels`; do not edit by hand.

**What has run, and where.** Every kernel is tested against its torch reference in the interpreter of the Triton
language, on a CPU (`tests/kernels/triton`), and compiled with no GPU, in as many
configurations per target as its table says. **No kernel of this
table has run on a GPU yet**: nothing here is a measured time; `scripts/gpu_check.py` measures them where a GPU is.
What the interpreter cannot show: races between the threads of a program, the rounding of tensor cores, and how fast
anything is.

## How they are built

- **Mixed attention** (`kernels/paged_attention/triton_kernel.py`): no padding; a tile finds its sequence by binary
  search; the query heads of a group share a tile's rows; tiles that no row sees are skipped; interior tiles carry
  no mask. The tile
  shape depends on the mean number of rows per sequence, and with it the last bits of results.
- **Decode attention** (`triton_decode.py`): sequences are cut on the device from their lengths and the number of
  multiprocessors; grid and buffers depend on the number of sequences alone, so one captured graph serves all
  lengths.
- **Page ids are fetched one tile ahead by hand** (`key_tiles.py`). Left to the compiler, they took half of its
  pipeline stages: keys and values then had one buffer, and nothing was in flight while a tile was computed (seen in
  its intermediate code).
- **Sampling** (`kernels/sampling`): the cut of top-k, top-p and min-p is searched over the bits of the numbers,
  three probes a pass; ties fall as in the reference's stable sort. Noise is drawn where it is used and never
  written.
- **8-bit keys and values**: scales act on scores and weights; **quantized products**: scales act on sums.

## Resources

Registers of one thread and bytes of its stack, which holds spilled registers, as `cuobjdump -res-usage` reports
them (AMD: vector and accumulation registers, from the metadata); shared memory of one program; `resident`: programs
that one multiprocessor holds at a time by registers, shared memory, threads and slots; the tensor-core instruction
as it stands in the assembly.
"""

_WORK_HEAD = """
## The least work, and its time

Bytes that must cross to or from memory once and operations that must be done, at data-sheet rates: H100 SXM 3.35 TB/s,
H200 4.8 TB/s, both 989 Tflop/s dense bfloat16. Times are bounds from below, not measurements. Kernels whose bound is
under some 3 µs are decided by the launch instead.

| kernel | shape | MB moved | Gflop | H100 µs | H200 µs | bound by |
|---|---|---:|---:|---:|---:|---|
"""


SPILL_ALLOWANCE = 32
"""Bytes of one thread: ptxas at times parks a few values outside a loop, to hold one more program at a time."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel of one configuration on one target."""

    index: int
    case: str
    target: str
    hot: bool
    resources: Resources


def failures(rows: Iterable[Row]) -> list[str]:
    """What must not be: a spill in a hot kernel, more shared memory than there is, a kernel that fits nowhere."""
    found = []
    for row in rows:
        needs, where = row.resources, f"{row.target}, {row.case}, {row.resources.kernel}"
        limit = TARGETS[row.target].shared_bytes
        if row.hot and needs.spills > SPILL_ALLOWANCE:
            found.append(f"{where}: {needs.spills} bytes of registers spilled")
        if needs.shared > limit:
            found.append(f"{where}: {needs.shared} bytes of shared memory, the limit is {limit}")
        elif needs.resident < 1:
            found.append(f"{where}: not one program fits on a multiprocessor")
    return found


def printed(rows: Iterable[Row]) -> str:
    """The table as plain text."""
    return "\n".join(_line(row, f"{row.target:7} {row.case:62}") for row in rows)


def _line(row: Row, head: str) -> str:
    needs = row.resources
    return (
        f"{head} {needs.kernel:18} {needs.warps:2} warps {needs.registers:3} registers {needs.spills:4} spilled "
        f"{needs.shared:6} shared {needs.resident:2} resident  {needs.tensor_core}"
    )


def write(path: Path, rows: list[Row], configurations: int) -> None:
    """Write the document. configurations: how many there are; the rows may be of fewer."""
    parts = [_HEAD]
    for target in TARGETS:
        of_target = [row for row in rows if row.target == target]
        shown = f"{len({row.case for row in of_target})} of {configurations} configurations"
        parts.append(f"\n### {target}\n\n{shown}.\n\n{_table(of_target)}")
    parts.append(_WORK_HEAD + "\n".join(_work_line(work) for work in all_work()) + "\n")
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(parts))


def _table(rows: list[Row]) -> str:
    head = "| configuration | kernel | warps | registers | spilled | shared | resident | tensor core |\n"
    lines = [head, "|---|---|---:|---:|---:|---:|---:|---|\n"]
    for row in rows:
        needs = row.resources
        numbers = f"{needs.warps} | {needs.registers} | {needs.spills} | {needs.shared} | {needs.resident}"
        lines.append(f"| {row.case} | {needs.kernel} | {numbers} | {needs.tensor_core} |\n")
    return "".join(lines)


def _work_line(work: Work) -> str:
    times = " | ".join(f"{work.seconds(chip) * 1e6:.2f}" for chip in (H100, H200))
    return (
        f"| {work.kernel} | {work.shape} | {work.moved / 1e6:.2f} | {work.computed / 1e9:.3f} | {times} | "
        f"{work.bound(H200)} |"
    )
