"""The items of a query as rows: their ids and groups, and the rows that are free."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from ...arrays import IntArray


class ItemRows:
    """Ids and groups by row. A row without an item is free if no log entry refers to it."""

    def __init__(self) -> None:
        self.ids: list[str | None] = []
        self.groups: list[str | None] = []
        self.text_bytes = 0  # size of the ids and groups
        self.index: dict[str, int] = {}
        self.free: list[int] = []  # as a heap

    def load_items(self, items: Sequence[tuple[int, str | None, str | None]]) -> None:
        """Add stored items, given by row, id and group in the order of rows; rows that are left out are free."""
        for row, item, group in items:
            self.extend(row)
            self.ids.append(item)
            self.groups.append(group)
            self.text_bytes += text_size(item) + text_size(group)
            if item is not None:
                self.index[item] = row

    def name_row(self, row: int, item: str | None, group: str | None) -> None:
        """Set the id and the group of a row."""
        before = text_size(self.ids[row]) + text_size(self.groups[row])
        self.text_bytes += text_size(item) + text_size(group) - before
        self.ids[row], self.groups[row] = item, group

    def extend(self, rows: int) -> None:
        """Add free rows up to a number of rows."""
        for row in range(len(self.ids), rows):
            self.ids.append(None)
            self.groups.append(None)
            heapq.heappush(self.free, row)

    def add_items(self, items: Sequence[tuple[str, str | None]]) -> list[int]:
        """Add newcomers, given by id and group; return their rows, free ones first."""
        self.extend(len(self.ids) + len(items) - len(self.free))
        rows = [heapq.heappop(self.free) for _ in items]
        for row, (item, group) in zip(rows, items, strict=True):
            self.name_row(row, item, group)
            self.index[item] = row
        return rows

    def free_rows(self, rows: Iterable[int]) -> None:
        """Free rows, so that newcomers can take them."""
        for row in rows:
            self.name_row(row, None, None)
            heapq.heappush(self.free, row)

    def groups_of(self, rows: IntArray) -> IntArray:
        """Return the group of each candidate, counted from 0; a candidate without a group is its own."""
        labels = [self.groups[row] for row in rows.tolist()]
        if not any(labels):
            return np.arange(rows.size)
        codes: dict[str | int, int] = {}
        return np.array([codes.setdefault(label or i, len(codes)) for i, label in enumerate(labels)])


def text_size(text: str | None) -> int:
    """Return the size of a text in memory, with the copy in UTF-8 that Python keeps of what is not ASCII."""
    if text is None:
        return 0
    if text.isascii():
        return 50 + len(text)
    widest = ord(max(text))
    return 76 + len(text) * (1 if widest < 0x100 else 2 if widest < 0x10000 else 4) + len(text.encode())
