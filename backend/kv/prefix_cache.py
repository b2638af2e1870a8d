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
    """One published block. block is -1 in a root."""

    __slots__ = ("__weakref__", "block", "children", "parent", "tokens")

    def __init__(self, parent: Node | None, tokens: Tokens, block: int) -> None:
        self.parent = parent
        self.tokens = tokens
        self.block = block
        self.children: dict[Tokens, Node] | None = None  # most nodes end a text and never have any


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
            child = node.children.get(block) if node.children else None
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
        children = parent.children
        if children is None:
            children = parent.children = {}
        node = Node(parent, tokens, block)
        if children.setdefault(tokens, node) is not node:
            return None
        self._nodes[block] = node
        self._pool.publish(block)
        return node

    def _forget(self, block: int) -> None:
        node = self._nodes.pop(block)
        if node.children:
            raise PoolIntegrityError(f"block {block} evicted before the blocks that follow it")
        assert node.parent is not None
        assert node.parent.children is not None
        del node.parent.children[node.tokens]
