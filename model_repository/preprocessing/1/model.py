"""Text -> token ids. The work is in backend/serving/preprocessing.py."""

from backend.serving.preprocessing import Preprocessing as TritonPythonModel

__all__ = ["TritonPythonModel"]
