"""Maturation: impressions enter the relevance estimate once they are old enough that their clicks have arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...arrays import FloatArray, IntArray
from .blocks import add_matured, fill_by_rank
from .counts import ObservedCounts
from .estimation import MaturedCounts
from .records import RecordedImpression

Recorded = Callable[[int | None], Iterator[RecordedImpression]]
"""Return the impressions after a log entry, oldest first, or if there is none given, all, newest first. Their feedback
state is that after the last entry that the ledger has recorded."""


class Maturation:
    """Which impressions of a query are pending, and the sums of exposure and clicks without those.

    Impressions mature in the order of the log, so `first_pending` tells them apart; what a pending one has counted is
    read from the log when it matures. Rows of deleted items are left out: their counts were cleared.

    Parameters
    ----------
    counts
        The counts, whose blocks hold the pending part.
    """

    def __init__(self, counts: ObservedCounts) -> None:
        self.counts = counts
        self.age = self.first_pending = 0  # the age of maturity, in ms; 0 if impressions are never pending
        self.pending_since: int | None = None
        self.E, self.C = np.zeros(0), np.zeros(0)

    def sums(self) -> tuple[FloatArray, FloatArray]:
        """Return exposure and clicks of the matured impressions."""
        return (self.E, self.C) if self.age else (self.counts.E, self.counts.C)

    def by_rank(self, rows: IntArray, ranks: int, examination: int) -> MaturedCounts:
        """Return the counts of the matured impressions of some rows, with views by rank under an examination.

        By rank only the sums over all impressions are kept, so views are scaled to the matured exposure. Exposure at a
        rank that the examination excludes counts as views that everybody examines.
        """
        counts, at_rank = self.counts, np.zeros((rows.size, ranks))
        if counts.blocks:
            b = counts.newest
            fill_by_rank(rows, counts.settled_by_rank, b.F, b.p, b.weight, counts.scale, at_rank)
        E, C = (each[rows] * counts.scale for each in self.sums())
        p = counts.examinations.p(examination, ranks)
        p = np.where(p > 0.0, p, 1.0)
        total = at_rank.sum(axis=1)
        share = np.divide(E, total, out=np.zeros(rows.size), where=total > 0.0)
        return C, E, at_rank / p * share[:, None], p

    def grow(self, capacity: int) -> None:
        """Enlarge the arrays to more rows."""
        if self.age:
            more = capacity - self.E.size
            self.E, self.C = np.pad(self.E, (0, more)), np.pad(self.C, (0, more))

    def restore(self, age: int, first_pending: int, pending_since: int | None) -> None:
        """Restore the state of a snapshot, before its blocks are added."""
        size = self.counts.capacity if age else 0
        self.age, self.first_pending, self.pending_since = age, first_pending, pending_since
        self.counts.has_pending = age > 0
        self.E, self.C = np.zeros(size), np.zeros(size)

    def is_pending(self, seq: int) -> bool:
        """Return whether an impression is pending."""
        return self.pending_since is not None and seq >= self.first_pending

    def record(self, seq: int, time: int) -> None:
        """Record an impression, which is pending at first."""
        if self.age and self.pending_since is None:
            self.first_pending, self.pending_since = seq, time

    def recount(self, rows: IntArray) -> None:
        """Recompute the sums of some rows over all blocks."""
        if self.age:
            self.E[rows] = self.C[rows] = 0.0
            for b in self.counts.blocks.values():
                add_matured(b.F, b.C, b.pending_F, b.pending_C, b.p, b.weight, rows, self.E, self.C)

    def advance(self, age: int, now: int, last: int, deleted: set[int], recorded: Recorded) -> None:
        """Move impressions of at least this age into the sums; `last` is the time of the last recorded log entry."""
        if age != self.age:
            self.rebuild(age, now, deleted, recorded)
        if self.pending_since is None or self.pending_since + age > now:
            return
        counts, first = self.counts, self.first_pending - 1
        self.first_pending, self.pending_since = 0, None
        if last + age <= now:  # every impression has matured
            for existing in counts.blocks.values():
                existing.reset_pending(counts.capacity)
            self.E[:], self.C[:] = counts.E, counts.C
            return
        for each in recorded(first):
            if each.time + age > now:
                self.first_pending, self.pending_since = each.seq, each.time
                break
            if (block := counts.block_of(each.examination, each.bucket, each.seq)) is not None:
                block.count_pending(each, -1, deleted)
                if counts.weighting is not None:
                    self.recount(each.rows)

    def rebuild(self, age: int, now: int, deleted: set[int], recorded: Recorded) -> None:
        """Count the pending impressions anew for another age of maturity."""
        counts = self.counts
        self.restore(age, 0, None)
        counts.weighting = None
        for existing in counts.blocks.values():
            existing.reset_pending(counts.capacity if age else 0)
        for each in recorded(None) if age else ():
            if each.time + age <= now:
                break
            self.first_pending, self.pending_since = each.seq, each.time
            if (block := counts.block_of(each.examination, each.bucket, each.seq)) is not None:
                block.count_pending(each, 1, deleted)
