"""docker-compose.yml as data: anchors merged, ${NAME:-default} replaced as compose does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
REQUIRED = {"GATEWAY_API_KEY": "key", "GRAFANA_PASSWORD": "password"}
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\}")


def services(environment: Mapping[str, str] = REQUIRED) -> dict[str, dict[str, Any]]:
    """Service name -> its description."""
    return replaced(yaml.safe_load(COMPOSE.read_text()), environment)["services"]


def replaced(value: Any, environment: Mapping[str, str]) -> Any:
    """The same with every variable replaced; one that is required and not given is a KeyError."""
    if isinstance(value, dict):
        return {key: replaced(each, environment) for key, each in value.items()}
    if isinstance(value, list):
        return [replaced(each, environment) for each in value]
    return _VARIABLE.sub(lambda found: _value(found, environment), value) if isinstance(value, str) else value


def _value(found: re.Match[str], environment: Mapping[str, str]) -> str:
    if given := environment.get(found["name"]):
        return given
    if found["kind"] != "-":
        raise KeyError(found["name"])
    return found["rest"]


def seconds(text: str) -> int:
    """`45s`, `2m`."""
    number, unit = int(text[:-1]), text[-1]
    return number * {"s": 1, "m": 60}[unit]
