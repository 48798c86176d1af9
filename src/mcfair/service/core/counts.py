"""The counts of one query, and their sums under decay.

Counts are kept in blocks, one per examination and time bucket: all counts of a block have the same weight. With one
examination and no half-life there is one block, and the arithmetic equals the simulator's to the bit.
"""

from __future__ import annotations

import numpy as np

from ...arrays import CountArray, FloatArray, IntArray
from .blocks import CountBlock, Examinations, add_by_rank, add_counts, count_list, fill_by_rank
from .rules import UNDECAYED, Version, Weighting

NO_COUNTS: CountArray = np.zeros((0, 0), np.int32)


class ObservedCounts:
    """How often each row was shown at each rank and clicked, and the sums that a policy sees: exposure and clicks.

    E and C are sums over the blocks, up to the factor `scale`. The newest block changes with every list, the others
    seldom: their sums are kept apart as `settled`, so that a list costs the same with and without decay. `weighting` is
    what the sums were computed for; None invalidates them, and `reweigh` recomputes them.

    Parameters
    ----------
    examinations
        The examination probabilities by number.
    capacity
        Number of rows of the arrays.
    """

    def __init__(self, examinations: Examinations, capacity: int) -> None:
        self.examinations, self.capacity = examinations, capacity
        self.blocks: dict[tuple[int, int], CountBlock] = {}
        self.has_pending = False  # whether the blocks count pending impressions apart, see `Maturation`
        self.weighting: Weighting | None = None
        self.scale = 1.0
        self.measured_bytes = 0  # 0 after blocks were added, enlarged or dropped
        self.E, self.C = np.zeros(capacity), np.zeros(capacity)
        self.settled_E, self.settled_C = np.zeros(capacity), np.zeros(capacity)
        self.settled_by_rank = np.zeros((capacity, 0))

    def grow(self, capacity: int) -> None:
        """Enlarge the arrays to more rows."""
        more, self.capacity, self.measured_bytes = capacity - self.capacity, capacity, 0
        self.E, self.C = np.pad(self.E, (0, more)), np.pad(self.C, (0, more))
        self.settled_E, self.settled_C = np.pad(self.settled_E, (0, more)), np.pad(self.settled_C, (0, more))
        self.settled_by_rank = np.pad(self.settled_by_rank, ((0, more), (0, 0)))
        for block in self.blocks.values():
            block.grow(capacity, block.ranks)

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        if not self.measured_bytes:
            cells = sum(4 * (1 + block.ranks) for block in self.blocks.values()) * (2 if self.has_pending else 1)
            self.measured_bytes = self.capacity * (8 * 4 + 8 * self.settled_by_rank.shape[1] + cells)
        return self.measured_bytes

    def grows(self, version: Version, now: int, ranks: int) -> bool:
        """Return whether counting a list of this length adds a block, or ranks to one."""
        found = self.blocks.get((version.examination, version.bucket(now)))
        return found is None or ranks > found.ranks

    def bytes_per_row(self, version: Version, now: int, ranks: int) -> tuple[int, int]:
        """Return the number of ranks after a list of this length was counted, and the size of a row in memory.

        With a half-life a row is as large as if every time bucket had counts already: otherwise a query would be
        refused only once they had filled up.
        """
        kept = {key: b.ranks for key, b in self.blocks.items() if not version.is_negligible(key[1], now)}
        kept.setdefault((version.examination, version.bucket(now)), ranks)
        blocks, ranks = max(len(kept), version.time_buckets), max(ranks, *kept.values())
        counts = 4 * (1 + ranks) * blocks * (2 if version.maturation else 1)
        return ranks, 8 * 4 + (8 * ranks if blocks > 1 else 0) + counts

    # --- blocks ------------------------------------------------------------------------------------------------------

    @property
    def ranks(self) -> int:
        """The largest number of ranks of any block, 1 without any."""
        return max((block.ranks for block in self.blocks.values()), default=1)

    @property
    def newest(self) -> CountBlock:
        """The last block in the order of sums."""
        return self.blocks[next(reversed(self.blocks))]

    def settled_blocks(self) -> list[CountBlock]:
        """Return every block but the newest, in the order of sums."""
        return list(self.blocks.values())[:-1]

    def block_of(self, examination: int, bucket: int, seq: int) -> CountBlock | None:
        """Return the block that counts an impression; None if it was dropped as negligible."""
        found = self.blocks.get((examination, bucket))
        return None if found is None or seq < found.since else found

    def open_block(self, version: Version, seq: int, time: int, ranks: int, rows: int) -> CountBlock:
        """Return the block of a new list with at least this number of ranks; create it if needed."""
        key = (version.examination, version.bucket(time))
        found = self.blocks.get(key)
        if found is None:
            before = self.newest if self.blocks else None
            found = self.add_block(*key, seq, ranks)
            weighting, _ = version.weighting(time, found.bucket)
            same = before and weighting._replace(latest=max(before.bucket, weighting.decaying_since))
            if before is None or self.newest is not found or self.weighting != same:
                self.weighting = None
            else:  # the common case of the next time bucket: what was the newest block becomes settled
                self.weighting, found.weight = weighting, weighting.weight(found.bucket)
                self.settle(before, rows)
        elif ranks > found.ranks:
            found.grow(self.capacity, ranks)
            self.measured_bytes = 0
            if found is not self.newest:
                self.weighting = None  # the settled sums by rank are too narrow for it
        return found

    def add_block(self, examination: int, bucket: int, seq: int, ranks: int) -> CountBlock:
        """Add an empty block in the order of sums: by bucket, then by examination."""
        added = CountBlock(self.examinations, examination, bucket, seq, self.capacity, ranks)
        if self.has_pending:
            added.reset_pending(self.capacity)
        self.blocks[examination, bucket] = added
        self.blocks = dict(sorted(self.blocks.items(), key=lambda each: (each[0][1], each[0][0])))
        self.measured_bytes = 0
        return added

    def drop_negligible_blocks(self, version: Version, now: int) -> None:
        """Drop blocks whose weight has become negligible."""
        if not version.half_life:
            return
        for key in [key for key in self.blocks if version.is_negligible(key[1], now)]:
            del self.blocks[key]
            self.weighting, self.measured_bytes = None, 0

    def settle(self, block: CountBlock, rows: int) -> None:
        """Add what was the newest block to the sums of settled blocks."""
        self.settled_E[:], self.settled_C[:] = self.E, self.C
        if block.ranks > self.settled_by_rank.shape[1]:
            more = block.ranks - self.settled_by_rank.shape[1]
            self.settled_by_rank = np.pad(self.settled_by_rank, ((0, 0), (0, more)))
        add_by_rank(block.F, block.p, block.weight, np.arange(rows), self.settled_by_rank)

    # --- counting ----------------------------------------------------------------------------------------------------

    def count_list(self, block: CountBlock, rows: IntArray) -> None:
        """Count a list that was shown in full."""
        if self.weighting is None:
            block.F[rows, np.arange(rows.size)] += 1
        elif block is self.newest:
            count_list(block.F, block.p, block.weight, rows, self.settled_E, self.E)
        else:
            block.F[rows, np.arange(rows.size)] += 1
            self.recount(rows)

    def add_cells(self, block: CountBlock, rows: IntArray, ranks: IntArray, shown: IntArray, clicks: IntArray) -> None:
        """Add to how often rows were shown and clicked at ranks, from 0; clicks where nobody looks are no evidence."""
        np.add.at(block.F, (rows, ranks), shown)
        np.add.at(block.C, rows, np.where(block.p[ranks] > 0.0, clicks, 0))
        self.weighting = None

    def clear(self, rows: IntArray) -> None:
        """Clear the counts of some rows."""
        for block in self.blocks.values():
            block.clear(rows)
        if self.weighting is not None:
            self.recount(rows)

    # --- sums --------------------------------------------------------------------------------------------------------

    def reweigh(self, version: Version, now: int, rows: int) -> bool:
        """Update the weights to the current time; return whether that changed more than the scale."""
        if self.weighting is UNDECAYED and not version.half_life:
            return False  # the common case: all weights and the scale are 1
        weighting, self.scale = version.weighting(now, max((bucket for _, bucket in self.blocks), default=0))
        if self.weighting == weighting:
            return False
        self.weighting = weighting
        for block in self.blocks.values():
            block.weight = weighting.weight(block.bucket)
        self.settled_by_rank = np.zeros((self.capacity, max((b.ranks for b in self.settled_blocks()), default=0)))
        self.recount(np.arange(rows))
        return True

    def recount(self, rows: IntArray) -> None:
        """Recompute the sums of some rows over all blocks."""
        if not self.blocks:
            self.E[rows] = self.C[rows] = 0.0
            return
        self.settled_E[rows] = self.settled_C[rows] = 0.0
        self.settled_by_rank[rows] = 0.0
        for block in self.settled_blocks():
            add_counts(block.F, block.C, block.p, block.weight, rows, self.settled_E, self.settled_C)
            add_by_rank(block.F, block.p, block.weight, rows, self.settled_by_rank)
        self.recount_newest(rows)

    def recount_newest(self, rows: IntArray) -> None:
        """Recompute the sums of some rows after only the newest block has changed."""
        self.E[rows], self.C[rows] = self.settled_E[rows], self.settled_C[rows]
        b = self.newest
        add_counts(b.F, b.C, b.p, b.weight, rows, self.E, self.C)

    def undecayed(self, version: Version) -> CountArray | None:
        """Return the counts by rank if all of them have the weights of the version's examination; else None."""
        if not self.blocks:
            return NO_COUNTS
        if len(self.blocks) > 1:
            return None
        (block,) = self.blocks.values()
        return block.F if block.examination == version.examination and block.weight * self.scale == 1.0 else None

    def by_rank(self, rows: IntArray, k: int) -> tuple[FloatArray, CountArray]:
        """Return p and F such that F·p is the exposure at each of k ranks, summed over the blocks.

        The sums are not multiples of any examination probability, so p is a small unit (a power of two) and F counts
        units.
        """
        at_rank, b = np.empty((rows.size, k)), self.newest
        fill_by_rank(rows, self.settled_by_rank, b.F, b.p, b.weight, self.scale, at_rank)
        unit = 2.0 ** (np.ceil(np.log2(max(1.0, at_rank.max()))) - 30)
        at_rank /= unit
        return np.full(k, unit), np.rint(at_rank, out=at_rank).astype(np.int32)
