"""IPS: clicks divided by exposure, the estimator of the paper (Eq. 25), with an optional prior."""

from __future__ import annotations

import numpy as np

from .._jit import kernel
from ..arrays import CountArray, FloatArray
from ..parts import NonNegative, Share, register
from .base import Estimator


@kernel
def ips(C: float, E: float, prior_mean: float, prior_strength: float) -> float:
    """Return `(C + s m) / (E + s)` (Eq. 25); 0 without any exposure. It may exceed 1."""
    weight = E + prior_strength
    if weight == 0.0:
        return 0.0
    return (C + prior_strength * prior_mean) / weight


@kernel
def ips_estimate(C: int, E: float, F: CountArray, p: FloatArray, theta: FloatArray, out: FloatArray) -> None:
    """Write the estimate and the bound `1/(E + s)` of its variance (Eq. 28), which is infinite without exposure."""
    weight = E + theta[1]
    out[0] = ips(C, E, theta[0], theta[1])
    out[1] = 1.0 / weight if weight > 0.0 else np.inf


@register
class IPS(Estimator):
    """Estimate relevance by inverse propensity scoring (Eq. 25): (C + s m)/(E + s).

    The estimate is unbiased if lists do not depend on past clicks. It may exceed 1: a click at a rank that is seldom
    examined counts for more than one.

    Parameters
    ----------
    prior_mean
        Relevance m of an item before anything is known of it.
    prior_strength
        Exposure s that the prior is worth; 0 is the paper.

    Examples
    --------
    >>> IPS().estimate(1, 2.0, np.array([2], np.int32), np.ones(1))
    (0.5, 0.5)
    """

    prior_mean: Share = 0.0
    prior_strength: NonNegative = 0.0

    kernel = ips_estimate
