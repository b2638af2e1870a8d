"""The tables of docs/gateway.md, from the models that check requests: ``python -m backend.gateway.reference``."""

from __future__ import annotations

from collections.abc import Iterator

from backend.gateway.fields import IGNORED, REFUSED, ChatRequest, CommonFields, CompletionRequest


def tables() -> str:
    """Markdown: every field that is served, and those that are set aside or refused."""
    parts = [
        *_table("Both", CommonFields, frozenset()),
        *_table("`/v1/chat/completions`", ChatRequest, frozenset(CommonFields.model_fields)),
        *_table("`/v1/completions`", CompletionRequest, frozenset(CommonFields.model_fields)),
        "### Accepted without an effect",
        "",
        *_list(IGNORED),
        "### Refused by name",
        "",
        *_list(REFUSED),
        "So is every field that is not on this page. A field that is null is one that is not there.",
    ]
    return "\n".join(parts) + "\n"


def _table(title: str, model: type[CommonFields], known: frozenset[str]) -> Iterator[str]:
    yield from (f"### {title}", "", "| field | default | meaning |", "|---|---|---|")
    for name, field in model.model_fields.items():
        if name not in known:
            default = "required" if field.is_required() else _shown(field.default)
            yield f"| `{name}` | {default} | {field.description} |"
    yield ""


def _shown(default: object) -> str:
    return "" if default is None else f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _list(fields: dict[str, str]) -> Iterator[str]:
    yield from (f"- `{name}`: {meaning}" for name, meaning in fields.items())
    yield ""


if __name__ == "__main__":
    print(tables(), end="")
