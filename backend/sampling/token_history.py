"""TokenHistory: which tokens one sequence has, counted, and the last few of them in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor


class TokenHistory:
    """Grows token by token, in constant time, and holds no more than the distinct tokens there are.

    ids: int64 ``[U]``, distinct tokens of prompt and output. output_counts: int32 ``[U]``, how often the output holds
    each. in_prompt: bool ``[U]``. last: the last tokens of prompt and output.
    """

    def __init__(self, tokens: Sequence[int], num_prompt: int, num_last: int) -> None:
        """tokens: prompt and output so far. num_last: how many of the last to keep in order."""
        found, place = torch.unique(torch.tensor(tokens, dtype=torch.int64), return_inverse=True)
        self._size = len(found)
        self._ids: Tensor = found
        self._counts = torch.bincount(place[num_prompt:], minlength=self._size).to(torch.int32)
        self._in_prompt = torch.bincount(place[:num_prompt], minlength=self._size) > 0
        self._place_of = {token: n for n, token in enumerate(found.tolist())}
        self.last: deque[int] = deque(tokens[max(len(tokens) - num_last, 0) :], maxlen=num_last)

    @property
    def ids(self) -> Tensor:
        """The distinct tokens."""
        return self._ids[: self._size]

    @property
    def output_counts(self) -> Tensor:
        """Of each in the output."""
        return self._counts[: self._size]

    @property
    def in_prompt(self) -> Tensor:
        """Whether each is in the prompt."""
        return self._in_prompt[: self._size]

    def push(self, token: int) -> None:
        """One more token of the output."""
        self.last.append(token)
        place = self._place_of.setdefault(token, self._size)
        if place == self._size:
            self._add(token)
        self._counts[place] += 1

    def _add(self, token: int) -> None:
        if self._size == len(self._ids):
            more = max(self._size, 64)
            self._ids, self._counts, self._in_prompt = (
                torch.cat((old, old.new_zeros(more))) for old in (self._ids, self._counts, self._in_prompt)
            )
        self._ids[self._size] = token
        self._size += 1
