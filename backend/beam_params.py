"""BeamParams: how a search over beams ranks and ends, and the limits that keep it sane."""

from __future__ import annotations

from dataclasses import dataclass

from backend.errors import InvalidRequest
from backend.ranges import within

MOST_BEAMS = 64
MAX_LENGTH_PENALTY = 10.0
MAX_DIVERSITY_RATE = 1e4
_MOST_ENDINGS = 7
"""Ending tokens for which each beam brings candidates beyond those that may go on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BeamParams:
    """Of a request that searches.

    width: beams under way at a time, 2 and more. num_returned: the best so many of them are the answer.
    length_penalty: a beam's score is the sum of its log-probabilities over its length to this power, length counted in
    output tokens, its end included; 0 = the sum itself. early_stopping: 1 ends the search when ``width`` beams have
    ended; 0 when besides none under way would beat the worst of those if it ended now; any other number when none can
    beat it however it goes on. diversity_rate: at each step so much times a beam's rank, from 0, is added to its score.
    """

    width: int
    num_returned: int
    length_penalty: float = 0.0
    early_stopping: int = 1
    diversity_rate: float = 0.0

    def num_candidates(self, num_endings: int) -> int:
        """Tokens that each beam proposes, where so many end it: if all those are among them, enough go on."""
        return (1 + min(max(num_endings, 1), _MOST_ENDINGS)) * self.width

    def validate(self, num_endings: int, vocab_size: int) -> None:
        """Raise InvalidRequest, naming field, value and limit."""
        within("length_penalty", self.length_penalty, -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY)
        within("beam_search_diversity_rate", self.diversity_rate, 0.0, MAX_DIVERSITY_RATE)
        needed = self.num_candidates(num_endings)
        if needed > vocab_size:
            raise InvalidRequest(
                "beam_width", f"{self.width} needs {needed} candidates a step, the vocabulary has {vocab_size} tokens"
            )
        within("num_return_sequences", self.num_returned, 1, self.width)
