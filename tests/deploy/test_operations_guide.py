"""docs/operations.md names what there is: every alert with its severity, and no option or parameter that is not."""

from __future__ import annotations

import dataclasses
import re

from backend.config import EngineConfig
from scripts.launcher import options

from .compose_file import ROOT
from .queries import rules

GUIDE = (ROOT / "docs/operations.md").read_text()
# Options of docker compose, and what every command has.
OF_OTHERS = {"--build", "--help"}


def table_of(heading):
    """First cells of the table below a heading -> the second ones."""
    section = GUIDE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| ([^|]*?) \|", section, re.MULTILINE))


def test_every_alert_has_its_line_with_its_severity_and_there_is_no_other():
    assert table_of("Alerts") == {rule["alert"]: rule["labels"]["severity"] for rule in rules()}


def shown(value):
    """A default as the table has it."""
    if value == 0 and not isinstance(value, bool):
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_every_knob_of_the_table_is_an_option_or_a_parameter_with_that_default():
    fields = {knob.name: knob.default for knob in dataclasses.fields(EngineConfig)}
    chosen = vars(options.parse([]))
    knobs = table_of("Knobs")
    assert len(knobs) > 10
    for name, default in knobs.items():
        if not name.startswith("--"):
            assert default.strip("`") == shown(fields[name]), name
        elif default.isdigit():
            assert chosen[name.removeprefix("--").replace("-", "_")] == int(default), name


def test_every_option_that_is_named_is_one_of_our_commands():
    given = "".join(path.read_text() for path in [*ROOT.glob("scripts/*.py"), *ROOT.glob("scripts/*/*.py")])
    services = ("--http-port", "--grpc-port", "--metrics-port")
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", GUIDE)) - OF_OTHERS - set(services)
    assert len(named) > 10
    assert {name for name in named if f'"{name}"' not in given} == set()
