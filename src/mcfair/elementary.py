"""Logarithm and exponential, made of IEEE additions, multiplications and one division.

Those of the C library differ from one machine to another in the last bit, and a loop that calls them is not
vectorised. These have the same bits everywhere, compiled or interpreted, and an error of at most two units in the last
place. Their polynomials are summed in pairs rather than term by term, so that multiplications overlap.
"""

from __future__ import annotations

import math

import numpy as np

from ._jit import kernel


def bits(x: float) -> np.uint64:
    """Return the bits of a number, to define constants."""
    return np.float64(x).view(np.uint64)


EXPONENT, BIAS = np.uint64(0xFFF << 52), np.uint64(1023 << 52)
MANTISSA_BITS = np.uint64(52)
TO_REDUCED = np.uint64(BIAS - bits(math.sqrt(0.5)))  # carries into the exponent if the significand is above √2
AS_FLOAT, AS_FLOAT_BITS = 2.0**52 + 1023.0, bits(2.0**52)  # a whole number in the low bits of 2^52 is read as a float
ROUND = 1.5 * 2.0**52 + 1023.0  # adding it rounds to a whole number, which with the bias is then in the low bits
LN2, LN2_REST = 0.6931471803691238, 1.9082149292705877e-10  # their sum is ln 2; the first has trailing zeros
LEAST = -700.0  # exp of less is taken as exp of this, about 1e-304


@kernel
def log(x: float) -> float:
    """Return the natural logarithm of a positive normal number.

    With x = 2^k m, m from √½ to √2, and s = (m - 1)/(m + 1): log x = k ln 2 + 2 (s + s³/3 + s⁵/5 + …).
    """
    number = np.float64(x).view(np.uint64)
    shifted = number + TO_REDUCED
    k = np.uint64((shifted >> MANTISSA_BITS) | AS_FLOAT_BITS).view(np.float64) - AS_FLOAT
    m = np.uint64(number + BIAS - (shifted & EXPONENT)).view(np.float64)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    z2 = z * z
    z4 = z2 * z2
    low = (2.0 / 3.0 + z * (2.0 / 5.0)) + z2 * (2.0 / 7.0 + z * (2.0 / 9.0))
    middle = (2.0 / 11.0 + z * (2.0 / 13.0)) + z2 * (2.0 / 15.0 + z * (2.0 / 17.0))
    series = low + z4 * (middle + z4 * (2.0 / 19.0 + z * (2.0 / 21.0)))
    return float(k * LN2 + (2.0 * s + (s * z * series + k * LN2_REST)))


@kernel
def exp(x: float) -> float:
    """Return e^x for x of at most 700.

    With n the whole number nearest to x/ln 2 and r = x - n ln 2: e^x = 2^n (1 + r + r²/2 + …).
    """
    x = max(x, LEAST)
    rounded = x * (1.0 / math.log(2.0)) + ROUND
    n = rounded - ROUND
    r = (x - n * LN2) - n * LN2_REST
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 / 2.0 + r * (1.0 / 6.0)) + r2 * (1.0 / 24.0 + r * (1.0 / 120.0))
    middle = (1.0 / 720.0 + r * (1.0 / 5040.0)) + r2 * (1.0 / 40320.0 + r * (1.0 / 362880.0))
    series = low + r4 * (middle + r4 * (1.0 / 3628800.0 + r * (1.0 / 39916800.0) + r2 * (1.0 / 479001600.0)))
    power = np.uint64(np.float64(rounded).view(np.uint64) << MANTISSA_BITS).view(np.float64)
    return float(power * (1.0 + (r + r2 * series)))
