"""FairCo (Morik et al. 2020): a proportional controller that lifts items whose exposure lags behind their merit."""

from __future__ import annotations

from typing import ClassVar

from .._jit import AnyKernel, kernel
from ..arrays import FloatArray
from ..parts import NonNegative, register
from ..random import Draws
from ..state import Query
from .mcfair import EXPLORATION, EXPLORE, FAIRNESS, MC_FLOOR, RELEVANCE, WeightedSum
from .selection import Ties
from .terms import Explore, add_certainty, add_exploration

LEAST_RELEVANCE = 0.01  # exposure is divided by relevance, which an estimate may report as 0


@kernel
def write_controlled(q: Query, theta: FloatArray, out: FloatArray) -> None:
    """Write w_R R + α err, where err(d) = max_x E(x)/R⁺(x) - E(d)/R⁺(d) with R⁺ = max(R, 0.01)."""
    relevance, fairness, E, R = theta[RELEVANCE], theta[FAIRNESS], q.E, q.R
    most = 0.0
    for d in range(out.shape[0]):
        out[d] = E[d] / max(R[d], LEAST_RELEVANCE)
        most = max(most, out[d])
    for d in range(out.shape[0]):
        out[d] = relevance * R[d] + fairness * (most - out[d])


@kernel
def fairco_score(q: Query, theta: FloatArray, rng: Draws, out: FloatArray) -> None:
    """Write w_R R + α err + β MC."""
    write_controlled(q, theta, out)
    add_certainty(q.E, q.prior_strength, theta[EXPLORATION], theta[MC_FLOOR], out)


@kernel
def exploring_fairco(q: Query, theta: FloatArray, rng: Draws, out: FloatArray) -> None:
    """Write w_R R + α err + β X, with a term of exploration other than marginal certainty."""
    write_controlled(q, theta, out)
    add_exploration(q, theta[EXPLORE], theta[EXPLORATION], theta[MC_FLOOR], rng, out)


@register
class FairCo(WeightedSum):
    """Rank by relevance plus α times the lag in exposure per relevance; β > 0 adds marginal certainty.

    Parameters
    ----------
    alpha
        Weight of the lag.
    beta
        Weight of exploration.
    mc_floor
        Smallest squared exposure in MC = 1/E², so that MC is at most 1/mc_floor.
    ties
        Order of items of equal score.
    explore
        Term of exploration: marginal certainty as published, or another one, see `mcfair.policies.terms.Explore`.

    Examples
    --------
    The third item is shown as soon as its lag outweighs its lower relevance:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, FairCo(alpha=0.1), steps=4, k=2, record=True).lists.tolist()
    [[0, 1], [0, 1], [0, 2], [0, 1]]
    """

    alpha: NonNegative = 1.0
    beta: NonNegative = 0.0
    mc_floor: NonNegative = 0.1
    ties: Ties = "index"
    explore: Explore = "mc"

    kernel = fairco_score
    weights = (1.0, "alpha", "beta")
    exploring: ClassVar[dict[AnyKernel, AnyKernel]] = {fairco_score: exploring_fairco}
    style = ("#D55E00", "v")
