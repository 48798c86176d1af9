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
from .base import Estimator
from .mixture_posterior import PRIOR_ROWS, component, evidence, mixture_estimate, mixture_estimates

__all__ = ["Mixture"]

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
