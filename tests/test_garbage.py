"""What the process's own settings of Python's collector do to objects in a circle."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from backend import garbage


class Node:
    """Of a circle with itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_was_there_when_it_settled_stays_until_all_is_collected() -> None:
    node = Node()
    seen = weakref.ref(node)
    garbage.settle()
    del node
    gc.collect()
    assert seen() is not None
    garbage.collect_all()
    assert seen() is None


def test_what_came_later_is_collected_as_ever() -> None:
    garbage.settle()
    seen = weakref.ref(Node())
    gc.collect()
    assert seen() is None
