"""The ensemble for clients that send counts as UINT32. The work is in backend/serving/entries/uint32_entry.py."""

from backend.serving.entries.uint32_entry import Uint32Entry as TritonPythonModel

__all__ = ["TritonPythonModel"]
