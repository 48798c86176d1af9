"""The types of arrays that annotations name."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BoolArray", "CountArray", "Counter", "FloatArray", "IntArray"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
CountArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]

Counter = Any
"""A () int array, read as `counter[()]`; NumPy's annotations take that for an array."""
