"""Prove and measure the kernels on this machine's GPU: one table, and JSON.

Correctness of every kernel and of a whole model against torch references; models with random weights: 256 mixed
requests through engine and GPU executor, decode steps as its captured graphs, prefill; rate of each kernel as a share
of the copy bandwidth or product rate measured in the same run. Without a GPU everything runs through the interpreter
at toy sizes, which tests this script and measures nothing.

Returns 1 if anything is wrong or falls short of its goal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

import triton  # noqa: E402
from gpu_report import correctness, engine_run, rates, steps, whole_model  # noqa: E402
from gpu_report.measure import Bench, Ceilings, Result, ceilings  # noqa: E402
from gpu_report.random_models import make_config, make_weights, measured_models  # noqa: E402

COLUMNS = (12, 62, 52)


def main() -> int:
    """Run every section, print as it goes, write the JSON."""
    options = _options()
    bench = Bench(torch.device("cuda" if torch.cuda.is_available() else "cpu"), time.monotonic() + options.seconds)
    chip = "CPU, interpreter: nothing below is a measurement" if bench.toy else torch.cuda.get_device_name()
    print(f"{chip}; torch {torch.__version__}, triton {triton.__version__}")
    tops = ceilings(bench)
    print(f"ceilings: copy {tops.bandwidth / 1e9:.0f} GB/s, bfloat16 product {tops.rate / 1e12:.1f} Tflop/s")
    results: list[Result] = []
    for result in _all(bench, tops):
        results.append(result)
        print(_line(result), flush=True)
    wrong = [result for result in results if result.ok is False]
    print(f"{len(results)} results, {len(wrong)} wrong or short of their goal")
    if options.json:
        measured = {"bandwidth": tops.bandwidth, "rate": tops.rate}
        lines = [result.as_dict() for result in results]
        options.json.write_text(json.dumps({"chip": chip, "ceilings": measured, "results": lines}, indent=1))
    return int(bool(wrong))


def _all(bench: Bench, tops: Ceilings) -> Iterator[Result]:
    """In order of worth, as the time may not suffice: first what every step runs, last the rarer kernels."""
    yield from correctness.run(bench, first=True)
    yield from whole_model.run(bench)
    yield from _models(bench, tops)
    yield from rates.run(bench, tops)
    yield from correctness.run(bench, first=False)


def _models(bench: Bench, tops: Ceilings) -> Iterator[Result]:
    for model, qk_norm in measured_models(bench):
        if bench.over():
            yield Result("step", model.name, "left out: time is up")
            continue
        config = make_config(model, qk_norm)
        weights = make_weights(config, torch.float32 if bench.toy else torch.bfloat16, bench.device)
        yield from engine_run.run(bench, model, config, weights)
        yield from steps.run(bench, tops, model, config, weights)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Prove and measure the kernels on this machine's GPU.")
    parser.add_argument("--json", type=Path, help="write the results here, too")
    parser.add_argument("--seconds", type=float, default=220, help="begin nothing new after this time (default: 220)")
    return parser.parse_args()


def _line(result: Result) -> str:
    mark = {True: "ok", False: "WRONG", None: ""}[result.ok]
    share = "" if result.share is None else f"{result.share:6.1%}"
    cells = (result.section, result.name, result.value)
    return " ".join(f"{cell:{width}}" for cell, width in zip(cells, COLUMNS, strict=True)) + f" {share:7} {mark}"


if __name__ == "__main__":
    sys.exit(main())
