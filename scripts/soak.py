"""Soak a server of its own: mixed traffic while its parts are killed, stopped, starved and reloaded; then a verdict.

Exit code: 0, 1 when a promise is broken, 2 when it could not be run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.command_line import within  # noqa: E402
from scripts.launcher.options import DEFAULT_MODEL  # noqa: E402
from scripts.soaking import checks, report  # noqa: E402
from scripts.soaking.run import soak  # noqa: E402
from scripts.soaking.settings import Settings  # noqa: E402

LEAST_MINUTES, MOST_MINUTES = 1.0, 24 * 60.0
BROKEN, UNUSABLE = 1, 2


def main() -> int:
    """Run it, and tell what came of it."""
    arguments = parse()
    settings = Settings(
        minutes=arguments.minutes, seed=arguments.seed, model=arguments.model, clients=arguments.clients
    )
    log = arguments.log or Path(tempfile.mkdtemp(prefix="soak-")) / "server.log"
    began = time.monotonic()
    try:
        seen = soak(settings, log, lambda line: print(f"{time.monotonic() - began:7.1f} s  {line}", file=sys.stderr))
    except OSError as error:
        print(f"error: {error} (log: {log})", file=sys.stderr)
        return UNUSABLE
    found = report.as_json(seen, checks.verdict(seen))
    print(report.as_text(found))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if found["passed"]:
        return 0
    print(f"what the server said is in {log}", file=sys.stderr)
    return BROKEN


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; ends the process with a usage message when it is wrong."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=(__doc__ or "").splitlines()[0])
    minutes = within(float, LEAST_MINUTES, MOST_MINUTES)
    parser.add_argument(
        "--minutes", type=minutes, default=3.0, help=f"of traffic (%(default)s), at least {LEAST_MINUTES:g}"
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed draws the same requests (%(default)s)")
    parser.add_argument("--clients", type=within(int, 1, 1000), default=8, metavar="N", help="at a time (%(default)s)")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="as for scripts/serve (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole report")
    parser.add_argument("--log", type=Path, metavar="FILE", help="where what the server says goes")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
