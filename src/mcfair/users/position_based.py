"""The position-based model of the paper (Eq. 9 and 10): a click needs examination and relevance."""

from __future__ import annotations

from .._jit import kernel
from ..arrays import BoolArray, FloatArray, IntArray
from ..parts import NonNegative, Share, register
from ..random import Draws, uniform
from .base import ClickModel
from .examination import examination


@kernel
def position_based_clicks(
    pi: IntArray, truth: FloatArray, p: FloatArray, theta: FloatArray, rng: Draws, hits: BoolArray
) -> None:
    """Click with probability `p_j (R + noise (1 - R))` (Eq. 10 if noise is 0)."""
    noise = theta[0]
    for j in range(pi.shape[0]):
        R = truth[pi[j]]
        hits[j] = uniform(rng, pi[j]) < p[j] * (R + noise * (1.0 - R))


@register
class PositionBased(ClickModel):
    """Click what is examined and found relevant; examination depends on the rank alone (Eq. 10).

    Parameters
    ----------
    noise
        Probability of a click on an examined item that is not found relevant.
    severity
        Position bias of the users, `p_j = (1/log2(j + 1))^severity`; by default the examination that exposure assumes.
        Another value makes that assumption wrong.

    Examples
    --------
    The third rank is never examined; with noise = 1 every examined item is clicked.

    >>> import numpy as np
    >>> from mcfair.random import CLICKS, draws
    >>> pi, truth, p = np.arange(3), np.array([1.0, 0.0, 1.0]), np.array([1.0, 1.0, 0.0])
    >>> PositionBased().clicks(pi, truth, p, draws(0, CLICKS)).tolist()
    [True, False, False]
    >>> PositionBased(noise=1.0).clicks(pi, truth, p, draws(0, CLICKS)).tolist()
    [True, True, False]
    """

    noise: Share = 0.0
    severity: NonNegative | None = None

    kernel = position_based_clicks

    def examined(self, p: FloatArray) -> FloatArray:
        """Return the users' own examination probabilities."""
        return p if self.severity is None else examination(p.size, self.severity)
