"""The posterior of an item's relevance: draws from it, and the mean of its upper tail.

It is what the estimator reports, components with a weight, a mean and a variance each. If it reports none (IPS), it is
a Gamma distribution: the clicks on an item of exposure E are about Poisson of mean E·R, and after C of them R is
Gamma(a + C, b + E), where the estimator's prior of mean m and strength s stands for a = s m and b = s.
"""

from __future__ import annotations

import math

from .._jit import kernel
from ..arrays import FloatArray
from ..estimators.base import MEAN, VARIANCE, WEIGHT
from ..state import Query
from .gamma import gamma_quantile, gamma_tail, normal_quantile

__all__ = ["posterior_draw", "posterior_tail", "tail_mean"]

PRIOR_CLICKS, PRIOR_EXPOSURE = 0.5, 1.0
"""The prior where the estimator has none, of mean 1/2; without one, an item without a click could not be explored."""

TAIL_VISITS = 10.0
"""The tail has all of the mass in the first so many visits, and this number divided by the visits afterwards."""

LARGEST = 1.0 - 2.0**-53  # below 1


@kernel
def tail_mean(posterior: FloatArray, d: int, mass: float) -> float:
    """Return the mean of the upper tail of item d's posterior, by its component means.

    The components of highest mean count, up to a total weight of `mass`.
    """
    last = posterior.shape[1] - 1
    total, left = 0.0, mass
    for k in range(last):
        weight, mean = posterior[d, k, WEIGHT], posterior[d, k, MEAN]
        if weight >= left:
            return float((total + left * mean) / mass)
        total += weight * mean
        left -= weight
    return float((total + left * posterior[d, last, MEAN]) / mass)


@kernel
def posterior_shape(q: Query, d: int) -> tuple[float, float]:
    """Return shape and rate of the posterior of an item: a + C and b + E, for which `R (E + s)` stands for s m + C."""
    weight = q.E[d] + q.prior_strength
    if q.prior_strength > 0.0:
        return q.R[d] * weight, weight
    return q.R[d] * weight + PRIOR_CLICKS, weight + PRIOR_EXPOSURE


@kernel
def posterior_draw(q: Query, d: int, u: float) -> float:
    """Return the relevance of an item drawn from its posterior by a uniform number u; R itself if that is certain.

    Where the estimator reports components, u chooses one by their weights, and what is left of u the point within it.
    """
    if q.uncertainty[d] == 0.0:
        return float(q.R[d])
    components = q.posterior.shape[1]
    for k in range(components):
        weight = q.posterior[d, k, WEIGHT]
        if u < weight or k == components - 1:
            within = min(u / weight, LARGEST) if weight > 0.0 else 0.5
            drawn = q.posterior[d, k, MEAN] + math.sqrt(q.posterior[d, k, VARIANCE]) * normal_quantile(within)
            return max(float(drawn), 0.0)
        u -= weight
    shape, rate = posterior_shape(q, d)
    return gamma_quantile(shape, u) / rate


@kernel
def posterior_tail(q: Query, d: int) -> float:
    """Return the mean of the upper tail of an item's posterior, of mass `min(10/visits, 1)`; never below R."""
    R, mass = float(q.R[d]), min(TAIL_VISITS / max(float(q.visits[()]), 1.0), 1.0)
    if q.uncertainty[d] == 0.0:
        return R
    if q.posterior.shape[1] > 0:
        return max(tail_mean(q.posterior, d, mass), R) if mass < 1.0 else R
    shape, rate = posterior_shape(q, d)
    return max(gamma_tail(shape, mass) / rate, R)
