"""TensorRT-LLM's token model. The work is in backend/serving/entries/token_entry.py."""

from backend.serving.entries.token_entry import TokenEntry as TritonPythonModel

__all__ = ["TritonPythonModel"]
