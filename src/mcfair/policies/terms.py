"""What scores are sums of: the gradient of fairness, certainty, and other terms of exploration.

The gradient of unfairness (Eq. 16) is among items, and among providers of items for any policy. Exploration lifts items
of uncertain relevance: by exposure alone, or by the posterior of their relevance.

That posterior is what the estimator reports, components with a weight, a mean and a variance each. If it reports none
(IPS), it is a Gamma distribution: the clicks on an item of exposure E are about Poisson of mean E·R, and after C of
them R is Gamma(a + C, b + E), where the estimator's prior of mean m and strength s stands for a = s m and b = s.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..estimators.base import MEAN, VARIANCE, WEIGHT
from ..metrics.exposure import dots, sum_groups
from ..random import Draws, uniform
from ..state import Query

if TYPE_CHECKING:
    from .base import Policy


Scale = Literal["max", "raw", "mean"]
"""Divisor of the gradient B: its largest entry, 1 (Eq. 16 as printed), or the visits so far."""

MAX, RAW, BY_VISITS = range(3)  # the order of Scale


# --- among items -----------------------------------------------------------------------------------------------------


@kernel
def gradient_weight(E: FloatArray, R: FloatArray, er: float, rr: float, visits: int, scale: float) -> float:
    """Return w such that `w (R(d) er - E(d) rr)` is B(d) of Eq. 16, divided according to `scale`."""
    n = E.shape[0]
    factor = 4.0 / (n * (n - 1.0)) if n > 1 else 0.0
    divisor = 1.0
    if scale == MAX:
        divisor = factor * largest_gap(E, R, er, rr) + 1e-10
    elif scale == BY_VISITS:
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


@kernel
def write_gradient(
    E: FloatArray, R: FloatArray, visits: int, relevance: float, fairness: float, scale: float, out: FloatArray
) -> None:
    """Write `w_R R + w_B B`; a term without weight is not computed."""
    er = rr = weight = 0.0
    if fairness != 0.0:
        er, rr = dots(E, R)
        weight = fairness * gradient_weight(E, R, er, rr, visits, scale)
    for d in range(out.shape[0]):
        out[d] = relevance * R[d] + weight * (R[d] * er - E[d] * rr)


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


# --- the Gamma distribution in compiled code --------------------------------------------------------------------------


STEPS = 40  # of Newton's method, which needs four or five
TERMS = 100_000  # of a series or a continued fraction; they need a few times the square root of the shape
PRECISE = 1e-13
STIRLING = 12.0  # from here on the series of ln Γ is exact to the last digits


@kernel
def log_gamma(a: float) -> float:
    """Return ln Γ(a) by Stirling's series; compiled and interpreted `math.lgamma` differ in the last digits."""
    product = 1.0
    while a < STIRLING:
        product *= a
        a += 1.0
    square = 1.0 / (a * a)
    series = (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0))) / a
    return (a - 0.5) * math.log(a) - a + 0.91893853320467274178 + series - math.log(product)


@kernel
def gamma_excess(a: float, x: float, u: float, density: float) -> float:
    """Return the probability that Gamma(a, 1) is at most x, less u; exact in both tails.

    By a series up to the mean, above by a continued fraction for the probability that x is exceeded. `density` is x
    times the density at x.
    """
    if x < a + 1.0:
        term = total = 1.0 / a
        for i in range(1, TERMS):
            term *= x / (a + i)
            total += term
            if term < PRECISE * total:
                break
        return density * total - u
    b = x + 1.0 - a
    c, d = 1e300, 1.0 / b
    fraction = d
    for i in range(1, TERMS):
        numerator = -i * (i - a)
        b += 2.0
        d = 1.0 / (numerator * d + b)
        c = b + numerator / c
        fraction *= d * c
        if abs(d * c - 1.0) < PRECISE:
            break
    return (1.0 - u) - density * fraction


@kernel
def first_guess(a: float, u: float) -> float:
    """Return a rough quantile of Gamma(a, 1): the cube of a normal one (Wilson and Hilferty), or a power."""
    if a > 1.0:
        tail = min(u, 1.0 - u)
        t = math.sqrt(-2.0 * math.log(max(tail, 1e-300)))
        z = t - (2.30753 + t * 0.27061) / (1.0 + t * (0.99229 + t * 0.04481))
        root = 1.0 - 1.0 / (9.0 * a) + (z if u > 0.5 else -z) / (3.0 * math.sqrt(a))
        return max(a * root * root * root, 1e-3 * a)
    power = 1.0 - a * (0.253 + 0.12 * a)
    if u < power:
        return math.exp(math.log(u / power) / a)
    return 1.0 - math.log(1.0 - (u - power) / (1.0 - power))


@kernel(inline=False)
def gamma_point(a: float, u: float) -> tuple[float, float]:
    """Return the x that Gamma(a, 1) does not exceed with probability u < 1, and x times its density there.

    Newton's method on the logarithm of x, which keeps x positive, with steps of at most 1 and between bounds that every
    step moves closer.
    """
    if a <= 0.0 or u <= 0.0:
        return 0.0, 0.0
    x, log_factor, density = first_guess(a, u), log_gamma(a), 0.0
    low, high = 0.0, np.inf
    for _ in range(STEPS):
        if not x > 1e-290:
            return 0.0, 0.0
        density = math.exp(a * math.log(x) - x - log_factor)
        off = gamma_excess(a, x, u, density)
        low, high = (low, x) if off > 0.0 else (x, high)
        step = off / density if density > abs(off) else (1.0 if off > 0.0 else -1.0)
        following = x * math.exp(-step)
        if not low < following < high:
            following = 0.5 * (low + high) if high < np.inf else 2.0 * x
        if abs(following - x) <= PRECISE * x:
            break
        x = following
    return x, density


@kernel
def gamma_quantile(a: float, u: float) -> float:
    """Return the x that Gamma(a, 1) does not exceed with probability u, from 0 to below 1."""
    return gamma_point(a, u)[0]


@kernel
def gamma_tail(a: float, mass: float) -> float:
    """Return the mean of the upper tail of Gamma(a, 1): of the largest values, of a mass in (0, 1] together.

    `∫ x f(x) dx` above the quantile x is a times the tail of Gamma(a + 1, 1), which is `mass + x f(x)/a`.
    """
    if a <= 0.0 or mass >= 1.0:
        return max(a, 0.0)
    x, density = gamma_point(a, 1.0 - mass)
    return a + density / mass if x > 0.0 else a / mass


@kernel
def normal_quantile(u: float) -> float:
    """Return the z that a standard normal number does not exceed with probability u: z²/2 is Gamma(1/2, 1)."""
    z = math.sqrt(2.0 * gamma_quantile(0.5, abs(2.0 * u - 1.0)))
    return z if u > 0.5 else -z


# --- the posterior of relevance ---------------------------------------------------------------------------------------


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


# --- exploration ------------------------------------------------------------------------------------------------------


@kernel
def marginal_certainty(E: float, prior_strength: float, mc_floor: float) -> float:
    """Return the marginal certainty of one item (Eq. 29), `1/(E + s)²`, at most 1/mc_floor; inf if that is 1/0."""
    weight = E + prior_strength
    square = max(weight * weight, mc_floor)
    return 1.0 / square if square > 0.0 else np.inf


@kernel
def add_certainty(E: FloatArray, prior_strength: float, beta: float, mc_floor: float, out: FloatArray) -> None:
    """Add β MC to scores; nothing for β = 0, so that 0·inf never reaches a score."""
    if beta != 0.0:
        for d in range(out.shape[0]):
            out[d] += beta * marginal_certainty(E[d], prior_strength, mc_floor)


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
