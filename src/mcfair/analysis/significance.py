"""Significance tests, confidence intervals and power for paired values of queries or of seeds, as plain arrays."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..arrays import FloatArray
from ..errors import DataError, SettingError, checked

__all__ = ["PairedTest", "confidence", "detectable_difference", "difference", "fisher", "holm", "paired_tests"]

BATCH_SIZE = 2_000_000
"""Random numbers per batch; bounds memory to about 0.2 GB whatever the number of pairs."""

ROUNDING = 1e-12
"""Relative difference of two sums below which they count as equal."""

Level = Annotated[float, msgspec.Meta(gt=0.0, lt=1.0, description="a number between 0 and 1")]
Resamples = Annotated[int, msgspec.Meta(ge=1, le=10_000_000, description="a whole number from 1 to 10,000,000")]
Seed = Annotated[int, msgspec.Meta(ge=0, description="a whole number of at least 0")]


def sample(what: str, values: npt.ArrayLike) -> FloatArray:
    """Convert to a vector of at least one number, all finite."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not numbers.size:
        raise DataError(f"{what}: expected a list of at least one number, got an array of shape {numbers.shape}")
    if wrong := np.flatnonzero(~np.isfinite(numbers)).tolist():
        raise DataError(
            f"{what}: expected finite numbers, got {numbers[wrong[0]]} at place {wrong[0]}, one of {len(wrong)} such; "
            "leave out queries without a value"
        )
    return numbers


def paired(a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
    """Validate two samples and return the differences of their pairs."""
    first, second = sample("a", a), sample("b", b)
    if first.size != second.size:
        raise DataError(f"expected pairs, got {first.size} values and {second.size}")
    return first - second


def resample(function: Callable[..., Any], d: FloatArray, resamples: int, seed: int, **options: Any) -> Any:
    """Call one of SciPy's resampling functions on differences, seeded and in batches of bounded size."""
    given = inspect.signature(function).parameters
    seeded = {"rng" if "rng" in given else "random_state": np.random.default_rng(seed)}  # renamed in SciPy 1.15
    batch = max(BATCH_SIZE // d.size, 1)
    return function((d,), np.mean, n_resamples=resamples, batch=batch, vectorized=True, **seeded, **options)


def fisher(a: npt.ArrayLike, b: npt.ArrayLike, *, resamples: int = 100_000, seed: int = 0) -> float:
    """Compute the two-sided p-value of Fisher's randomisation test for the mean difference of pairs.

    Under the null hypothesis the two values of a pair are exchangeable: p is the share of sign assignments whose mean
    difference is at least as far from 0 as the observed one. All 2^m assignments are enumerated if they are no more
    than `resamples`, where m counts the pairs that differ; otherwise `resamples` of them are drawn, and p is at least
    1/(resamples + 1).

    Parameters
    ----------
    a, b : (pairs,) arrays
        Two values of each query, such as its unfairness under two policies, averaged over seeds.
    resamples
        Number of sign assignments to draw; the standard error of p is then at most about `sqrt(p / resamples)`.
    seed
        Seed of the draws. Neither the order of pairs nor the order of a and b changes p.

    Returns
    -------
    float
        The p-value; 1 if the means are equal.

    Raises
    ------
    DataError
        If a and b are not finite vectors of one length.
    SettingError
        If `resamples` or `seed` is out of range.

    Examples
    --------
    Only 2 of the 2^5 sign assignments have all differences on one side.

    >>> fisher([5.1, 4.2, 6.0, 3.3, 7.5], [5.0, 4.0, 5.5, 3.0, 7.1])
    0.0625
    """
    d = paired(a, b)
    number, start = checked("resamples", Resamples, resamples, SettingError), checked("seed", Seed, seed, SettingError)
    d = np.sort(d * np.sign(math.fsum(d)))
    d = d[d != 0]  # the sign of a zero difference does not matter
    if d.size < 2:
        return 1.0
    d /= np.abs(d).max()  # not SciPy's permutation test: the same p-value takes it ten times as long
    exact = d.size < 63 and 2**d.size <= number
    assignments, extreme = 2**d.size if exact else number, 0
    rng, rows = np.random.default_rng(start), max(BATCH_SIZE // d.size, 1)
    for begin in range(0, assignments, rows):
        count = min(rows, assignments - begin)
        flipped: npt.NDArray[Any]
        if exact:
            flipped = np.arange(begin, begin + count)[:, None] >> np.arange(d.size) & 1
        else:
            drawn = rng.integers(0, 2**32, (count, -(-d.size // 32)), dtype=np.uint32).view(np.uint8)
            flipped = np.unpackbits(drawn, axis=1, count=d.size)
        distance = np.abs(d.sum() - flipped @ (2.0 * d))
        extreme += int(np.count_nonzero(distance >= d.sum() * (1.0 - ROUNDING)))
    return float(extreme / assignments if exact else (extreme + 1) / (assignments + 1))


def holm(p_values: npt.ArrayLike) -> FloatArray:
    """Adjust p-values for multiple testing by Holm's step-down procedure, in the order given.

    The i-th smallest of m is multiplied by m - i + 1; the results are made non-decreasing and are at most 1.

    Parameters
    ----------
    p_values : (tests,) array

    Returns
    -------
    (tests,) array

    Raises
    ------
    DataError
        If there are none, or one is not a number from 0 to 1.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03, 0.005]).tolist()
    [0.03, 0.06, 0.06, 0.02]
    """
    p = sample("p-values", p_values)
    if not np.all(allowed := (p >= 0) & (p <= 1)):
        raise DataError(f"p-values: expected numbers from 0 to 1, got {p[~allowed][0]}")
    order = np.argsort(p, kind="stable")
    out = np.empty(p.size)
    out[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)), 1.0)
    return out


def confidence(values: npt.ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Compute Student's confidence interval of a mean, such as the mean of a metric over seeds.

    `mean ± t s / sqrt(n)`, where s is the sample standard deviation and t the quantile for n - 1 degrees of freedom.

    Parameters
    ----------
    values : (n,) array
    level
        Coverage probability of the interval.

    Returns
    -------
    (float, float)
        Lower and upper end; both nan for one value, which has no spread.

    Raises
    ------
    DataError
        If `values` is not a finite vector of at least one number.
    SettingError
        If `level` is not between 0 and 1.

    Examples
    --------
    >>> low, high = confidence([1.0, 2.0, 3.0])
    >>> round(low, 4), round(high, 4)
    (-0.4841, 4.4841)
    """
    x, wanted = sample("values", values), checked("level", Level, level, SettingError)
    if x.size < 2:
        return math.nan, math.nan
    from scipy.special import stdtrit

    half = float(stdtrit(x.size - 1, (1 + wanted) / 2) * x.std(ddof=1) / math.sqrt(x.size))
    return float(x.mean()) - half, float(x.mean()) + half


def difference(
    a: npt.ArrayLike, b: npt.ArrayLike, level: float = 0.95, *, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float, float]:
    """Compute the mean difference a - b of pairs with its bootstrap confidence interval (BCa).

    Parameters
    ----------
    a, b : (pairs,) arrays
        Two values of each query.
    level
        Coverage probability of the interval.
    resamples
        Number of bootstrap samples.
    seed
        Seed of the bootstrap samples.

    Returns
    -------
    (float, float, float)
        Mean, lower and upper end; the interval is nan for one pair, and a point if all differences are equal.

    Raises
    ------
    DataError
        If a and b are not finite vectors of one length.
    SettingError
        If `level`, `resamples` or `seed` is out of range.

    Examples
    --------
    >>> mean, low, high = difference([5.1, 4.2, 6.0, 3.3, 7.5], [5.0, 4.0, 5.5, 3.0, 7.1])
    >>> round(mean, 6), 0.1 < low < mean < high < 0.5
    (0.3, True)
    """
    d = paired(a, b)
    wanted, number = (
        checked("level", Level, level, SettingError),
        checked("resamples", Resamples, resamples, SettingError),
    )
    start = checked("seed", Seed, seed, SettingError)
    middle = float(d.mean())
    if d.size < 2:
        return middle, math.nan, math.nan
    if np.ptp(d) == 0:
        return middle, middle, middle
    from scipy.stats import bootstrap

    spread = np.sort(d) - middle  # centred, or small differences of large numbers would be lost to rounding
    found = resample(bootstrap, spread, number, start, confidence_level=wanted).confidence_interval
    return middle, middle + float(found.low), middle + float(found.high)


def detectable_difference(differences: npt.ArrayLike, level: float = 0.95, *, power: float = 0.8) -> float:
    """Compute the minimal detectable mean difference of a paired t-test, given the spread of the differences.

    A two-sided test of n differences with sample standard deviation s rejects if `|T| > t`, where t is Student's
    `(1 + level)/2` quantile for n - 1 degrees of freedom. If the true mean difference is δ, T has a noncentral t
    distribution with noncentrality `λ = δ sqrt(n) / s`. The minimal detectable difference is `δ = λ s / sqrt(n)` for
    the λ at which `P(|T| > t) = power`. The spread is taken as known: with few differences it is itself uncertain,
    and so is the result.

    Parameters
    ----------
    differences : (n,) array
        Differences of pairs, such as those of two policies for each seed or each query.
    level
        One minus the significance level of the test.
    power
        Probability of detecting a true difference of the returned size; above 1 - level.

    Returns
    -------
    float
        At least 0; nan for one difference, with which nothing can be tested.

    Raises
    ------
    DataError
        If `differences` is not a finite vector of at least one number.
    SettingError
        If `level` or `power` is not between 0 and 1, or `power` is not above 1 - level.

    Examples
    --------
    >>> round(detectable_difference([0.9, 1.1, 1.3, 0.7, 1.0]), 3)
    0.376
    """
    d, confidence_level = sample("differences", differences), checked("level", Level, level, SettingError)
    wanted = checked("power", Level, power, SettingError)
    if wanted <= 1 - confidence_level:
        raise SettingError(f"power = {wanted} is not allowed: expected more than 1 - level = {1 - confidence_level:g}")
    if d.size < 2:
        return math.nan
    return noncentrality(d.size - 1, confidence_level, wanted) * float(d.std(ddof=1)) / math.sqrt(d.size)


@cache
def noncentrality(df: int, level: float, power: float) -> float:
    """Solve P(|T| > t) = power for the noncentrality of T, by Brent's method."""
    from scipy.optimize import brentq
    from scipy.special import stdtrit
    from scipy.stats import nct

    t = float(stdtrit(df, (1 + level) / 2))

    def excess(shift: float) -> float:
        # P(T < -t) by symmetry: SciPy's distribution function is nan far out in the lower tail
        return float(nct.sf(t, df, shift) + nct.sf(t, df, -shift)) - power

    high = 2.0
    while excess(high) < 0:
        high *= 2.0
    return float(brentq(excess, 0.0, high, xtol=1e-10))


SAME = 1e-9
"""Relative difference below which two values count as the same: rounding errors are systematic, and tests find them."""


class PairedTest(NamedTuple):
    """A mean difference of pairs with its interval, tested as one of several comparisons with the same baseline.

    `p` is that of Fisher's randomisation test, `p_adjusted` Holm's. `detectable` is the difference that a paired t-test
    of the same pairs would find with the power asked for, at the strictest of Holm's levels.
    """

    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float
    detectable: float


def paired_tests(
    pairs: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]],
    level: float = 0.95,
    *,
    power: float = 0.8,
    resamples: int = 100_000,
    bootstraps: int = 2_000,
) -> list[PairedTest]:
    """Test several policies against one baseline over the same queries, adjusted for their number.

    Parameters
    ----------
    pairs
        For each policy two arrays: its value of each query, and that of the baseline.
    level
        One minus the significance level; coverage of the intervals, which are not adjusted.
    power
        Probability of detecting a true difference of the size `detectable`.
    resamples, bootstraps
        Random sign assignments of a test, and bootstrap samples of an interval.

    Returns
    -------
    list of PairedTest

    Examples
    --------
    >>> base = np.linspace(0, 1, 30)
    >>> found = paired_tests([(base, base), (base + np.tile([0.1, 0.3], 15), base)])
    >>> [(round(each.difference, 3), each.p_adjusted < 0.001) for each in found]
    [(0.0, False), (0.2, True)]
    """
    arrays = [(sample("a", a), sample("b", b)) for a, b in pairs]
    samples = [(b, b) if a.shape == b.shape and np.allclose(a, b, rtol=SAME, atol=0.0) else (a, b) for a, b in arrays]
    if not samples:
        return []
    p_values = [fisher(a, b, resamples=resamples) for a, b in samples]
    strictest = 1 - (1 - level) / len(samples)
    return [
        PairedTest(
            *difference(a, b, level, resamples=bootstraps), p, float(q),
            detectable_difference(a - b, strictest, power=power),
        )
        for (a, b), p, q in zip(samples, p_values, holm(p_values), strict=True)
    ]  # fmt: skip
