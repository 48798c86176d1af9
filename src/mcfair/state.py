"""The observations of a run, and the view of one query that a policy ranks from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ._jit import kernel
from .arrays import BoolArray, CountArray, Counter, FloatArray, IntArray, read_only
from .data.dataset import Dataset
from .errors import SettingError, renamed
from .estimators import IPS, Estimator


class Query(NamedTuple):
    """The read-only view of one query that a policy ranks from; n items, k_s ranks.

    Attributes
    ----------
    R : (n,) float array
        Relevance, true or estimated.
    uncertainty : (n,) float array
        Uncertainty of R as the estimator reports it; 0 if relevance is given.
    E : (n,) float array
        Exposure so far.
    F : (n, k_s) int array
        How often each item was shown at each rank.
    p : (k_s,) float array
        Examination probability of each rank.
    visits : () int array
        Sessions of this query before the current one; a kernel reads it as `q.visits[()]`.
    providers : (n,) int array
        Provider of each item, counted from 0 within the query; without providers each item is its own.
    prior_strength : float
        Exposure that the estimator's prior is worth; 0 is the paper.
    posterior : (n, components, 3) float array
        Weight, mean and variance of each component of the posterior of each item's relevance, by falling mean. There
        are no components if relevance is given or the estimator has none (IPS): R is then all that is known.
    memory
        What the policy's `prepare` returned for this query; a float array for a kernel.

    Examples
    --------
    >>> import mcfair as mf
    >>> from mcfair.random import POLICY, draws
    >>> q = Query(
    ...     R=np.array([0.2, 0.9, 0.4]),
    ...     uncertainty=np.zeros(3),
    ...     E=np.zeros(3),
    ...     F=np.zeros((3, 2), np.int32),
    ...     p=np.array([1.0, 0.5]),
    ...     visits=np.array(0),
    ...     providers=np.arange(3),
    ...     prior_strength=0.0,
    ...     posterior=np.zeros((3, 0, 3)),
    ...     memory=np.zeros(0),
    ... )
    >>> mf.TopK().rank(q, draws(seed=0, purpose=POLICY)).tolist()
    [1, 2]
    """

    R: FloatArray
    uncertainty: FloatArray
    E: FloatArray
    F: CountArray
    p: FloatArray
    visits: Counter
    providers: IntArray
    prior_strength: float
    posterior: FloatArray
    memory: FloatArray

    @property
    def groups(self) -> IntArray:
        """The old name of `providers`."""
        renamed("groups", "providers")
        return self.providers

    def for_kernels(self) -> Query:
        """Return the same view with arrays of the types that kernels are compiled for, without gaps in memory.

        Compiled kernels read any other array as if it were one of these. Arrays that are right are not copied, and the
        memory is left alone.
        """
        types: dict[str, type] = dict.fromkeys(("R", "uncertainty", "E", "p", "posterior"), np.float64)
        types |= {"F": np.int32, "visits": np.int64, "providers": np.int64}
        right: dict[str, Any] = {
            name: np.asarray(getattr(self, name), dtype, order="C") for name, dtype in types.items()
        }
        return self._replace(**right)

    def read_only(self) -> Query:
        """Return the same view with arrays that cannot be written to; the memory stays mutable."""
        protected = read_only(*self[:-1])  # all but the memory
        return self._replace(**dict(zip(self._fields[:-1], protected, strict=True)))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class State:
    """The observations of all queries: whole numbers, so that they are exact and independent of order.

    Parameters
    ----------
    offsets : (queries + 1,) int array
        Where each query's items begin.
    p : (k_s,) float array
        Examination probability of each rank.
    F : (items, k_s) int array
        How often each item was shown at each rank.
    C : (items,) int array
        Clicks.
    visits : (queries,) int array
        Sessions of each query.
    estimator
        The pooled estimator of the run as it was last fitted, with which a run continues; None if there is none.

    Examples
    --------
    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> state = mf.simulate(data, "TopK", "online", steps=10, k=2).state
    >>> state.F.tolist(), state.C.tolist()
    ([[10, 0], [0, 10], [0, 0]], [10, 0, 0])
    >>> state.E.round(2).tolist(), state.estimate().tolist()
    ([10.0, 6.31, 0.0], [1.0, 0.0, 0.0])
    """

    offsets: IntArray
    p: FloatArray
    F: CountArray
    C: CountArray
    visits: IntArray
    estimator: Estimator | None = None

    @classmethod
    def empty(cls, data: Dataset, p: FloatArray) -> State:
        """Return the state before the first session.

        Parameters
        ----------
        data
            The queries.
        p : (k_s,) float array
            Examination probability of each rank.

        Returns
        -------
        State
        """
        return cls(
            offsets=data.offsets,
            p=p,
            F=np.zeros((data.items, p.size), np.int32),
            C=np.zeros(data.items, np.int32),
            visits=np.zeros(data.queries, np.int64),
        )

    def copy(self, data: Dataset, p: FloatArray) -> State:
        """Return a copy to continue from.

        Parameters
        ----------
        data
            The same queries and items.
        p : (k_s,) float array
            Examination probability of each rank, which may differ from that before.

        Returns
        -------
        State

        Raises
        ------
        SettingError
            If the state has other queries, items or ranks.
        """
        if not np.array_equal(self.offsets, data.offsets):
            raise SettingError(
                f"the state to continue from has {self.visits.size} queries and {self.C.size} items, which are not "
                f"those of {data!r}"
            )
        if self.F.shape[1] != p.size:
            raise SettingError(f"the state to continue from counts {self.F.shape[1]} ranks, but k asks for {p.size}")
        return State(self.offsets, p, self.F.copy(), self.C.copy(), self.visits.copy(), self.estimator)

    @property
    def E(self) -> FloatArray:
        """Exposure of each item (Eq. 7), `E(d) = Σ_j F(d, j) p_j` summed in rank order, shape (items,)."""
        E = np.zeros(self.F.shape[0])
        for j in range(self.p.size):
            E += self.F[:, j] * self.p[j]
        return E

    @property
    def sessions(self) -> int:
        """Sessions of all queries together."""
        return int(self.visits.sum())

    def estimate(self, estimator: Estimator | None = None) -> FloatArray:
        """Return the relevance that an estimator computes from the clicks.

        Parameters
        ----------
        estimator
            By default `IPS()`, the paper's (Eq. 25). A pooled estimator is fitted first, see `fitted`.

        Returns
        -------
        (items,) float array
        """
        return self.fitted(estimator or IPS()).estimates(self.C, self.E, self.F, self.p)[0]

    def fitted(self, estimator: Estimator) -> Estimator:
        """Return an estimator as it was last fitted in the run; if it was not, fitted to the counts as they are.

        Parameters
        ----------
        estimator
            The estimator; one that is not pooled is returned as it is.

        Returns
        -------
        Estimator
        """
        if self.estimator is not None and self.estimator.same_but_fitted(estimator):
            return self.estimator
        return estimator.refit(self.C, self.E, self.F, self.p)

    def __repr__(self) -> str:
        return (
            f"State({self.visits.size:,} queries, {self.C.size:,} items, {self.sessions:,} sessions, "
            f"{int(self.C.sum()):,} clicks)"
        )


@kernel
def exposure(F: CountArray, p: FloatArray, item: int) -> float:
    """Return the exposure of one item (Eq. 7), summed in rank order."""
    e = 0.0
    for j in range(p.shape[0]):
        e += F[item, j] * p[j]
    return e


@kernel
def fill_view(
    F: CountArray, p: FloatArray, given: FloatArray, E: FloatArray, R: FloatArray, uncertainty: FloatArray
) -> None:
    """Write the exposure of every item of one query to its view, and the relevance that is given."""
    for d in range(E.shape[0]):
        E[d] = exposure(F, p, d)
        R[d] = given[d]
        uncertainty[d] = 0.0


@kernel
def observe_list(pi: IntArray, F: CountArray, p: FloatArray, E: FloatArray) -> None:
    """Count a list in F and update E; not of a view, whose memory may be any object if the policy is plain Python."""
    for j in range(pi.shape[0]):
        d = pi[j]
        F[d, j] += 1
        E[d] = exposure(F, p, d)


@kernel
def observe_clicks(pi: IntArray, hits: BoolArray, C: CountArray) -> None:
    """Count the clicks on a list in C."""
    for j in range(pi.shape[0]):
        C[pi[j]] += hits[j]


@kernel(driver=True)
def update_beliefs(
    estimate: Callable[..., None] | None,
    batch: Callable[..., None] | None,
    theta: FloatArray,
    items: IntArray,
    C: CountArray,
    q: Query,
    out: FloatArray,
) -> None:
    """Write what an estimator computes for some items to the view; of its two forms one is given.

    `items` are their positions, `out` is scratch with a row for each.
    """
    if batch is not None:
        batch(items, C, q.E, q.F, q.p, theta, out[: items.shape[0]])
    for i in range(items.shape[0]):
        d = items[i]
        if estimate is not None:
            estimate(C[d], q.E[d], q.F[d], q.p, theta, out[i])
        q.R[d], q.uncertainty[d] = out[i, 0], out[i, 1]
        for k in range(q.posterior.shape[1]):
            for column in range(3):
                q.posterior[d, k, column] = out[i, 2 + 3 * k + column]
