"""The ledger of one query: how often each item was shown at each rank, its clicks, and the policy's view of them.

All counts are integers that belong to impressions, so neither the order nor the repetition of events can change a sum.
Counts are kept in blocks, one per examination and time bucket: all counts of a block have the same weight. With one
examination and no half-life there is one block, and the arithmetic equals the simulator's to the bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from .._jit import kernel
from ..arrays import CountArray, FloatArray, IntArray
from ..estimators.ips import ips
from ..metrics.exposure import dots
from ..random import POLICY, Draws, draws
from ..state import Query, exposure
from .rules import Version, examination_probabilities

__all__ = ["CLICKED", "SHOWN", "UNCLICKED", "UNSHOWN", "BitChanges", "Candidates", "Impression", "Ledger", "Snapshot"]

CACHED_CANDIDATES = 8
"""Candidate sets that a ledger caches, so that a repeated set is neither decoded nor stored again."""

SHOWN, UNSHOWN, CLICKED, UNCLICKED = 1, 2, 4, 8
"""Feedback state of one rank of an impression. Bits are only ever set, so the order and repetition of events do not
matter."""


def is_exposed(bits: int) -> bool:
    """Return whether a rank counts as shown."""
    return bits & (SHOWN | UNSHOWN) == SHOWN


def is_clicked(bits: int) -> bool:
    """Return whether a rank counts as clicked: a click counts only once its rank counts as shown."""
    return bits == SHOWN | CLICKED


# --- stored records --------------------------------------------------------------------------------------------------


class Impression(msgspec.Struct, array_like=True):
    """A list as positions among the candidates, 16 bits each; in shadow mode also the list that the policy chose."""

    shown: bytes
    policy_list: bytes | None
    deferred: bool

    @property
    def ranks(self) -> int:
        """Length of the list."""
        return len(self.shown) // 2

    def initial_bits(self) -> bytes:
        """Return the feedback state of its ranks before any feedback."""
        return bytes([0 if self.deferred else SHOWN]) * self.ranks


class BitChanges(msgspec.Struct, array_like=True):
    """The effect of feedback on an impression: (rank, row, bits before, bits after), and the block it counts in."""

    impression: int
    examination: int
    bucket: int
    changes: list[tuple[int, int, int, int]]


class Candidates(NamedTuple):
    """The candidates of a request: ledger rows in request order, priors (nan for none) and whether there are any."""

    rows: IntArray
    priors: FloatArray
    have_priors: bool
    rows_needed: int

    @classmethod
    def of(cls, rows: IntArray, priors: FloatArray) -> Candidates:
        """Build candidates from rows and priors."""
        return cls(rows, priors, not np.isnan(priors).all(), int(rows.max()) + 1)

    def packed(self) -> bytes:
        """Encode the candidates."""
        priors = self.priors.tobytes() if self.have_priors else b""
        return self.rows.astype(np.uint32).tobytes() + priors

    @classmethod
    def unpacked(cls, body: bytes, n: int) -> Candidates:
        """Decode n candidates."""
        rows = np.frombuffer(body, np.uint32, n).astype(np.int64)
        priors = np.frombuffer(body, np.float64, offset=4 * n) if len(body) > 4 * n else np.full(n, np.nan)
        return cls.of(rows, priors)


class Snapshot(msgspec.Struct, array_like=True):
    """The state of a ledger after a log entry; blocks are (examination, bucket, ranks, F, C)."""

    seq: int
    time: int
    visits: int
    rows: int
    deleted: list[int]
    priors: bytes
    newcomer_exposure: bytes
    newcomer_times: bytes
    blocks: list[tuple[int, int, int, bytes, bytes]]


# --- kernels ---------------------------------------------------------------------------------------------------------


@kernel
def add_counts(
    F: CountArray, C: CountArray, weights: FloatArray, decay: float, rows: IntArray, E: FloatArray, clicks: FloatArray
) -> None:
    """Add the counts of some rows of a block to their exposure (Eq. 7) and clicks."""
    for i in range(rows.shape[0]):
        d = rows[i]
        E[d] += exposure(F, weights, d)
        clicks[d] += decay * C[d]


@kernel
def add_matured(
    F: CountArray, C: CountArray, pending_F: CountArray, pending_C: CountArray, weights: FloatArray, decay: float,
    rows: IntArray, E: FloatArray, clicks: FloatArray,
) -> None:  # fmt: skip
    """Add the matured counts of some rows of a block, which exclude the pending ones, to their exposure and clicks."""
    for i in range(rows.shape[0]):
        d = rows[i]
        e = 0.0
        for j in range(weights.shape[0]):
            e += (F[d, j] - pending_F[d, j]) * weights[j]
        E[d] += e
        clicks[d] += decay * (C[d] - pending_C[d])


@kernel
def count_list(F: CountArray, weights: FloatArray, rows: IntArray, E: FloatArray) -> None:
    """Count a list in a ledger's only block and update the exposure."""
    for j in range(rows.shape[0]):
        d = rows[j]
        F[d, j] += 1
        E[d] = exposure(F, weights, d)


@kernel
def fill_candidates(
    rows: IntArray, priors: FloatArray, strength: float, exposed: FloatArray, E_matured: FloatArray,
    C_matured: FloatArray, newcomer_exposure: FloatArray, counts: CountArray, E: FloatArray, R: FloatArray,
    uncertainty: FloatArray, F: CountArray,
) -> None:  # fmt: skip
    """Write exposure, estimated relevance (Eq. 25), its uncertainty and counts by rank per candidate.

    Counts are 0 beyond the counted ranks.
    """
    counted = min(F.shape[1], counts.shape[1])
    for i in range(rows.shape[0]):
        d = rows[i]
        has_prior = priors[i] == priors[i]
        mean, weight = (priors[i], strength) if has_prior else (0.0, 0.0)
        R[i] = ips(C_matured[d], E_matured[d], mean, weight)
        evidence = E_matured[d] + weight
        uncertainty[i] = 1.0 / evidence if evidence > 0.0 else np.inf
        E[i] = exposed[d] + newcomer_exposure[d] * R[i]
        for j in range(counted):
            F[i, j] = counts[d, j]
        for j in range(counted, F.shape[1]):
            F[i, j] = 0


NO_COUNTS: CountArray = np.zeros((0, 0), np.int32)


# --- the ledger ------------------------------------------------------------------------------------------------------


class CountBlock:
    """Counts of equal weight: those of one examination and one time bucket.

    F and C count everything. pending_F and pending_C count the part that has not matured; they are empty while no
    maturation is set.
    """

    def __init__(self, examination: int, bucket: int, capacity: int, ranks: int) -> None:
        self.examination, self.bucket, self.ranks = examination, bucket, ranks
        self.F: CountArray = np.zeros((capacity, ranks), np.int32)
        self.C: CountArray = np.zeros(capacity, np.int32)
        self.pending_F: CountArray = np.zeros((0, ranks), np.int32)
        self.pending_C: CountArray = np.zeros(0, np.int32)
        self.weights = np.zeros(ranks)
        self.decay = 1.0

    def grow(self, capacity: int, ranks: int) -> None:
        """Enlarge the arrays to more rows or ranks."""
        more = (capacity - self.F.shape[0], max(0, ranks - self.ranks))
        self.ranks += more[1]
        self.F = np.pad(self.F, ((0, more[0]), (0, more[1])))
        self.C = np.pad(self.C, (0, more[0]))
        if self.pending_C.size:
            self.pending_F = np.pad(self.pending_F, ((0, more[0]), (0, more[1])))
            self.pending_C = np.pad(self.pending_C, (0, more[0]))

    def reset_pending(self, capacity: int) -> None:
        """Clear the pending counts; a capacity of 0 disables them."""
        self.pending_F, self.pending_C = np.zeros((capacity, self.ranks), np.int32), np.zeros(capacity, np.int32)


class Recent(NamedTuple):
    """An impression that is pending under the current rules, or would be under another version of them."""

    time: int
    block: CountBlock
    rows: IntArray
    bits: bytearray


class Ledger:
    """The observations of one query, and the view of them that a policy sees.

    E, C, E_matured and C_matured are cached sums over the blocks. `valid_for` is the half-life, decay start and time
    bucket that they were computed for; None invalidates them, and `refresh` recomputes them.

    Parameters
    ----------
    number, key
        The query's number in the store, and its id.
    examinations
        The examination probabilities by number.
    longest_maturation
        Longest maturation of any version of the rules, in ms: younger impressions are kept in `recent`.
    """

    def __init__(self, number: int, key: bytes, examinations: Examinations, longest_maturation: int) -> None:
        self.number, self.key, self.examinations, self.longest_maturation = (
            number,
            key,
            examinations,
            longest_maturation,
        )
        self.seq = self.time = self.visits = 0
        self.rows = 0  # rows of items that have been admitted; `ids` may already have more
        self.deleted: set[int] = set()
        self.ids: list[str | None] = []
        self.groups: list[str | None] = []
        self.index: dict[str, int] = {}
        self.blocks: dict[tuple[int, int], CountBlock] = {}
        self.recent: dict[int, Recent] = {}
        self.pending: dict[int, None] = {}  # sequence numbers in order of time, a suffix of `recent`
        self.maturation = 0
        self.since_snapshot = 0
        self.candidate_numbers: dict[bytes, int] = {}
        self.candidates: dict[int, Candidates] = {}
        self.last_admitted: Candidates | None = None
        self.candidate_number = 0
        self.allocate_arrays(16)
        self.valid_for: tuple[int, int, int] | None = None

    def allocate_arrays(self, capacity: int) -> None:
        """Allocate the arrays that have one element per row."""
        self.capacity, self.measured_bytes = capacity, 0
        self.E, self.C = np.zeros(capacity), np.zeros(capacity)
        self.E_matured, self.C_matured = self.E, self.C
        self.priors, self.newcomer_exposure = np.full(capacity, np.nan), np.zeros(capacity)
        self.newcomer_times, self.newcomer_exposure_now = np.zeros(capacity, np.int64), np.zeros(capacity)

    @property
    def nbytes(self) -> int:
        """Approximate size in memory; recomputed after blocks, items or candidate sets were added or removed."""
        if not self.measured_bytes:
            arrays = self.capacity * (8 * 6 + sum(4 * (1 + block.ranks) for block in self.blocks.values()))
            candidates = sum(16 * each.rows.size + 120 for each in self.candidates.values())
            self.measured_bytes = 3_000 + arrays + candidates + 250 * len(self.ids)
        return self.measured_bytes + 400 * len(self.recent)

    # --- items -------------------------------------------------------------------------------------------------------

    def add_items(self, items: Sequence[tuple[str | None, str | None]]) -> None:
        """Add the ids and groups of further rows."""
        self.index.update((item, row) for row, (item, _) in enumerate(items, len(self.ids)) if item is not None)
        self.ids += [item for item, _ in items]
        self.groups += [group for _, group in items]
        self.measured_bytes = 0

    def cache_candidates(self, number: int, candidates: Candidates, digest: bytes) -> None:
        """Cache a candidate set by its number and by the digest of its items; evict the oldest ones."""
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
        self.last_admitted = None
        self.measured_bytes = 0

    def grow(self, rows: int) -> None:
        """Enlarge the arrays to at least this number of rows."""
        if rows <= self.capacity:
            return
        capacity, old = max(rows, 2 * self.capacity), self.capacity
        names = ("E", "C", "priors", "newcomer_exposure", "newcomer_times", "newcomer_exposure_now")
        kept = {name: getattr(self, name) for name in names}
        matured = (self.E_matured, self.C_matured) if self.E_matured is not self.E else None
        self.allocate_arrays(capacity)
        for name, values in kept.items():
            getattr(self, name)[:old] = values
        if matured is not None:
            self.E_matured, self.C_matured = (np.pad(each, (0, capacity - old)) for each in matured)
        for block in self.blocks.values():
            block.grow(capacity, block.ranks)

    def admit(self, candidates: Candidates, version: Version, now: int) -> None:
        """Admit newcomers among the candidates, with the starting exposure that the rules give them."""
        if candidates is self.last_admitted:
            return
        last = candidates.rows_needed
        first_new = self.rows
        if last > first_new:
            self.grow(last)
            old = candidates.rows < first_new
            if version.rules.newcomer_exposure == "fair" and self.visits and old.any():
                q = self.view(Candidates.of(candidates.rows[old], candidates.priors[old]), version, now, 1)
                er, rr = dots(q.E, q.R)
                self.newcomer_exposure[first_new:last] = er / rr if rr > 0 else 0.0
                self.newcomer_times[first_new:last] = version.bucket(now)
                self.newcomer_exposure_now[first_new:last] = self.newcomer_exposure[first_new:last]
            self.rows = last
        self.priors[candidates.rows] = candidates.priors
        self.last_admitted = candidates

    # --- the policy's view -------------------------------------------------------------------------------------------

    def view(self, candidates: Candidates, version: Version, now: int, k: int) -> Query:
        """Build the policy's view of these candidates for a list of k ranks."""
        self.refresh(version, now)
        rows, priors, have_priors, _ = candidates
        rules = version.rules
        if rules.prior_mean is not None:
            priors, have_priors = np.where(np.isnan(priors), rules.prior_mean, priors), True
        strength = rules.prior_strength if have_priors else 0.0
        certainty = min(strength, rules.prior_certainty)
        n = rows.size
        E, R, uncertainty, F = np.empty(n), np.empty(n), np.empty(n), np.empty((n, k), np.int32)
        p, counts = self.examinations.p(version.examination, k), self.counts(version)
        fill_candidates(
            rows, priors, strength, self.E, self.E_matured, self.C_matured, self.newcomer_exposure_now,
            NO_COUNTS if counts is None else counts, E, R, uncertainty, F,
        )  # fmt: skip
        if counts is None:
            p, F = self.by_rank(rows, k)
        groups = self.groups_of(rows)
        return Query(R, uncertainty, E, F, p, np.array(self.visits), groups, certainty, np.zeros(1))

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
        return block.F if block.examination == version.examination and block.decay == 1.0 else None

    def by_rank(self, rows: IntArray, k: int) -> tuple[FloatArray, CountArray]:
        """Return p and F such that F·p is the exposure at each of k ranks, summed over the blocks.

        The sums are not multiples of any examination probability, so p is a small unit (a power of two) and F counts
        units.
        """
        at_rank = np.zeros((rows.size, k))
        for block in self.blocks.values():
            shared = min(k, block.ranks)
            at_rank[:, :shared] += block.F[rows, :shared] * block.weights[:shared]
        unit = 2.0 ** (np.ceil(np.log2(max(1.0, at_rank.max()))) - 30)
        return np.full(k, unit), np.rint(at_rank / unit).astype(np.int32)

    def draws(self, seed: int) -> Draws:
        """Return the random generator of the next session."""
        return draws(seed, POLICY, query=self.number & 0xFFFFFFFF, visit=self.visits & 0xFFFFFFFF)

    def refresh(self, version: Version, now: int) -> None:
        """Update the cached exposure and clicks to the current time: maturation first, then decay."""
        if version.maturation != self.maturation:
            self.rebuild_pending(version.maturation)
        if self.recent:
            self.mature(now)
        state = (version.half_life, version.decaying_since, version.bucket(now))
        if self.valid_for == state:
            return
        self.valid_for = state
        for block in self.blocks.values():
            block.decay = version.decay(block.bucket, now)
            block.weights = self.examinations.p(block.examination, block.ranks) * block.decay
        self.newcomer_exposure_now = self.newcomer_exposure.copy()
        if version.half_life:
            for row in np.flatnonzero(self.newcomer_exposure):
                self.newcomer_exposure_now[row] *= version.decay(int(self.newcomer_times[row]), now)
        self.recount(np.arange(self.rows))

    def recount(self, rows: IntArray) -> None:
        """Recompute exposure and clicks of some rows over all blocks.

        The order of the blocks is fixed, because floating-point sums depend on it and replays must agree to the bit.
        """
        self.E[rows] = self.C[rows] = 0.0
        for block in self.blocks.values():
            add_counts(block.F, block.C, block.weights, block.decay, rows, self.E, self.C)
        if self.maturation:
            self.E_matured[rows] = self.C_matured[rows] = 0.0
            for b in self.blocks.values():
                add_matured(
                    b.F, b.C, b.pending_F, b.pending_C, b.weights, b.decay, rows, self.E_matured, self.C_matured
                )

    # --- log entries -------------------------------------------------------------------------------------------------

    def record_impression(self, seq: int, time: int, rows: IntArray, bits: bytes, version: Version) -> None:
        """Record a list, with exposure where the bits say so. Call `admit` first."""
        self.drop_negligible_blocks(version, time)
        block = self.block(version.examination, version.bucket(time), rows.size)
        self.refresh(version, time)
        if len(self.blocks) == 1 and not self.maturation and is_exposed(bits[0]):
            count_list(block.F, block.weights, rows, self.E)
        elif is_exposed(bits[0]):
            block.F[rows, np.arange(rows.size)] += 1
            if self.maturation:
                block.pending_F[rows, np.arange(rows.size)] += 1
            self.recount(rows)
        if self.longest_maturation:
            self.recent[seq] = Recent(time, block, rows, bytearray(bits))
            if self.maturation:
                self.pending[seq] = None
        self.seq, self.time = seq, time
        self.visits += 1
        self.since_snapshot += 1

    def record_feedback(self, seq: int, time: int, changes: BitChanges) -> None:
        """Record feedback on an impression that was recorded before."""
        block = self.blocks.get((changes.examination, changes.bucket))  # None if the block was dropped as negligible
        recent = self.recent.get(changes.impression)
        touched = []
        for rank, row, before, after in changes.changes:
            if recent is not None:
                recent.bits[rank] = after
            if block is None or row in self.deleted:
                continue
            shown = is_exposed(after) - is_exposed(before)
            clicked = is_clicked(after) - is_clicked(before)
            block.F[row, rank] += shown
            block.C[row] += clicked
            if changes.impression in self.pending:
                block.pending_F[row, rank] += shown
                block.pending_C[row] += clicked
            touched.append(row)
        if self.valid_for is not None and touched:
            self.recount(np.array(touched))
        self.seq, self.time = seq, time
        self.since_snapshot += 1

    def record_deletion(self, seq: int, time: int, row: int) -> None:
        """Record the deletion of an item: clear all its counts, and free its id for a newcomer."""
        for block in self.blocks.values():
            block.F[row] = block.C[row] = 0
            if block.pending_C.size:
                block.pending_F[row] = block.pending_C[row] = 0
        self.E[row] = self.C[row] = self.E_matured[row] = self.C_matured[row] = 0.0
        self.newcomer_exposure[row] = self.newcomer_exposure_now[row] = 0.0
        self.priors[row] = np.nan
        self.deleted.add(row)
        if (item := self.ids[row]) is not None:
            del self.index[item]
        self.ids[row] = self.groups[row] = None
        self.evict_candidates()
        self.seq, self.time = seq, time
        self.since_snapshot += 1

    def block(self, examination: int, bucket: int, ranks: int) -> CountBlock:
        """Return the block of an examination and bucket with at least this number of ranks; create it if needed."""
        found = self.blocks.get((examination, bucket))
        if found is None:
            found = CountBlock(examination, bucket, self.capacity, ranks)
            if self.maturation:
                found.reset_pending(self.capacity)
            self.blocks[examination, bucket] = found
            self.blocks = dict(sorted(self.blocks.items(), key=lambda each: (each[0][1], each[0][0])))
            self.valid_for = None  # the weights of the new block are computed by `refresh`
            self.measured_bytes = 0
        elif ranks > found.ranks:
            found.grow(self.capacity, ranks)
            self.measured_bytes = 0
            found.weights = self.examinations.p(examination, ranks) * found.decay
        return found

    def drop_negligible_blocks(self, version: Version, now: int) -> None:
        """Drop blocks whose weight has become negligible."""
        if not version.half_life:
            return
        old = [key for key, block in self.blocks.items() if version.is_negligible(block.bucket, now)]
        for key in old:
            del self.blocks[key]
            self.valid_for = None
            self.measured_bytes = 0

    # --- maturation --------------------------------------------------------------------------------------------------

    def mature(self, now: int) -> None:
        """Move matured impressions into R, and drop recent ones that are pending under no version of the rules."""
        while self.pending and (each := self.recent[next(iter(self.pending))]).time + self.maturation <= now:
            del self.pending[next(iter(self.pending))]
            self.count_pending(each, -1)
            self.recount(each.rows)
        while self.recent and self.recent[next(iter(self.recent))].time + self.longest_maturation <= now:
            del self.recent[next(iter(self.recent))]

    def count_pending(self, each: Recent, sign: int) -> None:
        """Add an impression to the pending counts, or subtract it."""
        if self.blocks.get((each.block.examination, each.block.bucket)) is not each.block:
            return  # its block was dropped in the meantime
        for rank, (row, bits) in enumerate(zip(each.rows.tolist(), each.bits, strict=True)):
            if row not in self.deleted:
                each.block.pending_F[row, rank] += sign * is_exposed(bits)
                each.block.pending_C[row] += sign * is_clicked(bits)

    def rebuild_pending(self, maturation: int) -> None:
        """Recount the pending impressions for another maturation, in ms."""
        self.maturation, self.valid_for = maturation, None
        self.pending = dict.fromkeys(self.recent) if maturation else {}
        size = self.capacity
        self.E_matured, self.C_matured = (np.zeros(size), np.zeros(size)) if maturation else (self.E, self.C)
        for block in self.blocks.values():
            block.reset_pending(size if maturation else 0)
        for seq in self.pending:
            self.count_pending(self.recent[seq], 1)

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the state; which of its counts are pending is not part of it, but is rebuilt from the log."""
        n = self.rows
        return Snapshot(
            seq=self.seq, time=self.time, visits=self.visits, rows=n, deleted=sorted(self.deleted),
            priors=compress(self.priors[:n]), newcomer_exposure=compress(self.newcomer_exposure[:n]),
            newcomer_times=compress(self.newcomer_times[:n]),
            blocks=[
                (examination, bucket, block.ranks, compress(block.F[:n]), compress(block.C[:n]))
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
        for examination, bucket, ranks, F, C in snapshot.blocks:
            block = self.block(examination, bucket, ranks)
            block.F[:n] = decompress(F, np.int32).reshape(n, ranks)
            block.C[:n] = decompress(C, np.int32)
        self.valid_for = None


def compress(values: npt.NDArray[np.generic]) -> bytes:
    """Compress an array: most counts are small, and many priors are equal."""
    return zlib.compress(np.ascontiguousarray(values).tobytes(), 1)


def decompress(body: bytes, kind: type[np.generic]) -> npt.NDArray[np.generic]:
    """Decompress an array."""
    return np.frombuffer(zlib.decompress(body), kind)


class Examinations:
    """Every examination that any version of the rules has had, by number."""

    def __init__(self) -> None:
        self.specs: list[float | list[float]] = []
        self.tables: dict[tuple[int, int], FloatArray] = {}

    def number(self, spec: float | list[float]) -> int:
        """Return the number of an examination; assign the next one to a new examination."""
        if spec not in self.specs:
            self.specs.append(spec)
        return self.specs.index(spec)

    def p(self, number: int, k: int) -> FloatArray:
        """Return the examination probabilities of k ranks."""
        table = self.tables.get((number, k))
        if table is None:
            table = self.tables[number, k] = examination_probabilities(self.specs[number], k)
        return table
