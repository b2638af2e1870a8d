"""From a parsed request to what its answers go through on their way back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from backend.serving.beam_stream import BeamStream, BeamWishes
from backend.serving.extra_outputs import ExtraOutputs
from backend.serving.request_parser import ParsedRequest
from backend.serving.response_stream import ResponseSender, ResponseStream
from backend.text.beam_watch import BeamTextWatch
from backend.text.text_stream import TextStream
from backend.text.token_bytes import TokenBytes


class Streams(NamedTuple):
    """Makes them. clock: the scheduler's, in seconds. interval: tokens that a streamed response waits for."""

    token_bytes: TokenBytes
    vocab_size: int
    clock: Callable[[], float]
    interval: int = 1

    def stream(self, parsed: ParsedRequest, sender: ResponseSender) -> ResponseStream:
        """Of one sequence of the request."""
        echo = parsed.prompt if parsed.echo else ()
        text = self._text(parsed, echo) if parsed.wants_text or parsed.stop_words else None
        if parsed.sampling.beams is not None:
            return self._beam_stream(parsed, sender, echo, text)
        extra = None
        if parsed.sampling.detailed or parsed.sampling.context_logits or parsed.wants_metrics:
            extra = ExtraOutputs(parsed.sampling, self.vocab_size, parsed.wants_metrics, self.clock)
        return ResponseStream(
            sender,
            streaming=parsed.streaming,
            echo=echo,
            text=text() if text is not None else None,
            watches=bool(parsed.stop_words),
            extra=extra,
            interval=self.interval,
        )

    def beam_watch(self, parsed: ParsedRequest) -> BeamTextWatch | None:
        """What ends beams by their text."""
        if parsed.sampling.beams is None or not parsed.stop_words:
            return None
        return BeamTextWatch.of(self.token_bytes, parsed.stop_words, parsed.sampling.min_tokens)

    def _text(self, parsed: ParsedRequest, echo: tuple[int, ...]) -> Callable[[], TextStream]:
        sampling = parsed.sampling
        return lambda: TextStream(self.token_bytes, parsed.stop_words, echo, sampling.min_tokens, sampling.end_ids)

    def _beam_stream(
        self,
        parsed: ParsedRequest,
        sender: ResponseSender,
        echo: tuple[int, ...],
        text: Callable[[], TextStream] | None,
    ) -> BeamStream:
        extra = None
        if parsed.wants_metrics or parsed.sampling.context_logits:
            plain = dataclasses.replace(parsed.sampling, beams=None, log_probs=False)
            extra = ExtraOutputs(plain, self.vocab_size, parsed.wants_metrics, self.clock)
        return BeamStream(sender, BeamWishes(echo, parsed.pad_id, parsed.sampling.log_probs, text), extra)
