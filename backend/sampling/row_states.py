"""RowStates: finds a sequence's state again in the next step, or makes it anew from the sequence's tokens."""

from __future__ import annotations

from backend.request import Sequence
from backend.sampling.row_state import RowState

_LEAST_KEPT = 64


class RowStates:
    """By request id. A state that does not stand at the position asked for is made anew, which takes all tokens once.

    Those not asked for lately go: twice as many as there are in one step are kept.
    """

    def __init__(self) -> None:
        self._states: dict[int, tuple[RowState, int]] = {}
        self.num_made = 0

    def get(self, sequence: Sequence, position: int) -> RowState:
        """The state for drawing the token of this position. The caller draws it, once."""
        request_id = sequence.request.request_id
        state, stands_at = self._states.pop(request_id, (None, 0))
        if state is None or stands_at != position:
            state = RowState(sequence, position)
            self.num_made += 1
        self._states[request_id] = (state, position + 1)
        return state

    def forget(self, num_in_step: int) -> None:
        """Drop those least recently asked for. num_in_step: states asked for in this step."""
        for _ in range(len(self._states) - max(2 * num_in_step, _LEAST_KEPT)):
            del self._states[next(iter(self._states))]
