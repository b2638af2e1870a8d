"""BeamResidency: the blocks of branches. Of the prompt they share what the root holds, of the rest each has its own.

    root      [ P0 | P1 | P2.. ]                    P2 is partly filled
    branch 0  [ P0 | P1 | a    | b.. ]              a began as a copy of P2
    branch 1  [ P0 | P1 | c    | d.. ]
    fork of 0 [ P0 | P1 | a    | e.. ]              e began as a copy of b, as far as that was filled

All branches have equally many tokens, hence blocks, and the block that is being filled is held by one alone. So where
one branch is dropped and another forked, what the first gives back is enough for the second.
"""

from __future__ import annotations

from backend.beam_search import Step
from backend.kv.block_table import BlockTables, blocks_for
from backend.request import Sequence, State
from backend.scheduler.beam_group import BeamGroup

_Pairs = list[tuple[int, int]]


class BeamResidency:
    """Carries out what is decided for branches. Copies within the pool that it takes are added to those due."""

    def __init__(self, tables: BlockTables) -> None:
        self._tables = tables
        self._block_size = tables.block_size

    def shared(self, group: BeamGroup) -> int:
        """Blocks of the prompt that branches hold as they are."""
        return group.root.num_prompt // self._block_size

    def to_the_end(self, group: BeamGroup) -> int:
        """Blocks that branches can come to need beyond those they hold."""
        longest = blocks_for(group.root.request.max_tokens_held, self._block_size)
        return sum(max(0, longest - max(len(branch.blocks), self.shared(group))) for branch in group.branches)

    def needed(self, group: BeamGroup, reserve: bool) -> int:
        """Blocks that branches take beyond the root's when the group is brought in."""
        if reserve:
            return self.to_the_end(group)
        if group.root.host_slots and group.branches[0].host_slots:
            return len({slot for branch in group.branches for slot in branch.host_slots}) + self.missing(group)
        return sum(self._first_blocks(branch) - self.shared(group) for branch in group.branches)

    def _first_blocks(self, branch: Sequence) -> int:
        """A branch has room for its tokens, and for its first one before that is known."""
        tokens = max(branch.num_tokens, branch.num_prompt + 1)
        return max(blocks_for(min(tokens, branch.limit), self._block_size), branch.num_prompt // self._block_size)

    def missing(self, group: BeamGroup) -> int:
        """Blocks that branches lack for the tokens they know."""
        return sum(
            max(0, self._first_blocks(branch) - max(len(branch.blocks), self.shared(group) + len(branch.host_slots)))
            for branch in group.branches
        )

    def grow(self, group: BeamGroup) -> int:
        """Give branches the blocks they lack; how many these were. Raises MemoryError."""
        before = group.root.num_new_blocks
        for branch in group.branches:
            self._grow(branch, self._first_blocks(branch) * self._block_size)
        return group.root.num_new_blocks - before

    def _grow(self, branch: Sequence, num_tokens: int) -> None:
        """New blocks count as the root's."""
        assert branch.group is not None
        self._tables.grow(branch, num_tokens)
        branch.group.root.num_new_blocks += branch.num_new_blocks
        branch.num_new_blocks = 0

    def bring_in(self, group: BeamGroup) -> _Pairs:
        """Give branches their blocks, once the root has its own; returns the copies (host slot, block) to make."""
        pairs: _Pairs = []
        restored: dict[int, int] = {}
        for branch in group.branches:
            self._tables.share(branch, group.root.blocks[: self.shared(group)])
            for slot in branch.host_slots:
                if slot in restored:
                    self._tables.share(branch, [restored[slot]])
                    continue
                self._grow(branch, (len(branch.blocks) + 1) * self._block_size)
                restored[slot] = branch.blocks[-1]
                pairs.append((slot, restored[slot]))
            if not branch.host_slots:
                branch.num_computed = branch.num_prompt
                group.tails_due = bool(branch.num_prompt % self._block_size)
            branch.host_slots = []
            self._grow(branch, self._first_blocks(branch) * self._block_size)
        return pairs

    def private(self, group: BeamGroup) -> list[int]:
        """The blocks with what beams have said, each once."""
        if not group.search.started:
            return []
        first = self.shared(group)
        return list(dict.fromkeys(block for branch in group.branches for block in branch.blocks[first:]))

    def swap_out(self, group: BeamGroup, slots: dict[int, int]) -> None:
        """Remember in which host slot each private block lies; the same slot for those who share it."""
        if group.search.started:
            for branch in group.branches:
                branch.host_slots = [slots[block] for block in branch.blocks[self.shared(group) :]]

    def sources(self, group: BeamGroup, blocks: list[int]) -> list[int]:
        """Where the content of these blocks is now: for those still to be copied, what they are to be copied from."""
        sources = {target: source for source, target in group.due}
        return [sources.get(block, block) for block in blocks]

    def forget_host_slots(self, group: BeamGroup) -> None:
        """What lay there is to be computed again."""
        for branch in group.branches:
            branch.host_slots = []

    def let_go(self, group: BeamGroup, fence: int) -> None:
        """Give back what branches hold; copies that are still to be made are made no more."""
        group.due = []
        for branch in group.branches:
            self._tables.release(branch, fence)

    def copy_tails(self, group: BeamGroup) -> None:
        """Give each branch the prompt's last, partly filled block, if it is still to have it."""
        if group.tails_due:
            tail = self.shared(group)
            group.tails_due = False
            group.due += [(group.root.blocks[tail], branch.blocks[tail]) for branch in group.branches]

    def rearrange(self, group: BeamGroup, steps: list[Step], fence: int) -> None:
        """Branches become those of the beams that have taken these steps. fence: of the last step launched.

        Of beams with one parent the first goes on with its branch. What nobody goes on with is given back before the
        others fork: it is enough for them.
        """
        before, taken = group.branches, dict[int, int]()
        if not before[0].num_output:  # nothing has been said: each is as good as any other
            steps = [Step(place, step.token) for place, step in enumerate(steps)]
        for place, step in enumerate(steps):
            taken.setdefault(step.parent, place)
        for place, branch in enumerate(before):
            if place not in taken:
                self._tables.release(branch, fence)
                branch.state = State.FINISHED
        group.branches = [
            before[step.parent] if taken[step.parent] == place else self._fork(group, before[step.parent])
            for place, step in enumerate(steps)
        ]
        for branch, step in zip(group.branches, steps, strict=True):
            branch.tokens.append(step.token)

    def _fork(self, group: BeamGroup, parent: Sequence) -> Sequence:
        """A branch that goes on from where another stands, whose own step is not among its tokens yet."""
        child = group.branch(list(parent.tokens))
        full, filled = divmod(parent.num_computed, self._block_size)
        child.num_computed = parent.num_computed
        self._tables.share(child, parent.blocks[:full])
        if filled:
            self._grow(child, child.num_computed)
            group.due.append((parent.blocks[full], child.blocks[full]))
        return child
