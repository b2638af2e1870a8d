"""Cells as Markdown tables, and the acceptance lines of the issue held against them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from scripts.simulation.grid import FULL_LOAD, SCARCE_POOL

Figures = dict[str, Any]
Column = tuple[str, Callable[[Figures], str]]


def _pair(level: int, what: str, scale: float, digits: int) -> Callable[[Figures], str]:
    def show(figures: Figures) -> str:
        found = figures["levels"].get(str(level))
        if found is None:
            return "-"
        return " / ".join(f"{scale * found[f'{what}_p{percent}']:.{digits}f}" for percent in (50, 99))

    return show


def _preemptions(figures: Figures) -> str:
    found = figures["preemptions"]
    return f"{found['mean']:.2f} / {found['max_by_own_level']} / {found['max_by_more_urgent']}"


COLUMNS: list[Column] = [
    ("load", lambda f: f"{f['load']:.0%}"),
    ("pool", lambda f: f"{f['pool']:.0%}"),
    ("policy", lambda f: f["policy"]),
    ("goodput, tokens/s", lambda f: f"{f['goodput']:.0f}"),
    *[(f"TTFT {level}, s", _pair(level, "ttft", 1, 2)) for level in (1, 2, 3)],
    *[(f"inter-token {level}, ms", _pair(level, "gap", 1000, 0)) for level in (1, 2, 3)],
    ("preempted", _preemptions),
    ("useful", lambda f: f"{f['useful']:.1%}"),
    ("starved, s", lambda f: f"{f['starved']:.1f}"),
    ("unused", lambda f: f"{f['waste']['mean']:.1%} / {f['waste']['max']:.1%}"),
    ("unfair", lambda f: f"{f['fairness']['share']:.0%}"),
]


def table(cells: Iterable[Figures]) -> str:
    """One row per cell. Pairs are p50 / p99, of unused slots mean / largest."""
    lines = ["| " + " | ".join(name for name, _ in COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(show(figures) for _, show in COLUMNS) + " |" for figures in cells]
    return "\n".join(lines)


def report(cells: list[Figures]) -> str:
    """A table and the acceptance lines for each platform, with its capacity."""
    parts = []
    for platform in dict.fromkeys(figures["platform"] for figures in cells):
        own = [figures for figures in cells if figures["platform"] == platform]
        capacity = own[0]["capacity"]
        parts.append(
            f"{platform}: at most {capacity['tokens_per_second']:.0f} tokens/s, {capacity['requests_per_second']:.1f} "
            f"requests/s, {capacity['held_tokens']:.0f} tokens held; {own[0]['requests']} requests per cell"
        )
        parts += [table(own), "\n".join(f"- {line}" for line in acceptance(own))]
    return "\n\n".join(parts)


def acceptance(cells: list[Figures]) -> list[str]:
    """The lines that the issue asks for at full load with the scarce pool; empty if those cells are not all there."""
    at = {f["policy"]: f for f in cells if (f["load"], f["pool"]) == (FULL_LOAD, SCARCE_POOL)}
    if not {"ours", "vllm", "no_evict"} <= set(at):
        return []
    ours, vllm = at["ours"], at["vllm"]
    urgent = [at[name]["levels"]["1"]["ttft_p99"] for name in ("ours", "vllm")]
    most = ours["preemptions"]["max_by_own_level"]
    return [
        *[
            f"{_holds(ours['goodput'] >= at[name]['goodput'])}: goodput {ours['goodput']:.0f} tokens/s, "
            f"{name} {at[name]['goodput']:.0f} ({ours['goodput'] / at[name]['goodput']:.3f} x)"
            for name in ("no_evict", "vllm")
        ],
        f"{_holds(10 * urgent[0] <= urgent[1])}: level-1 p99 TTFT {urgent[0]:.3f} s, vllm {urgent[1]:.3f} s "
        f"(1/{urgent[1] / urgent[0]:.1f}), idle server {ours['idle']['ttft_p99']:.3f} s",
        f"{_holds(most <= 3)}: at most {most} preemptions of a request by its own level; by more urgent ones, whom the "
        f"cap lets pass, {ours['preemptions']['max_by_more_urgent']}, vllm {vllm['preemptions']['max']} in all",
        f"{_holds(ours['waste']['mean'] < 0.02)}: {ours['waste']['mean']:.2%} of the pool's token slots are allocated "
        f"and unused in the mean, {ours['waste']['max']:.2%} at the worst moment",
        f"{_holds(ours['fairness']['share'] <= 1)}: tenants apart by {ours['fairness']['worst']:.0f} weighted tokens, "
        f"the bound is {ours['fairness']['bound']:.0f}",
    ]


def _holds(condition: bool) -> str:
    return "holds" if condition else "DOES NOT HOLD"
