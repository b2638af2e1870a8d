"""BeamGroup: a request that searches over beams: its prompt, once, and the beams that share it.

The group is one sequence to whoever decides who waits, runs and is preempted: its *root*, which holds the prompt. The
root takes as many slots as there are beams. A *branch* is the sequence of one beam: it is known to the group and the
executor alone, begins with the root's full blocks, and is computed in chunks like any other sequence. Branches wait for
each other: a step of the search takes what all of them bring.
"""

from __future__ import annotations

import dataclasses

from backend.beam_search import Answer, BeamSearch
from backend.endings import FinishReason
from backend.request import Sequence, State

_Candidates = tuple[tuple[int, float], ...]
_IDS_PER_GROUP = 1 << 32


class BeamGroup:
    """branches: in the order of the search's beams; before its first step ``width`` that know the prompt alone.

    tails_due: the last, partly filled block of the prompt is still to be copied to the branches. due: copies (block,
    block) that the next step is to make before it computes anything.
    answers: once the group has ended.
    """

    def __init__(self, root: Sequence) -> None:
        beams = root.request.sampling.beams
        assert beams is not None
        self.root = root
        self.width = beams.width
        self.search = BeamSearch(root.request.sampling, root.request.beam_watch)
        self.tails_due = False
        self.due: list[tuple[int, int]] = []
        self.answers: list[Answer] = []
        self._found: dict[Sequence, _Candidates] = {}
        self._num_branches = 0
        # The prompt alone is the root's: its cursor never goes beyond, so it never decodes.
        root.limit = root.num_prompt
        root.group = self
        self.branches = [self.branch(list(root.tokens)) for _ in range(self.width)]

    def branch(self, tokens: list[int]) -> Sequence:
        """A new branch with these tokens and no blocks. Its request id is below 0, and no other's."""
        asked = self.root.request
        self._num_branches += 1
        number = -(asked.request_id * _IDS_PER_GROUP + self._num_branches)
        made = Sequence(dataclasses.replace(asked, request_id=number, leader=None, beam_watch=None))
        made.tokens = tokens
        made.limit = asked.max_tokens_held
        made.num_computed = made.num_prompt
        made.group = self
        made.state = State.RUNNING
        return made

    @property
    def ready(self) -> bool:
        """Whether the prompt has been computed, or will have been before the next step, and beams are under way."""
        return self.search.started and self.root.num_computed >= self.root.num_prompt

    def take(self, sequence: Sequence, candidates: _Candidates) -> list[_Candidates] | None:
        """What a step brought for the root or a branch; once nothing is missing, those of all beams, in order."""
        if (sequence is self.root) == self.search.started:
            return None  # a prompt that had to be computed again
        self._found[sequence] = candidates
        asked = self.branches if self.search.started else [self.root]
        if any(each not in self._found for each in asked):
            return None
        found = [self._found[each] for each in asked]
        self._found = {}
        return found

    def interrupt(self) -> None:
        """The group is preempted: what has not been taken by the search is to be brought again."""
        self._found = {}
        for branch in self.branches:
            branch.num_preemptions += 1
            branch.num_computed = max(min(branch.num_computed, branch.num_tokens - 1), branch.num_prompt)

    def end(self, reason: FinishReason) -> None:
        """The group has ended. Its root has the output of the best answer from now on."""
        self.answers = self.search.answers(reason)
        for branch in self.branches:
            branch.state = State.FINISHED
        self.root.tokens += self.answers[0].output if self.answers else []
