"""docs/operations.md says which families there are."""

from pathlib import Path

from backend.serving.metrics.alias_families import ALIAS_FAMILIES
from backend.serving.metrics.engine_families import ENGINE_FAMILIES
from backend.serving.metrics.family import Kind
from backend.serving.metrics.reference import tables

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "operations.md").read_text()
FAMILIES = ENGINE_FAMILIES + ALIAS_FAMILIES


def test_the_families_on_the_page_are_those_of_the_code() -> None:
    assert tables() in PAGE, "python -m backend.serving.metrics.reference writes the tables"


def test_every_family_has_a_name_of_its_own_that_says_its_kind() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    for family in FAMILIES:
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER), family.name
        assert family.meaning.endswith("."), family.name
        assert "|" not in family.meaning
    assert all(family.name.startswith("inflight_") for family in ENGINE_FAMILIES)
