"""Triton Server's own page of metrics, by the Python backend's custom families."""

from __future__ import annotations

from typing import Any

import triton_python_backend_utils as pb_utils

from backend.serving.metrics.family import Kind, Labels


class ServerPage:
    """Families of one model and version. Made in initialize(); each call is a round trip to the server."""

    def __init__(self, model: str, version: str) -> None:
        self._own = {"model": model, "version": version}
        self._families: dict[str, Any] = {}

    def metric(self, family: str, kind: Kind, meaning: str, labels: Labels) -> Any:
        """A new series. Raises TritonModelException if the server keeps no metrics."""
        if family not in self._families:
            kinds = {Kind.COUNTER: pb_utils.MetricFamily.COUNTER, Kind.GAUGE: pb_utils.MetricFamily.GAUGE}
            self._families[family] = pb_utils.MetricFamily(name=family, description=meaning, kind=kinds[kind])
        return self._families[family].Metric(labels=self._own | dict(labels))

    def clear(self) -> None:
        """Take the families off the page. In finalize(): later nobody at the server listens."""
        self._families.clear()
