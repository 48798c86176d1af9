"""The types of arrays that annotations name."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BoolArray", "CountArray", "Counter", "FloatArray", "IntArray", "read_only"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
CountArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]

Counter = Any
"""A () int array, read as `counter[()]`; NumPy's annotations take that for an array."""


def read_only(*values: Any) -> tuple[Any, ...]:
    """Return the same values with arrays replaced by views that cannot be written to."""

    def protected(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        view = value.view()
        view.flags.writeable = False
        return view

    return tuple(protected(value) for value in values)
