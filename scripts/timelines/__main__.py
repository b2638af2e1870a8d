"""Draw who ran when, from a step trace that the engine's parameter step_trace_file recorded."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from scripts.command_line import exit_status
from scripts.timelines.look import AXES, axis_of
from scripts.timelines.recording import Recording, read
from scripts.timelines.rows import cut, rows_of

_FORMATS = (".png", ".html")


def main() -> int:
    """Draw, and report a failure in one line."""
    arguments = _parse()
    return exit_status(lambda: _draw(arguments), (ValueError, OSError, MemoryError))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/timeline", description=__doc__)
    add = parser.add_argument
    add("trace", type=Path, nargs="?", help="a recorded trace; of several runs in it the last is drawn")
    add("--demo", action="store_true", help="record a run of the default model first, in which urgent requests preempt")
    add("--out", type=Path, action="append", required=True, metavar="FILE", help="a .png or an .html; repeatable")
    add("--axis", choices=AXES, default="steps", help="(%(default)s)")
    add("--first", type=int, default=1, metavar="STEP", help="begin at this step")
    add("--last", type=int, metavar="STEP", help="end with this step")
    add("--title", default="Who ran when")
    arguments = parser.parse_args()
    if (arguments.trace is None) != arguments.demo:
        parser.error("a trace to draw, or --demo")
    for path in arguments.out:
        if path.suffix not in _FORMATS:
            parser.error(f"--out {path}: the name must end in {' or '.join(_FORMATS)}")
    return arguments


def _draw(arguments: argparse.Namespace) -> None:
    recording = _demo() if arguments.demo else read(arguments.trace)
    recording, rows = cut(recording, rows_of(recording), arguments.first, arguments.last)
    axis = axis_of(recording, arguments.axis)
    for path in arguments.out:
        if path.suffix == ".png":
            from scripts.timelines.chart import draw

            draw(recording, rows, axis, path, arguments.title)
        else:
            from scripts.timelines.page import page

            path.write_text(page(recording, rows, axis, arguments.title))


def _demo() -> Recording:
    from backend.checkpoint.default_model import ensure
    from scripts.launcher.options import DEFAULT_MODEL, model_cache
    from scripts.timelines.demo import record

    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory, "steps.jsonl")
        record(ensure(DEFAULT_MODEL, model_cache()), trace)
        return read(trace)


if __name__ == "__main__":
    sys.exit(main())
