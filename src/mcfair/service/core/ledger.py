"""The ledger of one query: its items, how often each was shown at each rank, its clicks, and the policy's view of them.

All counts are integers that belong to impressions, so neither the order nor the repetition of events can change a sum.
A ledger is composed of the counts and their decay (`ObservedCounts`), of what is pending (`Maturation`) and of the
starting exposure of items that joined later (`Newcomers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ...arrays import IntArray
from ...errors import RequestError
from ...metrics.exposure import dots
from ...random import POLICY, Draws, draws
from ...state import Query
from ..stores import StoreCorruptError
from .blocks import CountBlock, Examinations, fill_candidates
from .counts import NO_COUNTS, ObservedCounts
from .items import ItemRows
from .maturation import Maturation
from .newcomers import Newcomers
from .records import (
    BitChanges,
    Candidates,
    ImportedCounts,
    RecordedImpression,
    Snapshot,
    compress,
    counted_click,
    decompress,
    is_exposed,
)
from .rules import Version

MAX_SPARE_ROWS = 8_192
"""Maximum number of rows by which the arrays grow beyond what is needed."""

ROW_BYTES = 150
"""Size of a row of an item in lists and dictionaries, without the texts of its id and group."""

MEGABYTE = 1 << 20

CACHED_CANDIDATES = 8
"""Candidate sets that a ledger caches, so that a repeated set is neither decoded nor stored again."""

Recorded = Callable[["Ledger", int | None], Iterator[RecordedImpression]]
"""Return the impressions of a query after a log entry, oldest first, or if there is none given, all, newest first.
Their feedback state is that after the last entry that the ledger has recorded."""


class Ledger(ItemRows):
    """The observations of one query, and the view of them that a policy sees.

    Every item has a row. The row of a deleted item stays in `deleted`, because log entries may refer to it; once none
    does, the store frees it, and a newcomer takes it anew.

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
        super().__init__()
        self.number, self.key, self.examinations, self.recorded = number, key, examinations, recorded
        self.seq = self.time = self.visits = self.base = self.revision = 0
        self.rows = 0  # rows of items that have been admitted; `ids` may already have more
        self.deleted: set[int] = set()
        self.imports: list[bytes] = []  # sources whose counts are included
        self.since_snapshot = 0
        self.encoding = False  # whether a snapshot of it is being encoded
        self.replaying = False  # whether sums are left to the end: many log entries are recorded in a row
        self.candidate_numbers: dict[bytes, int] = {}
        self.candidates: dict[int, Candidates] = {}
        self.candidate_bytes = 0
        self.last_recorded: Candidates | None = None
        self.capacity = 16
        self.counts = ObservedCounts(examinations, self.capacity)
        self.maturation = Maturation(self.counts)
        self.newcomers = Newcomers(self.capacity)
        self.priors, self.used = np.full(self.capacity, np.nan), np.zeros(self.capacity, np.int64)

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        named = self.text_bytes + ROW_BYTES * len(self.ids) + sum(map(len, self.imports))
        return 3_000 + self.counts.nbytes + 56 * self.capacity + self.candidate_bytes + named

    # --- items -------------------------------------------------------------------------------------------------------

    def check_items(self) -> None:
        """Raise StoreCorruptError if the stored items are not those that the log has admitted and not deleted."""
        if wrong := set(self.index.values()) ^ (set(range(self.rows)) - self.deleted):
            raise StoreCorruptError(
                f"row {min(wrong)} has an item in the log, or in the table of items, but not in both"
            )

    def withdraw_items(self, taken: list[int], rows: int) -> None:
        """Remove newcomers that were added for a request that failed, when this number of rows had been admitted."""
        for row in taken:
            del self.index[str(self.ids[row])]
        self.newcomers.clear([row for row in taken if row < self.capacity])
        self.rows = min(self.rows, rows)
        self.deleted.update(row for row in taken if row < rows)
        self.free_rows(taken)

    def idle_rows(self, until: int) -> list[int]:
        """Return the rows of items without exposure and clicks that were no candidates after a log entry.

        Call `refresh` first.
        """
        n = self.rows
        idle = (self.used[:n] <= until) & (self.counts.E[:n] == 0.0) & (self.counts.C[:n] == 0.0)
        return [row for row in np.flatnonzero(idle).tolist() if row not in self.deleted]

    def cache_candidates(self, number: int, candidates: Candidates, digest: bytes) -> None:
        """Cache a candidate set by its number and by the digest of its items; evict the oldest ones."""
        self.candidates.pop(self.candidate_numbers.pop(digest, 0), None)
        self.candidates[number] = candidates
        self.candidate_numbers[digest] = number
        while len(self.candidate_numbers) > CACHED_CANDIDATES:
            self.candidates.pop(self.candidate_numbers.pop(next(iter(self.candidate_numbers))), None)
        self.candidate_bytes = sum(each.nbytes for each in self.candidates.values())

    def evict_candidates(self, numbers: Iterable[int] | None = None) -> None:
        """Evict candidate sets from the cache, all or some."""
        gone = set(self.candidates if numbers is None else numbers)
        self.candidate_numbers = {digest: each for digest, each in self.candidate_numbers.items() if each not in gone}
        self.candidates = {each: candidates for each, candidates in self.candidates.items() if each not in gone}
        self.candidate_bytes = sum(each.nbytes for each in self.candidates.values())
        self.last_recorded = None

    def grow(self, rows: int) -> None:
        """Enlarge the arrays to at least this number of rows."""
        if rows <= self.capacity:
            return
        before, self.capacity = self.capacity, max(rows, self.capacity + min(self.capacity, MAX_SPARE_ROWS))
        for part in (self.counts, self.maturation, self.newcomers):
            part.grow(self.capacity)
        self.priors = np.pad(self.priors, (0, self.capacity - before), constant_values=np.nan)
        self.used = np.pad(self.used, (0, self.capacity - before))

    def check_size(self, newcomers: int, k: int, version: Version, now: int, limit: int) -> None:
        """Raise RequestError if a list of k ranks would make the counts larger than a limit, before they are."""
        rows = len(self.ids) + max(0, newcomers - len(self.free))
        if rows <= self.capacity and not self.counts.grows(version, now, k):
            return
        ranks, per_row = self.counts.bytes_per_row(version, now, k)
        if (size := rows * per_row) > limit:
            raise RequestError(
                f"the counts of {rows:,} items at {ranks:,} ranks need {size / MEGABYTE:,.0f} MB, and at most "
                f"{limit / MEGABYTE:,.0f} MB are allowed for a query: send fewer items, ask for shorter lists, delete "
                "items that are no longer offered, or enlarge the cache",
                "k",
            )

    def newcomer_rate(self, candidates: Candidates, taken: list[int], version: Version, now: int) -> float:
        """Compute the starting exposure of newcomers, given by their rows, per unit of relevance."""
        if version.rules.newcomer_exposure != "fair" or not self.visits or not taken:
            return 0.0
        old = ~np.isin(candidates.rows, taken)
        if not old.any():
            return 0.0
        q = self.view(Candidates.of(candidates.rows[old], candidates.priors[old]), version, now, 1)
        er, rr = dots(q.E, q.R)
        return float(er / rr) if rr > 0 else 0.0

    def admit(self, candidates: Candidates, reused: list[int], rate: float, version: Version, now: int) -> None:
        """Admit newcomers among the candidates, with their starting exposure: new rows, and those that are reused."""
        first, last = self.rows, candidates.rows_needed
        if not reused and last <= first:
            return
        rows = [*(row for row in reused if row in self.deleted), *range(first, last)]
        if reused:  # what the earlier item of a row had pending must mature before the row counts again
            self.mature(version.maturation, now)
            self.deleted.difference_update(reused)
        self.grow(last)
        if rate:
            self.refresh(version, now)  # the sums may be those of an earlier version of the rules
            self.newcomers.admit(rows, rate, version.bucket(now), self.counts.weighting)
        self.rows = max(first, last)

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
        p, counts = self.examinations.p(version.examination, k), self.counts.undecayed(version)
        fill_candidates(
            rows,
            priors,
            strength,
            self.counts.scale,
            self.counts.E,
            *self.maturation.sums(),
            self.newcomers.weighted,
            NO_COUNTS if counts is None else counts,
            E,
            R,
            uncertainty,
            F,
        )
        if counts is None:
            p, F = self.counts.by_rank(rows, k)
        visits, posterior = np.array(self.visits), np.empty((n, 0, 3))
        if version.compiled_estimator is not None:
            matured = self.maturation.by_rank(rows, self.counts.ranks, version.examination)
            R, uncertainty, posterior = version.compiled_estimator.relevance(matured, priors, strength)
            E = (self.counts.E[rows] + self.newcomers.weighted[rows] * R) * self.counts.scale
        return Query(R, uncertainty, E, F, p, visits, candidates.groups, certainty, posterior, np.zeros(1))

    def clicks(self, row: int) -> float:
        """Return the clicks of a row, as they count now. Call `view` or `refresh` first."""
        return float(self.counts.C[row] * self.counts.scale)

    def draws(self, seed: int) -> Draws:
        """Return the random generator of the next session."""
        return draws(seed, POLICY, query=self.number & 0xFFFFFFFF, visit=self.visits & 0xFFFFFFFF)

    def refresh(self, version: Version, now: int) -> None:
        """Update the sums to the current time: maturation first, then decay."""
        self.mature(version.maturation, now)
        if self.counts.reweigh(version, now, self.rows) and self.counts.weighting is not None:
            self.newcomers.reweigh(self.counts.weighting)
            self.maturation.recount(np.arange(self.rows))

    def matures(self, version: Version, now: int) -> bool:
        """Return whether impressions are to be moved into R: at least one is old enough, or the age has changed."""
        since, age = self.maturation.pending_since, version.maturation
        return age != self.maturation.age or (since is not None and since + age <= now)

    def mature(self, age: int, now: int) -> None:
        """Move impressions of at least this age into R."""
        # Read by a function that is made here: one that the ledger kept would refer to it, and a ledger that is part of
        # a cycle outlives its eviction until the garbage collector runs.
        self.maturation.advance(age, now, self.time, self.deleted, lambda after: self.recorded(self, after))

    # --- log entries -------------------------------------------------------------------------------------------------

    def record_impression(
        self, seq: int, time: int, candidates: Candidates, rows: IntArray, bits: bytes, version: Version
    ) -> None:
        """Record a list, with exposure where the bits say so. Call `admit` first."""
        if candidates is not self.last_recorded:
            self.priors[candidates.rows] = candidates.priors
            self.last_recorded = candidates
        self.used[candidates.rows] = seq
        self.counts.drop_negligible_blocks(version, time)
        block = self.counts.open_block(version, seq, time, rows.size, self.rows)
        if self.replaying:
            self.counts.weighting = None
            self.mature(version.maturation, time)
        else:
            self.refresh(version, time)
        if is_exposed(bits[0]):
            if self.maturation.age:
                block.pending_F[rows, np.arange(rows.size)] += 1
            self.counts.count_list(block, rows)
            if block is not self.counts.newest and not self.replaying:
                self.maturation.recount(rows)
        self.maturation.record(seq, time)
        self.visits += 1
        self.advance(seq, time)

    def record_feedback(self, seq: int, time: int, changes: BitChanges, version: Version) -> None:
        """Record feedback on an impression that was recorded before."""
        block = self.counts.block_of(changes.examination, changes.bucket, changes.impression)
        if block is not None:
            pending = self.maturation.is_pending(changes.impression)
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
            if self.counts.weighting is not None and touched:
                self.recount(np.array(touched), block, pending)
        self.advance(seq, time)
        self.mature(version.maturation, time)

    def recount(self, rows: IntArray, block: CountBlock, pending: bool) -> None:
        """Recompute the sums of some rows after one block has changed."""
        if block is not self.counts.newest:
            self.counts.recount(rows)
            self.maturation.recount(rows)
        else:
            self.counts.recount_newest(rows)
            if not pending:
                self.maturation.recount(rows)

    def record_import(self, seq: int, time: int, counted: ImportedCounts, version: Version) -> None:
        """Record counts from another log, under the present examination and as of now. Call `admit` first.

        Nothing of them is pending: their clicks have arrived.
        """
        rows, (item, rank, shown, clicks) = counted.candidates().rows, counted.counts()
        self.used[rows] = seq
        self.counts.drop_negligible_blocks(version, time)
        block = self.counts.open_block(version, seq, time, int(rank.max()) + 1, self.rows)
        self.counts.add_cells(block, rows[item], rank, shown, clicks)
        self.visits += counted.visits
        self.imports.append(counted.source)
        self.advance(seq, time)
        self.mature(version.maturation, time)

    def record_deletion(self, seq: int, time: int, rows: list[int], version: Version) -> None:
        """Record the deletion of items: clear all their counts, and free their ids for newcomers."""
        self.counts.clear(np.array(rows))
        if self.counts.weighting is not None:
            self.maturation.recount(np.array(rows))
        self.newcomers.clear(rows)
        self.priors[rows], self.used[rows] = np.nan, 0
        self.deleted.update(rows)
        for row in rows:
            if (item := self.ids[row]) is not None:
                del self.index[item]
            self.name_row(row, None, None)
        self.evict_candidates()
        self.advance(seq, time)
        self.mature(version.maturation, time)

    def advance(self, seq: int, time: int) -> None:
        """Move on to a log entry."""
        self.seq, self.time = seq, time
        self.since_snapshot += 1

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self, pack: Callable[[npt.NDArray[np.generic]], bytes] = compress) -> Snapshot:
        """Return the state after the last log entry."""
        n, pending = self.rows, self.maturation
        return Snapshot(
            seq=self.seq,
            time=self.time,
            visits=self.visits,
            rows=n,
            deleted=sorted(self.deleted),
            priors=pack(self.priors[:n]),
            used=pack(self.used[:n]),
            newcomer_exposure=pack(self.newcomers.exposure[:n]),
            newcomer_times=pack(self.newcomers.times[:n]),
            maturation=pending.age,
            first_pending=pending.first_pending,
            pending_since=pending.pending_since,
            blocks=[
                (
                    examination,
                    bucket,
                    block.since,
                    block.ranks,
                    pack(block.F[:n]),
                    pack(block.C[:n]),
                    pack(block.pending_F[:n]),
                    pack(block.pending_C[:n]),
                )
                for (examination, bucket), block in self.counts.blocks.items()
            ],
            imports=list(self.imports),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the state of a snapshot."""
        n = snapshot.rows
        # The rows are not compared with the items, because the last ones may be free.
        if (arrays := decompress(snapshot.priors, np.float64)).size != n:
            raise StoreCorruptError(f"the snapshot at entry {snapshot.seq} has {n} rows, but {arrays.size} priors")
        self.seq, self.time, self.visits, self.rows = snapshot.seq, snapshot.time, snapshot.visits, n
        self.deleted, self.imports = set(snapshot.deleted), list(snapshot.imports)
        self.extend(n)
        self.grow(n)
        self.priors[:n] = arrays
        self.used[:n] = decompress(snapshot.used, np.int64)
        self.newcomers.exposure[:n] = decompress(snapshot.newcomer_exposure, np.float64)
        self.newcomers.times[:n] = decompress(snapshot.newcomer_times, np.int64)
        self.maturation.restore(snapshot.maturation, snapshot.first_pending, snapshot.pending_since)
        for examination, bucket, since, ranks, F, C, pending_F, pending_C in snapshot.blocks:
            counted = decompress(F, np.int32).reshape(n, ranks)
            block = self.counts.add_block(examination, bucket, since, ranks)
            block.F[:n] = counted
            block.C[:n] = decompress(C, np.int32)
            if snapshot.maturation:
                block.pending_F[:n] = decompress(pending_F, np.int32).reshape(n, ranks)
                block.pending_C[:n] = decompress(pending_C, np.int32)
        self.counts.weighting = None
