"""The books of one query: how often each item stood at each rank, its clicks, and what a policy sees of that.

Everything counted is a whole number that belongs to an impression, so no order of events, repeats included, can change
a sum. Counts lie in blocks, one for each examination in force and each step of a half-life: within a block they weigh
alike. With one examination and no half-life there is one block, and the arithmetic is the simulator's to the bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..metrics.exposure import dots
from ..random import POLICY, Draws, draws
from ..state import Query, estimate, exposure
from .rules import Version, examination_of

__all__ = ["CLICKED", "SHOWN", "UNCLICKED", "UNSHOWN", "Candidates", "Flips", "Impression", "Ledger", "Snapshot"]

Counts = npt.NDArray[np.int32]

KNOWN_CANDIDATES = 8
"""Sets of candidates that a ledger remembers, so as not to store them again."""

SHOWN, UNSHOWN, CLICKED, UNCLICKED = 1, 2, 4, 8
"""What is known of one rank of an impression. Bits are only ever set: any order and any repeat ends alike."""


def is_exposed(bits: int) -> bool:
    """Whether a rank counts as shown."""
    return bits & (SHOWN | UNSHOWN) == SHOWN


def is_clicked(bits: int) -> bool:
    """Whether a rank counts as clicked: a click on what was never shown waits until it is."""
    return bits == SHOWN | CLICKED


# --- what is written down --------------------------------------------------------------------------------------------


class Impression(msgspec.Struct, array_like=True):
    """A list as positions among the candidates, in 16 bits each; in shadow mode also the list of the policy."""

    shown: bytes
    wanted: bytes | None
    deferred: bool

    @property
    def ranks(self) -> int:
        """Length of the list."""
        return len(self.shown) // 2

    def first_bits(self) -> bytes:
        """Say what is known of its ranks when it is made."""
        return bytes([0 if self.deferred else SHOWN]) * self.ranks


class Flips(msgspec.Struct, array_like=True):
    """What feedback changed in an impression: rank, row, bits before, bits after; and the block it counts in."""

    impression: int
    examination: int
    bucket: int
    flips: list[tuple[int, int, int, int]]


class Candidates(NamedTuple):
    """Candidates of a request: their rows in the ledger, in order; their priors, nan for none, and if there are any."""

    rows: IntArray
    priors: FloatArray
    have_priors: bool
    rows_needed: int

    @classmethod
    def of(cls, rows: IntArray, priors: FloatArray) -> Candidates:
        """Fill in what follows from rows and priors."""
        return cls(rows, priors, not np.isnan(priors).all(), int(rows.max()) + 1)

    def packed(self) -> bytes:
        """As bytes."""
        priors = self.priors.tobytes() if self.have_priors else b""
        return self.rows.astype(np.uint32).tobytes() + priors

    @classmethod
    def unpacked(cls, body: bytes, n: int) -> Candidates:
        """Read n candidates back."""
        rows = np.frombuffer(body, np.uint32, n).astype(np.int64)
        priors = np.frombuffer(body, np.float64, offset=4 * n) if len(body) > 4 * n else np.full(n, np.nan)
        return cls.of(rows, priors)


class Snapshot(msgspec.Struct, array_like=True):
    """A ledger as it was after an operation; blocks are (examination, bucket, ranks, F, C)."""

    seq: int
    time: int
    visits: int
    rows: int
    gone: list[int]
    priors: bytes
    levels: bytes
    level_times: bytes
    blocks: list[tuple[int, int, int, bytes, bytes]]


# --- kernels ---------------------------------------------------------------------------------------------------------


@kernel
def add_counts(F, C, weights, decay, rows, E, clicks):  # type: ignore[no-untyped-def]
    """Add what some rows have in a block to their exposure (Eq. 7) and clicks."""
    for i in range(rows.shape[0]):
        d = rows[i]
        E[d] += exposure(F, weights, d)
        clicks[d] += decay * C[d]


@kernel
def add_settled(F, C, young_F, young_C, weights, decay, rows, E, clicks):  # type: ignore[no-untyped-def]
    """Add the same, without what is too young."""
    for i in range(rows.shape[0]):
        d = rows[i]
        e = 0.0
        for j in range(weights.shape[0]):
            e += (F[d, j] - young_F[d, j]) * weights[j]
        E[d] += e
        clicks[d] += decay * (C[d] - young_C[d])


@kernel
def book_list(F, weights, rows, E):  # type: ignore[no-untyped-def]
    """Count a list in the only block there is."""
    for j in range(rows.shape[0]):
        d = rows[j]
        F[d, j] += 1
        E[d] = exposure(F, weights, d)


@kernel
def fill_candidates(rows, priors, strength, exposed, E_settled, C_settled, levels, counts, E, R, F):  # type: ignore[no-untyped-def]
    """Write exposure, estimated relevance (Eq. 25) and counts by rank, 0 beyond those counted, of every candidate."""
    counted = min(F.shape[1], counts.shape[1])
    for i in range(rows.shape[0]):
        d = rows[i]
        has_prior = priors[i] == priors[i]
        R[i] = estimate(C_settled[d], E_settled[d], priors[i] if has_prior else 0.0, strength if has_prior else 0.0)
        E[i] = exposed[d] + levels[d] * R[i]
        for j in range(counted):
            F[i, j] = counts[d, j]
        for j in range(counted, F.shape[1]):
            F[i, j] = 0


NO_COUNTS: Counts = np.zeros((0, 0), np.int32)


# --- the books -------------------------------------------------------------------------------------------------------


class Block:
    """Counts that weigh alike: those of one examination and one step of time; `young` ones do not enter R yet."""

    def __init__(self, examination: int, bucket: int, room: int, ranks: int) -> None:
        self.examination, self.bucket, self.ranks = examination, bucket, ranks
        self.F: Counts = np.zeros((room, ranks), np.int32)
        self.C: Counts = np.zeros(room, np.int32)
        self.young_F: Counts = np.zeros((0, ranks), np.int32)
        self.young_C: Counts = np.zeros(0, np.int32)
        self.weights = np.zeros(ranks)
        self.decay = 1.0

    def widen(self, room: int, ranks: int) -> None:
        """Make room for more rows or ranks."""
        more = (room - self.F.shape[0], max(0, ranks - self.ranks))
        self.ranks += more[1]
        self.F = np.pad(self.F, ((0, more[0]), (0, more[1])))
        self.C = np.pad(self.C, (0, more[0]))
        if self.young_C.size:
            self.young_F = np.pad(self.young_F, ((0, more[0]), (0, more[1])))
            self.young_C = np.pad(self.young_C, (0, more[0]))

    def forget_young(self, room: int) -> None:
        """Begin to count what is young; with no room, do not."""
        self.young_F, self.young_C = np.zeros((room, self.ranks), np.int32), np.zeros(room, np.int32)


class Recent(NamedTuple):
    """An impression that is, or under some rules would be, too young for R."""

    time: int
    block: Block
    rows: IntArray
    bits: bytearray


class Ledger:
    """What was observed of one query, and the view of it that a policy gets.

    Parameters
    ----------
    number, key
        The query's number in the store, and its name.
    examinations
        What each examination says of the first k ranks.
    keeps
        Longest time, in ms, for which any version of the rules holds impressions back from R.
    """

    def __init__(self, number: int, key: bytes, examinations: Examinations, keeps: int) -> None:
        self.number, self.key, self.examinations, self.keeps = number, key, examinations, keeps
        self.seq = self.time = self.visits = 0
        self.rows = 0  # items that have been candidates
        self.gone: set[int] = set()
        self.ids: list[str | None] = []
        self.groups: list[str | None] = []
        self.index: dict[str, int] = {}
        self.blocks: dict[tuple[int, int], Block] = {}
        self.recent: dict[int, Recent] = {}
        self.young: dict[int, None] = {}  # in order of time, as recent is
        self.window = 0
        self.since_snapshot = 0
        self.known_candidates: dict[bytes, int] = {}
        self.candidates: dict[int, Candidates] = {}
        self.last_admitted: Candidates | None = None
        self.candidate_number = 0
        self.shape_arrays(16)
        self.fresh: tuple[int, int, int] | None = None

    def shape_arrays(self, room: int) -> None:
        """Make the arrays that have an entry for each row."""
        self.room, self.measured = room, 0
        self.E, self.C = np.zeros(room), np.zeros(room)
        self.E_settled, self.C_settled = self.E, self.C
        self.priors, self.levels = np.full(room, np.nan), np.zeros(room)
        self.level_times, self.levels_now = np.zeros(room, np.int64), np.zeros(room)

    @property
    def nbytes(self) -> int:
        """About how much memory it takes; measured again when blocks, items or candidates have come or gone."""
        if not self.measured:
            arrays = self.room * (8 * 6 + sum(4 * (1 + block.ranks) for block in self.blocks.values()))
            candidates = sum(16 * each.rows.size + 120 for each in self.candidates.values())
            self.measured = 3_000 + arrays + candidates + 250 * len(self.ids)
        return self.measured + 400 * len(self.recent)

    # --- items -------------------------------------------------------------------------------------------------------

    def name_items(self, items: Sequence[tuple[str | None, str | None]]) -> None:
        """Take in the ids and groups of further rows."""
        self.index.update((item, row) for row, (item, _) in enumerate(items, len(self.ids)) if item is not None)
        self.ids += [item for item, _ in items]
        self.groups += [group for _, group in items]
        self.measured = 0

    def remember_candidates(self, number: int, candidates: Candidates, digest: bytes) -> None:
        """Remember the last few sets of candidates, by their number and by who they are."""
        self.candidates[number] = candidates
        self.known_candidates[digest] = number
        while len(self.known_candidates) > KNOWN_CANDIDATES:
            self.candidates.pop(self.known_candidates.pop(next(iter(self.known_candidates))), None)
        self.measured = 0

    def forget_candidates(self, numbers: Iterable[int] | None = None) -> None:
        """Forget which candidates were met before, all or some."""
        gone = set(self.candidates if numbers is None else numbers)
        self.known_candidates = {digest: each for digest, each in self.known_candidates.items() if each not in gone}
        self.candidates = {each: candidates for each, candidates in self.candidates.items() if each not in gone}
        self.last_admitted = None
        self.measured = 0

    def grow(self, rows: int) -> None:
        """Make room for so many rows."""
        if rows <= self.room:
            return
        room, old = max(rows, 2 * self.room), self.room
        kept = {name: getattr(self, name) for name in ("E", "C", "priors", "levels", "level_times", "levels_now")}
        settled = (self.E_settled, self.C_settled) if self.E_settled is not self.E else None
        self.shape_arrays(room)
        for name, values in kept.items():
            getattr(self, name)[:old] = values
        if settled is not None:
            self.E_settled, self.C_settled = (np.pad(each, (0, room - old)) for each in settled)
        for block in self.blocks.values():
            block.widen(room, block.ranks)

    def admit(self, candidates: Candidates, version: Version, now: int) -> None:
        """Let newcomers among the candidates in, with the exposure that the rules give them."""
        if candidates is self.last_admitted:
            return
        last = candidates.rows_needed
        first_new = self.rows
        if last > first_new:
            self.grow(last)
            old = candidates.rows < first_new
            if version.rules.entry == "fair" and self.visits and old.any():
                q = self.view(Candidates.of(candidates.rows[old], candidates.priors[old]), version, now, 1)
                er, rr = dots(q.E, q.R)
                self.levels[first_new:last] = er / rr if rr > 0 else 0.0
                self.level_times[first_new:last] = version.bucket(now)
                self.levels_now[first_new:last] = self.levels[first_new:last]
            self.rows = last
        self.priors[candidates.rows] = candidates.priors
        self.last_admitted = candidates

    # --- the view ----------------------------------------------------------------------------------------------------

    def view(self, candidates: Candidates, version: Version, now: int, k: int) -> Query:
        """Give what a policy may see of these candidates for a list of k ranks."""
        self.refresh(version, now)
        rows, priors, have_priors, _ = candidates
        rules = version.rules
        if rules.prior_mean is not None:
            priors, have_priors = np.where(np.isnan(priors), rules.prior_mean, priors), True
        strength = rules.prior_strength if have_priors else 0.0
        n = rows.size
        E, R, F = np.empty(n), np.empty(n), np.empty((n, k), np.int32)
        p, counts = self.examinations.p(version.examination, k), self.counts(version)
        fill_candidates(
            rows, priors, strength, self.E, self.E_settled, self.C_settled, self.levels_now,
            NO_COUNTS if counts is None else counts, E, R, F,
        )  # fmt: skip
        if counts is None:
            p, F = self.by_rank(rows, k)
        return Query(R, E, F, p, np.array(self.visits), strength, np.zeros(1))

    def counts(self, version: Version) -> Counts | None:
        """Give the counts by rank, if all of them weigh as the examination in force says."""
        if not self.blocks:
            return NO_COUNTS
        if len(self.blocks) > 1:
            return None
        (block,) = self.blocks.values()
        return block.F if block.examination == version.examination and block.decay == 1.0 else None

    def by_rank(self, rows: IntArray, k: int) -> tuple[FloatArray, Counts]:
        """Give p and F such that F·p is the exposure at each of k ranks, over several blocks.

        Their sums are no whole numbers of any examination, so F counts in small units instead.
        """
        at_rank = np.zeros((rows.size, k))
        for block in self.blocks.values():
            shared = min(k, block.ranks)
            at_rank[:, :shared] += block.F[rows, :shared] * block.weights[:shared]
        unit = 2.0 ** (np.ceil(np.log2(max(1.0, at_rank.max()))) - 30)
        return np.full(k, unit), np.rint(at_rank / unit).astype(np.int32)

    def draws(self, seed: int) -> Draws:
        """Give the generator for the session at hand."""
        return draws(seed, POLICY, query=self.number & 0xFFFFFFFF, visit=self.visits & 0xFFFFFFFF)

    def refresh(self, version: Version, now: int) -> None:
        """Bring exposure and clicks up to date with the time: what has matured, what has decayed."""
        if version.maturing != self.window:
            self.rebuild_young(version.maturing)
        if self.recent:
            self.mature(now)
        state = (version.half_life, version.decaying_since, version.bucket(now))
        if self.fresh == state:
            return
        self.fresh = state
        for block in self.blocks.values():
            block.decay = version.decay(block.bucket, now)
            block.weights = self.examinations.p(block.examination, block.ranks) * block.decay
        self.levels_now = self.levels.copy()
        if version.half_life:
            for row in np.flatnonzero(self.levels):
                self.levels_now[row] *= version.decay(int(self.level_times[row]), now)
        self.recount(np.arange(self.rows))

    def recount(self, rows: IntArray) -> None:
        """Sum up exposure and clicks of some rows over all blocks, in order."""
        self.E[rows] = self.C[rows] = 0.0
        for block in self.blocks.values():
            add_counts(block.F, block.C, block.weights, block.decay, rows, self.E, self.C)
        if self.window:
            self.E_settled[rows] = self.C_settled[rows] = 0.0
            for b in self.blocks.values():
                add_settled(b.F, b.C, b.young_F, b.young_C, b.weights, b.decay, rows, self.E_settled, self.C_settled)

    # --- operations --------------------------------------------------------------------------------------------------

    def book_impression(self, seq: int, time: int, rows: IntArray, bits: bytes, version: Version) -> None:
        """Write down a list, whose ranks count as the bits say; `admit` comes first."""
        self.forget_old(version, time)
        block = self.block(version.examination, version.bucket(time), rows.size)
        self.refresh(version, time)
        if len(self.blocks) == 1 and not self.window and is_exposed(bits[0]):
            book_list(block.F, block.weights, rows, self.E)
        elif is_exposed(bits[0]):
            block.F[rows, np.arange(rows.size)] += 1
            if self.window:
                block.young_F[rows, np.arange(rows.size)] += 1
            self.recount(rows)
        if self.keeps:
            self.recent[seq] = Recent(time, block, rows, bytearray(bits))
            if self.window:
                self.young[seq] = None
        self.seq, self.time = seq, time
        self.visits += 1
        self.since_snapshot += 1

    def book_flips(self, seq: int, time: int, flips: Flips) -> None:
        """Write down feedback on an impression that was booked before."""
        block = self.blocks.get((flips.examination, flips.bucket))  # none if all of it was dropped as too old
        recent = self.recent.get(flips.impression)
        touched = []
        for rank, row, before, after in flips.flips:
            if recent is not None:
                recent.bits[rank] = after
            if block is None or row in self.gone:
                continue
            shown = is_exposed(after) - is_exposed(before)
            clicked = is_clicked(after) - is_clicked(before)
            block.F[row, rank] += shown
            block.C[row] += clicked
            if flips.impression in self.young:
                block.young_F[row, rank] += shown
                block.young_C[row] += clicked
            touched.append(row)
        if self.fresh is not None and touched:
            self.recount(np.array(touched))
        self.seq, self.time = seq, time
        self.since_snapshot += 1

    def book_deletion(self, seq: int, time: int, row: int) -> None:
        """Write down that an item is deleted: all it ever had is gone, and its id is free for a newcomer."""
        for block in self.blocks.values():
            block.F[row] = block.C[row] = 0
            if block.young_C.size:
                block.young_F[row] = block.young_C[row] = 0
        self.E[row] = self.C[row] = self.E_settled[row] = self.C_settled[row] = 0.0
        self.levels[row] = self.levels_now[row] = 0.0
        self.priors[row] = np.nan
        self.gone.add(row)
        if (item := self.ids[row]) is not None:
            del self.index[item]
        self.ids[row] = self.groups[row] = None
        self.forget_candidates()
        self.seq, self.time = seq, time
        self.since_snapshot += 1

    def block(self, examination: int, bucket: int, ranks: int) -> Block:
        """Find the block that something counts in, or make it, wide enough."""
        found = self.blocks.get((examination, bucket))
        if found is None:
            found = Block(examination, bucket, self.room, ranks)
            if self.window:
                found.forget_young(self.room)
            self.blocks[examination, bucket] = found
            self.blocks = dict(sorted(self.blocks.items(), key=lambda each: (each[0][1], each[0][0])))
            self.fresh = None  # what it weighs is not known yet
            self.measured = 0
        elif ranks > found.ranks:
            found.widen(self.room, ranks)
            self.measured = 0
            found.weights = self.examinations.p(examination, ranks) * found.decay
        return found

    def forget_old(self, version: Version, now: int) -> None:
        """Drop blocks that weigh nothing any more."""
        if not version.half_life:
            return
        old = [key for key, block in self.blocks.items() if version.forgets(block.bucket, now)]
        for key in old:
            del self.blocks[key]
            self.fresh = None
            self.measured = 0

    # --- what is young -----------------------------------------------------------------------------------------------

    def mature(self, now: int) -> None:
        """Let impressions that are old enough enter R, and forget those that no rules hold back."""
        while self.young and (each := self.recent[next(iter(self.young))]).time + self.window <= now:
            del self.young[next(iter(self.young))]
            self.count_young(each, -1)
            self.recount(each.rows)
        while self.recent and self.recent[next(iter(self.recent))].time + self.keeps <= now:
            del self.recent[next(iter(self.recent))]

    def count_young(self, each: Recent, sign: int) -> None:
        """Count an impression among the young, or no longer."""
        if self.blocks.get((each.block.examination, each.block.bucket)) is not each.block:
            return  # it was dropped meanwhile
        for rank, (row, bits) in enumerate(zip(each.rows.tolist(), each.bits, strict=True)):
            if row not in self.gone:
                each.block.young_F[row, rank] += sign * is_exposed(bits)
                each.block.young_C[row] += sign * is_clicked(bits)

    def rebuild_young(self, window: int) -> None:
        """Hold back impressions for another time than before."""
        self.window, self.fresh = window, None
        self.young = dict.fromkeys(self.recent) if window else {}
        self.E_settled, self.C_settled = (np.zeros(self.room), np.zeros(self.room)) if window else (self.E, self.C)
        for block in self.blocks.values():
            block.forget_young(self.room if window else 0)
        for seq in self.young:
            self.count_young(self.recent[seq], 1)

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Take down everything but what is recent, which the log still has."""
        n = self.rows
        return Snapshot(
            seq=self.seq, time=self.time, visits=self.visits, rows=n, gone=sorted(self.gone),
            priors=packed(self.priors[:n]), levels=packed(self.levels[:n]), level_times=packed(self.level_times[:n]),
            blocks=[
                (examination, bucket, block.ranks, packed(block.F[:n]), packed(block.C[:n]))
                for (examination, bucket), block in self.blocks.items()
            ],
        )  # fmt: skip

    def restore(self, snapshot: Snapshot) -> None:
        """Begin where a snapshot was taken."""
        n = snapshot.rows
        self.seq, self.time, self.visits, self.rows = snapshot.seq, snapshot.time, snapshot.visits, n
        self.gone = set(snapshot.gone)
        self.grow(n)
        self.priors[:n] = unpacked(snapshot.priors, np.float64)
        self.levels[:n] = unpacked(snapshot.levels, np.float64)
        self.level_times[:n] = unpacked(snapshot.level_times, np.int64)
        for examination, bucket, ranks, F, C in snapshot.blocks:
            block = self.block(examination, bucket, ranks)
            block.F[:n] = unpacked(F, np.int32).reshape(n, ranks)
            block.C[:n] = unpacked(C, np.int32)
        self.fresh = None


def packed(values: npt.NDArray[np.generic]) -> bytes:
    """Press an array; most counts are small, and most priors and levels are alike."""
    return zlib.compress(np.ascontiguousarray(values).tobytes(), 1)


def unpacked(body: bytes, kind: type[np.generic]) -> npt.NDArray[np.generic]:
    """Read it back."""
    return np.frombuffer(zlib.decompress(body), kind)


class Examinations:
    """Every examination that was ever in force, by number."""

    def __init__(self) -> None:
        self.specs: list[float | list[float]] = []
        self.tables: dict[tuple[int, int], FloatArray] = {}

    def number(self, spec: float | list[float]) -> int:
        """Find the number of an examination, or give it one."""
        if spec not in self.specs:
            self.specs.append(spec)
        return self.specs.index(spec)

    def p(self, number: int, k: int) -> FloatArray:
        """Probability that each of k ranks is examined."""
        table = self.tables.get((number, k))
        if table is None:
            table = self.tables[number, k] = examination_of(self.specs[number], k)
        return table
