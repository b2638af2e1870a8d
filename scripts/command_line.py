"""What the commands here have in common: a number has its bounds, and a failure is one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def within(kind: type[Number], least: Number, most: Number, above: bool = False) -> Callable[[str], Number]:
    """An argument's type for argparse: a number from `least` to `most`, both of them allowed.

    above: `least` itself is too little.
    """
    span = f"above {least:g} and at most {most:g}" if above else f"between {least:g} and {most:g}"

    def read(text: str) -> Number:
        value = kind(text)
        if not least <= value <= most or (above and value == least):
            raise argparse.ArgumentTypeError(f"{text} is not {span}")
        return value

    read.__name__ = kind.__name__  # what argparse says a text is not, where it is no number
    return read


def exit_status(run: Callable[[], int | None], errors: tuple[type[Exception], ...], failed: int = 1) -> int:
    """Run it, and turn how it ended into the process's exit status.

    Its own status if it returned one, else 0; `failed` after one line about an error of those kinds; 130 after Ctrl-C,
    as shells have it.
    """
    try:
        return run() or 0
    except errors as error:
        print(f"error: {error}", file=sys.stderr)
        return failed
    except KeyboardInterrupt:
        return 130
