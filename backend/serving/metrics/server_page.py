"""Triton Server's own page of metrics, by the Python backend's custom families."""

from __future__ import annotations

import ctypes
from typing import Any

import triton_python_backend_utils as pb_utils

from backend.serving.metrics.family import Kind, Labels


class ServerPage:
    """Families of one model and version. Made in initialize(); each call is a round trip to the server.

    Nothing is taken off the page again. A model that is loaded anew begins before the old one has ended, and Triton
    Server 2.51 keeps one value for both their series; it frees it with the first that goes, and the other one's next
    change writes into freed memory, which was seen to break the server's heap.
    """

    def __init__(self, model: str, version: str) -> None:
        self._own = {"model": model, "version": version}
        self._families: dict[str, Any] = {}

    def metric(self, family: str, kind: Kind, meaning: str, labels: Labels) -> Any:
        """A new series. Raises TritonModelException if the server keeps no metrics."""
        if family not in self._families:
            kinds = {Kind.COUNTER: pb_utils.MetricFamily.COUNTER, Kind.GAUGE: pb_utils.MetricFamily.GAUGE}
            made = pb_utils.MetricFamily(name=family, description=meaning, kind=kinds[kind])
            self._families[family] = _never_deleted(made)
        return _never_deleted(self._families[family].Metric(labels=self._own | dict(labels)))


def _never_deleted(made: Any) -> Any:
    """Not even when the interpreter ends: an object's end is what tells the server to delete."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made
