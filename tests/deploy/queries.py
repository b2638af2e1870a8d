"""The queries of the alert rules and the dashboards, and the metric families that they name."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from .compose_file import ROOT

_FAMILY = re.compile(r"\b(?:nv|inflight)_\w+|\bvllm:\w+")


def rules() -> list[dict[str, Any]]:
    """The alert rules of all files."""
    files = sorted((ROOT / "deploy/prometheus").glob("*alerts.yml"))
    return [rule for path in files for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def dashboard_queries() -> list[str]:
    """All queries of all panels, in order."""
    found = []
    for path in sorted((ROOT / "deploy/grafana/dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            found += [target["expr"] for target in panel["targets"]]
    return found


def families(query: str) -> set[str]:
    """Metric families in a query; what stands in quotes is a label's value."""
    return set(_FAMILY.findall(re.sub(r'"[^"]*"', '""', query)))
