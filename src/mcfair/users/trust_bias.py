"""Trust bias (Agarwal et al. 2019): users click an examined item partly because of the rank it is shown at."""

from __future__ import annotations

import numpy as np

from .._jit import kernel
from ..arrays import BoolArray, FloatArray, IntArray
from ..parts import NonNegative, Shares, register
from ..random import Draws, uniform
from .base import ClickModel
from .examination import examination


@kernel
def trust_bias_clicks(
    pi: IntArray, truth: FloatArray, p: FloatArray, theta: FloatArray, rng: Draws, hits: BoolArray
) -> None:
    """Click with probability `p_j (ε⁺_j R + ε⁻_j (1 - R))`; theta holds how many ε⁺ there are, the ε⁺, then the ε⁻."""
    positives = int(theta[0])
    negatives = theta.shape[0] - 1 - positives
    for j in range(pi.shape[0]):
        positive = theta[1 + min(j, positives - 1)]
        negative = theta[1 + positives + min(j, negatives - 1)]
        R = truth[pi[j]]
        hits[j] = uniform(rng, pi[j]) < p[j] * (positive * R + negative * (1.0 - R))


@register
class TrustBias(ClickModel):
    """Click examined items also because of their rank: with probability ε⁺ if relevant, ε⁻ if not.

    Parameters
    ----------
    positive
        ε⁺ of rank 1, 2, …: probability of a click on an examined item that is relevant. The last value also holds for
        the ranks below.
    negative
        ε⁻ of rank 1, 2, …: the same for an examined item that is not relevant.
    severity
        Position bias of the users; by default the examination that exposure assumes.

    Examples
    --------
    The items at ranks 1 and 2 are not relevant, but rank 1 is trusted:

    >>> import numpy as np
    >>> from mcfair.random import CLICKS, draws
    >>> pi, truth, p = np.arange(3), np.array([0.0, 0.0, 1.0]), np.ones(3)
    >>> TrustBias(positive=(1.0,), negative=(1.0, 0.0)).clicks(pi, truth, p, draws(0, CLICKS)).tolist()
    [True, False, True]
    """

    positive: Shares = (0.98, 0.97, 0.96, 0.95, 0.94)
    negative: Shares = (0.65, 0.325, 0.217, 0.163, 0.13)
    severity: NonNegative | None = None

    kernel = trust_bias_clicks

    @property
    def theta(self) -> FloatArray:
        """The number of values in `positive`, then both sequences."""
        return np.array([len(self.positive), *self.positive, *self.negative])

    def examined(self, p: FloatArray) -> FloatArray:
        """Return the users' own examination probabilities."""
        return p if self.severity is None else examination(p.size, self.severity)
