"""The two ways in which a checkpoint can be refused."""

from backend.errors import LoadError


class CheckpointError(LoadError):
    """A checkpoint cannot be found, read or written. The message is one line, fit for a user."""


class UnsupportedModel(CheckpointError):
    """The file is sound, but describes a model, a tokenizer or a feature that this project does not serve."""
