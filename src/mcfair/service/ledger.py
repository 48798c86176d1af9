"""The ledger of one query: how often each item was shown at each rank, its clicks, and the policy's view of them.

All counts are integers that belong to impressions, so neither the order nor the repetition of events can change a sum.
Counts are kept in blocks, one per examination and time bucket: all counts of a block have the same weight. With one
examination and no half-life there is one block, and the arithmetic equals the simulator's to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from ..arrays import CountArray, FloatArray, IntArray
from ..metrics.exposure import dots
from ..random import POLICY, Draws, draws
from ..state import Query
from .blocks import (
    CountBlock,
    Examinations,
    add_by_rank,
    add_counts,
    add_matured,
    count_list,
    fill_by_rank,
    fill_candidates,
)
from .records import (
    BitChanges,
    Candidates,
    RecordedImpression,
    Snapshot,
    compress,
    counted_click,
    decompress,
    is_exposed,
)
from .rules import Version, Weighting

__all__ = ["Ledger"]

CACHED_CANDIDATES = 8
"""Candidate sets that a ledger caches, so that a repeated set is neither decoded nor stored again."""

NO_COUNTS: CountArray = np.zeros((0, 0), np.int32)
ROW_ARRAYS = ("E", "C", "settled_E", "settled_C", "priors", "newcomer_exposure", "newcomer_times", "newcomer_weighted")

Recorded = Callable[[int, int | None, int], Iterator[RecordedImpression]]
"""Return the impressions of a query after a log entry, oldest first, or if there is none given, all up to the last
argument, newest first. Their feedback state is that after the entry of the last argument."""


class Ledger:
    """The observations of one query, and the view of them that a policy sees.

    E, C, E_matured and C_matured are sums over the blocks, up to the factor `scale`. The newest block changes with
    every list, the others seldom: their sums are kept apart as `settled`, so that a list costs the same with and
    without decay. `weighting` is what the sums were computed for; None invalidates them, and `refresh` recomputes them.

    An impression is pending until it is older than the maturation. Impressions mature in the order of the log, so
    `first_pending` tells them apart; what a pending one has counted is read from the log when it matures.

    Parameters
    ----------
    number, key
        The query's number in the store, and its id.
    examinations
        The examination probabilities by number.
    recorded
        Reads the impressions of this query from the log.
    """

    def __init__(self, number: int, key: bytes, examinations: Examinations, recorded: Recorded) -> None:
        self.number, self.key, self.examinations, self.recorded = number, key, examinations, recorded
        self.seq = self.time = self.visits = 0
        self.rows = 0  # rows of items that have been admitted; `ids` may already have more
        self.deleted: set[int] = set()
        self.ids: list[str | None] = []
        self.groups: list[str | None] = []
        self.index: dict[str, int] = {}
        self.blocks: dict[tuple[int, int], CountBlock] = {}
        self.maturation = self.first_pending = 0
        self.pending_since: int | None = None
        self.since_snapshot = 0
        self.candidate_numbers: dict[bytes, int] = {}
        self.candidates: dict[int, Candidates] = {}
        self.last_recorded: Candidates | None = None
        self.allocate_arrays(16)
        self.weighting: Weighting | None = None
        self.scale = 1.0

    def allocate_arrays(self, capacity: int) -> None:
        """Allocate the arrays that have one element per row."""
        self.capacity, self.measured_bytes = capacity, 0
        self.E, self.C = np.zeros(capacity), np.zeros(capacity)
        self.settled_E, self.settled_C = np.zeros(capacity), np.zeros(capacity)
        self.E_matured, self.C_matured = self.E, self.C
        self.settled_by_rank = np.zeros((capacity, 0))
        self.priors, self.newcomer_exposure = np.full(capacity, np.nan), np.zeros(capacity)
        self.newcomer_times, self.newcomer_weighted = np.zeros(capacity, np.int64), np.zeros(capacity)

    @property
    def nbytes(self) -> int:
        """Approximate size in memory; recomputed after blocks, items or candidate sets were added or removed."""
        if not self.measured_bytes:
            counts = sum(4 * (1 + block.ranks) for block in self.blocks.values()) * (2 if self.maturation else 1)
            arrays = self.capacity * (8 * 10 + 8 * self.settled_by_rank.shape[1] + counts)
            candidates = sum(24 * each.rows.size + 120 for each in self.candidates.values())
            self.measured_bytes = 3_000 + arrays + candidates + 250 * len(self.ids)
        return self.measured_bytes

    # --- items -------------------------------------------------------------------------------------------------------

    def add_items(self, items: Sequence[tuple[str | None, str | None]]) -> None:
        """Add the ids and groups of further rows."""
        self.index.update((item, row) for row, (item, _) in enumerate(items, len(self.ids)) if item is not None)
        self.ids += [item for item, _ in items]
        self.groups += [group for _, group in items]
        self.measured_bytes = 0

    def withdraw_items(self, first: int) -> None:
        """Remove the items from a row on, which were added for a request that failed."""
        for item in self.ids[first:]:
            del self.index[str(item)]
        del self.ids[first:], self.groups[first:]
        self.newcomer_exposure[first:] = self.newcomer_weighted[first:] = 0.0
        self.newcomer_times[first:] = 0
        self.rows = min(self.rows, first)

    def cache_candidates(self, number: int, candidates: Candidates, digest: bytes) -> None:
        """Cache a candidate set by its number and by the digest of its items; evict the oldest ones."""
        self.candidates.pop(self.candidate_numbers.pop(digest, 0), None)
        self.candidates[number] = candidates
        self.candidate_numbers[digest] = number
        while len(self.candidate_numbers) > CACHED_CANDIDATES:
            self.candidates.pop(self.candidate_numbers.pop(next(iter(self.candidate_numbers))), None)
        self.measured_bytes = 0

    def evict_candidates(self, numbers: Iterable[int] | None = None) -> None:
        """Evict candidate sets from the cache, all or some."""
        gone = set(self.candidates if numbers is None else numbers)
        self.candidate_numbers = {digest: each for digest, each in self.candidate_numbers.items() if each not in gone}
        self.candidates = {each: candidates for each, candidates in self.candidates.items() if each not in gone}
        self.last_recorded = None
        self.measured_bytes = 0

    def grow(self, rows: int) -> None:
        """Enlarge the arrays to at least this number of rows."""
        if rows <= self.capacity:
            return
        capacity, old = max(rows, 2 * self.capacity), self.capacity
        kept = {name: getattr(self, name) for name in ROW_ARRAYS}
        matured = (self.E_matured, self.C_matured) if self.maturation else None
        by_rank = self.settled_by_rank
        self.allocate_arrays(capacity)
        for name, values in kept.items():
            getattr(self, name)[:old] = values
        self.settled_by_rank = np.pad(by_rank, ((0, capacity - old), (0, 0)))
        if matured is not None:
            self.E_matured, self.C_matured = (np.pad(each, (0, capacity - old)) for each in matured)
        for block in self.blocks.values():
            block.grow(capacity, block.ranks)

    def newcomer_rate(self, candidates: Candidates, version: Version, now: int) -> float:
        """Compute the starting exposure of newcomers among the candidates, per unit of relevance."""
        if version.rules.newcomer_exposure != "fair" or not self.visits or candidates.rows_needed <= self.rows:
            return 0.0
        old = candidates.rows < self.rows
        if not old.any():
            return 0.0
        q = self.view(Candidates.of(candidates.rows[old], candidates.priors[old]), version, now, 1)
        er, rr = dots(q.E, q.R)
        return float(er / rr) if rr > 0 else 0.0

    def admit(self, candidates: Candidates, rate: float, version: Version, now: int) -> None:
        """Admit newcomers among the candidates, with their starting exposure."""
        first, last = self.rows, candidates.rows_needed
        if last <= first:
            return
        self.grow(last)
        if rate:
            self.newcomer_exposure[first:last] = rate
            self.newcomer_times[first:last] = version.bucket(now)
            if self.weighting is not None:
                self.newcomer_weighted[first:last] = rate * self.weighting.newcomer_weight(version.bucket(now))
        self.rows = last

    # --- the policy's view -------------------------------------------------------------------------------------------

    def view(self, candidates: Candidates, version: Version, now: int, k: int) -> Query:
        """Build the policy's view of these candidates for a list of k ranks."""
        self.refresh(version, now)
        rows, priors, have_priors = candidates[:3]
        rules = version.rules
        if rules.prior_mean is not None:
            priors, have_priors = np.where(np.isnan(priors), rules.prior_mean, priors), True
        strength = rules.prior_strength if have_priors else 0.0
        certainty = min(strength, rules.prior_certainty)
        n = rows.size
        E, R, uncertainty, F = np.empty(n), np.empty(n), np.empty(n), np.empty((n, k), np.int32)
        p, counts = self.examinations.p(version.examination, k), self.counts(version)
        fill_candidates(
            rows, priors, strength, self.scale, self.E, self.E_matured, self.C_matured, self.newcomer_weighted,
            NO_COUNTS if counts is None else counts, E, R, uncertainty, F,
        )  # fmt: skip
        if counts is None:
            p, F = self.by_rank(rows, k)
        return Query(R, uncertainty, E, F, p, np.array(self.visits), candidates.groups, certainty, np.zeros(1))

    def clicks(self, row: int) -> float:
        """Return the clicks of a row, as they count now. Call `view` or `refresh` first."""
        return float(self.C[row] * self.scale)

    def groups_of(self, rows: IntArray) -> IntArray:
        """Return the group of each candidate, counted from 0; a candidate without a group is its own."""
        labels = [self.groups[row] for row in rows.tolist()]
        if not any(labels):
            return np.arange(rows.size)
        codes: dict[str | int, int] = {}
        return np.array([codes.setdefault(label or i, len(codes)) for i, label in enumerate(labels)])

    def counts(self, version: Version) -> CountArray | None:
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

    def draws(self, seed: int) -> Draws:
        """Return the random generator of the next session."""
        return draws(seed, POLICY, query=self.number & 0xFFFFFFFF, visit=self.visits & 0xFFFFFFFF)

    @property
    def newest(self) -> CountBlock:
        """The last block in the order of sums."""
        return self.blocks[next(reversed(self.blocks))]

    def refresh(self, version: Version, now: int) -> None:
        """Update the sums to the current time: maturation first, then decay."""
        self.mature(version.maturation, now)
        weighting, self.scale = version.weighting(now, max((bucket for _, bucket in self.blocks), default=0))
        if self.weighting == weighting:
            return
        self.weighting = weighting
        for block in self.blocks.values():
            block.weight = weighting.weight(block.bucket)
        self.newcomer_weighted = self.newcomer_exposure.copy()
        if version.half_life:
            for row in np.flatnonzero(self.newcomer_exposure):
                self.newcomer_weighted[row] *= weighting.newcomer_weight(int(self.newcomer_times[row]))
        self.settled_by_rank = np.zeros((self.capacity, max((b.ranks for b in self.settled_blocks()), default=0)))
        self.recount(np.arange(self.rows))

    def settled_blocks(self) -> list[CountBlock]:
        """Return every block but the newest, in the order of sums."""
        return list(self.blocks.values())[:-1]

    def recount(self, rows: IntArray) -> None:
        """Recompute the sums of some rows over all blocks."""
        if not self.blocks:
            self.E[rows] = self.C[rows] = self.E_matured[rows] = self.C_matured[rows] = 0.0
            return
        self.settled_E[rows] = self.settled_C[rows] = 0.0
        self.settled_by_rank[rows] = 0.0
        for block in self.settled_blocks():
            add_counts(block.F, block.C, block.p, block.weight, rows, self.settled_E, self.settled_C)
            add_by_rank(block.F, block.p, block.weight, rows, self.settled_by_rank)
        self.recount_newest(rows)
        if self.maturation:
            self.recount_matured(rows)

    def recount_newest(self, rows: IntArray) -> None:
        """Recompute the sums of some rows after only the newest block has changed."""
        self.E[rows], self.C[rows] = self.settled_E[rows], self.settled_C[rows]
        b = self.newest
        add_counts(b.F, b.C, b.p, b.weight, rows, self.E, self.C)

    def recount_matured(self, rows: IntArray) -> None:
        """Recompute the sums of some rows over all blocks without what is pending."""
        self.E_matured[rows] = self.C_matured[rows] = 0.0
        for b in self.blocks.values():
            add_matured(b.F, b.C, b.pending_F, b.pending_C, b.p, b.weight, rows, self.E_matured, self.C_matured)

    # --- log entries -------------------------------------------------------------------------------------------------

    def record_impression(
        self, seq: int, time: int, candidates: Candidates, rows: IntArray, bits: bytes, version: Version
    ) -> None:
        """Record a list, with exposure where the bits say so. Call `admit` first."""
        if candidates is not self.last_recorded:
            self.priors[candidates.rows] = candidates.priors
            self.last_recorded = candidates
        self.drop_negligible_blocks(version, time)
        block = self.open_block(version, seq, time, rows.size)
        self.refresh(version, time)
        if is_exposed(bits[0]):
            if self.maturation:
                block.pending_F[rows, np.arange(rows.size)] += 1
            if block is self.newest:
                count_list(block.F, block.p, block.weight, rows, self.settled_E, self.E)
            else:
                block.F[rows, np.arange(rows.size)] += 1
                self.recount(rows)
        if self.maturation and self.pending_since is None:
            self.first_pending, self.pending_since = seq, time
        self.visits += 1
        self.advance(seq, time)

    def record_feedback(self, seq: int, time: int, changes: BitChanges, version: Version) -> None:
        """Record feedback on an impression that was recorded before."""
        block = self.block_of(changes.examination, changes.bucket, changes.impression)
        if block is not None:
            pending = self.pending_since is not None and changes.impression >= self.first_pending
            touched = []
            for rank, row, before, after in changes.changes:
                if row in self.deleted:
                    continue
                shown = is_exposed(after) - is_exposed(before)
                clicked = counted_click(after, block.p[rank]) - counted_click(before, block.p[rank])
                block.F[row, rank] += shown
                block.C[row] += clicked
                if pending:
                    block.pending_F[row, rank] += shown
                    block.pending_C[row] += clicked
                if shown or clicked:
                    touched.append(row)
            if self.weighting is not None and touched:
                self.recount_touched(np.array(touched), block, pending)
        self.advance(seq, time)
        self.mature(version.maturation, time)

    def recount_touched(self, rows: IntArray, block: CountBlock, pending: bool) -> None:
        """Recompute the sums of some rows after one block has changed."""
        if block is not self.newest:
            self.recount(rows)
            return
        self.recount_newest(rows)
        if self.maturation and not pending:
            self.recount_matured(rows)

    def record_deletion(self, seq: int, time: int, row: int, version: Version) -> None:
        """Record the deletion of an item: clear all its counts, and free its id for a newcomer."""
        for block in self.blocks.values():
            block.clear(row)
        self.newcomer_exposure[row] = self.newcomer_weighted[row] = 0.0
        self.priors[row] = np.nan
        self.deleted.add(row)
        if self.weighting is not None:
            self.recount(np.array([row]))
        if (item := self.ids[row]) is not None:
            del self.index[item]
        self.ids[row] = self.groups[row] = None
        self.evict_candidates()
        self.advance(seq, time)
        self.mature(version.maturation, time)

    def advance(self, seq: int, time: int) -> None:
        """Move on to a log entry."""
        self.seq, self.time = seq, time
        self.since_snapshot += 1

    # --- blocks ------------------------------------------------------------------------------------------------------

    def block_of(self, examination: int, bucket: int, seq: int) -> CountBlock | None:
        """Return the block that counts an impression; None if it was dropped as negligible."""
        found = self.blocks.get((examination, bucket))
        return None if found is None or seq < found.since else found

    def open_block(self, version: Version, seq: int, time: int, ranks: int) -> CountBlock:
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
                self.settle(before)
        elif ranks > found.ranks:
            found.grow(self.capacity, ranks)
            self.measured_bytes = 0
            if found is not self.newest:
                self.weighting = None  # the settled sums by rank are too narrow for it
        return found

    def settle(self, block: CountBlock) -> None:
        """Add what was the newest block to the sums of settled blocks."""
        self.settled_E[:], self.settled_C[:] = self.E, self.C
        if block.ranks > self.settled_by_rank.shape[1]:
            more = block.ranks - self.settled_by_rank.shape[1]
            self.settled_by_rank = np.pad(self.settled_by_rank, ((0, 0), (0, more)))
        add_by_rank(block.F, block.p, block.weight, np.arange(self.rows), self.settled_by_rank)

    def add_block(self, examination: int, bucket: int, seq: int, ranks: int) -> CountBlock:
        """Add an empty block in the order of sums: by bucket, then by examination."""
        added = CountBlock(self.examinations, examination, bucket, seq, self.capacity, ranks)
        if self.maturation:
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
            self.weighting = None
            self.measured_bytes = 0

    # --- maturation --------------------------------------------------------------------------------------------------

    def mature(self, maturation: int, now: int) -> None:
        """Move impressions that are older than the maturation into R."""
        if maturation != self.maturation:
            self.rebuild_pending(maturation, now)
        if self.pending_since is None or self.pending_since + maturation > now:
            return
        if self.time + maturation <= now:  # every impression has matured
            self.first_pending, self.pending_since = 0, None
            for existing in self.blocks.values():
                existing.reset_pending(self.capacity)
            self.E_matured[:], self.C_matured[:] = self.E, self.C
            return
        first = self.first_pending - 1
        self.first_pending, self.pending_since = 0, None
        for each in self.recorded(self.number, first, self.seq):
            if each.time + maturation > now:
                self.first_pending, self.pending_since = each.seq, each.time
                break
            if (block := self.block_of(each.examination, each.bucket, each.seq)) is not None:
                block.count_pending(each, -1, self.deleted)
                if self.weighting is not None:
                    self.recount_matured(each.rows)

    def rebuild_pending(self, maturation: int, now: int) -> None:
        """Recount the pending impressions for another maturation, in ms."""
        self.maturation, self.weighting, self.measured_bytes = maturation, None, 0
        self.first_pending, self.pending_since = 0, None
        size = self.capacity
        self.E_matured, self.C_matured = (np.zeros(size), np.zeros(size)) if maturation else (self.E, self.C)
        for existing in self.blocks.values():
            existing.reset_pending(size if maturation else 0)
        for each in self.recorded(self.number, None, self.seq) if maturation else ():
            if each.time + maturation <= now:
                break
            self.first_pending, self.pending_since = each.seq, each.time
            if (block := self.block_of(each.examination, each.bucket, each.seq)) is not None:
                block.count_pending(each, 1, self.deleted)

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the state after the last log entry."""
        n = self.rows
        return Snapshot(
            seq=self.seq, time=self.time, visits=self.visits, rows=n, deleted=sorted(self.deleted),
            priors=compress(self.priors[:n]), newcomer_exposure=compress(self.newcomer_exposure[:n]),
            newcomer_times=compress(self.newcomer_times[:n]), maturation=self.maturation,
            first_pending=self.first_pending, pending_since=self.pending_since,
            blocks=[
                (examination, bucket, block.since, block.ranks, compress(block.F[:n]), compress(block.C[:n]),
                 compress(block.pending_F[:n]), compress(block.pending_C[:n]))
                for (examination, bucket), block in self.blocks.items()
            ],
        )  # fmt: skip

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the state of a snapshot."""
        n = snapshot.rows
        self.seq, self.time, self.visits, self.rows = snapshot.seq, snapshot.time, snapshot.visits, n
        self.deleted = set(snapshot.deleted)
        self.grow(n)
        self.priors[:n] = decompress(snapshot.priors, np.float64)
        self.newcomer_exposure[:n] = decompress(snapshot.newcomer_exposure, np.float64)
        self.newcomer_times[:n] = decompress(snapshot.newcomer_times, np.int64)
        self.maturation = snapshot.maturation
        self.first_pending, self.pending_since = snapshot.first_pending, snapshot.pending_since
        if self.maturation:
            self.E_matured, self.C_matured = np.zeros(self.capacity), np.zeros(self.capacity)
        for examination, bucket, since, ranks, F, C, pending_F, pending_C in snapshot.blocks:
            block = self.add_block(examination, bucket, since, ranks)
            block.F[:n] = decompress(F, np.int32).reshape(n, ranks)
            block.C[:n] = decompress(C, np.int32)
            if self.maturation:
                block.pending_F[:n] = decompress(pending_F, np.int32).reshape(n, ranks)
                block.pending_C[:n] = decompress(pending_C, np.int32)
        self.weighting = None
