"""What was observed: how often each item stood at each rank, its clicks, and what a policy may see of that."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ._jit import kernel
from .arrays import FloatArray, IntArray
from .data.dataset import Dataset
from .errors import SettingError
from .users.clicking import clicked

__all__ = ["Query", "State", "estimate"]


class Query(NamedTuple):
    """The read-only view of one query that a policy may see; n items, k ranks.

    Attributes
    ----------
    R : (n,) float array
        Relevance: the truth or the estimate; a policy cannot tell.
    E : (n,) float array
        Exposure so far.
    F : (n, k_s) int array
        How often each item stood at each rank.
    p : (k_s,) float array
        Examination probability of each rank.
    visits : () int array
        Sessions of this query before the one at hand; in a kernel read it as `q.visits[()]`.
    prior_strength : float
        Pseudo-exposure s behind the estimate of R; 0 is the paper.
    memory
        What the policy's `prepare` made for this query; in a kernel a float array.
    """

    R: FloatArray
    E: FloatArray
    F: npt.NDArray[np.int32]
    p: FloatArray
    visits: IntArray
    prior_strength: float
    memory: FloatArray


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class State:
    """What was observed over all queries: integers only, so it is exact and does not depend on order.

    Parameters
    ----------
    offsets : (queries + 1,) int array
        Where each query's items begin.
    p : (k_s,) float array
        Examination probability of each rank.
    F : (items, k_s) int array
        How often each item stood at each rank.
    C : (items,) int array
        Clicks.
    visits : (queries,) int array
        Sessions of each query.
    """

    offsets: IntArray
    p: FloatArray
    F: npt.NDArray[np.int32]
    C: npt.NDArray[np.int32]
    visits: IntArray

    @classmethod
    def empty(cls, data: Dataset, p: FloatArray) -> State:
        """Nothing observed yet."""
        return cls(
            offsets=data.offsets,
            p=p,
            F=np.zeros((data.items, p.size), np.int32),
            C=np.zeros(data.items, np.int32),
            visits=np.zeros(data.queries, np.int64),
        )

    def copy(self, data: Dataset, p: FloatArray) -> State:
        """Return a copy to go on from with this data and examination; refuse data of another shape."""
        if not np.array_equal(self.offsets, data.offsets):
            raise SettingError(
                f"the state to continue from has {self.visits.size} queries and {self.C.size} items, which are not "
                f"those of {data!r}"
            )
        if self.F.shape[1] != p.size:
            raise SettingError(f"the state to continue from counts {self.F.shape[1]} ranks, but k_s asks for {p.size}")
        return State(self.offsets, p, self.F.copy(), self.C.copy(), self.visits.copy())

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

    def estimate(self, prior_mean: float = 0.0, prior_strength: float = 0.0) -> FloatArray:
        """Relevance as estimated from the clicks (Eq. 25), shape (items,)."""
        weight = self.E + prior_strength
        out = np.zeros(weight.size)
        np.divide(self.C + prior_strength * prior_mean, weight, out=out, where=weight > 0)
        return out

    def __repr__(self) -> str:
        return (f"State({self.visits.size:,} queries, {self.C.size:,} items, {self.sessions:,} sessions, "
                f"{int(self.C.sum()):,} clicks)")  # fmt: skip


@kernel
def estimate(clicks, exposure, prior_mean, prior_strength):  # type: ignore[no-untyped-def]
    """Estimate of one item's relevance (Eq. 25): `(C + s m) / (E + s)`; 0 before any exposure. It may exceed 1."""
    weight = exposure + prior_strength
    if weight == 0.0:
        return 0.0
    return (clicks + prior_strength * prior_mean) / weight


@kernel
def exposure(F, p, item):  # type: ignore[no-untyped-def]
    """Exposure of one item (Eq. 7), summed in rank order."""
    e = 0.0
    for j in range(p.shape[0]):
        e += F[item, j] * p[j]
    return e


@kernel
def fill_view(F, C, p, given, online, prior_mean, prior_strength, E, R):  # type: ignore[no-untyped-def]
    """Write the exposure and the relevance, given or estimated, of every item of one query."""
    for d in range(E.shape[0]):
        E[d] = exposure(F, p, d)
        R[d] = estimate(C[d], E[d], prior_mean, prior_strength) if online else given[d]


@kernel
def observe(pi, F, p, E):  # type: ignore[no-untyped-def]
    """Count a list in F and bring E up to date."""
    for j in range(pi.shape[0]):
        d = pi[j]
        F[d, j] += 1
        E[d] = exposure(F, p, d)


@kernel
def observe_clicks(pi, truth, p, rng, prior_mean, prior_strength, E, C, R, hits):  # type: ignore[no-untyped-def]
    """Let the user of this session click on a shown list, count it in C and bring the estimate R up to date."""
    for j in range(pi.shape[0]):
        d = pi[j]
        hits[j] = clicked(rng, d, p[j] * truth[d])
        C[d] += hits[j]
        R[d] = estimate(C[d], E[d], prior_mean, prior_strength)
