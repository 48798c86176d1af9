"""The gradient of unfairness (Eq. 16) and its scale, among items and among groups of items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..metrics.exposure import dots
from ..metrics.groups import sum_groups
from ..state import Query

if TYPE_CHECKING:
    from .base import Policy

__all__ = ["GroupTerm", "Scale", "add_group_term", "gradient_weight", "group_term", "group_term_of"]

Scale = Literal["max", "raw", "mean"]
"""Divisor of the gradient B: its largest entry, 1 (Eq. 16 as printed), or the visits so far."""

MAX, RAW, MEAN = range(3)  # the order of Scale


# --- among items -----------------------------------------------------------------------------------------------------


@kernel
def gradient_weight(E: FloatArray, R: FloatArray, er: float, rr: float, visits: int, scale: float) -> float:
    """Return w such that `w (R(d) er - E(d) rr)` is B(d) of Eq. 16, divided according to `scale`."""
    n = E.shape[0]
    factor = 4.0 / (n * (n - 1.0)) if n > 1 else 0.0
    divisor = 1.0
    if scale == MAX:
        divisor = factor * largest_gap(E, R, er, rr) + 1e-10
    elif scale == MEAN:
        divisor = max(float(visits), 1.0)
    return factor / divisor


@kernel
def largest_gap(E: FloatArray, R: FloatArray, er: float, rr: float) -> float:
    """Return the largest |R(d) er - E(d) rr|, over two halves side by side, so that comparisons overlap."""
    n = E.shape[0]
    half = n // 2
    first = second = 0.0
    for d in range(half):
        first = max(first, abs(R[d] * er - E[d] * rr))
        second = max(second, abs(R[half + d] * er - E[half + d] * rr))
    for d in range(2 * half, n):
        second = max(second, abs(R[d] * er - E[d] * rr))
    return max(first, second)


# --- among groups ----------------------------------------------------------------------------------------------------


class GroupTerm(NamedTuple):
    """The weight of the gradient of unfairness among groups, and its scale."""

    alpha: float
    scale: float


@kernel
def add_group_term(
    E: FloatArray,
    R: FloatArray,
    groups: IntArray,
    visits: int,
    term: GroupTerm,
    exposure: FloatArray,
    merit: FloatArray,
    out: FloatArray,
) -> None:
    """Add α_g b(g) to the score of every item of group g; `exposure` and `merit` are scratch for the sums of groups.

    b is B of Eq. 16 on the summed exposure and relevance of each group. With m groups, `b(g) = 4/(m(m-1)) (M_g
    (E_G·M_G) - E_g |M_G|²)`; a single group has b = 0. It takes arrays and not the view, whose memory may be any object
    if the policy is plain Python.
    """
    m = sum_groups(E, R, groups, exposure, merit)
    E_G, M_G = exposure[:m], merit[:m]
    em, mm = dots(E_G, M_G)
    weight = term.alpha * gradient_weight(E_G, M_G, em, mm, visits, term.scale)
    for d in range(out.shape[0]):
        g = groups[d]
        out[d] += weight * (M_G[g] * em - E_G[g] * mm)


add_group_term.pin(
    np.zeros(1),
    np.zeros(1),
    np.zeros(1, np.int64),
    0,
    GroupTerm(0.0, 0.0),
    np.zeros(1),
    np.zeros(1),
    np.zeros(1),
)


def group_term_of(policy: Policy) -> GroupTerm | None:
    """Return the group term of a policy, scaled like its other gradient; None if its weight is 0."""
    if policy.alpha_group == 0.0:
        return None
    scales, scale = get_args(Scale), getattr(policy, "scale", "max")
    return GroupTerm(policy.alpha_group, float(scales.index(scale)) if scale in scales else float(MAX))


def group_term(policy: Policy, q: Query) -> FloatArray:
    """Return what the group term of a policy adds to the score of each item; zeros if its weight is 0."""
    n, term = q.R.size, group_term_of(policy)
    out = np.zeros(n)
    if term is not None:
        add_group_term(q.E, q.R, q.providers, int(q.visits), term, np.empty(n), np.empty(n), out)
    return out
