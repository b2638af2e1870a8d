"""What can be wrong with a model directory."""

from backend.errors import LoadError


class ModelError(LoadError):
    """The model directory cannot be served as it is; the message says what to change."""


class ModelConfigError(ModelError):
    """A value in config.json or generation_config.json is missing or out of range."""


class UnsupportedModel(ModelError):
    """The model is well-formed, but of a kind that this decoder does not compute."""


class WeightsError(ModelError):
    """The tensors in the directory are not the ones that its config asks for."""
