"""docs/gateway.md says what the code does."""

from pathlib import Path

from backend.gateway.fields import ChatRequest, CompletionRequest
from backend.gateway.reference import tables

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "gateway.md").read_text()


def test_the_fields_on_the_page_are_those_of_the_models() -> None:
    assert tables() in PAGE, "python -m backend.gateway.reference writes the tables"


def test_every_field_has_a_meaning_on_the_page() -> None:
    for model in (ChatRequest, CompletionRequest):
        for name, field in model.model_fields.items():
            assert field.description, name
            assert f"| `{name}` |" in tables()
