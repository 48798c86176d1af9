"""The paper's own family: rank by relevance, by the gradient of fairness, by marginal certainty, or by their sum."""

from __future__ import annotations

from typing import Literal

import numpy as np

from .._jit import kernel
from ..metrics import gradient
from ..policy import FloatArray, NonNegative, Policy, Ties, register
from ..random import uniform
from ..state import Query

__all__ = ["ExploreK", "FairK", "MCFair", "RandomK", "TopK"]

Scale = Literal["max", "raw", "mean"]
"""What the gradient B is divided by: its largest entry, nothing (Eq. 16 as printed), or the visits so far."""

MAX, RAW, MEAN = range(3)  # the order of Scale


@kernel
def scaled_gradient(q, scale, out):  # type: ignore[no-untyped-def]
    """Write B (Eq. 16), divided as `scale` says, to an array."""
    gradient(q.E, q.R, out)
    n = out.shape[0]
    if scale == RAW:
        return
    divisor = 1.0
    if scale == MEAN:
        divisor = max(float(q.visits[()]), 1.0)
    else:
        divisor = largest(out) + 1e-10
    for d in range(n):
        out[d] = out[d] / divisor


@kernel
def largest(x):  # type: ignore[no-untyped-def]
    """Largest absolute value, in four interleaved maxima for the sake of speed."""
    n = x.shape[0]
    m0 = m1 = m2 = m3 = 0.0
    for i in range(0, n - 3, 4):
        m0 = max(m0, abs(x[i]))
        m1 = max(m1, abs(x[i + 1]))
        m2 = max(m2, abs(x[i + 2]))
        m3 = max(m3, abs(x[i + 3]))
    for i in range(n - n % 4, n):
        m0 = max(m0, abs(x[i]))
    return max(max(m0, m1), max(m2, m3))


@kernel
def marginal_certainty(E, prior_strength, mc_floor):  # type: ignore[no-untyped-def]
    """Marginal certainty of one item (Eq. 29), `MC = 1/(E + s)²`, capped at 1/mc_floor."""
    weight = E + prior_strength
    return 1.0 / max(weight * weight, mc_floor)


@kernel
def add_certainty(q, beta, mc_floor, out):  # type: ignore[no-untyped-def]
    """Add β MC to scores; nothing for β = 0, so that 0·inf never reaches a score."""
    if beta != 0.0:
        for d in range(out.shape[0]):
            out[d] += beta * marginal_certainty(q.E[d], q.prior_strength, mc_floor)


def certainty_term(q: Query, beta: float, mc_floor: float) -> FloatArray:
    """β MC for every item."""
    out = np.zeros(q.R.size)
    add_certainty(q, beta, mc_floor, out)
    return out


def gradient_term(q: Query, scale: str) -> FloatArray:
    """Scaled B for every item."""
    out = np.empty(q.R.size)
    scaled_gradient(q, ["max", "raw", "mean"].index(scale), out)
    return out


@kernel
def topk_score(q, theta, rng, out):  # type: ignore[no-untyped-def]
    """R."""
    for d in range(out.shape[0]):
        out[d] = q.R[d]


@register
class TopK(Policy):
    """Rank by relevance alone."""

    ties: Ties = "index"

    kernel = topk_score

    def terms(self, q: Query) -> dict[str, FloatArray]:
        """R."""
        return {"relevance": q.R.copy()}


@kernel
def randomk_rank(q, theta, rng, out):  # type: ignore[no-untyped-def]
    """Take, for each rank, one of the items not yet taken."""
    n, k = q.R.shape[0], out.shape[0]
    taken = np.empty(k, np.int64)  # in ascending order
    for j in range(k):
        d = int(uniform(rng, j) * (n - j))  # the d-th item that is left
        i = 0
        while i < j and taken[i] <= d:
            d += 1
            i += 1
        for above in range(j, i, -1):
            taken[above] = taken[above - 1]
        taken[i] = d
        out[j] = d


@register
class RandomK(Policy):
    """Rank at random, every list equally likely."""

    kernel = randomk_rank
    ranks = True


@kernel
def fairk_score(q, theta, rng, out):  # type: ignore[no-untyped-def]
    """B + β MC."""
    beta, scale, mc_floor = theta[0], theta[1], theta[2]
    scaled_gradient(q, scale, out)
    add_certainty(q, beta, mc_floor, out)


@register
class FairK(Policy):
    """Rank by the gradient of fairness B (Eq. 16); with β > 0 also by marginal certainty."""

    beta: NonNegative = 0.0
    scale: Scale = "max"
    mc_floor: NonNegative = 0.1
    ties: Ties = "index"

    kernel = fairk_score

    def terms(self, q: Query) -> dict[str, FloatArray]:
        """B and β MC."""
        return {"fairness": gradient_term(q, self.scale), "exploration": certainty_term(q, self.beta, self.mc_floor)}


@kernel
def explorek_score(q, theta, rng, out):  # type: ignore[no-untyped-def]
    """MC."""
    for d in range(out.shape[0]):
        out[d] = marginal_certainty(q.E[d], q.prior_strength, theta[0])


@register
class ExploreK(Policy):
    """Rank by marginal certainty (Eq. 29): the least exposed first."""

    mc_floor: NonNegative = 0.1
    ties: Ties = "index"

    kernel = explorek_score

    def terms(self, q: Query) -> dict[str, FloatArray]:
        """MC."""
        return {"exploration": certainty_term(q, 1.0, self.mc_floor)}


@kernel
def mcfair_score(q, theta, rng, out):  # type: ignore[no-untyped-def]
    """R + α B + β MC (Eq. 24)."""
    alpha, beta, scale, mc_floor = theta[0], theta[1], theta[2], theta[3]
    scaled_gradient(q, scale, out)
    for d in range(out.shape[0]):
        out[d] = q.R[d] + alpha * out[d]
    add_certainty(q, beta, mc_floor, out)


@register
class MCFair(Policy):
    """Rank by the gradient of the uncertainty-aware objective (Eq. 24): relevance + α fairness + β certainty.

    Parameters
    ----------
    alpha
        Weight of fairness.
    beta
        Weight of exploration; the paper takes 100 online and 0 when relevance is given.
    scale
        "max" divides B by its largest entry, which is what the paper's α from 0 to 1000 means; "raw" is Eq. 16 as
        printed, in which B grows with time; "mean" divides by the visits, so that α keeps one point of the trade-off.
    mc_floor
        Smallest squared exposure in MC = 1/E², so that MC is at most 1/mc_floor.
    ties
        Order of items of equal score.
    """

    alpha: NonNegative = 1.0
    beta: NonNegative = 100.0
    scale: Scale = "max"
    mc_floor: NonNegative = 0.1
    ties: Ties = "index"

    kernel = mcfair_score

    def terms(self, q: Query) -> dict[str, FloatArray]:
        """R, α B and β MC."""
        return {
            "relevance": q.R.copy(),
            "fairness": self.alpha * gradient_term(q, self.scale),
            "exploration": certainty_term(q, self.beta, self.mc_floor),
        }
