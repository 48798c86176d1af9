"""The Gamma distribution in compiled code: quantiles, and the mean of the upper tail."""

from __future__ import annotations

import math

import numpy as np

from .._jit import kernel

__all__ = ["gamma_quantile", "gamma_tail", "normal_quantile"]

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
