"""Token ids -> text. The work is in backend/serving/postprocessing.py."""

from backend.serving.postprocessing import Postprocessing as TritonPythonModel

__all__ = ["TritonPythonModel"]
