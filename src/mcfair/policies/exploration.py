"""Exploration as a parameter: ways to lift items of uncertain relevance, for policies whose score is a sum of terms."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray
from ..random import Draws, uniform
from ..state import Query
from .posterior import posterior_draw, posterior_tail

__all__ = ["Explore", "add_exploration"]

Explore = Literal["mc", "ucb", "tail", "thompson", "none"]
"""The term X of exploration, which β is the weight of:

- mc: marginal certainty (Eq. 29), as published; it depends on exposure alone;
- ucb: `sqrt(uncertainty ln(t))`, about an upper confidence bound less R, t being the visits with the present one;
- tail: the mean of the upper tail of the posterior of relevance less R, which is Bayes-UCB by tail expectation;
- thompson: a draw from the posterior less R;
- none: 0, whatever β is.

All but the first are 0 where relevance is given.
"""

MC, UCB, TAIL, THOMPSON, NONE = range(5)  # the order of Explore


@kernel
def confidence_radius(q: Query, d: int, mc_floor: float) -> float:
    """Return `sqrt(v ln(t))`, v being the uncertainty of R, capped as in MC, the square of v."""
    most = 1.0 / math.sqrt(mc_floor) if mc_floor > 0.0 else np.inf
    return math.sqrt(min(float(q.uncertainty[d]), most) * math.log(q.visits[()] + 1.0))


@kernel
def add_exploration(q: Query, explore: float, beta: float, mc_floor: float, rng: Draws, out: FloatArray) -> None:
    """Add β X to scores; nothing for β = 0, so that 0·inf never reaches a score."""
    if beta == 0.0 or explore == NONE:
        return
    for d in range(out.shape[0]):
        if explore == UCB:
            out[d] += beta * confidence_radius(q, d, mc_floor) if q.visits[()] > 0 else 0.0
        elif explore == TAIL:
            out[d] += beta * (posterior_tail(q, d) - q.R[d])
        else:
            out[d] += beta * (posterior_draw(q, d, uniform(rng, d)) - q.R[d])
