"""Runs one harness under atheris, which picks bytes by the lines of ``backend`` that they reach.

    python -m tests.fuzz.run_parser NAME RUNS CORPUS

NAME is one of ``parsers.PARSERS``, or ``planted``. CORPUS is a folder, into which the harness' samples go. Ends with
code 0 after RUNS inputs, or with atheris' report of the first that broke it. The package atheris must be there,
in the version of tests/clients/atheris.txt.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["backend", "tests.fuzz.planted"]):
    from tests.fuzz import parsers, planted

_LONGEST = 4096
_SECONDS = 60
"""For one input; a parser that takes longer hangs."""


def main() -> None:
    """Does not return."""
    name, runs, corpus = sys.argv[1:]
    if name == "planted":
        harness, samples = planted.parse, []
    else:
        harness, samples = parsers.PARSERS[name], list(parsers.samples(name))
    for number, sample in enumerate(samples):
        Path(corpus, f"sample-{number}").write_bytes(sample)
    options = [f"-runs={runs}", f"-max_len={_LONGEST}", f"-timeout={_SECONDS}", "-seed=1", "-rss_limit_mb=8192"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={corpus}/", corpus], harness)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
