"""Compile every Triton kernel in every configuration for each target, with no GPU.

Prints what each takes of a multiprocessor, and writes docs/kernels.md when everything was compiled for all targets.
With --check, returns 1 if a kernel that runs in every step keeps registers in memory, or if any kernel asks for more
shared memory than the target has.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
# Kernels must be compiled functions, not interpreted ones; and the warning about the other variable names no choice
# of ours: every launch says whether multiplications and additions are fused.
os.environ.pop("TRITON_INTERPRET", None)
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

from kernel_report.cases import all_cases  # noqa: E402
from kernel_report.report import Row, failures, printed, write  # noqa: E402
from kernel_report.resources import measure  # noqa: E402
from kernel_report.targets import TARGETS, compiling_for  # noqa: E402
from tqdm import tqdm  # noqa: E402


def main() -> int:
    """Compile, print, write, check."""
    options = _options()
    rows = _compile_all(_tasks(options), options.jobs)
    print(printed(rows))
    complete = not (options.few or options.only) and set(options.targets) == set(TARGETS)
    if complete or options.write:
        write(ROOT / "docs" / "kernels.md", rows, len(all_cases()))
    found = failures(rows)
    for line in found:
        print(f"error: {line}" if options.check else f"warning: {line}", file=sys.stderr)
    return int(bool(found) and options.check)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compile every Triton kernel for each target, with no GPU.")
    parser.add_argument("--targets", nargs="+", choices=list(TARGETS), default=list(TARGETS), metavar="TARGET")
    parser.add_argument("--check", action="store_true", help="fail on spills and on too much shared memory")
    parser.add_argument("--write", action="store_true", help="write docs/kernels.md though not all is compiled")
    parser.add_argument("--few", action="store_true", help="only what continuous integration compiles")
    parser.add_argument("--only", default="", help="only configurations in whose name this is found")
    parser.add_argument("--jobs", type=int, default=2, help="how many are compiled at a time (default: 2)")
    return parser.parse_args()


def _tasks(options: argparse.Namespace) -> list[tuple[str, int]]:
    return [
        (name, index)
        for index, case in enumerate(all_cases())
        for name in options.targets
        if (case.few or not options.few) and re.search(options.only, case.name)
        if TARGETS[name].has_fp8 or not case.fp8
    ]


def _compile_all(tasks: list[tuple[str, int]], jobs: int) -> list[Row]:
    rows: list[Row] = []
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        pending = [pool.submit(compile_case, *task) for task in tasks]
        for done in tqdm(as_completed(pending), total=len(pending), unit="configuration", mininterval=1):
            rows += done.result()
    return sorted(rows, key=lambda row: (row.index, list(TARGETS).index(row.target)))


def compile_case(target_name: str, index: int) -> list[Row]:
    """Compile one configuration for one target; a row for each kernel that it launches."""
    case, target = all_cases()[index], TARGETS[target_name]
    rows: list[Row] = []

    def record(name: str, kernel: Any) -> None:
        rows.append(Row(index, case.name, target_name, case.hot, measure(name, kernel, target)))

    with compiling_for(target, record):
        case.launch()
    return rows


if __name__ == "__main__":
    sys.exit(main())
