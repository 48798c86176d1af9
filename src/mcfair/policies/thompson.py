"""Thompson sampling: rank by relevance drawn from its posterior (Singh, Kempe and Joachims 2021)."""

from __future__ import annotations

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray
from ..parts import NonNegative, Share, register
from ..random import Draws, uniform
from ..state import Query
from .base import Policy
from .selection import Ties
from .terms import Scale, posterior_draw, write_gradient


@kernel(allocates=True)
def thompson_score(q: Query, theta: FloatArray, rng: Draws, out: FloatArray) -> None:
    """Write `R + α B(E, R)`, R being drawn from the posterior if the coin of the session falls below the share."""
    alpha, scale, mix = theta[0], theta[1], theta[2]
    n, E, R = out.shape[0], q.E, q.R
    drawn = np.empty(n)
    sampled = uniform(rng, n) < mix
    for d in range(n):
        drawn[d] = posterior_draw(q, d, uniform(rng, d)) if sampled else R[d]
    write_gradient(E, drawn, q.visits[()], 1.0, alpha, scale, out)


@register
class Thompson(Policy):
    """Rank by relevance drawn from its posterior in a share of the sessions, else by the estimate; α adds fairness.

    The score is R + α B(E, R) as MCFair's, at a relevance R drawn for every item from the estimator's posterior. If it
    reports none (IPS), that is Gamma(a + C, b + E), where a/b is the mean and b the strength of the estimator's prior;
    a = 1/2 and b = 1 if it has none. An item is at the top as often as it is the best one according to the posterior.
    Singh, Kempe and Joachims (2021) call a ranking φ-fair that does so in a share φ of the sessions. Where relevance is
    given nothing is drawn. It keeps no memory.

    Parameters
    ----------
    alpha
        Weight of fairness; 0 is Thompson sampling by itself.
    scale
        What B is divided by, see `MCFair`.
    mix
        Share φ of the sessions that are ranked by a draw.
    ties
        Order of items of equal score.

    Examples
    --------
    While little is known the order changes from draw to draw:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, Thompson(), "online", steps=4, k=2, record=True).lists.tolist()
    [[1, 0], [0, 1], [2, 0], [0, 1]]
    """

    alpha: NonNegative = 0.0
    scale: Scale = "max"
    mix: Share = 1.0
    ties: Ties = "index"

    kernel = thompson_score
    style = ("#F0E442", "d")
    cost = 30.0

    @property
    def part_weights(self) -> dict[str, int]:
        """Where in `theta` the weight of each part is."""
        return {"fairness": 0, "exploration": 2}
