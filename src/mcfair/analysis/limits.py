"""Limits: the lowest possible unfairness of items and of providers, and the frontier of NDCG against unfairness.

When a query is visited v times, the exposures E that lists can share out, mixed in any proportions, fill a polytope:
the permutahedron of `w = v·p`, p padded with zeros to the query's n items. Unfairness (Eq. 8) is a convex function of
E, and effectiveness is `R·E` (Eq. 14), so `unfairness - μ R·E` has one minimum, which is where E is the point of the
polytope nearest to `cR` with `c |R|² = R·E + μ n(n-1)/4`. One number per query is left to find.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset
from ..errors import DataError, SettingError
from ..metrics.base import Metric
from ..metrics.effectiveness import ideal_dcg
from ..metrics.exposure import dots, query_unfairness
from ..metrics.reachable import balance, balance_groups, project, project_groups

ROUNDING = 1e-10
"""Relative difference that is put down to rounding."""


@kernel(allocates=True)
def fill_optima(
    R: FloatArray,
    p: FloatArray,
    offsets: IntArray,
    visits: FloatArray,
    prices: FloatArray,
    lambdas: FloatArray,
    E: FloatArray,
    unfair: FloatArray,
    gain: FloatArray,
) -> None:
    """Write unfairness and R·E of every query at the optimum for each λ, which rise, and E at the last of them."""
    largest = 1
    for q in range(visits.shape[0]):
        largest = max(largest, offsets[q + 1] - offsets[q])
    w, pools = np.zeros(largest), np.empty((largest, 3))
    for q in range(visits.shape[0]):
        low, high = offsets[q], offsets[q + 1]
        for j in range(min(p.shape[0], high - low)):
            w[j] = visits[q] * p[j]
        c = 0.0
        for i in range(lambdas.shape[0]):
            if high - low > 1 and R[low] * R[low] > 0.0:
                c = balance(lambdas[i] * prices[q], c, R[low:high], w, pools, E[low:high])
            else:  # one item, or none that is relevant: nothing to choose
                project(c, R[low:high], w, pools, E[low:high])
            unfair[i, q] = query_unfairness(E[low:high], R[low:high])
            gain[i, q] = dots(E[low:high], R[low:high])[0]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ExposureProgram:
    """Data, visits and examination, validated; `order` has the items of each query by falling relevance."""

    data: Dataset
    visits: FloatArray
    p: FloatArray
    query: IntArray
    order: IntArray
    ideal: FloatArray

    @classmethod
    def of(cls, data: Dataset, visits: npt.ArrayLike, p: npt.ArrayLike) -> ExposureProgram:
        """Validate the input and derive the rest."""
        v, weights = np.ascontiguousarray(visits, dtype=np.float64), np.ascontiguousarray(p, dtype=np.float64)
        if v.shape != (data.queries,):
            raise DataError(
                f"{data.name}: expected one number of visits for each of {data.queries} queries, got an array of shape "
                f"{v.shape}"
            )
        if not np.all(allowed := (v >= 0) & (v < np.inf)):
            raise DataError(f"{data.name}: visits must be finite numbers of at least 0, got {v[~allowed][0]}")
        if weights.ndim != 1 or not weights.size or not np.all(np.diff(weights) <= 0):
            raise SettingError(f"p = {weights.tolist()}: expected finite numbers that never rise")
        if not 0 < weights[0] < np.inf or weights[-1] < 0:  # the service passes exposure, which may exceed 1
            raise SettingError(f"p = {weights.tolist()}: expected finite numbers of at least 0, with the first above 0")
        query = np.repeat(np.arange(data.queries), data.sizes)
        ideal = ideal_dcg(data.R, weights, data.offsets)[:, -1]
        return cls(data, v, weights, query, np.lexsort((-data.R, query)), ideal)

    @property
    def counted(self) -> npt.NDArray[np.bool_]:
        """Queries that the mean of unfairness covers: those visited in which any item is relevant."""
        return (self.visits > 0) & (self.ideal > 0)

    def mean(self, values: FloatArray, among: npt.ArrayLike = True) -> FloatArray:
        """Return the mean over these queries along the last axis, and of some of them only; 0 if there are none."""
        chosen = self.counted & np.asarray(among)
        return np.asarray(values[..., chosen].sum(axis=-1) / max(chosen.sum(), 1))

    def optima(self, lambdas: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Minimise mean unfairness less λ times mean NDCG, which is done query by query, for rising λ.

        Returns each query's unfairness and its NDCG summed over visits, (λs, queries), and E at the last λ, (items,).
        """
        data = self.data
        ideal = np.where(self.ideal > 0, self.ideal, np.inf)
        prices = data.sizes * (data.sizes - 1) / 4 * max(self.counted.sum(), 1) / ((self.visits.sum() or 1) * ideal)
        E, unfair, gain = np.empty(data.items), *np.empty((2, lambdas.size, data.queries))
        fill_optima(data.R[self.order], self.p, data.offsets, self.visits, prices, lambdas, E, unfair, gain)
        E[self.order] = E.copy()
        return unfair, gain / ideal, E

    def floor(self, unfair: FloatArray, E: FloatArray, member: IntArray, among: npt.ArrayLike = True) -> Floor:
        """Return the floor of groups, `member` being the group of each item, from the lowest unfairness and its E.

        Groups are numbered query by query. The mean is over some of the queries only.
        """
        sizes = np.bincount(member)
        query = np.zeros(sizes.size, np.int64)
        query[member] = self.query
        exposure, merit = (np.bincount(member, each).astype(np.float64) for each in (E, self.data.R))
        gap, fair = self.certify(exposure, merit, query, sizes)
        return Floor(
            unfairness=float(self.mean(unfair, among)),
            gap=float(self.mean(gap, among)),
            query_unfairness=unfair,
            query_gap=gap,
            reachable=fair,
            E=E,
        )

    def certify(
        self, E: FloatArray, M: FloatArray, query: IntArray, sizes: IntArray
    ) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Return a bound on the unfairness of each query at E above its minimum, and whether E ∝ M up to rounding.

        E and M are the exposure and merit of items, or of groups of so many of them, query by query. Unfairness is
        convex, so it lies above its tangent at E, and the tangent is lowest where the ranks from the top go to those of
        the least slope: the bound is the height of E above that point of the tangent.
        """
        m = np.bincount(query, minlength=self.visits.size)

        def total(values: FloatArray) -> FloatArray:
            return np.asarray(np.bincount(query, weights=values, minlength=m.size), dtype=np.float64)

        square = np.maximum(total(M * M), np.finfo(float).tiny)
        off = E - (total(E * M) / square)[query] * M
        slope = (4 * square / np.maximum(m * (m - 1), 1))[query] * off
        rank = np.arange(self.query.size) - self.data.offsets[self.query]
        w = self.visits[self.query] * np.append(self.p, 0.0)[np.minimum(rank, self.p.size)]
        order = np.lexsort((slope, query))
        lowest = np.add.reduceat(w, np.cumsum(sizes[order]) - sizes[order]) if w.size else w
        fair = (total(off * off) <= ROUNDING * ROUNDING * total(E * E)) | (m < 2) | (self.ideal == 0)
        return np.maximum(total(slope * E - slope[order] * lowest), 0.0), fair


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Floor:
    """The lowest unfairness that lists can reach.

    Attributes
    ----------
    unfairness : float
        Mean over the queries visited in which any item is relevant.
    gap : float
        Largest distance to the true minimum: `unfairness - gap` is a proven lower bound, up to rounding.
    query_unfairness, query_gap : (queries,) arrays
        The same for each query.
    reachable : (queries,) bool array
        Whether exposure in proportion to relevance can be reached, so that the floor is 0.
    E : (items,) array
        The fairest exposure; there is only one, unless no item is relevant.

    Examples
    --------
    The only relevant item cannot have all the exposure, because another one is shown at rank 2:

    >>> data = Dataset(offsets=[0, 3], y=[0, 0, 0], R=[1.0, 0.0, 0.0])
    >>> floor = fairness_floor(data, visits=[10], p=[1.0, 0.5])
    >>> floor.reachable.tolist(), floor.E.round(6).tolist()
    ([False], [10.0, 2.5, 2.5])
    """

    unfairness: float
    gap: float
    query_unfairness: FloatArray
    query_gap: FloatArray
    reachable: npt.NDArray[np.bool_]
    E: FloatArray

    def __repr__(self) -> str:
        return (
            f"Floor(unfairness {self.unfairness:.6g}, gap {self.gap:.1g}, E ∝ R is out of reach for "
            f"{np.sum(~self.reachable):,} of {self.reachable.size:,} queries)"
        )

    def _repr_html_(self) -> str:
        facts = {
            "lowest possible unfairness": f"{self.unfairness:.6g}",
            "gap": f"{self.gap:.1g}",
            "queries that cannot reach E ∝ R": f"{np.sum(~self.reachable):,} of {self.reachable.size:,}",
        }
        rows = "".join(f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in facts.items())
        return f"<table><caption>Fairness floor</caption><tbody>{rows}</tbody></table>"


def fairness_floor(data: Dataset, visits: npt.ArrayLike, p: npt.ArrayLike) -> Floor:
    """Compute the lowest unfairness (Eq. 8) that any policy can reach, with R known and for the given visits.

    `min 2/(n(n-1)) |R|² min_c |E - cR|²` over the exposures E that lists mixed in any proportions reach. Exact: the gap
    is the distance to the lowest point of the tangent at E, below which no unfairness lies since it is convex.

    Parameters
    ----------
    data
        Queries with true relevance R.
    visits : (queries,) array
        Sessions of each query, such as `trace.state.visits`; queries of 0 visits do not count in any mean.
    p : (k_s,) array
        Examination probability of each rank; it never rises.

    Returns
    -------
    Floor

    Raises
    ------
    DataError, SettingError
        If visits or p are not allowed.

    Examples
    --------
    The first query's E ∝ R is reached; the second's only relevant item would need more than rank 1 every time.

    >>> data = Dataset(offsets=[0, 3, 6], y=[0] * 6, R=[0.8, 0.4, 0.4, 1.0, 0.0, 0.0])
    >>> floor = fairness_floor(data, visits=[10, 10], p=[1.0, 0.5])
    >>> floor.E.round(6).tolist()
    [7.5, 3.75, 3.75, 10.0, 2.5, 2.5]
    >>> floor
    Floor(unfairness 2.08333, gap 0, E ∝ R is out of reach for 1 of 2 queries)
    """
    problem = ExposureProgram.of(data, visits, p)
    (unfair,), _, E = problem.optima(np.zeros(1))
    return problem.floor(unfair, E, np.arange(data.items))


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Frontier:
    """The highest NDCG at each unfairness, from the fairest to the most effective point.

    Attributes
    ----------
    lambdas : (points,) array
        Unfairness that one more unit of NDCG costs: the slope of the frontier at the point, from 0 to infinity.
    unfairness : (points,) array
        Mean over the queries visited in which any item is relevant.
    ndcg : (points,) array
        Mean NDCG@k_s over all sessions, k_s being the length of p.
    query_unfairness, query_ndcg : (points, queries) arrays
        The same for each query; NDCG is nan for a query that was never visited.

    Examples
    --------
    >>> data = Dataset(offsets=[0, 3], y=[0, 0, 0], R=[0.8, 0.4, 0.4])
    >>> curve = frontier(data, visits=[10], p=[1.0, 0.5], points=3)
    >>> round(curve.unfairness_at(ndcg=0.95), 3), round(curve.ndcg_at(unfairness=0.667), 3)
    (0.667, 0.95)
    """

    lambdas: FloatArray
    unfairness: FloatArray
    ndcg: FloatArray
    query_unfairness: FloatArray
    query_ndcg: FloatArray

    def __repr__(self) -> str:
        (u0, u1), (e0, e1) = self.unfairness[[0, -1]], self.ndcg[[0, -1]]
        return f"Frontier({self.lambdas.size} points: unfairness {u0:.4g} to {u1:.4g}, NDCG {e0:.4g} to {e1:.4g})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{unfairness:.5g}</td><td>{ndcg:.5g}</td></tr>"
            for unfairness, ndcg in zip(self.unfairness, self.ndcg, strict=True)
        )
        head = "<tr><th>unfairness</th><th>NDCG</th></tr>"
        return f"<table><caption>Frontier</caption><thead>{head}</thead><tbody>{rows}</tbody></table>"

    def unfairness_at(self, ndcg: float) -> float:
        """Return the lowest unfairness at an NDCG, by the highest tangent there; inf if no policy reaches that NDCG.

        The frontier is convex and lies above its tangents: this is never too high, and exact at the points.
        """
        if ndcg > self.ndcg[-1] + ROUNDING:
            return float("inf")
        return float(np.max(self.unfairness[:-1] + self.lambdas[:-1] * (ndcg - self.ndcg[:-1])))

    def ndcg_at(self, unfairness: float) -> float:
        """Return the highest NDCG at an unfairness, by the lowest tangent there; -inf if no policy is so fair.

        Never too low, and exact at the points but the first: at the floor NDCG is gained for nothing, so it rises too
        steeply for tangents, and more points bring the bound closer.
        """
        if unfairness < self.unfairness[0] - ROUNDING * max(1.0, self.unfairness[-1]):
            return float("-inf")
        return float(np.min(self.ndcg[1:] + (unfairness - self.unfairness[1:]) / self.lambdas[1:]))


def frontier(data: Dataset, visits: npt.ArrayLike, p: npt.ArrayLike, *, points: int = 40) -> Frontier:
    """Compute the frontier of mean NDCG@k_s against mean unfairness that no policy can pass, with R known.

    Point by point the exact minimum of `unfairness - λ NDCG` over the exposures E that lists mixed in any proportions
    reach, with one λ for all queries: `NDCG = Σ R·E / ideal DCG` over queries, divided by the sessions. At λ = 0 this
    is the fairness floor; at λ = ∞ the fairest among the most effective, where items of equal relevance share alike.
    The λ between are such that the curve turns by equal angles, drawn in a square.

    Parameters
    ----------
    data, visits, p
        As for `fairness_floor`.
    points
        How many points, with both ends.

    Returns
    -------
    Frontier

    Raises
    ------
    DataError, SettingError
        If visits, p or points are not allowed.

    Examples
    --------
    >>> data = Dataset(offsets=[0, 3], y=[0, 0, 0], R=[0.8, 0.4, 0.4])
    >>> curve = frontier(data, visits=[10], p=[1.0, 0.5], points=3)
    >>> curve
    Frontier(3 points: unfairness 0 to 2.667, NDCG 0.9 to 1)
    >>> curve.lambdas.round(3).tolist(), curve.unfairness.round(3).tolist(), curve.ndcg.round(3).tolist()
    ([0.0, 26.667, inf], [0.0, 0.667, 2.667], [0.9, 0.95, 1.0])
    """
    if points < 2:
        raise SettingError(f"points = {points}: expected at least 2, the fairest and the most effective")
    problem = ExposureProgram.of(data, visits, p)
    sessions = problem.visits.sum() or 1.0
    unfair, gain, _ = problem.optima(np.array([0.0, np.inf]))
    rise, reach = np.ptp(problem.mean(unfair)), np.ptp(gain.sum(axis=1)) / sessions
    lambdas = np.tan(np.linspace(0, np.pi / 2, points)) * (rise / reach if rise > 0 < reach else 1.0)
    lambdas[-1] = np.inf
    unfair, gain, _ = problem.optima(lambdas)
    return Frontier(
        lambdas=lambdas,
        unfairness=problem.mean(unfair),
        ndcg=gain.sum(axis=1) / sessions,
        query_unfairness=unfair,
        query_ndcg=gain / np.where(problem.visits > 0, problem.visits, np.nan),
    )


# --- among providers --------------------------------------------------------------------------------------------------


@kernel(allocates=True)
def fill_group_optima(
    R: FloatArray,
    groups: IntArray,
    p: FloatArray,
    offsets: IntArray,
    visits: FloatArray,
    E: FloatArray,
    unfair: FloatArray,
) -> None:
    """Write, for each query, the lowest group unfairness and E, in which the items of a group share alike."""
    for q in range(visits.shape[0]):
        low, n = offsets[q], offsets[q + 1] - offsets[q]
        m = 0
        for d in range(low, low + n):
            m = max(m, groups[d] + 1)
        M, sizes, H, x = np.zeros(m), np.zeros(m, np.int64), np.zeros(n + 1), np.zeros(m)
        for d in range(low, low + n):
            M[groups[d]] += R[d]
            sizes[groups[d]] += 1
        for j in range(n):
            H[j + 1] = H[j] + (visits[q] * p[j] if j < p.shape[0] else 0.0)
        order, ends = np.arange(m), np.zeros(m, np.int64)
        square = 0.0
        for g in range(m):
            square += M[g] * M[g]
        c = 0.0
        if m > 1 and square > 0.0:
            c = balance_groups(M, sizes, H, order, ends, x)
        elif m > 0:  # nothing to choose
            project_groups(c, M, sizes, H, order, ends, x)
        for d in range(low, low + n):
            E[d] = x[groups[d]] / sizes[groups[d]]
        unfair[q] = query_unfairness(x, M)


def group_floor(data: Dataset, visits: npt.ArrayLike, p: npt.ArrayLike) -> Floor:
    """Compute the lowest group unfairness that any policy can reach, with R known and for the given visits.

    Group unfairness is Eq. 8 on the summed exposure and relevance of each group. Its minimum over the exposures that
    lists mixed in any proportions reach is found exactly; the gap is the distance to the lowest point of the tangent
    there, below which no unfairness lies since it is convex.

    Parameters
    ----------
    data
        Queries with true relevance R, and groups; without groups each item is its own, and this is `fairness_floor`.
    visits : (queries,) array
        Sessions of each query, such as `trace.state.visits`.
    p : (k_s,) array
        Examination probability of each rank; it never rises.

    Returns
    -------
    Floor
        The mean covers the queries of the metric `group_unfairness`: those visited that have a relevant item and more
        than one group. `reachable` states whether the exposure of groups can be in proportion to their relevance. E is
        one of the fairest exposures, the one in which the items of a group share alike.

    Raises
    ------
    DataError, SettingError
        If visits or p are not allowed.

    Examples
    --------
    Two providers of equal merit: one has three items, the other one. With two ranks they can have equal exposure. With
    three ranks of equal weight they cannot, because a list shows the only item of the second provider once:

    >>> data = Dataset(offsets=[0, 4], y=[0] * 4, R=[0.2, 0.2, 0.2, 0.6], providers=["big", "big", "big", "small"])
    >>> group_floor(data, visits=[10], p=[1.0, 0.5]).E.round(6).tolist()
    [2.5, 2.5, 2.5, 7.5]
    >>> group_floor(data, visits=[10], p=[1.0, 1.0, 1.0]).E.round(6).tolist()
    [6.666667, 6.666667, 6.666667, 10.0]
    """
    problem = ExposureProgram.of(data, visits, p)
    groups = data.query_providers
    E, unfair = np.empty(data.items), np.empty(data.queries)
    fill_group_optima(data.R.copy(), groups.copy(), problem.p, data.offsets.copy(), problem.visits, E, unfair)
    most = groups.max(initial=0) + 1  # groups are numbered anew in every query
    several = np.isin(np.arange(data.queries), problem.query[groups > 0])
    return problem.floor(unfair, E, np.unique(problem.query * most + groups, return_inverse=True)[1], several)


def lowest_possible(metric: Metric, data: Dataset, visits: npt.ArrayLike, p: npt.ArrayLike) -> Floor:
    """Compute the lowest value of a metric that any policy can reach; its floor must be known, see `floor_among`."""
    return (group_floor if metric.floor_among == "groups" else fairness_floor)(data, visits, p)
