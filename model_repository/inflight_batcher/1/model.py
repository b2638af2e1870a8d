"""In-flight batching: token ids -> token ids. The work is in backend/serving/inflight_batcher.py."""

from backend.serving.inflight_batcher import InflightBatcher as TritonPythonModel

__all__ = ["TritonPythonModel"]
