"""BeamStream: the one response to a request that searches over beams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.beam_search import Answer
from backend.endings import FinishReason
from backend.request import Sequence as EngineSequence
from backend.serving.extra_outputs import Arrays, ExtraOutputs
from backend.serving.response_stream import Chunk, ResponseSender, ResponseStream
from backend.text.text_stream import TextSpan, TextStream


class BeamWishes(NamedTuple):
    """What a response is to hold. echo: ids before each answer. pad_id: behind the shorter ones.

    text: makes a TextStream with that echo; None where no text is wanted.
    """

    echo: tuple[int, ...]
    pad_id: int
    log_probs: bool
    text: Callable[[], TextStream] | None


class BeamStream(ResponseStream):
    """Says nothing until the search has ended, however it ends; then all answers, the best first."""

    def __init__(self, sender: ResponseSender, wishes: BeamWishes, extra: ExtraOutputs | None) -> None:
        """extra: of the measurements, where they were asked for."""
        super().__init__(sender, streaming=False, echo=(), text=None, extra=extra)
        self._wishes = wishes
        self._root: EngineSequence | None = None

    def follow(self, sequence: EngineSequence) -> None:
        """The engine has taken the request in as this sequence."""
        super().follow(sequence)
        self._root = sequence

    def finish(self, reason: FinishReason) -> None:
        """The search has ended."""
        if self._extra is not None:
            self._extra.tick()
        super().finish(reason)

    def take(self) -> Chunk | None:
        """The response; None when there is nothing to say."""
        chunk = super().take()
        if chunk is None or chunk.failure is not None or chunk.finish_reason is None:
            return chunk
        group = self._root.group if self._root is not None else None
        answers = group.answers if group is not None else []
        # Ended in its prompt, or before it had begun: nothing was said, once.
        answers = answers or [Answer([], [], 0.0, chunk.finish_reason)]
        outputs, span = _outputs(answers, self._wishes)
        return chunk._replace(span=span, extra={**chunk.extra, **outputs})


def _outputs(answers: list[Answer], wishes: BeamWishes) -> tuple[Arrays, TextSpan | None]:
    """Outputs by name, without the batch dimension, for n answers of at most t tokens, and the text of the first.

    ``output_ids`` int32 ``[n, echo + t]``, ``sequence_length`` int32 ``[n]``, ``finish_reason`` BYTES ``[n]``,
    ``num_output_tokens`` int32 ``[1]`` of all together; where asked for ``cum_log_probs`` float32 ``[n]``,
    ``output_log_probs`` float32 and ``log_prob_ids`` int32 ``[n, t]``, 0 and ``pad_id`` behind the shorter ones;
    for text ``text_ids`` int32 ``[n, any]`` and ``text_span`` int32 ``[2 n]``.
    """
    rows = [[*wishes.echo, *answer.output] for answer in answers]
    outputs: dict[str, NDArray[Any]] = {
        "output_ids": _padded(rows, wishes.pad_id, np.int32),
        "sequence_length": np.array([len(row) for row in rows], np.int32),
        "finish_reason": np.array([answer.reason.value.encode() for answer in answers], np.object_),
        "num_output_tokens": np.array([sum(len(answer.output) for answer in answers)], np.int32),
    }
    if wishes.log_probs:
        outputs["cum_log_probs"] = np.array([answer.cumulative for answer in answers], np.float32)
        outputs["output_log_probs"] = _padded([answer.log_probs for answer in answers], 0.0, np.float32)
        outputs["log_prob_ids"] = _padded([answer.output for answer in answers], wishes.pad_id, np.int32)
    if wishes.text is None:
        return outputs, None
    spans = [_span(wishes.text(), answer.output) for answer in answers]
    outputs["text_ids"] = _padded([span.ids for span in spans], 0, np.int32)
    outputs["text_span"] = np.array([edge for span in spans for edge in (span.start, span.end)], np.int32)
    return outputs, spans[0]


def _span(text: TextStream, tokens: list[int]) -> TextSpan:
    for token in tokens:
        text.push(token)
    return text.take(final=True)


def _padded(rows: Sequence[Sequence[float]], fill: float, dtype: type[np.generic]) -> NDArray[Any]:
    array = np.full((len(rows), max(map(len, rows))), fill, dtype)
    for target, row in zip(array, rows, strict=True):
        target[: len(row)] = row
    return array
