"""Position bias: the probability that a user examines a rank."""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from ..errors import SettingError, renamed_parameters

__all__ = ["examination"]


@renamed_parameters(k_s="k")
def examination(k: int, severity: float = 1.0) -> FloatArray:
    """Return the probability that a user examines each of the ranks 1 to k; below k it is 0 (Eq. 11).

    Parameters
    ----------
    k
        Number of ranks that users look at: the selection bias.
    severity
        Strength of the position bias: `p_j = (1 / log2(j + 1)) ** severity`; 1 is the paper's, 0 is none.

    Returns
    -------
    p : (k,) array

    Raises
    ------
    SettingError
        If k is below 1, or the severity is negative or not finite.

    Examples
    --------
    >>> examination(3).round(3).tolist()
    [1.0, 0.631, 0.5]
    """
    if k < 1:
        raise SettingError(f"k = {k}: expected the number of ranks users look at, a whole number of at least 1")
    if not 0 <= severity < float("inf"):
        raise SettingError(f"severity = {severity}: expected a finite number of at least 0")
    return (1.0 / np.log2(np.arange(2, k + 2))) ** severity
