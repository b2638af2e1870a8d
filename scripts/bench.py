"""Measure the engine alone, or a running server: on a workload file, or under priorities. One JSON line per result."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.timing import load_workload, measure
from command_line import exit_status
from generate_stream import Client, ServerError
from launcher.command import available_cores
from launcher.options import DEFAULT_MODEL, model_cache

from backend.checkpoint.default_model import ensure
from backend.config import ACTIVATION_PRECISIONS, KV_CACHE_PRECISIONS, WEIGHT_PRECISIONS

PRECISIONS = [precision for precision in WEIGHT_PRECISIONS if precision != "auto"]


def main() -> int:
    """Run one measurement, and report a failure in one line."""
    arguments = _parse()
    return exit_status(lambda: arguments.measurement(arguments), (ServerError, ValueError, OSError))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    kinds = parser.add_subparsers(
        required=True, metavar="engine|server|priority|bursts|compare|workload|growth|profile|cores|start"
    )
    engine = kinds.add_parser("engine", help="the engine in this process, without Triton Server")
    engine.add_argument("--model", default=DEFAULT_MODEL, help="as for scripts/serve (%(default)s)")
    engine.add_argument("--parameter", action="append", default=[], metavar="KEY=VALUE", help="an engine parameter")
    engine.set_defaults(measurement=_engine)
    server = kinds.add_parser("server", help="the running server's ensemble over gRPC streaming")
    server.add_argument("--url", default="127.0.0.1:8001", help="host:port of its gRPC service (%(default)s)")
    server.set_defaults(measurement=_server)
    priority = kinds.add_parser("priority", help="urgent requests on a full server; start it with --max-batch-size 8")
    priority.add_argument("--url", default="127.0.0.1:8001", help="host:port of its gRPC service (%(default)s)")
    priority.add_argument(
        "--backlog", type=int, default=64, help="low-priority requests beyond the slots (%(default)s)"
    )
    priority.add_argument("--arrivals", type=int, default=20, help="urgent requests, idle and under load (%(default)s)")
    priority.add_argument(
        "--flood", type=int, default=0, metavar="N", help="then N requests at once; start with --max-queue-size 64"
    )
    priority.set_defaults(measurement=_priority)
    bursts = kinds.add_parser("bursts", help="requests at once on an idle server: when the last gets its first token")
    bursts.add_argument("--url", default="127.0.0.1:8001", help="host:port of its gRPC service (%(default)s)")
    bursts.add_argument("--requests", type=int, default=16, help="of a burst (%(default)s)")
    bursts.add_argument("--rounds", type=int, default=20, help="(%(default)s)")
    bursts.add_argument("--pause", type=float, default=0.2, help="seconds between bursts (%(default)s)")
    bursts.set_defaults(measurement=_bursts)
    _add_compare(kinds)
    workload = kinds.add_parser("workload", help="write a file of workloads for the others")
    workload.add_argument("file", type=Path)
    workload.add_argument("--seed", type=int, default=1)
    workload.add_argument(
        "--model", type=Path, metavar="DIRECTORY", help="draw words that its tokenizer reads back as the same tokens"
    )
    workload.set_defaults(measurement=_workload)
    _add_step(kinds)
    start = kinds.add_parser("start", help="seconds until scripts/serve is ready, and its memory at rest")
    start.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    start.add_argument("option", nargs="*", help="of scripts/serve, after --")
    start.set_defaults(measurement=_start)
    for kind in (engine, server):
        kind.add_argument("--workload", type=Path, required=True, help="a JSON file: name -> [[prompt ids], length]")
        kind.add_argument("--only", action="append", default=[], metavar="NAME", help="run this workload; repeatable")
    return parser.parse_args()


def _add_compare(kinds: Any) -> None:
    compare = kinds.add_parser("compare", help="ours and other engines in turns: a table of medians, and a chart")
    add = compare.add_argument
    add("--model", default=DEFAULT_MODEL, help="as for scripts/serve (%(default)s)")
    add("--workload", type=Path, required=True, help="a JSON file: name -> [[prompt ids], length]")
    add("--rounds", type=int, default=3, help="(%(default)s)")
    add("--precision", action="append", choices=PRECISIONS, help="weights of ours; repeatable; all without a variant")
    add(
        "--variant",
        action="append",
        default=[],
        metavar="DOOR:NAME=KEY=VALUE,...",
        help="ours with these knobs, its bare engine or through the server (DOOR: engine, server); repeatable",
    )
    add(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="an engine whose command prints such JSON lines; {workload} stands for the file; repeatable",
    )
    add("--baseline", default="", help="ratios are to this contestant (the first)")
    add("--json", type=Path, help="append all lines here")
    add("--chart", type=Path, help="write a PNG here")
    compare.set_defaults(measurement=_compare)


def _add_step(kinds: Any) -> None:
    growth = kinds.add_parser("growth", help="time of a decode step over numbers of sequences and keys, on the CPU")
    profile = kinds.add_parser("profile", help="where a decode step's time goes, on the CPU: a Markdown table")
    for kind, sequences, keys in (
        (growth, [1, 4, 16, 64], [128, 512, 1024, 2048, 4096]),
        (profile, [1, 8, 32], [200]),
    ):
        kind.add_argument("--model", default=DEFAULT_MODEL, help="as for scripts/serve (%(default)s)")
        kind.add_argument("--precision", choices=PRECISIONS, default="int8", help="of the weights (%(default)s)")
        kind.add_argument("--activation-precision", choices=ACTIVATION_PRECISIONS, default="auto", help="(%(default)s)")
        kind.add_argument("--kv-cache-precision", choices=KV_CACHE_PRECISIONS, default="auto", help="(%(default)s)")
        kind.add_argument("--batch-invariant", action="store_true")
        kind.add_argument("--threads", type=int, default=available_cores(), help="(%(default)s)")
        kind.add_argument("--repeats", type=int, default=9, help="steps that are timed (%(default)s)")
        kind.add_argument("--sequences", type=int, nargs="+", default=sequences, help="(%(default)s)")
        kind.add_argument("--keys", type=int, nargs="+", default=keys, help="of each sequence (%(default)s)")
    cores = kinds.add_parser("cores", help="how far apart the cores are, by a cache line, beside a prompt's step")
    cores.add_argument("--model", default=DEFAULT_MODEL, help="as for scripts/serve (%(default)s)")
    cores.add_argument("--tokens", type=int, default=512, help="of the prompt (%(default)s)")
    cores.add_argument("--rounds", type=int, default=10, help="(%(default)s)")
    cores.add_argument("--pause", type=float, default=1.0, help="seconds between them (%(default)s)")
    cores.set_defaults(measurement=_cores)
    growth.set_defaults(measurement=_growth)
    profile.set_defaults(measurement=_profile)


def _start(arguments: argparse.Namespace) -> None:
    from benchmarks.start import starts

    print(json.dumps(starts(arguments.rounds, arguments.option)))


def _workload(arguments: argparse.Namespace) -> None:
    from benchmarks.workloads import write
    from tokenizers import Tokenizer

    from backend.text.tokenizer_file import tokenizer_json

    tokenizer = Tokenizer.from_str(tokenizer_json(arguments.model)) if arguments.model else None
    write(arguments.file, arguments.seed, tokenizer)


def _engine(arguments: argparse.Namespace) -> None:
    from benchmarks.bare_engine import BareEngine

    directory = ensure(arguments.model, model_cache())
    parameters = dict(text.split("=", 1) for text in arguments.parameter)
    measure(
        "ours, engine",
        load_workload(arguments.workload),
        BareEngine({"model_dir": str(directory), **parameters}).run,
        arguments.only,
    )


def _server(arguments: argparse.Namespace) -> None:
    from benchmarks.through_server import ThroughServer

    measure("ours, server", load_workload(arguments.workload), ThroughServer(arguments.url).run, arguments.only)


def _compare(arguments: argparse.Namespace) -> None:
    from benchmarks import compare

    precisions = arguments.precision or ([] if arguments.variant else PRECISIONS)
    contestants = compare.ours(arguments.model, arguments.workload, precisions)
    contestants += [compare.variant(text, arguments.model, arguments.workload) for text in arguments.variant]
    contestants += [compare.peer(text, arguments.workload) for text in arguments.peer]
    results = compare.compete(contestants, arguments.rounds, arguments.json)
    baseline = arguments.baseline or contestants[0].name
    print(f"medians of {arguments.rounds}; in brackets how many times as fast as {baseline}\n")
    print(compare.table(results, baseline))
    if arguments.chart:
        compare.chart(results, arguments.chart, f"{arguments.model}, medians of {arguments.rounds} rounds in turns")


def _subject(arguments: argparse.Namespace) -> Any:
    from benchmarks.decode_step import Subject

    return Subject(
        directory=ensure(arguments.model, model_cache()),
        precision=arguments.precision,
        threads=arguments.threads,
        batch_invariant=arguments.batch_invariant,
        activation_precision=arguments.activation_precision,
        kv_cache_precision=arguments.kv_cache_precision,
    )


def _growth(arguments: argparse.Namespace) -> None:
    from benchmarks.decode_step import growth, linear_fit

    lines = []
    for line in growth(_subject(arguments), arguments.sequences, arguments.keys, arguments.repeats):
        print(json.dumps(line), flush=True)
        lines.append(line)
    for count in arguments.sequences:
        fit = linear_fit([line for line in lines if line["sequences"] == count])
        print(json.dumps({"sequences": count, **fit}), flush=True)


def _cores(arguments: argparse.Namespace) -> None:
    from benchmarks.core_distance import distances
    from benchmarks.decode_step import Subject

    subject = Subject(directory=ensure(arguments.model, model_cache()), precision="int8", threads=available_cores())
    for line in distances(subject, arguments.tokens, arguments.rounds, arguments.pause):
        print(json.dumps(line), flush=True)


def _profile(arguments: argparse.Namespace) -> None:
    from benchmarks.step_profile import StepProfile

    profile = StepProfile(_subject(arguments))
    for count in arguments.sequences:
        for keys in arguments.keys:
            print(profile.report(count, keys, arguments.repeats), end="\n\n", flush=True)


def _priority(arguments: argparse.Namespace) -> None:
    from benchmarks.priority import Setting, report

    client = Client(arguments.url)
    client.connect()
    slots = int(client.parameter("inflight_batcher", "max_batch_size") or 32)
    setting = Setting(slots=slots, backlog=arguments.backlog, arrivals=arguments.arrivals, flood=arguments.flood)
    report(client, setting)


def _bursts(arguments: argparse.Namespace) -> None:
    from benchmarks.bursts import bursts

    client = Client(arguments.url)
    client.connect()
    print(json.dumps(bursts(client, arguments.requests, arguments.rounds, arguments.pause)))


if __name__ == "__main__":
    sys.exit(main())
