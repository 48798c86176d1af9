"""Beta: relevance with a Beta prior, whose mean and strength are learnt from the items of all queries by moments."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Self

import msgspec
import numpy as np

from .._jit import kernel
from ..arrays import CountArray, FloatArray
from ..parts import Share, register
from .base import FIGURES, Estimator

ITERATIONS = 20  # of a fit; the weights settle in a few
LEAST_VARIANCE = 1e-4  # of relevance, as a share of m(1 - m): a prior is worth at most 10,000 views
MOST_VARIANCE = 0.99

Strength = Annotated[float, msgspec.Meta(gt=0.0, description="a finite number above 0")]


@kernel
def beta_estimate(C: int, E: float, F: CountArray, p: FloatArray, theta: FloatArray, out: FloatArray) -> None:
    """Write mean and variance of Beta(s m + C, s(1 - m) + (E - C)⁺), also as the only component of the posterior."""
    evidence = theta[1] + max(E, float(C))
    mean = (theta[0] * theta[1] + C) / evidence
    variance = mean * (1.0 - mean) / (evidence + 1.0)
    out[0], out[1] = mean, variance
    out[FIGURES], out[FIGURES + 1], out[FIGURES + 2] = 1.0, mean, variance


@kernel
def match_moments(C: CountArray, E: FloatArray, F: CountArray, p: FloatArray, fitted: FloatArray) -> None:
    """Write mean m and variance τ² of relevance over items, by the moments of x = C/E; all items have exposure.

    Given its relevance R, x has mean R and variance R(1 - p̄R)/E, with the mean examination p̄ = Σ_j F_j p_j²/E. Over
    items it therefore has mean m and variance τ² (1 - p̄/E) + (m - p̄m²)/E. Both are solved for with weights
    ω = τ²/(τ² + (m - p̄m²)/E), which count an item by what is known of it.
    """
    mean, variance = fitted[0], fitted[1]
    for _ in range(ITERATIONS):
        total = first = 0.0
        for d in range(C.shape[0]):
            weight = variance / (variance + noise(E[d], F[d], p, mean))
            total += weight
            first += weight * (C[d] / E[d])
        mean = min(max(first / total, 0.001), 0.999)
        spread = expected = information = 0.0
        for d in range(C.shape[0]):
            error = noise(E[d], F[d], p, mean)
            weight = variance / (variance + error)
            gap, share = C[d] / E[d] - mean, weight * (1.0 - weight / total)
            spread += weight * gap * gap
            expected += share * error
            information += share * (1.0 - mean_examination(E[d], F[d], p) / E[d])
        most = mean * (1.0 - mean)
        variance = (spread - expected) / information if information > 0.0 else fitted[1]
        variance = min(max(variance, LEAST_VARIANCE * most), MOST_VARIANCE * most)
    fitted[0], fitted[1] = mean, variance


@kernel
def mean_examination(E: float, F: CountArray, p: FloatArray) -> float:
    """Return Σ_j F_j p_j² / E, the mean probability that the item was examined where it was clicked."""
    squares = 0.0
    for j in range(p.shape[0]):
        squares += F[j] * p[j] * p[j]
    return squares / E


@kernel
def noise(E: float, F: CountArray, p: FloatArray, mean: float) -> float:
    """Return (m - p̄m²)/E, the variance of C/E of an item of relevance m."""
    return (mean - mean_examination(E, F, p) * mean * mean) / E


@register
class Beta(Estimator):
    """Estimate relevance by the posterior mean under a Beta prior that is learnt from all items of all queries.

    Exposure counts as views, so that the posterior is Beta(s m + C, s(1 - m) + (E - C)⁺) and the estimate is that of
    `IPS` with the same prior, but at most 1. A run fits mean and strength of the prior by moments.

    Parameters
    ----------
    prior_mean
        Relevance m of an item before anything is known of it.
    prior_strength
        Exposure s that the prior is worth. The defaults are the uniform distribution, which a fit replaces.

    Examples
    --------
    >>> Beta().estimate(1, 2.0, np.array([2], np.int32), np.ones(1))
    (0.5, 0.05)
    >>> F = np.full((4, 1), 10, np.int32)
    >>> fitted = Beta().fit(np.array([1, 2, 2, 3], np.int32), np.full(4, 10.0), F, np.ones(1))
    >>> round(fitted.prior_mean, 3), fitted.prior_strength > 1000.0
    (0.2, True)
    """

    prior_mean: Share = 0.5
    prior_strength: Strength = 2.0

    kernel = beta_estimate
    fitted = ("prior_mean", "prior_strength")

    @property
    def posterior_size(self) -> int:
        """One component."""
        return 1

    def fit(self, C: CountArray, E: FloatArray, F: CountArray, p: FloatArray) -> Self:
        """Return the estimator with its prior fitted by moments to the items that were shown."""
        shown = np.flatnonzero(E > 0.0)
        if shown.size < 2:
            return self
        fitted = np.array([0.5, 1.0 / 12.0])  # of the uniform distribution
        match_moments(C[shown], E[shown], F[shown], p.copy(), fitted)
        mean, variance = fitted.tolist()
        return dataclasses.replace(self, prior_mean=mean, prior_strength=mean * (1.0 - mean) / variance - 1.0)
