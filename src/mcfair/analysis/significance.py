"""Whether a difference is more than chance: tests and intervals for values of queries and of seeds, as plain arrays."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..arrays import FloatArray
from ..errors import DataError, SettingError, checked

__all__ = ["confidence", "difference", "fisher", "holm"]

AT_ONCE = 2_000_000
"""So many numbers are drawn at once: it bounds memory, to about 0.2 GB, whatever the number of pairs."""

ROUNDING = 1e-12
"""Relative difference of sums that is put down to rounding."""

Level = Annotated[float, msgspec.Meta(gt=0.0, lt=1.0, description="a number between 0 and 1")]
Resamples = Annotated[int, msgspec.Meta(ge=1, description="a whole number of at least 1")]
Seed = Annotated[int, msgspec.Meta(ge=0, description="a whole number of at least 0")]


def sample(what: str, values: npt.ArrayLike) -> FloatArray:
    """Check that there is at least one number and that all are finite."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not numbers.size:
        raise DataError(f"{what}: expected a list of at least one number, got an array of shape {numbers.shape}")
    if wrong := np.flatnonzero(~np.isfinite(numbers)).tolist():
        raise DataError(
            f"{what}: expected finite numbers, got {numbers[wrong[0]]} at place {wrong[0]}, one of {len(wrong)} such; "
            "leave out queries without a figure"
        )
    return numbers


def paired(a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
    """Differences of pairs, checked."""
    first, second = sample("a", a), sample("b", b)
    if first.size != second.size:
        raise DataError(f"expected pairs, got {first.size} values and {second.size}")
    return first - second


def mean(values: FloatArray, axis: int) -> FloatArray:
    """Mean along an axis: the statistic of the resampled differences."""
    return np.asarray(values.mean(axis=axis))


def resampled(function: Callable[..., Any], d: FloatArray, resamples: int, seed: int, **options: Any) -> Any:
    """Call one of SciPy's resampling functions on differences, seeded and in batches."""
    given = inspect.signature(function).parameters
    seeded = {"rng" if "rng" in given else "random_state": np.random.default_rng(seed)}  # renamed in SciPy 1.15
    batch = max(AT_ONCE // d.size, 1)
    return function((d,), mean, n_resamples=resamples, batch=batch, vectorized=True, **seeded, **options)


def fisher(a: npt.ArrayLike, b: npt.ArrayLike, *, resamples: int = 100_000, seed: int = 0) -> float:
    """Fisher's randomisation test: the p-value of the mean difference of pairs, two-sided.

    If a and b did not differ, each pair could as well stand the other way round: p is how often the mean difference is
    as far from 0 when pairs are turned at random. All 2^m ways are tried if they are no more than `resamples`, where m
    counts the pairs that differ at all; else as many are drawn, and p is at least 1/(resamples + 1).

    Parameters
    ----------
    a, b : (pairs,) arrays
        Two figures of each query, such as its unfairness under two policies, averaged over seeds.
    resamples
        How many ways to draw; the standard error of p is then at most about `sqrt(p / resamples)`.
    seed
        What is drawn is a function of it. Neither the order of pairs nor which sample is called a changes p.

    Returns
    -------
    float; 1 if the means are equal.

    Examples
    --------
    Only 2 of the 2^5 ways have all differences on one side.

    >>> fisher([5.1, 4.2, 6.0, 3.3, 7.5], [5.0, 4.0, 5.5, 3.0, 7.1])
    0.0625
    """
    d = paired(a, b)
    number, start = checked("resamples", Resamples, resamples, SettingError), checked("seed", Seed, seed, SettingError)
    d = np.sort(d * np.sign(math.fsum(d)))
    d = d[d != 0]  # turning an equal pair changes nothing
    if d.size < 2:
        return 1.0
    d /= np.abs(d).max()  # SciPy's permutation test gives the same and takes ten times as long
    exact = d.size < 63 and 2**d.size <= number
    ways, as_far = 2**d.size if exact else number, 0
    rng, rows = np.random.default_rng(start), max(AT_ONCE // d.size, 1)
    for begin in range(0, ways, rows):
        count = min(rows, ways - begin)
        turned: npt.NDArray[Any]
        if exact:
            turned = np.arange(begin, begin + count)[:, None] >> np.arange(d.size) & 1
        else:
            drawn = rng.integers(0, 2**32, (count, -(-d.size // 32)), dtype=np.uint32).view(np.uint8)
            turned = np.unpackbits(drawn, axis=1, count=d.size)
        far = np.abs(d.sum() - turned @ (2.0 * d))
        as_far += int(np.count_nonzero(far >= d.sum() * (1.0 - ROUNDING)))
    return float(as_far / ways if exact else (as_far + 1) / (ways + 1))


def holm(p_values: npt.ArrayLike) -> FloatArray:
    """Holm's step-down correction: p-values that hold for all of several tests at once, in the order given.

    The i-th smallest of m is multiplied by m - i + 1, and is then at least as large as those before it and at most 1.

    Parameters
    ----------
    p_values : (tests,) array

    Returns
    -------
    (tests,) array

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
    """Student's confidence interval of a mean, such as that of a figure over seeds.

    `mean ± t s / sqrt(n)`, s the sample's standard deviation and t the quantile for n - 1 degrees of freedom.

    Parameters
    ----------
    values : (n,) array
    level
        How often the interval is to contain the true mean.

    Returns
    -------
    (low, high); both nan for one value, which says nothing of its spread.

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
    """Mean difference of pairs, a less b, with its bootstrap confidence interval (bias-corrected and accelerated).

    Parameters
    ----------
    a, b : (pairs,) arrays
        Two figures of each query.
    level
        How often the interval is to contain the true mean difference.
    resamples
        How many samples to draw from the pairs.
    seed
        What is drawn is a function of it.

    Returns
    -------
    (mean, low, high); the interval is nan for one pair, and a point if all pairs differ by the same.

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

    spread = np.sort(d) - middle  # small differences of large numbers would drown in rounding
    found = resampled(bootstrap, spread, number, start, confidence_level=wanted).confidence_interval
    return middle, middle + float(found.low), middle + float(found.high)
