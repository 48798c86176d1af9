"""Mixture: relevance with a prior that is learnt from the items of all queries, a mixture of a few components."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple, Self

import msgspec
import numpy as np

from .._jit import kernel
from ..arrays import CountArray, FloatArray, IntArray
from ..elementary import exp, log
from ..errors import PartError
from ..parts import NonNegative, Share, register
from .base import FIGURES, Estimator

# --- the posterior of an item: for one item, and for several at once --------------------------------------------------


SMALLEST = 1e-300  # argument of a logarithm, where it is multiplied by 0

PRIOR_ROWS = 4  # of theta: weights, means, variances and logarithms of the means of the components, by falling mean


# --- the evidence of one item, and what one component makes of it ----------------------------------------------------


@kernel
def view_counts(C: float, E: float, F: CountArray, p: FloatArray) -> tuple[float, float, float]:
    """Return the mean examination p̄ of an item, its views without a click, and the relevance that fits it best.

    With E₂ = Σ_j F_j p_j²: p̄ = E₂/E, E/p̄ = E²/E₂ views, and relevance min(C/E, 1).
    """
    squares = 0.0
    for j in range(p.shape[0]):
        squares += F[j] * p[j] * p[j]
    return squares / E, max(E * E / squares - C, 0.0), min(C / E, 1.0)  # not E/p̄: divisions side by side


@kernel
def evidence(C: float, E: float, F: CountArray, p: FloatArray) -> tuple[float, float, float]:
    """Return the mean examination of an item, its views without a click, and the best log-likelihood of its clicks."""
    examined, misses, best = view_counts(C, E, F, p)
    return examined, misses, C * log(max(best, SMALLEST)) + misses * log(max(1.0 - examined * best, SMALLEST))


@kernel
def component(
    C: float,
    E: float,
    examined: float,
    misses: float,
    saturated: float,
    r: float,
    log_r: float,
    log_miss: float,
    tau2: float,
) -> tuple[float, float, float]:
    """Return the log-likelihood of an item in one component, 1/φ, and the posterior mean; log_miss is log(1 - p̄r).

    With v = r(1 - p̄r): φ = 1 + E τ²/v is the over-dispersion, by which the log-likelihood (relative to the best) is
    divided; the mean is (C τ² + v r)/(E τ² + v), at most 1; the posterior variance is τ²/φ.
    """
    v = r * (1.0 - examined * r)
    part = 1.0 / (v + E * tau2)
    shrinkage = v * part
    relative = C * log_r + misses * log_miss - saturated
    return min(relative, 0.0) * shrinkage, shrinkage, min((C * tau2 + v * r) * part, 1.0)


@kernel
def mixture_estimate(C: float, E: float, F: CountArray, p: FloatArray, theta: FloatArray, out: FloatArray) -> None:
    """Write mean and variance of the posterior, and its components by falling mean; without exposure the prior's.

    A component has weight π_k ∝ w_k φ_k^(-1/2) exp(ℓ_k), where ℓ_k is the log-likelihood of `component`.
    """
    K = theta.shape[0] // PRIOR_ROWS
    if E == 0.0:
        write_prior(K, theta, out)
        return
    examined, misses, saturated = evidence(C, E, F, p)
    largest = -np.inf
    for k in range(K):
        at, r = FIGURES + 3 * k, theta[K + k]
        log_miss = log(1.0 - examined * r)
        out[at], out[at + 2], out[at + 1] = component(
            C, E, examined, misses, saturated, r, theta[3 * K + k], log_miss, theta[2 * K + k]
        )
        largest = max(largest, out[at])
    total = 0.0
    for k in range(K):
        at = FIGURES + 3 * k
        out[at] = theta[k] * math.sqrt(out[at + 2]) * exp(out[at] - largest)
        out[at + 2] *= theta[2 * K + k]
        total += out[at]
    share = 1.0 / total
    for k in range(K):
        out[FIGURES + 3 * k] *= share
    sort_components(K, out)
    write_moments(K, out)


@kernel
def write_prior(K: int, theta: FloatArray, out: FloatArray) -> None:
    """Write mean, variance and components of the prior, which theta has by falling mean."""
    for k in range(K):
        at = FIGURES + 3 * k
        out[at], out[at + 1], out[at + 2] = theta[k], theta[K + k], theta[2 * K + k]
    write_moments(K, out)


@kernel
def write_moments(K: int, out: FloatArray) -> None:
    """Write mean and variance of the components."""
    mean = 0.0
    for k in range(K):
        mean += out[FIGURES + 3 * k] * out[FIGURES + 3 * k + 1]
    variance = 0.0
    for k in range(K):
        at = FIGURES + 3 * k
        gap = out[at + 1] - mean
        variance += out[at] * (out[at + 2] + gap * gap)
    out[0], out[1] = mean, variance


@kernel
def sort_components(K: int, out: FloatArray) -> None:
    """Sort the components by falling mean; those of equal mean keep their order."""
    for k in range(1, K):
        at = FIGURES + 3 * k
        weight, mean, variance = out[at], out[at + 1], out[at + 2]
        while at > FIGURES and out[at - 2] < mean:
            out[at], out[at + 1], out[at + 2] = out[at - 3], out[at - 2], out[at - 1]
            at -= 3
        out[at], out[at + 1], out[at + 2] = weight, mean, variance


# --- several items at once -------------------------------------------------------------------------------------------


@kernel
def mixture_estimates(
    items: IntArray,
    C: CountArray,
    E: FloatArray,
    F: CountArray,
    p: FloatArray,
    theta: FloatArray,
    out: FloatArray,
) -> None:
    """Write what `mixture_estimate` writes for each of some items, in the same bits but in half the time."""
    if theta.shape[0] == 4 * PRIOR_ROWS:  # the default
        write_four(items, C, E, F, p, theta, out)
    else:
        for i in range(items.shape[0]):
            d = items[i]
            mixture_estimate(C[d], E[d], F[d], p, theta, out[i])


# Step by step for all items, as the steps of one item wait for each other. In between, a row of `out` has the figures
# of its four components one quantity after another, which the compiler puts side by side in a vector.
@kernel
def write_four(
    items: IntArray,
    C: CountArray,
    E: FloatArray,
    F: CountArray,
    p: FloatArray,
    theta: FloatArray,
    out: FloatArray,
) -> None:
    """Write the posteriors of some items for four components."""
    # Always 4, but not known to the compiler: it would unroll loops of four steps rather than vectorise them.
    K = (out.shape[1] - FIGURES) // 3
    m = items.shape[0]
    for i in range(m):
        d = items[i]
        if E[d] > 0.0:
            examined, misses, best = view_counts(C[d], E[d], F[d], p)
        else:
            examined, misses, best = 1.0, 0.0, 0.0  # replaced by the prior in the end
        out[i, 0], out[i, 1] = examined, misses
        for k in range(K):
            out[i, 2 + k] = 1.0 - examined * theta[4 + k]
        out[i, 6], out[i, 7] = max(1.0 - examined * best, SMALLEST), max(best, SMALLEST)
        out[i, 8] = out[i, 9] = 1.0
    for i in range(m):
        for k in range(2 * K):
            out[i, 2 + k] = log(out[i, 2 + k])
    for i in range(m):
        d = items[i]
        c, e, examined, misses = float(C[d]), E[d], out[i, 0], out[i, 1]
        saturated = c * out[i, 7] + misses * out[i, 6]
        for k in range(K):
            out[i, 2 + k], out[i, 10 + k], out[i, 6 + k] = component(
                c, e, examined, misses, saturated, theta[4 + k], theta[12 + k], out[i, 2 + k], theta[8 + k]
            )
    for i in range(m):
        largest = max(max(out[i, 2], out[i, 3]), max(out[i, 4], out[i, 5]))
        for k in range(K):
            out[i, 2 + k] = theta[k] * math.sqrt(out[i, 10 + k]) * exp(out[i, 2 + k] - largest)
            out[i, 10 + k] *= theta[8 + k]
    for i in range(m):
        if E[items[i]] > 0.0:
            interleave(out[i])
            sort_components(4, out[i])
            write_moments(4, out[i])
        else:
            write_prior(4, theta, out[i])


@kernel
def interleave(out: FloatArray) -> None:
    """Normalise four weights; order weights, means, variances as weight, mean, variance of each component."""
    w0, w1, w2, w3 = out[2], out[3], out[4], out[5]
    m0, m1, m2, m3 = out[6], out[7], out[8], out[9]
    v0, v1, v2, v3 = out[10], out[11], out[12], out[13]
    share = 1.0 / (w0 + w1 + w2 + w3)
    out[2], out[3], out[4] = w0 * share, m0, v0
    out[5], out[6], out[7] = w1 * share, m1, v1
    out[8], out[9], out[10] = w2 * share, m2, v2
    out[11], out[12], out[13] = w3 * share, m3, v3


LEAST_MEAN, MOST_MEAN, LEAST_VARIANCE = 0.002, 0.9999, 1e-8  # of a component
START_MEAN, START_VARIANCE = 0.03, 0.003  # of the lowest component, of every component
MOST_ITEMS, ITERATIONS = 4_000, 30  # of a fit

Components = Annotated[int, msgspec.Meta(ge=1, le=16, description="a whole number from 1 to 16")]
Weights = Annotated[tuple[Share, ...], msgspec.Meta(description="numbers from 0 to 1")]
Variances = Annotated[tuple[NonNegative, ...], msgspec.Meta(description="numbers of at least 0")]


# --- the fit ---------------------------------------------------------------------------------------------------------


class Evidence(NamedTuple):
    """The evidence of many items, one array per quantity: it does not depend on the prior."""

    C: FloatArray
    E: FloatArray
    examined: FloatArray
    misses: FloatArray
    saturated: FloatArray


class Belief(NamedTuple):
    """Scratch of EM: what each component makes of each item, shape (components, items), and what scales the weights."""

    weights: FloatArray
    shrinkages: FloatArray
    means: FloatArray
    largest: FloatArray
    shares: FloatArray


@kernel
def fill_evidence(C: CountArray, E: FloatArray, F: CountArray, p: FloatArray, items: Evidence) -> None:
    """Write the evidence of every item."""
    for d in range(C.shape[0]):
        items.C[d], items.E[d] = C[d], E[d]
        items.examined[d], items.misses[d], items.saturated[d] = evidence(C[d], E[d], F[d], p)


# One quantity after another for all items, in loops without branches or sums: those the compiler vectorises.
@kernel
def believe(items: Evidence, theta: FloatArray, belief: Belief) -> None:
    """Write the weight (not yet divided by the total), 1/φ and the mean of every item in every component."""
    K, n = belief.weights.shape
    belief.largest[:] = -np.inf
    belief.shares[:] = 0.0
    for k in range(K):
        r, log_r, tau2 = theta[K + k], theta[3 * K + k], theta[2 * K + k]
        weights, shrinkages, means = belief.weights[k], belief.shrinkages[k], belief.means[k]
        for d in range(n):
            C, E, examined, misses = items.C[d], items.E[d], items.examined[d], items.misses[d]
            log_miss = log(1.0 - examined * r)
            weights[d], shrinkages[d], means[d] = component(
                C, E, examined, misses, items.saturated[d], r, log_r, log_miss, tau2
            )
        for d in range(n):
            belief.largest[d] = max(belief.largest[d], weights[d])
    for k in range(K):
        w, weights, shrinkages = theta[k], belief.weights[k], belief.shrinkages[k]
        for d in range(n):
            weights[d] = w * math.sqrt(shrinkages[d]) * exp(weights[d] - belief.largest[d])
        for d in range(n):
            belief.shares[d] += weights[d]
    for d in range(n):
        belief.shares[d] = 1.0 / belief.shares[d]


@kernel
def maximise(items: Evidence, belief: Belief, theta: FloatArray) -> None:
    """Write the prior that fits the belief; pseudo-counts keep every component alive.

    With u = E/φ: w ∝ Σ π, r = Σ π u C/E / Σ π u, and τ² = Σ π ((m - r)² + s²) / Σ π, where r is that before.
    """
    K, n = belief.weights.shape
    total = 0.0
    for k in range(K):
        mean, variance = theta[K + k], theta[2 * K + k]
        members = clicks = exposure = spread = 0.0
        for d in range(n):
            pi, gap = belief.weights[k, d] * belief.shares[d], belief.means[k, d] - mean
            part = pi * belief.shrinkages[k, d]
            members += pi
            clicks += part * items.C[d]
            exposure += part * items.E[d]
            spread += pi * gap * gap + part * variance
        theta[k] = members + 0.1
        theta[K + k] = min(max((clicks + 0.03) / (exposure + 0.1), LEAST_MEAN), MOST_MEAN)
        theta[2 * K + k] = max((spread + 1e-7) / (members + 1e-3), LEAST_VARIANCE)
        theta[3 * K + k] = log(theta[K + k])
        total += theta[k]
    for k in range(K):
        theta[k] /= total


@kernel
def fit_prior(items: Evidence, iterations: int, theta: FloatArray, belief: Belief) -> None:
    """Replace the prior in theta by that after so many steps of EM."""
    for _ in range(iterations):
        believe(items, theta, belief)
        maximise(items, belief, theta)


fit_prior.pin(Evidence(*np.zeros((5, 1))), 1, np.zeros(1), Belief(*np.zeros((3, 1, 1)), *np.zeros((2, 1))))


def prior_theta(weights: Sequence[float], means: Sequence[float], variances: Sequence[float]) -> FloatArray:
    """Return a prior as a kernel reads it."""
    return np.array([*weights, *means, *variances, *(log(float(each)) for each in means)])


def start_prior(K: int) -> FloatArray:
    """Return the prior before anything was observed: components of equal weight, their means in geometric order."""
    ratio = (MOST_MEAN / START_MEAN) ** (1.0 / max(K - 1, 1))
    return prior_theta([1.0 / K] * K, [START_MEAN * ratio**k for k in range(K)], [START_VARIANCE] * K)


@register
class Mixture(Estimator):
    """Estimate relevance by the posterior mean under a mixture prior that is learnt from all items of all queries.

    Relevance is drawn from one of a few components, each with a weight, a mean and a variance. They are fitted by EM
    to the clicks and the exposure of all items while a run proceeds. An item is seen as shown N times at its mean
    examination, and the variance within a component counts as over-dispersion of its clicks.

    Parameters
    ----------
    components
        Number of components.
    weights, means, variances
        The prior: of each component its weight, the mean of relevance and its variance. Empty is the prior to start
        with, and what a fit replaces: equal weights, means in geometric order from 0.03 to 1, variances of 0.003.

    Raises
    ------
    PartError
        If the prior is not given for every component.

    Examples
    --------
    An item that was clicked twice in ten views, before and after the estimator has seen other items:

    >>> import mcfair as mf
    >>> item = 2, 10.0, np.array([10], np.int32), np.ones(1)
    >>> [round(x, 3) for x in Mixture().estimate(*item)]
    [0.202, 0.01]
    >>> state = mf.simulate(mf.synthetic("mq2008-like", seed=0), "ExploreK", "online", steps=20_000).state
    >>> fitted = Mixture().fit(state.C, state.E, state.F, state.p)
    >>> [round(x, 2) for x in fitted.means], [round(x, 3) for x in fitted.estimate(*item)]
    ([0.1, 0.1, 0.41, 1.0], [0.152, 0.012])
    """

    components: Components = 4
    weights: Weights = ()
    means: Weights = ()
    variances: Variances = ()

    kernel = mixture_estimate
    batch = mixture_estimates
    fitted = ("weights", "means", "variances")

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = [len(each) for each in (self.weights, self.means, self.variances)]
        if sizes not in ([0, 0, 0], [self.components] * 3) or (self.weights and sum(self.weights) == 0.0):
            expected = f"{self.components} of each, weights not all 0, or none"
            raise PartError(f"{self!r} has {sizes} weights, means and variances: expected {expected}")

    @property
    def theta(self) -> FloatArray:
        """The prior by falling mean: weights, means, variances and logarithms of the means."""
        if self.weights:
            total = sum(self.weights)
            means = [min(max(each, LEAST_MEAN), MOST_MEAN) for each in self.means]
            variances = [max(each, LEAST_VARIANCE) for each in self.variances]
            theta = prior_theta([each / total for each in self.weights], means, variances)
        else:
            theta = start_prior(self.components)
        rows = theta.reshape(PRIOR_ROWS, -1)
        return rows[:, np.argsort(-rows[1], kind="stable")].ravel()  # posteriors are then in order, or nearly

    @property
    def posterior_size(self) -> int:
        """Number of components."""
        return self.components

    def fit(self, C: CountArray, E: FloatArray, F: CountArray, p: FloatArray) -> Self:
        """Return the estimator with its prior fitted by EM to the items that were shown.

        Every fit begins at the prior to start with, so that it depends on the counts alone. If more than 4,000 items
        were shown, as many of them are used, evenly spread.
        """
        shown = np.flatnonzero(E > 0.0)
        if shown.size == 0:
            return self
        if shown.size > MOST_ITEMS:
            shown = shown[np.arange(MOST_ITEMS) * shown.size // MOST_ITEMS]
        K, n, theta = self.components, shown.size, start_prior(self.components)
        items = Evidence(*np.empty((5, n)))
        fill_evidence(C[shown], E[shown], F[shown], p.copy(), items)
        fit_prior(items, ITERATIONS, theta, Belief(*np.empty((3, K, n)), *np.empty((2, n))))
        weights, means, variances, _ = theta.reshape(PRIOR_ROWS, K).tolist()
        return dataclasses.replace(self, weights=tuple(weights), means=tuple(means), variances=tuple(variances))
