"""The tables of docs/operations.md, from the families: ``python -m backend.serving.metrics.reference``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from backend.serving.metrics.alias_families import ALIAS_FAMILIES
from backend.serving.metrics.engine_families import ENGINE_FAMILIES
from backend.serving.metrics.family import Family


def tables() -> str:
    """Markdown: every family with its type, its labels beyond ``model`` and ``version``, and its meaning."""
    parts = [
        *_table("The engine's own", ENGINE_FAMILIES),
        *_table("Aliases", ALIAS_FAMILIES),
    ]
    return "\n".join(parts)


def _table(title: str, families: Iterable[Family]) -> Iterator[str]:
    yield from (f"### {title}", "", "| family | type | labels | meaning |", "|---|---|---|---|")
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.kind} | {labels} | {family.meaning} |"
    yield ""


if __name__ == "__main__":
    print(tables(), end="")
