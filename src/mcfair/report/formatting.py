"""Numbers as text, for tables, figures and the command line; at least three significant digits unless exact."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = [
    "NOISE",
    "NOTHING",
    "format_excess",
    "format_interval",
    "format_number",
    "format_p_value",
    "format_signed",
    "format_spread",
]

NOTHING = "\N{EN DASH}"
"""Placeholder for a value that does not exist."""

SMALLEST = 1e-6
"""Numbers below this are written with an exponent."""

NOISE = 1e-9
"""A spread or an excess below this share of the mean is rounding error and is written as 0."""


def decimal_places(value: float, digits: int) -> int:
    """Return the number of decimals that shows so many significant digits."""
    if not math.isfinite(value) or value == 0:
        return 0
    return max(digits - 1 - math.floor(math.log10(abs(value))), 0)


def format_number(value: float | None, digits: int = 4, *, sign: bool = False) -> str:
    """Format a number to so many significant digits; digits before the decimal point are never dropped.

    Parameters
    ----------
    value
        The number; None, nan and infinite values are shown as a dash.
    digits
        Significant digits.
    sign
        Whether positive numbers get a plus sign.

    Returns
    -------
    str

    Examples
    --------
    >>> format_number(0.00123), format_number(1234567.8), format_number(2.5e-9), format_number(None)
    ('0.001230', '1,234,568', '2.500e-09', '–')
    >>> format_number(0.5, 2, sign=True)
    '+0.50'
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    plus = "+" if sign else ""
    if 0 < abs(value) < SMALLEST:
        return f"{value:{plus}.{digits - 1}e}"
    return f"{value:{plus if value else ''},.{decimal_places(value, digits)}f}"


def format_spread(values: npt.ArrayLike, digits: int = 4) -> str:
    """Format the mean of some values and, in parentheses, their population standard deviation.

    The standard deviation shows at least two significant digits. A single value has no spread and is formatted alone.

    Parameters
    ----------
    values : (n,) array
        For example a metric of each seed.
    digits
        Significant digits of the mean.

    Returns
    -------
    str

    Examples
    --------
    >>> format_spread([22.0, 23.0]), format_spread([0.00123]), format_spread([186.01, 186.016])
    ('22.50 (0.50)', '0.001230', '186.0130 (0.0030)')
    """
    x = np.asarray(values, dtype=np.float64)
    mean, std = float(x.mean()), float(x.std())
    if x.size == 1 or not math.isfinite(std):
        return format_number(mean, digits)
    std = std if std > NOISE * abs(mean) else 0.0
    if 0 < max(abs(mean), std) < SMALLEST:
        return f"{format_number(mean, digits)} ({format_number(std, 2)})"
    places = max(decimal_places(mean, digits) if abs(mean) >= SMALLEST else 0, decimal_places(std, 2))
    return f"{mean:,.{places}f} ({std:,.{places}f})"


def format_interval(low: float, high: float, digits: int = 4) -> str:
    """Format an interval, both ends to the same decimals; a dash if it does not exist.

    Parameters
    ----------
    low, high
        Its ends.
    digits
        Significant digits of the end that is larger in size; the other has three, unless it is far smaller.

    Returns
    -------
    str

    Examples
    --------
    >>> format_interval(-0.5, 12.25), format_interval(6.63, 10.11, 3), format_interval(float("nan"), float("nan"))
    ('-0.500 to 12.250', '6.63 to 10.11', '–')
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return NOTHING
    smallest, largest = sorted((abs(low), abs(high)))
    if 0 < largest < SMALLEST:
        return f"{low:.{digits - 1}e} to {high:.{digits - 1}e}"
    places = decimal_places(largest, digits)
    places = min(max(places, decimal_places(smallest, 3)), places + 2)
    return f"{low:,.{places}f} to {high:,.{places}f}"


def format_signed(value: float, digits: int = 3) -> str:
    """Format a number with its sign.

    Examples
    --------
    >>> format_signed(0.0123), format_signed(-1234.5), format_signed(0.0)
    ('+0.0123', '-1,234', '0')
    """
    return format_number(value, digits, sign=True)


def format_excess(ratio: float, digits: int = 3) -> str:
    """Format by how much a ratio exceeds 1, in percent and without the percent sign.

    Examples
    --------
    >>> format_excess(1.0542), format_excess(9.6), format_excess(1.0)
    ('5.42', '860', '0')
    """
    excess = ratio - 1
    return format_number(100 * excess if abs(excess) > NOISE else 0.0, digits)


def format_p_value(p: float) -> str:
    """Format a p-value; very small ones as a bound.

    Examples
    --------
    >>> format_p_value(0.00001), format_p_value(0.0123)
    ('< 0.0001', '0.0123')
    """
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"
