"""RowState: what one sequence's own tokens and wishes do to its row of logits, from draw to draw."""

from __future__ import annotations

import torch
from torch import Tensor

from backend.guide import NoToken
from backend.request import Sequence
from backend.sampling.bad_words import BadWords
from backend.sampling.guided_row import GuidedRow
from backend.sampling.penalties import Penalties
from backend.sampling.token_history import TokenHistory
from backend.sampling_params import SamplingParams


class RowState:
    """Built from a sequence's tokens once, then told each token that is drawn.

    Order: penalties, bias, then what is forbidden. All of it depends on the sequence's tokens alone, so it is the same
    however the sequence came to stand where it is.
    """

    def __init__(self, sequence: Sequence, position: int) -> None:
        """position: index of the token to be drawn next; all before are known where ``reads_tokens``."""
        self.params = sequence.request.sampling
        self._num_prompt = sequence.num_prompt
        self._tokens = sequence.tokens[:position] if self.params.reads_tokens else []
        if self.params.reads_tokens and len(self._tokens) < position:
            raise ValueError(f"token {len(self._tokens)} of {sequence!r} is not known, needed are {position}")
        self._parts: _Parts | None = None

    def apply(self, row: Tensor, position: int) -> None:
        """Change float32 logits ``[vocab]`` in place before the token of this position is drawn."""
        if not self.params.processed:
            return
        if self._parts is None:
            self._parts = _Parts(self.params, self._tokens, self._num_prompt)
            self._tokens = []
        self._parts.apply(row, position - self._num_prompt)

    def push(self, token: int) -> None:
        """The token that was drawn."""
        if self._parts is not None:
            self._parts.push(token)

    @property
    def outcome(self) -> NoToken | None:
        """After ``apply``: what the sequence gets in place of a token, if anything."""
        guided = self._parts.guided if self._parts is not None else None
        return guided.outcome if guided is not None else None


class _Parts:
    """Made in the thread that samples, at the first draw."""

    def __init__(self, params: SamplingParams, tokens: list[int], num_prompt: int) -> None:
        self._min_tokens = params.min_tokens
        self._words = BadWords(params.bad_words)
        self._penalties = Penalties(params) if params.penalised else None
        self._endings = torch.tensor(sorted(params.ending_ids), dtype=torch.int64)
        self._single = torch.tensor(self._words.single, dtype=torch.int64)
        bias = params.logit_bias
        self._bias_ids = torch.frombuffer(bytearray(bias.ids), dtype=torch.int32).long() if bias else None
        self._bias = torch.frombuffer(bytearray(bias.weights), dtype=torch.float32) if bias else None
        counts = params.penalised or self._words.longest
        self.history = TokenHistory(tokens, num_prompt, self._words.longest) if counts else None
        guide = params.guide
        self.guided = GuidedRow(guide, tokens[num_prompt:], params.end_ids) if guide is not None else None

    def apply(self, row: Tensor, num_output: int) -> None:
        if self._penalties is not None and self.history is not None:
            self._penalties.apply(row, self.history)
        if self._bias_ids is not None and self._bias is not None:
            row.index_add_(0, self._bias_ids, self._bias)
        if self.guided is not None:
            self.guided.forbid(row)
        if len(self._single):
            row.index_fill_(0, self._single, -torch.inf)
        if num_output < self._min_tokens and len(self._endings):
            row.index_fill_(0, self._endings, -torch.inf)
        if self._words.longest and self.history is not None:
            for token in self._words.completing(self.history.last):
                row[token] = -torch.inf
        if self.guided is not None:
            self.guided.check(row)

    def push(self, token: int) -> None:
        if self.history is not None:
            self.history.push(token)
        if self.guided is not None:
            self.guided.push(token)
