"""Periods: the hours, days, weeks, months or years of a log, by its length."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

import numpy as np

from ..arrays import IntArray

__all__ = ["Periods"]

MOST = 60
"""Periods up to which a unit is chosen: hours, else days, else weeks, else months, else years."""

MONDAY = np.datetime64("1970-01-05")


@dataclasses.dataclass(frozen=True, eq=False)
class Periods:
    """Consecutive periods of one unit, in UTC.

    Attributes
    ----------
    unit : str
        hour, day, week (from Monday), month or year.
    begins : (periods,) datetime64[h] array
        The first hour of each.

    Examples
    --------
    >>> periods = Periods.of(datetime(2024, 1, 3), datetime(2024, 1, 6, 7))
    >>> periods.unit, periods.labels()
    ('day', ['2024-01-03', '2024-01-04', '2024-01-05', '2024-01-06'])
    """

    unit: str
    begins: np.ndarray

    def __len__(self) -> int:
        return self.begins.size

    @classmethod
    def of(cls, begin: datetime, end: datetime) -> Periods:
        """Return the periods from the first to the last time of a log: the shortest unit that is not too many."""
        ends: Any = np.array([begin, end], "M8[h]")
        for unit, code in (("hour", "h"), ("day", "D"), ("week", "W"), ("month", "M"), ("year", "Y")):
            if unit == "week":
                first, last = (ends.astype("M8[D]") - MONDAY) // np.timedelta64(7, "D")
            else:
                first, last = ends.astype(f"M8[{code}]").astype(np.int64)
            if last - first < MOST:
                break
        counts = np.arange(first, last + 1)
        begins: Any = MONDAY + (7 * counts).astype("m8[D]") if unit == "week" else counts.astype(f"M8[{code}]")
        return cls(unit, begins.astype("M8[h]"))

    @classmethod
    def none(cls) -> Periods:
        """Return the periods of a log without times."""
        return cls("", np.empty(0, "M8[h]"))

    def index(self, hours: IntArray) -> IntArray:
        """Return the period of each hour since 1970; -1 before the first, which is that of a row without a time."""
        return np.searchsorted(self.begins.astype(np.int64), hours, side="right") - 1

    def labels(self) -> list[str]:
        """Return the first day of each period, or its first hour."""
        return [str(each).replace("T", " ") + ":00" if self.unit == "hour" else str(each)[:10] for each in self.begins]
