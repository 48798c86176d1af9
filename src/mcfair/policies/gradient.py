"""The paper's own family: rank by relevance, by the gradient of fairness, by marginal certainty, or by their sum."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray
from ..metrics.exposure import dots
from ..random import uniform
from ..state import Query
from .base import NonNegative, Policy, Ties, register

__all__ = ["ExploreK", "FairK", "MCFair", "RandomK", "TopK"]

Scale = Literal["max", "raw", "mean"]
"""What the gradient B is divided by: its largest entry, nothing (Eq. 16 as printed), or the visits so far."""

MAX, RAW, MEAN = range(3)  # the order of Scale


@kernel
def gradient_weight(E, R, er, rr, visits, scale):  # type: ignore[no-untyped-def]
    """Give w such that `w (R(d) er - E(d) rr)` is B(d) of Eq. 16, divided as `scale` says."""
    n = E.shape[0]
    factor = 4.0 / (n * (n - 1.0)) if n > 1 else 0.0
    divisor = 1.0
    if scale == MAX:
        divisor = factor * largest_gap(E, R, er, rr) + 1e-10
    elif scale == MEAN:
        divisor = max(float(visits), 1.0)
    return factor / divisor


@kernel
def largest_gap(E, R, er, rr):  # type: ignore[no-untyped-def]
    """Largest |R(d) er - E(d) rr|, of two halves side by side: neither waits for the other's comparison."""
    n = E.shape[0]
    half = n // 2
    first = second = 0.0
    for d in range(half):
        first = max(first, abs(R[d] * er - E[d] * rr))
        second = max(second, abs(R[half + d] * er - E[half + d] * rr))
    for d in range(2 * half, n):
        second = max(second, abs(R[d] * er - E[d] * rr))
    return max(first, second)


@kernel
def marginal_certainty(E, prior_strength, mc_floor):  # type: ignore[no-untyped-def]
    """Marginal certainty of one item (Eq. 29), `MC = 1/(E + s)²`, capped at 1/mc_floor, and inf if that is 1/0."""
    weight = E + prior_strength
    square = max(weight * weight, mc_floor)
    return 1.0 / square if square > 0.0 else np.inf


@kernel
def add_certainty(E, prior_strength, beta, mc_floor, out):  # type: ignore[no-untyped-def]
    """Add β MC to scores; nothing for β = 0, so that 0·inf never reaches a score."""
    if beta != 0.0:
        for d in range(out.shape[0]):
            out[d] += beta * marginal_certainty(E[d], prior_strength, mc_floor)


def certainty_term(q: Query, beta: float, mc_floor: float) -> FloatArray:
    """β MC for every item."""
    out = np.zeros(q.R.size)
    add_certainty(q.E, q.prior_strength, beta, mc_floor, out)
    return out


def gradient_term(q: Query, alpha: float, scale: str) -> FloatArray:
    """α B for every item, B divided as `scale` says."""
    er, rr = dots(q.E, q.R)
    weight = alpha * gradient_weight(q.E, q.R, er, rr, q.visits[()], get_args(Scale).index(scale))
    term: FloatArray = weight * (q.R * er - q.E * rr)
    return term


@kernel
def topk_score(q, theta, rng, out):  # type: ignore[no-untyped-def]
    """R + β MC."""
    for d in range(out.shape[0]):
        out[d] = q.R[d]
    add_certainty(q.E, q.prior_strength, theta[0], theta[1], out)


@register
class TopK(Policy):
    """Rank by relevance alone; with β > 0 also by marginal certainty."""

    beta: NonNegative = 0.0
    mc_floor: NonNegative = 0.1
    ties: Ties = "index"

    kernel = topk_score

    def terms(self, q: Query) -> dict[str, FloatArray]:
        """R and β MC."""
        return {"relevance": q.R.copy(), "exploration": certainty_term(q, self.beta, self.mc_floor)}


@kernel(allocates=True)
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
    E, R = q.E, q.R
    er, rr = dots(E, R)
    weight = gradient_weight(E, R, er, rr, q.visits[()], scale)
    for d in range(out.shape[0]):
        out[d] = weight * (R[d] * er - E[d] * rr)
    add_certainty(E, q.prior_strength, beta, mc_floor, out)


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
        return {
            "fairness": gradient_term(q, 1.0, self.scale),
            "exploration": certainty_term(q, self.beta, self.mc_floor),
        }


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
    E, R = q.E, q.R
    er, rr = dots(E, R)
    weight = alpha * gradient_weight(E, R, er, rr, q.visits[()], scale)
    for d in range(out.shape[0]):
        out[d] = R[d] + weight * (R[d] * er - E[d] * rr)
    add_certainty(E, q.prior_strength, beta, mc_floor, out)


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
            "fairness": gradient_term(q, self.alpha, self.scale),
            "exploration": certainty_term(q, self.beta, self.mc_floor),
        }
