"""A cache of bounded size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """The values that were used last, of limited number and size.

    Parameters
    ----------
    most, most_bytes
        Maximum number of values, and of the bytes that they hold together.

    Examples
    --------
    >>> cache = BoundedCache(2, 100)
    >>> for key in "aba", "abcd":
    ...     _ = [cache.add(each, each.upper(), 40) for each in key if cache.get(each) is None]
    >>> cache.get("a"), cache.get("d"), cache.nbytes
    (None, 'D', 80)
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self.most, self.most_bytes = most, most_bytes
        self.held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.nbytes = 0

    def get(self, key: K) -> V | None:
        """Return the value of a key, if it is held."""
        found = self.held.get(key)
        if found is None:
            return None
        self.held.move_to_end(key)
        return found[0]

    def add(self, key: K, value: V, size: int) -> V:
        """Add a value of some size in bytes, and return it; evict those that were not used for longest."""
        self.nbytes -= self.held.pop(key, (None, 0))[1]
        self.held[key] = value, size
        self.nbytes += size
        while len(self.held) > 1 and (len(self.held) > self.most or self.nbytes > self.most_bytes):
            self.nbytes -= self.held.popitem(last=False)[1][1]
        return value

    def remove(self, wanted: Callable[[K], bool]) -> None:
        """Remove the values of some keys."""
        for key in [key for key in self.held if wanted(key)]:
            self.nbytes -= self.held.pop(key)[1]
