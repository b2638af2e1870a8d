"""Prefixes are found by exactly their tokens and salt, only once computed, and given up in the right order."""

from collections import OrderedDict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from backend.kv.block_pool import BlockPool, PoolIntegrityError
from backend.kv.prefix_cache import Node, PrefixCache

SIZE = 4
ONE, TWO, THREE = (1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12)


def cache_of(*blocks: tuple[int, ...], salt: str = "", pool: BlockPool | None = None) -> tuple[PrefixCache, list[int]]:
    """A cache with one published chain."""
    pool = pool or BlockPool(10)
    cache = PrefixCache(pool, SIZE)
    return cache, publish(cache, pool, *blocks, salt=salt)


def publish(cache: PrefixCache, pool: BlockPool, *blocks: tuple[int, ...], salt: str = "") -> list[int]:
    held = pool.allocate(len(blocks))
    node = cache.root(salt)
    for tokens, block in zip(blocks, held, strict=True):
        made = cache.publish(node, tokens, block)
        assert made is not None
        node = made
    return held


def found(cache: PrefixCache, tokens: tuple[int, ...], salt: str = "") -> list[int]:
    return [node.block for node in cache.match(salt, tokens)]


def test_the_last_token_is_never_part_of_a_hit() -> None:
    cache, held = cache_of(ONE, TWO)
    lengths = [len(found(cache, (*ONE, *TWO, 99)[:n])) for n in range(1, 10)]
    assert lengths == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert found(cache, (*ONE, *TWO, 99)) == held


def test_a_prefix_that_differs_in_the_last_token_of_a_block_shares_only_the_blocks_before() -> None:
    cache, held = cache_of(ONE, TWO, THREE)
    assert found(cache, (*ONE, 5, 6, 7, 0, *THREE, 99)) == held[:1]
    assert found(cache, (1, 2, 3, 0, *TWO, *THREE, 99)) == []


def test_the_same_blocks_in_another_order_are_not_found() -> None:
    cache, held = cache_of(ONE, TWO)
    assert found(cache, (*TWO, *ONE, 99)) == []
    assert found(cache, (*ONE, *ONE, 99)) == held[:1]


def test_another_salt_finds_nothing_and_the_same_salt_finds_all() -> None:
    cache, held = cache_of(ONE, TWO, salt="tenant a")
    assert found(cache, (*ONE, *TWO, 99), salt="tenant a") == held
    assert found(cache, (*ONE, *TWO, 99), salt="tenant b") == []
    assert found(cache, (*ONE, *TWO, 99)) == []


def test_a_salt_cannot_be_imitated_by_tokens_nor_a_tenants_name_by_a_longer_one() -> None:
    cache, _ = cache_of(ONE, salt="a")
    for salt in ("", "a ", "A", "a\x00", "aa", str(ONE)):
        assert found(cache, (*ONE, 99), salt=salt) == []


class SameHash(int):
    """Every token hashes alike, so every block of them does."""

    def __hash__(self) -> int:
        return 7


def colliding(tokens: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(SameHash(t) for t in tokens)


def test_equal_hashes_of_different_tokens_are_no_hit() -> None:
    one, two, other = colliding(ONE), colliding(TWO), colliding(THREE)
    assert hash(one) == hash(two) == hash(other)
    cache, held = cache_of(one, two)
    assert found(cache, (*one, *two, 99)) == held
    assert found(cache, (*one, *other, 99)) == held[:1]
    assert found(cache, (*other, *two, 99)) == []


def test_the_same_content_published_twice_stays_private_the_second_time() -> None:
    pool = BlockPool(10)
    cache, held = cache_of(ONE, pool=pool)
    (second,) = pool.allocate(1)
    assert cache.publish(cache.root(""), ONE, second) is None
    assert found(cache, (*ONE, 99)) == held
    pool.free([second], fence=0)
    assert pool.num_cached == 0
    pool.check_integrity([held])


# --- what is given up


def test_the_least_recently_used_is_given_up_first_and_of_one_prefix_the_tail() -> None:
    pool = BlockPool(8)
    cache, first = cache_of(ONE, TWO, pool=pool)
    second = publish(cache, pool, THREE, ONE, salt="x")
    pool.free(reversed(first), fence=0)
    pool.free(reversed(second), fence=0)
    held = pool.allocate(pool.num_free)
    left = []
    for _ in range(4):
        held += pool.allocate(1)
        left.append((len(found(cache, (*ONE, *TWO, 99))), len(found(cache, (*THREE, *ONE, 99), salt="x"))))
    assert left == [(1, 2), (0, 2), (0, 1), (0, 0)]
    assert len(cache) == 0
    pool.check_integrity([held])


def test_a_hit_makes_a_prefix_the_most_recently_used() -> None:
    pool = BlockPool(3)
    cache, first = cache_of(ONE, pool=pool)
    second = publish(cache, pool, TWO)
    pool.free(first, fence=0)
    pool.free(second, fence=0)
    pool.share(first[0])
    pool.free(first, fence=0)
    pool.allocate(1)
    assert (found(cache, (*ONE, 99)), found(cache, (*TWO, 99))) == (first, [])


def test_a_block_given_up_before_those_that_follow_it_is_noticed() -> None:
    pool = BlockPool(3)
    _, held = cache_of(ONE, TWO, pool=pool)
    pool.free(held, fence=0)  # head first: wrong
    with pytest.raises(PoolIntegrityError, match="evicted before the blocks that follow it"):
        pool.allocate(1)


# --- any history, beside a model that is only dictionaries

Key = tuple[str, tuple[int, ...]]


class CacheMachine(RuleBasedStateMachine):
    """by_block, by_key: what can be found. unheld: of it, what nobody holds, in order of release, with its fence."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(12)
        self.cache = PrefixCache(self.pool, 2)
        self.by_block: dict[int, Key] = {}
        self.by_key: dict[Key, int] = {}
        self.unheld: OrderedDict[int, int] = OrderedDict()
        self.live: list[tuple[list[int], Key, Node | None, int]] = []  # blocks, all tokens, last node, published
        self.fence = self.completed = 0

    def expected(self, salt: str, tokens: tuple[int, ...]) -> list[int]:
        chain = []
        for end in range(2, len(tokens), 2):
            block = self.by_key.get((salt, tokens[:end]))
            if block is None:
                break
            chain.append(block)
        return chain

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=9).map(tuple), salt=st.sampled_from(["", "s"]))
    def start(self, tokens: tuple[int, ...], salt: str) -> None:
        nodes = self.cache.match(salt, tokens)
        hits = [node.block for node in nodes]
        assert hits == self.expected(salt, tokens)
        own = -(-len(tokens) // 2) - len(hits)
        usable = [b for b, fence in self.unheld.items() if fence <= self.completed and b not in hits]
        if own > self.pool.num_free + len(usable):
            return
        for block in hits:
            self.pool.share(block)
            self.unheld.pop(block, None)
        evicted = usable[: max(0, own - self.pool.num_free)]
        blocks = hits + self.pool.allocate(own)
        for block in evicted:
            del self.unheld[block]
            del self.by_key[self.by_block.pop(block)]
        self.live.append((blocks, (salt, tokens), nodes[-1] if nodes else self.cache.root(salt), len(hits)))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def publish_next(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.live) - 1))
        blocks, (salt, tokens), node, count = self.live[place]
        end = 2 * count + 2
        if node is None or end > len(tokens):
            return
        made = self.cache.publish(node, tokens[end - 2 : end], blocks[count])
        key = (salt, tokens[:end])
        assert (made is None) == (key in self.by_key)
        if made is not None:
            self.by_key[key] = blocks[count]
            self.by_block[blocks[count]] = key
        self.live[place] = (blocks, (salt, tokens), made, count + 1)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        blocks, *_ = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        self.pool.free(reversed(blocks), self.fence)
        still = {block for held, *_ in self.live for block in held}
        for block in reversed(blocks):
            if block in self.by_block and block not in still:
                self.unheld[block] = self.fence

    @rule()
    def launch(self) -> None:
        self.fence += 1

    @rule()
    def complete(self) -> None:
        self.completed = self.fence
        self.pool.complete(self.completed)

    @invariant()
    def books_add_up(self) -> None:
        self.pool.check_integrity(held for held, *_ in self.live)
        assert len(self.cache) == len(self.by_block)
        assert self.pool.num_cached == len(self.unheld)

    def teardown(self) -> None:
        for salt, tokens in list(self.by_key):
            assert found(self.cache, (*tokens, 9), salt) == self.expected(salt, (*tokens, 9))


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
