"""Mixture: relevance with a prior that is learnt from the items of all queries, a mixture of a few components."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple, Self

import msgspec
import numpy as np

from .._jit import kernel
from ..arrays import CountArray, FloatArray
from ..elementary import exp, log
from ..errors import PartError
from ..parts import NonNegative, Share, register
from .base import FIGURES, Estimator

__all__ = ["Mixture", "evidence", "mixture_estimate"]

LEAST_MEAN, MOST_MEAN, LEAST_VARIANCE = 0.002, 0.9999, 1e-8  # of a component
START_MEAN, START_VARIANCE = 0.03, 0.003  # of the lowest component, of every component
MOST_ITEMS, ITERATIONS = 20_000, 30  # of a fit

PRIOR_ROWS = 4  # of theta: weights, means, variances and logarithms of the means of the components

Components = Annotated[int, msgspec.Meta(ge=1, le=16, description="a whole number from 1 to 16")]
Weights = Annotated[tuple[Share, ...], msgspec.Meta(description="numbers from 0 to 1")]
Variances = Annotated[tuple[NonNegative, ...], msgspec.Meta(description="numbers of at least 0")]


# --- the evidence of one item, and what one component makes of it ----------------------------------------------------


@kernel
def evidence(C: int, E: float, F: CountArray, p: FloatArray) -> tuple[float, float, float]:
    """Return the mean examination p̄ of an item, its views without a click, and the best log-likelihood of its clicks.

    With E₂ = Σ_j F_j p_j²: p̄ = E₂/E, and E/p̄ = E²/E₂ views. The best log-likelihood is that of relevance min(C/E, 1).
    """
    squares = 0.0
    for j in range(p.shape[0]):
        squares += F[j] * p[j] * p[j]
    examined = squares / E
    misses = max(E * E / squares - C, 0.0)  # not E/p̄: two divisions at a time
    best = min(C / E, 1.0)
    saturated = 0.0
    if C > 0:
        saturated += C * log(best)
    if misses > 0.0:
        saturated += misses * log(1.0 - examined * best)
    return examined, misses, saturated


@kernel
def component(
    C: int, E: float, examined: float, misses: float, saturated: float, r: float, log_r: float, tau2: float
) -> tuple[float, float, float]:
    """Return the log-likelihood of an item in one component, 1/φ, and the posterior mean.

    With v = r(1 - p̄r): φ = 1 + E τ²/v is the over-dispersion, by which the log-likelihood (relative to the best) is
    divided; the mean is (C τ² + v r)/(E τ² + v), at most 1; the posterior variance is τ²/φ.
    """
    v = r * (1.0 - examined * r)
    part = 1.0 / (v + E * tau2)
    shrinkage = v * part
    relative = C * log_r + misses * log(1.0 - examined * r) - saturated
    return min(relative, 0.0) * shrinkage, shrinkage, min((C * tau2 + v * r) * part, 1.0)


@kernel
def mixture_estimate(C: int, E: float, F: CountArray, p: FloatArray, theta: FloatArray, out: FloatArray) -> None:
    """Write mean and variance of the posterior, and its components by falling mean."""
    K = theta.shape[0] // PRIOR_ROWS
    if K == 4:  # the default; a constant lets the compiler unroll the loops
        write_posterior(4, C, E, F, p, theta, out)
    else:
        write_posterior(K, C, E, F, p, theta, out)


@kernel
def write_posterior(K: int, C: int, E: float, F: CountArray, p: FloatArray, theta: FloatArray, out: FloatArray) -> None:
    """Write mean, variance and components of the posterior; without exposure the prior's.

    A component has weight π_k ∝ w_k φ_k^(-1/2) exp(ℓ_k), where ℓ_k is the log-likelihood of `component`.
    """
    if E > 0.0:
        examined, misses, saturated = evidence(C, E, F, p)
        largest = -np.inf
        for k in range(K):
            at = FIGURES + 3 * k
            out[at], out[at + 2], out[at + 1] = component(
                C, E, examined, misses, saturated, theta[K + k], theta[3 * K + k], theta[2 * K + k]
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
    else:
        for k in range(K):
            at = FIGURES + 3 * k
            out[at], out[at + 1], out[at + 2] = theta[k], theta[K + k], theta[2 * K + k]
    sort_components(K, out)
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
            weights[d], shrinkages[d], means[d] = component(
                items.C[d], items.E[d], items.examined[d], items.misses[d], items.saturated[d], r, log_r, tau2
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
    fitted = ("weights", "means", "variances")

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = [len(each) for each in (self.weights, self.means, self.variances)]
        if sizes not in ([0, 0, 0], [self.components] * 3) or (self.weights and sum(self.weights) == 0.0):
            expected = f"{self.components} of each, weights not all 0, or none"
            raise PartError(f"{self!r} has {sizes} weights, means and variances: expected {expected}")

    @property
    def theta(self) -> FloatArray:
        """The prior: weights, means, variances and logarithms of the means."""
        if not self.weights:
            return start_prior(self.components)
        total = sum(self.weights)
        means = [min(max(each, LEAST_MEAN), MOST_MEAN) for each in self.means]
        variances = [max(each, LEAST_VARIANCE) for each in self.variances]
        return prior_theta([each / total for each in self.weights], means, variances)

    @property
    def posterior_size(self) -> int:
        """Number of components."""
        return self.components

    def fit(self, C: CountArray, E: FloatArray, F: CountArray, p: FloatArray) -> Self:
        """Return the estimator with its prior fitted by EM, beginning at its present prior.

        Items that were never shown say nothing; if there are very many, every m-th is enough.
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
