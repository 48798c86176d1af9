"""FairCo (Morik et al. 2020): a proportional controller that lifts items whose exposure lags behind their merit."""

from __future__ import annotations

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray
from ..state import Query
from .base import NonNegative, Policy, Ties, register
from .gradient import add_certainty, certainty_term

__all__ = ["FairCo"]

LEAST_RELEVANCE = 0.01  # exposure is divided by relevance, which an estimate may give as 0


@kernel
def lag(E, R, out):  # type: ignore[no-untyped-def]
    """Write err(d) = max_x E(x)/R⁺(x) - E(d)/R⁺(d) with R⁺ = max(R, 0.01)."""
    n = out.shape[0]
    most = 0.0
    for d in range(n):
        out[d] = E[d] / max(R[d], LEAST_RELEVANCE)
        most = max(most, out[d])
    for d in range(n):
        out[d] = most - out[d]


@kernel
def fairco_score(q, theta, rng, out):  # type: ignore[no-untyped-def]
    """R + α err + β MC."""
    alpha, beta, mc_floor = theta[0], theta[1], theta[2]
    lag(q.E, q.R, out)
    for d in range(out.shape[0]):
        out[d] = q.R[d] + alpha * out[d]
    add_certainty(q.E, q.prior_strength, beta, mc_floor, out)


@register
class FairCo(Policy):
    """Rank by relevance plus α times the lag in exposure per relevance; β > 0 adds marginal certainty."""

    alpha: NonNegative = 1.0
    beta: NonNegative = 0.0
    mc_floor: NonNegative = 0.1
    ties: Ties = "index"

    kernel = fairco_score

    def terms(self, q: Query) -> dict[str, FloatArray]:
        """R, α err and β MC."""
        out = np.empty(q.R.size)
        lag(q.E, q.R, out)
        return {
            "relevance": q.R.copy(),
            "fairness": self.alpha * out,
            "exploration": certainty_term(q, self.beta, self.mc_floor),
        }
