"""Residency: where each sequence's keys and values are: in pool blocks, in host memory, in the prefix cache, nowhere.

It carries out what the scheduler has decided, and collects the copies that the step must make for it. Copies run before
the step computes, so a block copied out may be written by the very same step.
"""

from __future__ import annotations

from backend.beam_search import Step
from backend.kv.block_pool import BlockPool, PoolIntegrityError
from backend.kv.block_table import BlockTables, blocks_for
from backend.kv.host_pool import HostPool
from backend.kv.prefix_cache import Node, PrefixCache, Tokens
from backend.request import Sequence
from backend.scheduler.beam_residency import BeamResidency
from backend.scheduler.costs import PreemptionCosts
from backend.scheduler.gain import Gain
from backend.scheduler.plan import BlockCopies
from backend.scheduler.settings import SchedulerSettings

_PendingKey = tuple[Node, Tokens]


class Residency:
    """Owns block tables, prefix cache, host slots, and the reservations of sequences admitted to their end.

    num_swapped: waiting sequences whose blocks lie in host memory.
    """

    def __init__(self, settings: SchedulerSettings, pool: BlockPool, host: HostPool, costs: PreemptionCosts) -> None:
        self.pool = pool
        self.host = host
        self.tables = BlockTables(pool, settings.block_size)
        self.beams = BeamResidency(self.tables)
        self.copies = BlockCopies([], [], [], [])
        self.recomputed_tokens = self.swapped_blocks = self.hit_tokens = self.num_swapped = 0
        self._block_size = settings.block_size
        self._costs = costs
        self._cache = PrefixCache(pool, settings.block_size) if settings.prefix_cache else None
        self._reserved = 0
        self._computing: dict[_PendingKey, Sequence] = {}
        self._pending: dict[Sequence, _PendingKey] = {}

    def take_copies(self) -> BlockCopies:
        """The copies collected since the last call."""
        copies, self.copies = self.copies, BlockCopies([], [], [], [])
        return copies

    # --- what there is

    def available(self, sequence: Sequence) -> int:
        """Blocks that a sequence may take now: not those that others have reserved."""
        return self.pool.num_available - self._reserved + (self.to_the_end(sequence) if sequence.reserved else 0)

    def to_the_end(self, sequence: Sequence) -> int:
        """Blocks the sequence can still come to need beyond those it holds."""
        branches = self.beams.to_the_end(sequence.group) if sequence.group is not None else 0
        return max(0, blocks_for(sequence.limit, self._block_size) - len(sequence.blocks)) + branches

    def hits(self, sequence: Sequence) -> list[Node]:
        """Published blocks that the sequence can begin with."""
        whole = self._cache is None or sequence.context is not None  # every position is to be computed
        return [] if whole or self._cache is None else self._cache.match(sequence.request.salt, sequence.tokens)

    def being_computed_for(self, sequence: Sequence, hits: list[Node]) -> bool:
        """Whether the next block is being computed by a running sequence that is no less urgent: better wait for it."""
        if self._cache is None or sequence.swapped_tokens or sequence.context is not None:
            return False
        block = self._cache.next_block(sequence.tokens, len(hits))
        if block is None or (len(hits) + 1) * self._block_size >= sequence.num_tokens:
            return False
        parent = hits[-1] if hits else self._cache.root(sequence.request.salt)
        other = self._computing.get((parent, block))
        return other is not None and other.request.level <= sequence.request.level

    def needed(self, sequence: Sequence, hits: list[Node], reserve: bool) -> int:
        """Blocks that bringing the sequence in takes from the available ones."""
        tokens = sequence.limit if reserve else min(sequence.num_tokens, sequence.limit)
        taken_from_cache = sum(1 for node in hits if not self.pool.references(node.block))
        branches = self.beams.needed(sequence.group, reserve) if sequence.group is not None else 0
        return blocks_for(tokens, self._block_size) - len(hits) + taken_from_cache + branches

    def gain(self, kept: frozenset[int] = frozenset()) -> Gain:
        """Counts what becomes available when victims are taken out; ``kept`` are to be used, not to be counted."""
        return Gain(self.tables.release_of(kept), self.to_the_end)

    # --- what is done

    def bring_in(self, sequence: Sequence, hits: list[Node], reserve: bool, fence: int) -> None:
        """Give a waiting sequence its blocks: shared, copied from the host, or to be computed. Sets its cursor."""
        self.tables.share(sequence, (node.block for node in hits))
        self.tables.grow(sequence, min(sequence.num_tokens, sequence.limit))
        sequence.num_computed = len(hits) * self._block_size
        self.hit_tokens += sequence.num_computed
        if sequence.group is not None:
            self.copies.from_host.extend(self.beams.bring_in(sequence.group))
        if sequence.swapped_tokens:
            self._copy_in(sequence, len(hits), fence)
        self._reserve(sequence, reserve)
        if self._cache is not None:
            sequence.published = hits[-1] if hits else self._cache.root(sequence.request.salt)
            sequence.num_published = len(hits)
            self._announce(sequence)

    def prompt_blocks(self, sequence: Sequence) -> int:
        """Blocks of the prompt that can be shared as they are: the last prompt token is computed by each sharer."""
        return (sequence.num_prompt - 1) // self._block_size

    def fork(self, sequence: Sequence, leader: Sequence, reserve: bool) -> None:
        """Let a waiting sequence share its leader's computed prompt: full blocks as they are, the tail by a copy."""
        shared = self.prompt_blocks(sequence)
        self.tables.share(sequence, leader.blocks[:shared])
        self.tables.grow(sequence, min(sequence.num_tokens, sequence.limit))
        self.copies.within.append((leader.blocks[shared], sequence.blocks[shared]))
        self.copies.moved.append(sequence)
        sequence.num_computed = sequence.num_prompt - 1
        self.hit_tokens += sequence.num_computed
        self._reserve(sequence, reserve)

    def _copy_in(self, sequence: Sequence, first: int, fence: int) -> None:
        last = blocks_for(sequence.swapped_tokens, self._block_size)
        pairs = zip(sequence.host_slots[first:last], sequence.blocks[first:last], strict=True)
        self.copies.from_host.extend(pairs)
        self.copies.moved.append(sequence)
        sequence.num_computed = max(sequence.num_computed, sequence.swapped_tokens)
        self.drop_host_copy(sequence, fence)

    def _reserve(self, sequence: Sequence, reserve: bool) -> None:
        """Keep the blocks up to the sequence's end for it, or not."""
        sequence.reserved = reserve
        if reserve:
            self._reserved += self.to_the_end(sequence)

    def drop_host_copy(self, sequence: Sequence, fence: int) -> None:
        """Give back the host slots of a swapped-out sequence, if it has any; what they held is to be computed again."""
        if sequence.host_slots:
            self.host.free(sequence.host_slots, fence)
            sequence.host_slots = []
            self.num_swapped -= 1
            if sequence.group is not None:
                self.beams.forget_host_slots(sequence.group)
        sequence.swapped_tokens = 0

    def grow(self, sequence: Sequence) -> None:
        """One more block. Raises MemoryError if none is available."""
        if sequence.reserved:
            self._reserved -= 1
        self.tables.grow(sequence, len(sequence.blocks) * self._block_size + 1)

    def grow_beams(self, root: Sequence) -> None:
        """The blocks that the beams lack. Raises MemoryError if too few are available."""
        assert root.group is not None
        grown = self.beams.grow(root.group)
        if root.reserved:
            self._reserved -= grown

    def rearrange(self, root: Sequence, steps: list[Step], fence: int) -> None:
        """The beams have taken these steps: branches go on, fork, and are dropped."""
        assert root.group is not None
        before = self.to_the_end(root)
        self.beams.rearrange(root.group, steps, fence)
        if root.reserved:
            self._reserved += self.to_the_end(root) - before

    def take_out(self, sequence: Sequence, fence: int) -> bool:
        """Take a running sequence's blocks: swapped to the host if that is cheaper and fits. True if swapped."""
        blocks = sequence.blocks[: blocks_for(sequence.num_computed, self._block_size)]
        tokens, group = sequence.num_computed, sequence.group
        if group is not None:
            tokens = min(tokens, sequence.num_prompt - 1)  # what follows the last one is asked for again
            blocks = blocks + self.beams.private(group)
        swapped = self._costs.prefers_swap(sequence.num_kept, len(blocks)) and self.host.num_free >= len(blocks) > 0
        if swapped and tokens > 0:
            sequence.host_slots = self.host.allocate(len(blocks))
            sequence.swapped_tokens = tokens
            self.copies.moved.append(sequence)
            if group is not None:
                self.beams.swap_out(group, dict(zip(blocks, sequence.host_slots, strict=True)))
                blocks = self.beams.sources(group, blocks)
            self.copies.to_host.extend(zip(blocks, sequence.host_slots, strict=True))
            self.swapped_blocks += len(blocks)
            self.num_swapped += 1
        else:
            self.recomputed_tokens += sequence.num_kept
        self._let_go(sequence, fence)
        sequence.num_computed = 0
        return sequence.swapped_tokens > 0

    def release(self, sequence: Sequence, fence: int) -> None:
        """The sequence has ended: everything it holds, wherever, is given back."""
        self._let_go(sequence, fence)
        self.drop_host_copy(sequence, fence)

    def _let_go(self, sequence: Sequence, fence: int) -> None:
        if sequence.reserved:
            self._reserved -= self.to_the_end(sequence)
            sequence.reserved = False
        self._withdraw(sequence)
        if sequence.group is not None:
            self.beams.let_go(sequence.group, fence)
        self.tables.release(sequence, fence)
        sequence.published, sequence.num_published = None, 0

    # --- publishing

    def publish(self, sequence: Sequence, num_computed: int) -> None:
        """Make the full blocks among the first ``num_computed`` tokens findable; their data is in the pool."""
        if self._cache is None or sequence.published is None:
            return
        self._withdraw(sequence)
        while (sequence.num_published + 1) * self._block_size <= num_computed:
            parent, index = sequence.published, sequence.num_published
            assert isinstance(parent, Node)
            tokens = self._cache.next_block(sequence.tokens, index)
            assert tokens is not None
            # The same content from elsewhere came first: this sequence's copy, and what follows it, stays private.
            sequence.published = self._cache.publish(parent, tokens, sequence.blocks[index])
            sequence.num_published += 1
            if sequence.published is None:
                return
        if (sequence.num_published + 1) * self._block_size <= len(sequence.tokens):
            self._announce(sequence)

    def _announce(self, sequence: Sequence) -> None:
        """Let others know which block of its prompt the sequence is computing."""
        assert self._cache is not None
        block = self._cache.next_block(sequence.tokens, sequence.num_published)
        if block is not None and isinstance(sequence.published, Node):
            key = (sequence.published, block)
            if key not in self._computing:
                self._computing[key] = sequence
                self._pending[sequence] = key

    def _withdraw(self, sequence: Sequence) -> None:
        key = self._pending.pop(sequence, None)
        if key is not None:
            del self._computing[key]

    def check_integrity(self, running: list[Sequence], waiting: list[Sequence]) -> None:
        """Raise PoolIntegrityError unless pool, host slots and reservations add up."""
        self.pool.check_integrity(list(s.held) for s in running)
        self.host.check_integrity([slot for s in waiting for slot in s.host_slots])
        if self._reserved != sum(self.to_the_end(s) for s in running if s.reserved):
            raise PoolIntegrityError("the reservations differ from what the reserved sequences can still need")
        if any(s.held for s in waiting) or any(s.host_slots for s in running):
            raise PoolIntegrityError("a sequence holds memory of the wrong kind")
        if self.num_swapped != sum(1 for s in waiting if s.host_slots):
            raise PoolIntegrityError("the swapped-out sequences are miscounted")
        if set(self._pending) - set(running):
            raise PoolIntegrityError("a sequence that does not run is said to compute a prefix")
