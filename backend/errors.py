"""The errors that may reach a client or an operator: one base class per addressee."""


class InvalidRequest(ValueError):
    """A request that is refused because of what it asks for. Reaches its sender only.

    The message names the field, the value found and the limit; it never holds a path, a stack or a memory key.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class QueueFullError(RuntimeError):
    """A request that is refused because too many wait. Reaches its sender only, as unavailable."""


class StepInterruptedError(Exception):
    """A step was ended before its end, for someone more urgent. Nothing of it counts; whatever it wrote, a step that
    computes the same tokens again writes once more."""


class LoadError(ValueError):
    """Something that the operator gave cannot be served; ends the load with this one line."""


class ConfigError(LoadError):
    """A knob of the engine, or a file beside the model, is missing, out of range or of an unsupported kind."""
