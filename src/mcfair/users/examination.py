"""Position bias: the probability that a user examines a rank."""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from ..errors import SettingError

__all__ = ["examination"]


def examination(k_s: int, severity: float = 1.0) -> FloatArray:
    """Return the probability that a user examines each of the ranks 1 to k_s; below k_s it is 0 (Eq. 11).

    Parameters
    ----------
    k_s
        Number of ranks that users look at: the selection bias.
    severity
        Strength of the position bias: `p_j = (1 / log2(j + 1)) ** severity`; 1 is the paper's, 0 is none.

    Returns
    -------
    p : (k_s,) array

    Raises
    ------
    SettingError
        If k_s is below 1, or the severity is negative or not finite.

    Examples
    --------
    >>> examination(3).round(3).tolist()
    [1.0, 0.631, 0.5]
    """
    if k_s < 1:
        raise SettingError(f"k_s = {k_s}: expected the number of ranks users look at, a whole number of at least 1")
    if not 0 <= severity < float("inf"):
        raise SettingError(f"severity = {severity}: expected a finite number of at least 0")
    return (1.0 / np.log2(np.arange(2, k_s + 2))) ** severity
