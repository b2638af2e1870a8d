"""The one kind of failure that the launcher reports."""

from __future__ import annotations


class LaunchError(Exception):
    """A failure whose message is one line, fit to be shown as it is.

    `exit_code` is what the process that reports it should return.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code


class LeftoversError(LaunchError):
    """A server that could not be ended; none can be started in its place."""
