"""Pieces -> OpenAI's objects: whole answers, and the chunks of streamed ones."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.gateway import log_probs
from backend.gateway.finish import finish_reason
from backend.gateway.log_probs import CompletionLogProbs
from backend.gateway.translation import Ask
from backend.gateway.triton_wire import Piece
from backend.gateway.vocabulary import Vocabulary


@dataclass(slots=True)
class Usage:
    """Counts as the engine counted: every prompt once, every token of every choice."""

    choices_per_prompt: int
    prompts: dict[int, int] = field(default_factory=dict)
    generated: int = 0

    def add(self, piece: Piece) -> None:
        """Count a piece in."""
        self.prompts[piece.index // self.choices_per_prompt] = piece.num_input
        self.generated += piece.num_output

    def as_json(self) -> dict[str, int]:
        """OpenAI's object."""
        prompt = sum(self.prompts.values())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self.generated,
            "total_tokens": prompt + self.generated,
        }


class Answer:
    """What is common to both kinds of answers. vocabulary: only with log-probabilities."""

    kind = ""
    chunk_kind = ""

    def __init__(self, ask: Ask, request_id: str, model: str, vocabulary: Vocabulary | None) -> None:
        self._ask = ask
        self._vocabulary = vocabulary
        self.request_id = request_id
        self._head = {"id": request_id, "created": int(time.time()), "model": model}
        self.usage = Usage(ask.n)

    @property
    def num_choices(self) -> int:
        """Of all prompts together."""
        return len(self._ask.prompts) * self._ask.n

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """The answer that is not streamed."""
        own: list[list[Piece]] = [[] for _ in range(self.num_choices)]
        for piece in pieces:
            self.usage.add(piece)
            own[piece.index].append(piece)
        choices = [self._choice(index, each) for index, each in enumerate(own)]
        return self._object(self.kind, choices) | {"usage": self.usage.as_json()}

    def opening(self) -> Iterator[dict[str, Any]]:
        """Chunks before the first piece."""
        yield from ()

    def chunk(self, piece: Piece) -> dict[str, Any] | None:
        """The chunk of a piece, counted in; None if there is nothing to say."""
        self.usage.add(piece)
        choice = self._delta(piece)
        return self._object(self.chunk_kind, [choice]) if piece.text or piece.reason or choice["logprobs"] else None

    def closing(self) -> dict[str, Any]:
        """The chunk with the counts."""
        return self._object(self.chunk_kind, []) | {"usage": self.usage.as_json()}

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"object": kind, **self._head, "choices": choices}

    def _choice(self, index: int, pieces: list[Piece]) -> dict[str, Any]:
        raise NotImplementedError

    def _delta(self, piece: Piece) -> dict[str, Any]:
        raise NotImplementedError


class ChatAnswer(Answer):
    """A message per choice."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self) -> Iterator[dict[str, Any]]:
        """The role, once per choice."""
        for index in range(self.num_choices):
            delta = {"role": "assistant", "content": ""}
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
            yield self._object(self.chunk_kind, [choice])

    def _choice(self, index: int, pieces: list[Piece]) -> dict[str, Any]:
        text = "".join(piece.text for piece in pieces)
        return {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": self._log_probs(pieces),
            "finish_reason": finish_reason(pieces[-1].reason),
        }

    def _delta(self, piece: Piece) -> dict[str, Any]:
        return {
            "index": piece.index,
            "delta": {"content": piece.text} if piece.text else {},
            "logprobs": self._log_probs([piece] if piece.ids else []),
            "finish_reason": finish_reason(piece.reason),
        }

    def _log_probs(self, pieces: list[Piece]) -> dict[str, Any] | None:
        if self._vocabulary is None or not pieces:
            return None
        entries = [entry for piece in pieces for entry in log_probs.of_chat(piece, self._vocabulary)]
        return {"content": entries, "refusal": None}


class CompletionAnswer(Answer):
    """A text per choice, after the prompt with ``echo``."""

    kind = chunk_kind = "text_completion"

    def __init__(self, ask: Ask, request_id: str, model: str, vocabulary: Vocabulary | None) -> None:
        super().__init__(ask, request_id, model, vocabulary)
        self._counters = [CompletionLogProbs(vocabulary) for _ in range(self.num_choices)] if vocabulary else []

    def opening(self) -> Iterator[dict[str, Any]]:
        """The prompt, once per choice, if it is to be repeated."""
        for index in range(self.num_choices if self._ask.echo else 0):
            yield self._object(self.chunk_kind, [self._text(index, self._echo(index), None, "")])

    def _echo(self, index: int) -> str:
        return self._ask.prompts[index // self._ask.n] if self._ask.echo else ""

    def _choice(self, index: int, pieces: list[Piece]) -> dict[str, Any]:
        text = self._echo(index) + "".join(piece.text for piece in pieces)
        parts = [self._counters[index].of(piece) for piece in pieces] if self._counters else []
        return self._text(index, text, log_probs.joined(parts), pieces[-1].reason)

    def _delta(self, piece: Piece) -> dict[str, Any]:
        counted = self._counters[piece.index].of(piece) if self._counters and piece.ids else None
        return self._text(piece.index, piece.text, counted, piece.reason)

    def _text(self, index: int, text: str, counted: dict[str, Any] | None, reason: str) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": counted, "finish_reason": finish_reason(reason)}
