"""The table of reported cases names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = TESTS.parent / "docs" / "cases.md"


def named_tests() -> list[tuple[str, str]]:
    return re.findall(r"`([\w/]+\.py)::(\w+)`", TABLE.read_text())


def test_each_test_in_the_table_exists() -> None:
    named = named_tests()
    assert len(named) > 50
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(rf"^def {name}\(|\b{name} = ", (TESTS / file).read_text(), re.MULTILINE)
    ]
    assert missing == []
