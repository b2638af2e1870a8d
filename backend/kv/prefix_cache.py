"""PrefixCache: blocks found again by the exact tokens that led to them.

A tree per salt. A node is one full block; its children are found by the block's true token ids, so a hit is verified
by the tokens themselves and two texts never share by an accident of hashing. Only blocks whose data has been computed
are published.

Whoever holds a node's block holds its parent's too, and sequences free their blocks tail first; so in the pool's order
of eviction a child always comes before its parent, and evicting never cuts a branch off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import WeakValueDictionary

from backend.kv.block_pool import BlockPool, PoolIntegrityError

Tokens = tuple[int, ...]


class Node:
    """One published block. block is -1 in a root.

    Most blocks are followed by one other or none, so the first child has a place of its own, and only further ones a
    dictionary: a third of the memory, and half of the time to publish.
    """

    __slots__ = ("__weakref__", "block", "first", "others", "parent", "tokens")

    def __init__(self, parent: Node | None, tokens: Tokens, block: int) -> None:
        self.parent = parent
        self.tokens = tokens
        self.block = block
        self.first: Node | None = None
        self.others: dict[Tokens, Node] | None = None

    def child(self, tokens: Tokens) -> Node | None:
        """The block that follows with exactly these tokens."""
        first = self.first
        if first is not None and first.tokens == tokens:
            return first
        return self.others.get(tokens) if self.others else None

    def children(self) -> list[Node]:
        """All blocks that follow."""
        return [*([self.first] if self.first else ()), *(self.others or {}).values()]

    def add(self, node: Node) -> None:
        """A block follows that did not before."""
        if self.first is None:
            self.first = node
        elif self.others is None:
            self.others = {node.tokens: node}
        else:
            self.others[node.tokens] = node

    def drop(self, node: Node) -> None:
        """A block that followed is no more."""
        if self.first is node:
            self.first = None
        else:
            assert self.others is not None
            del self.others[node.tokens]


class PrefixCache:
    """Finds and publishes blocks of ``block_size`` tokens in one pool."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size
        # A root lives as long as a published block or a sequence refers to it: salts leave nothing behind.
        self._roots: WeakValueDictionary[str, Node] = WeakValueDictionary()
        self._nodes: dict[int, Node] = {}
        pool.on_evict = self._forget

    def __len__(self) -> int:
        return len(self._nodes)

    def root(self, salt: str) -> Node:
        """Where the prefixes of a salt begin."""
        root = self._roots.get(salt)
        if root is None:
            root = self._roots[salt] = Node(None, (), -1)
        return root

    def match(self, salt: str, tokens: Sequence[int]) -> list[Node]:
        """The longest published chain of full blocks, the last token left out: its logits are still wanted."""
        node, found = self._roots.get(salt), []
        if node is None:
            return []
        for block in self._full_blocks(tokens, len(tokens) - 1):
            child = node.child(block)
            if child is None:
                break
            found.append(child)
            node = child
        return found

    def next_block(self, tokens: Sequence[int], index: int) -> Tokens | None:
        """The tokens of block ``index``, if the sequence fills it."""
        start = index * self._block_size
        block = tuple(tokens[start : start + self._block_size])
        return block if len(block) == self._block_size else None

    def _full_blocks(self, tokens: Sequence[int], end: int) -> Iterator[Tokens]:
        size = self._block_size
        return (tuple(tokens[start : start + size]) for start in range(0, end - size + 1, size))

    def publish(self, parent: Node, tokens: Tokens, block: int) -> Node | None:
        """Make a held block findable under its parent. None if the same content is there already: it stays private."""
        if parent.child(tokens) is not None:
            return None
        node = Node(parent, tokens, block)
        parent.add(node)
        self._nodes[block] = node
        self._pool.publish(block)
        return node

    def _forget(self, block: int) -> None:
        node = self._nodes.pop(block)
        if node.first is not None or node.others:
            raise PoolIntegrityError(f"block {block} evicted before the blocks that follow it")
        assert node.parent is not None
        node.parent.drop(node)
