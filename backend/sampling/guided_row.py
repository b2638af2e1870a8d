"""GuidedRow: a sequence's guide, applied to its row of logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from backend.guide import Guide, NoToken


class GuidedRow:
    """Forbids what the guide does not allow, and says when no token is left. Ends are allowed where the guide may end.

    outcome: what the sequence gets in place of a token, if anything.
    """

    def __init__(self, guide: Guide, output: Sequence[int], end_ids: frozenset[int]) -> None:
        """output: the tokens so far. end_ids: what ends this sequence as end of sequence; may be none."""
        self.outcome: NoToken | None = None
        self._state = guide.start(output)
        self._end_ids = end_ids
        self._ends = torch.tensor(sorted(end_ids), dtype=torch.int64)
        self._ended = False
        self._may_end = False

    def forbid(self, row: Tensor) -> None:
        """Set what may not come next to minus infinity in float32 logits ``[vocab]``, in place."""
        if self._ended:
            return  # one more step was planned before the end was known; nobody reads its token
        allowed = self._state.allowed()
        if allowed is None:
            self._end(NoToken.TOO_COMPLEX)
            return
        self._may_end = self._state.may_end()
        bits = np.unpackbits(np.frombuffer(allowed, np.uint8), bitorder="little")[: len(row)]
        ends = row[self._ends]
        row[: len(bits)].masked_fill_(torch.from_numpy(bits == 0), -torch.inf)
        row[len(bits) :] = -torch.inf
        row[self._ends] = ends if self._may_end else -torch.inf

    def check(self, row: Tensor) -> None:
        """After everything that forbids: whether anything is left."""
        if not self._ended and bool(row.max() == -torch.inf):
            self._end(NoToken.COMPLETE if self._may_end else NoToken.NONE_LEFT)

    def push(self, token: int) -> None:
        """The token that was drawn."""
        if self._ended or token in self._end_ids:
            self._ended = True
        else:
            self._state.push(token)

    def _end(self, outcome: NoToken) -> None:
        self._ended, self.outcome = True, outcome
