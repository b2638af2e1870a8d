"""The inputs and outputs of Triton Server's vLLM backend. The work is in backend/serving/entries/vllm_entry.py."""

from backend.serving.entries.vllm_entry import VllmEntry as TritonPythonModel

__all__ = ["TritonPythonModel"]
