"""Encoding of keys: hashes of 64 bits become consecutive numbers, and rows are grouped by such numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .._jit import kernel

__all__ = ["Integers", "KeyCodes", "grouped_rows"]

Integers = npt.NDArray[Any]
"""Whole numbers of any width: rows are many, so their columns are as narrow as they can be."""


@kernel
def fill_codes(
    keys: Integers, begin: int, known: Integers, numbers: Integers, found: Integers, codes: Integers, fresh: Integers
) -> int:
    """Write the code of each key from `begin` on; return where the table became half full, or the number of keys.

    `known` and `numbers` are an open-addressing hash table, empty where the number is -1. `found` holds how many codes
    there are, and how many of these keys were new; `fresh` gets the positions of the latter. Keys are hashes already,
    so their low bits are the place in the table.
    """
    mask = known.shape[0] - 1
    most = known.shape[0] // 2
    for i in range(begin, keys.shape[0]):
        key = keys[i]
        place = key & mask
        while numbers[place] >= 0 and known[place] != key:
            place = (place + 1) & mask
        if numbers[place] < 0:
            if found[0] >= most:
                return i
            known[place] = key
            numbers[place] = found[0]
            fresh[found[1]] = i
            found[0] += 1
            found[1] += 1
        codes[i] = numbers[place]
    return int(keys.shape[0])


@kernel
def fill_order(codes: Integers, starts: Integers, order: Integers) -> None:
    """Write the positions of the rows of each code, in their order, and where those of each code begin."""
    for i in range(codes.shape[0]):
        starts[codes[i] + 2] += 1
    for i in range(2, starts.shape[0]):
        starts[i] += starts[i - 1]
    for i in range(codes.shape[0]):
        order[starts[codes[i] + 1]] = i
        starts[codes[i] + 1] += 1


class KeyCodes:
    """Numbers of keys in the order in which the keys first appear.

    Parameters
    ----------
    capacity
        Keys that are expected; the table grows if there are more.

    Examples
    --------
    >>> codes = KeyCodes()
    >>> [each.tolist() for each in codes.encode(np.array([70, 5, 70]))]
    [[0, 1, 0], [0, 1]]
    >>> [each.tolist() for each in codes.encode(np.array([5, 9]))]
    [[1, 2], [1]]
    """

    def __init__(self, capacity: int = 1 << 16) -> None:
        size = 1 << max(4, (2 * capacity).bit_length())
        self.known, self.numbers = np.zeros(size, np.int64), np.full(size, -1, np.int32)
        self.size = 0

    def encode(self, keys: Integers) -> tuple[Integers, Integers]:
        """Return the code of each key, and the positions of keys that had none before."""
        codes, fresh = np.empty(keys.size, np.int32), np.empty(keys.size, np.int64)
        found = np.array([self.size, 0])
        done = 0
        while (done := fill_codes(keys, done, self.known, self.numbers, found, codes, fresh)) < keys.size:
            self.grow()
        self.size = int(found[0])
        return codes, fresh[: found[1]].copy()

    def grow(self) -> None:
        """Double the table; every key keeps its code."""
        used = self.numbers >= 0
        keys = np.empty(int(used.sum()), np.int64)
        keys[self.numbers[used]] = self.known[used]  # in the order of their codes, which thus stay the same
        self.known, self.numbers = np.zeros(2 * self.known.size, np.int64), np.full(2 * self.numbers.size, -1, np.int32)
        codes, fresh = np.empty(keys.size, np.int32), np.empty(keys.size, np.int64)
        fill_codes(keys, 0, self.known, self.numbers, np.zeros(2, np.int64), codes, fresh)


def grouped_rows(codes: Integers, size: int) -> tuple[Integers, Integers]:
    """Return the rows sorted by code, in their own order within a code, and where each code begins; in linear time.

    Examples
    --------
    >>> order, starts = grouped_rows(np.array([1, 0, 1]), 2)
    >>> order.tolist(), starts.tolist()
    ([1, 0, 2], [0, 1, 3])
    """
    starts, order = np.zeros(size + 2, np.int64), np.empty(codes.size, np.int64)
    fill_order(codes, starts, order)
    return order, starts[: size + 1]
