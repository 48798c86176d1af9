"""The types of arrays that annotations name, arrays that cannot be written to, and the memory there is for them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import SettingError, warn_user

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
CountArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]

Counter = Any
"""A () int array, read as `counter[()]`; NumPy's annotations take that for an array."""


MUCH = 2**32
"""Bytes that nobody expects a command to take: more are said before they are taken."""


def read_only(*values: Any) -> tuple[Any, ...]:
    """Return the same values with arrays replaced by views that cannot be written to."""

    def protected(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        view = value.view()
        view.flags.writeable = False
        return view

    return tuple(protected(value) for value in values)


def check_memory(size: float, what: str) -> None:
    """Raise SettingError if something would need more memory than the machine has, or its container; warn of much.

    Parameters
    ----------
    size
        An estimate, in bytes.
    what
        What needs it, for the message.
    """
    if size > 2**28 and size > (most := memory()):  # smaller things need no look at the machine
        raise SettingError(
            f"{what} would need about {size / 2**30:,.1f} GiB of memory, and there are {most / 2**30:,.1f} GiB"
        )
    if size > MUCH:
        warn_user(f"{what} needs about {size / 2**30:,.1f} GiB of memory")


def memory() -> float:
    """Return the memory of the machine or the limit of its container, in bytes; infinite if it is not known."""
    try:
        most = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # other systems than Unix
        return float("inf")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # a limit of "max" is none
            most = min(most, float(Path(file).read_text()))
    return most
