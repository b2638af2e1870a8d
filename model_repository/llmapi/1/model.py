"""The inputs and outputs of TensorRT-LLM's newest model. The work is in backend/serving/entries/llmapi_entry.py."""

from backend.serving.entries.llmapi_entry import LlmapiEntry as TritonPythonModel

__all__ = ["TritonPythonModel"]
