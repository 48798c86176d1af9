"""Blocks of counts of equal weight, and the compiled sums over them."""

from __future__ import annotations

import numpy as np

from ..._jit import kernel
from ...arrays import CountArray, FloatArray, IntArray
from ...estimators.ips import ips
from ...state import exposure
from .caching import BoundedCache
from .records import RecordedImpression, counted_click, is_exposed
from .rules import examination_probabilities


class Examinations:
    """Every examination that any version of the rules has had, by number."""

    def __init__(self) -> None:
        self.specs: list[float | list[float]] = []
        self.tables: BoundedCache[tuple[int, int], FloatArray] = BoundedCache(1_024, 1 << 20)

    def number(self, spec: float | list[float]) -> int:
        """Return the number of an examination; assign the next one to a new examination."""
        if spec not in self.specs:
            self.specs.append(spec)
        return self.specs.index(spec)

    def p(self, number: int, k: int) -> FloatArray:
        """Return the examination probabilities of k ranks."""
        table = self.tables.get((number, k))
        if table is None:
            table = examination_probabilities(self.specs[number], k)
            self.tables.add((number, k), table, 120 + table.nbytes)
        return table


class CountBlock:
    """Counts of equal weight: those of one examination and one time bucket.

    `since` is the first log entry that was counted: a block that became negligible was dropped with its counts, and
    feedback on those must not change a later block of the same examination and bucket. F and C count everything.
    pending_F and pending_C count the part that has not matured; they are empty while no maturation is set. `weight` is
    the decay, relative to the ledger's scale.
    """

    def __init__(
        self, examinations: Examinations, examination: int, bucket: int, since: int, capacity: int, ranks: int
    ) -> None:
        self.examinations, self.examination, self.bucket, self.since = examinations, examination, bucket, since
        self.ranks = ranks
        self.p = examinations.p(examination, ranks)
        self.F: CountArray = np.zeros((capacity, ranks), np.int32)
        self.C: CountArray = np.zeros(capacity, np.int32)
        self.pending_F: CountArray = np.zeros((0, ranks), np.int32)
        self.pending_C: CountArray = np.zeros(0, np.int32)
        self.weight = 1.0

    def grow(self, capacity: int, ranks: int) -> None:
        """Enlarge the arrays to more rows or ranks."""
        more = (capacity - self.F.shape[0], max(0, ranks - self.ranks))
        self.ranks += more[1]
        self.p = self.examinations.p(self.examination, self.ranks)
        self.F = np.pad(self.F, ((0, more[0]), (0, more[1])))
        self.C = np.pad(self.C, (0, more[0]))
        if self.pending_C.size:
            self.pending_F = np.pad(self.pending_F, ((0, more[0]), (0, more[1])))
            self.pending_C = np.pad(self.pending_C, (0, more[0]))

    def reset_pending(self, capacity: int) -> None:
        """Clear the pending counts; a capacity of 0 disables them."""
        self.pending_F = np.zeros((capacity, self.ranks), np.int32)
        self.pending_C = np.zeros(capacity, np.int32)

    def count_pending(self, each: RecordedImpression, sign: int, deleted: set[int]) -> None:
        """Add an impression to the pending counts, or subtract it."""
        for rank, (row, bits) in enumerate(zip(each.rows.tolist(), each.bits, strict=True)):
            if bits and row not in deleted:
                self.pending_F[row, rank] += sign * is_exposed(bits)
                self.pending_C[row] += sign * counted_click(bits, self.p[rank])

    def clear(self, rows: IntArray) -> None:
        """Clear the counts of some rows."""
        self.F[rows] = self.C[rows] = 0
        if self.pending_C.size:
            self.pending_F[rows] = self.pending_C[rows] = 0


# The kernels below all sum in one fixed order: block by block, and within a block rank by rank. Floating-point sums
# depend on the order, and a ledger that was loaded again must agree to the bit with one that was updated all along.


@kernel
def add_counts(
    F: CountArray, C: CountArray, p: FloatArray, weight: float, rows: IntArray, E: FloatArray, clicks: FloatArray
) -> None:
    """Add the counts of some rows of a block to their exposure (Eq. 7) and clicks."""
    for i in range(rows.shape[0]):
        d = rows[i]
        E[d] += exposure(F, p, d) * weight
        clicks[d] += C[d] * weight


@kernel
def add_matured(
    F: CountArray,
    C: CountArray,
    pending_F: CountArray,
    pending_C: CountArray,
    p: FloatArray,
    weight: float,
    rows: IntArray,
    E: FloatArray,
    clicks: FloatArray,
) -> None:
    """Add the matured counts of some rows of a block, which exclude the pending ones, to their exposure and clicks."""
    for i in range(rows.shape[0]):
        d = rows[i]
        e = 0.0
        for j in range(p.shape[0]):
            e += (F[d, j] - pending_F[d, j]) * p[j]
        E[d] += e * weight
        clicks[d] += (C[d] - pending_C[d]) * weight


@kernel
def add_by_rank(F: CountArray, p: FloatArray, weight: float, rows: IntArray, at_rank: FloatArray) -> None:
    """Add the exposure of some rows of a block at each rank."""
    for i in range(rows.shape[0]):
        d = rows[i]
        for j in range(p.shape[0]):
            at_rank[d, j] += F[d, j] * p[j] * weight


@kernel
def count_list(
    F: CountArray, p: FloatArray, weight: float, rows: IntArray, settled_E: FloatArray, E: FloatArray
) -> None:
    """Count a list in the newest block and update the exposure of its rows."""
    for j in range(rows.shape[0]):
        d = rows[j]
        F[d, j] += 1
        E[d] = settled_E[d] + exposure(F, p, d) * weight


# One pass over the candidates, whose arrays are its arguments: a view is filled for every list.
@kernel
def fill_candidates(
    rows: IntArray,
    priors: FloatArray,
    strength: float,
    scale: float,
    exposed: FloatArray,
    E_matured: FloatArray,
    C_matured: FloatArray,
    newcomer_exposure: FloatArray,
    counts: CountArray,
    E: FloatArray,
    R: FloatArray,
    uncertainty: FloatArray,
    F: CountArray,
) -> None:
    """Write exposure, estimated relevance (Eq. 25), its uncertainty and counts by rank per candidate.

    Counts are 0 beyond the counted ranks.
    """
    counted = min(F.shape[1], counts.shape[1])
    for i in range(rows.shape[0]):
        d = rows[i]
        has_prior = priors[i] == priors[i]
        mean, weight = (priors[i], strength) if has_prior else (0.0, 0.0)
        matured = E_matured[d] * scale
        R[i] = ips(C_matured[d] * scale, matured, mean, weight)
        evidence = matured + weight
        uncertainty[i] = 1.0 / evidence if evidence > 0.0 else np.inf
        E[i] = exposed[d] * scale + newcomer_exposure[d] * scale * R[i]
        for j in range(counted):
            F[i, j] = counts[d, j]
        for j in range(counted, F.shape[1]):
            F[i, j] = 0


@kernel
def fill_by_rank(
    rows: IntArray,
    settled: FloatArray,
    counts: CountArray,
    p: FloatArray,
    weight: float,
    scale: float,
    at_rank: FloatArray,
) -> None:
    """Write the exposure of each candidate at each rank: that of the settled blocks and that of the newest."""
    k = at_rank.shape[1]
    for i in range(rows.shape[0]):
        d = rows[i]
        for j in range(k):
            at_rank[i, j] = settled[d, j] if j < settled.shape[1] else 0.0
        for j in range(min(k, p.shape[0])):
            at_rank[i, j] += counts[d, j] * p[j] * weight
        for j in range(k):
            at_rank[i, j] *= scale
