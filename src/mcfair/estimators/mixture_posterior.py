"""The posterior of an item under a mixture prior: for one item, and for several at once."""

from __future__ import annotations

import math

import numpy as np

from .._jit import kernel
from ..arrays import CountArray, FloatArray, IntArray
from ..elementary import exp, log
from .base import FIGURES

__all__ = ["PRIOR_ROWS", "component", "evidence", "mixture_estimate", "mixture_estimates"]

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
