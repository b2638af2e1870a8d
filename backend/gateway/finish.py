"""How a choice ended, in OpenAI's words.

eos, stop    stop
length       length
timeout      not an answer: error 504
cancelled    not an answer: error 503
"""

from __future__ import annotations

_REASONS = {"": None, "eos": "stop", "stop": "stop", "length": "length"}


def finish_reason(reason: str) -> str | None:
    """None while the choice goes on. Raises KeyError for the ends that are errors."""
    return _REASONS[reason]
