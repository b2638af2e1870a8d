"""The errors that may reach a client or an operator: one base class per addressee."""

_MOST_SHOWN = 400
_LONGEST_NAME = 64
_LONGEST_VALUE = 60


def one_line(text: str, most: int = _MOST_SHOWN) -> str:
    """The text as one line of at most so many characters: what cannot be shown is written as an escape."""
    shown = text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:most])
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def shown(value: object) -> str:
    """A value as Python writes it, cut where it is long: for the errors of values that a client wrote."""
    return one_line(repr(value), _LONGEST_VALUE)


class InvalidRequest(ValueError):
    """A request that is refused because of what it asks for. Reaches its sender only.

    The message names the field, the value found and the limit, in one line, though a client chooses names and values;
    it never holds a path, a stack or a memory key.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{one_line(field, _LONGEST_NAME)}: {one_line(problem)}")
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
