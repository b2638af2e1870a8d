"""Watch a running server in the terminal: slots, pool, queue, preemptions, latencies, from its metrics endpoint."""

from __future__ import annotations

import argparse
import sys
import time

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from scripts.command_line import exit_status
from scripts.live_view.figures import History
from scripts.live_view.frame import frame
from scripts.live_view.scrape import Unreachable, fetch, parse

_LEAST_INTERVAL = 0.05


def main() -> int:
    """Watch, and report a failure in one line."""
    arguments = _parse()
    view = View(arguments)
    return exit_status(view.once if arguments.once else view.watch, (Unreachable,))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/top", description=__doc__)
    add = parser.add_argument
    add("--url", default="http://127.0.0.1:8002/metrics", help="the server's metrics endpoint (%(default)s)")
    add("--model", default="inflight_batcher", help="the engine's model (%(default)s)")
    add("--interval", type=float, default=2.0, metavar="SECONDS", help="between two looks (%(default)s)")
    add("--once", action="store_true", help="look twice, print one frame, and end")
    arguments = parser.parse_args()
    if arguments.interval < _LEAST_INTERVAL:
        parser.error(f"--interval {arguments.interval}: {_LEAST_INTERVAL} at least")
    return arguments


class View:
    """Looks at one server."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._url, self._model, self._interval = arguments.url, arguments.model, arguments.interval
        self._history = History()
        self._console = Console()

    def look(self) -> None:
        """Raises Unreachable, also where the server shows no engine."""
        scrape = parse(fetch(self._url), self._model, time.monotonic())
        if not scrape.has_engine:
            raise Unreachable(
                f"{self._url} shows nothing of a model {self._model}: it is not loaded, or serves with metrics=false"
            )
        self._history.add(scrape)

    def once(self) -> None:
        """One frame, of two looks."""
        self.look()
        time.sleep(self._interval)
        self.look()
        self._console.print(self.picture())

    def watch(self) -> None:
        """Frame after frame; into a pipe one below the other. A server that goes away later may come back."""
        self.look()
        if not self._console.is_terminal:
            while True:
                self._console.print(self._next())
        with Live(self.picture(), console=self._console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(self._next(), refresh=True)

    def _next(self) -> RenderableType:
        time.sleep(self._interval)
        try:
            self.look()
        except Unreachable as error:
            return self.picture(str(error))
        return self.picture()

    def picture(self, note: str = "") -> RenderableType:
        """What was seen last."""
        restarts = self._history.num_restarts
        if restarts and not note:
            note = f"the engine has begun anew {restarts} time{'s' if restarts > 1 else ''} while this view looked"
        if self._history.newest is None:
            return Text(note)
        return frame(
            self._history.figures(),
            f"{self._model}  {self._url}  {time.strftime('%H:%M:%S')}",
            note,
            self._console.width,
        )


if __name__ == "__main__":
    sys.exit(main())
