"""Generated requests to every entry of a real server; see ``python -m tests.fuzz --help``, or scripts/fuzz."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from backend.checkpoint.default_model import ensure
from tests.fuzz.session import PROBE_TOKENS, PROMPT, Session
from tests.fuzz.small_model import save_small
from tests.reference import Reference
from tests.server_fixture import RunningServer

MODELS = Path(__file__).resolve().parents[2] / ".cache" / "models"
SMALL = "small"
OPTIONS = {"max_batch_size": 4, "kv_cache_tokens": 1024, "weight_precision": "float32", "grace_seconds": 1}
"""Few slots and a short pool, so that requests wait and are preempted."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; ends the process with a usage message when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz",
        description="Start a server and send it generated requests, right ones and hostile ones, to every entry. "
        "The same seed makes the same requests as long as the code is the same; exit code 1 if anything was wrong.",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the run (%(default)s)")
    parser.add_argument("--start", type=int, default=0, help="number of the first request (%(default)s)")
    parser.add_argument("--count", type=int, default=20_000, help="how many requests (%(default)s)")
    parser.add_argument("--at-once", type=int, default=4, help="requests under way at a time (%(default)s)")
    parser.add_argument(
        "--model",
        default=SMALL,
        help="as for scripts/serve; %(default)s is a random model of two layers with SmolLM2's tokenizer",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run, print one line of JSON, and say by the exit code whether all was well."""
    asked = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as work:
        smollm2 = ensure("smollm2", MODELS)
        directory = save_small(Path(work), smollm2) if asked.model == SMALL else ensure(asked.model, MODELS)
        reference = Reference(directory)
        expected = reference.text(PROMPT, reference.greedy(PROMPT, PROBE_TOKENS))
        with RunningServer.start(directory, parameter={"metrics_interval_ms": 20}, **OPTIONS) as server:
            session = Session(server, expected, at_once=asked.at_once)
            report = session.run(asked.seed, asked.start, asked.count)
            session.close()
    print(
        json.dumps(
            {
                "seed": asked.seed,
                "start": asked.start,
                "cases": sum(report.counts.values()),
                "failures": len(report.failures),
                "by entry": {f"{model} {kind}": count for (model, kind), count in sorted(report.counts.items())},
                "memory grown by MiB": report.grown,
                "errors": report.errors.most_common(),
            }
        )
    )
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
