"""Cells: counts by one or more numbers, such as item and rank, of those that occur."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import FloatArray, IntArray
from .encoding import Integers

__all__ = ["Cells", "joined", "tally"]


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """Counts by one or more numbers, and sums of other values beside them."""

    at: tuple[Integers, ...]
    count: Integers
    sums: tuple[FloatArray, ...] = ()

    def moved(self, by: int, axis: int = 0) -> Cells:
        """Return the same counts with one of the numbers shifted."""
        at = tuple(each + np.int32(by) if i == axis else each for i, each in enumerate(self.at))
        return Cells(at, self.count, self.sums)

    def recoded(self, codes: IntArray) -> Cells:
        """Return the same counts with the last number replaced by its code."""
        return Cells((*self.at[:-1], codes[self.at[-1]]), self.count, self.sums)

    def compact(self) -> Cells:
        """Return the same counts in as few bytes as the largest needs."""
        return Cells(self.at, self.count.astype(smallest_type(int(self.count.max(initial=0)))), self.sums)

    def during(self, first: int) -> Cells:
        """Return the counts whose first number is the given one, by the other numbers; they must be ordered by it."""
        low, high = np.searchsorted(self.at[0], [first, first + 1])
        return Cells(
            tuple(each[low:high] for each in self.at[1:]), self.count[low:high], tuple(x[low:high] for x in self.sums)
        )


def tally(at: tuple[Integers, ...], size: tuple[int, ...], *values: FloatArray | Integers) -> Cells:
    """Count rows by one or more numbers, in the order of these; sum values beside the counts.

    Rows with a negative number do not count.

    Examples
    --------
    >>> cells = tally((np.array([1, 0, 1]), np.array([2, 0, 2])), (2, 3), np.array([0.5, 1.0, 0.25]))
    >>> [each.tolist() for each in (*cells.at, cells.count, *cells.sums)]
    [[0, 1], [0, 2], [1, 2], [1.0, 0.75]]
    """
    key = at[0].astype(np.int64)
    for number, each in zip(size[1:], at[1:], strict=True):
        key *= number
        key += each
    if min(int(each.min(initial=0)) for each in at) < 0:
        inside = np.all([each >= 0 for each in at], axis=0)
        key, values = key[inside], tuple(each[inside] for each in values)
    whole = int(np.prod(size, dtype=np.float64))
    if whole <= 4 * key.size + (1 << 16):
        counts = np.bincount(key, minlength=whole)
        cells = np.flatnonzero(counts)
        count = counts[cells]
        sums = tuple(np.bincount(key, each, whole)[cells].astype(np.float64, copy=False) for each in values)
    else:
        cells, place, count = np.unique(key, return_inverse=True, return_counts=True)
        sums = tuple(np.bincount(place, each, cells.size).astype(np.float64, copy=False) for each in values)
    numbers = []
    for number in size[:0:-1]:
        cells, rest = np.divmod(cells, number)
        numbers.append(rest.astype(smallest_type(number)))  # cells may be as many as rows
    return Cells((cells.astype(smallest_type(size[0])), *numbers[::-1]), count.astype(np.int32), sums)


def joined(parts: Sequence[Cells]) -> Cells:
    """Concatenate counts."""
    return Cells(
        tuple(np.concatenate(each) for each in zip(*(part.at for part in parts), strict=True)),
        np.concatenate([part.count for part in parts]),
        tuple(np.concatenate(each) for each in zip(*(part.sums for part in parts), strict=True)),
    )


def smallest_type(largest: int) -> type[np.signedinteger[Any]]:
    """Return the smallest signed type that holds numbers up to the given one, and one more."""
    return next((kind for kind in (np.int8, np.int16, np.int32) if largest < np.iinfo(kind).max), np.int64)
