"""PrefixGreedy: fill rank after rank with the item that brings the most, by the exact change of unfairness."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..metrics.exposure import dots
from ..parts import NonNegative, register
from ..random import Draws
from ..state import Query
from .base import Mode, Policy
from .terms import Scale, add_certainty, gradient_weight


@kernel(allocates=True)
def prefix_greedy_rank(q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> None:
    """Fill each rank, of weight a, with the item of the most `a R + α (fall of unfairness) + β a MC`.

    When some ranks are filled, `E·R` counts them and the E of an item that is left has not changed: the fall of
    unfairness is `a B(d) - a² 2/(n(n-1)) (|R|² - R(d)²)`, without terms for pairs.
    """
    E, R, p = q.E, q.R, q.p
    n = R.shape[0]
    er, rr = dots(E, R)
    weight = theta[0] * gradient_weight(E, R, er, rr, q.visits[()], theta[2])
    bonus, left = np.zeros(n), np.ones(n, np.bool_)
    add_certainty(E, q.prior_strength, theta[1], theta[3], bonus)
    for j in range(out.shape[0]):
        a = p[j]
        best, chosen = -np.inf, -1
        for d in range(n):
            fall = weight * ((R[d] * er - E[d] * rr) - 0.5 * a * (rr - R[d] * R[d]))
            value = a * (R[d] + fall + bonus[d])
            if left[d] and (chosen < 0 or value > best):
                best, chosen = value, d
        out[j] = chosen
        left[chosen] = False
        er += a * R[chosen]


@register
class PrefixGreedy(Policy):
    """Fill rank after rank with the item of the most relevance + α (exact fall of unfairness) + β certainty.

    MCFair ranks by the gradient of unfairness (Eq. 8), as if a list changed exposure by an infinitesimal amount.
    Unfairness is quadratic, so the change by a whole list is known exactly: an item at a rank of weight a changes it by
    `-a B + a² 2/(n(n-1)) (|R|² - R²)`, and each pair of items in the list by `-4/(n(n-1)) a a' R R'`. The lists
    approach those of MCFair as exposure grows. O(nk) per list; it keeps no memory.

    Parameters
    ----------
    alpha
        Weight of fairness.
    beta
        Weight of exploration. "auto" is 0 when relevance is given and 100 online, as for MCFair.
    scale
        What the change of unfairness is divided by, see `MCFair`.
    mc_floor
        Smallest squared exposure in MC = 1/E², so that MC is at most 1/mc_floor.

    Examples
    --------
    The third item is shown when its exposure lags behind its relevance by enough:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, PrefixGreedy(scale="raw"), steps=4, k=2, record=True).lists.tolist()
    [[0, 1], [0, 1], [0, 1], [0, 2]]
    """

    alpha: NonNegative = 1.0
    beta: NonNegative | Literal["auto"] = "auto"
    scale: Scale = "max"
    mc_floor: NonNegative = 0.1

    kernel = prefix_greedy_rank
    style = ("#56B4E9", "<")
    ranks = True
    auto: ClassVar[dict[str, dict[Mode, float]]] = {"beta": {"post-processing": 0.0, "online": 100.0}}

    @property
    def theta(self) -> FloatArray:
        """The parameters; "auto" counts as online, where relevance may not be given."""
        known = self.in_mode("online")
        return np.array([known.alpha, known.beta, get_args(Scale).index(known.scale), known.mc_floor])

    @property
    def part_weights(self) -> dict[str, int]:
        """Where in `theta` the weight of each part is."""
        return {"fairness": 0, "exploration": 1}
