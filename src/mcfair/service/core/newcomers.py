"""The starting exposure of newcomers: items that join a query whose other items have been shown."""

from __future__ import annotations

import numpy as np

from .rules import Weighting


class Newcomers:
    """The starting exposure of each row per unit of relevance, the time bucket it is from, and its value under decay.

    Parameters
    ----------
    capacity
        Number of rows of the arrays.
    """

    def __init__(self, capacity: int) -> None:
        self.exposure, self.weighted = np.zeros(capacity), np.zeros(capacity)
        self.times = np.zeros(capacity, np.int64)

    def grow(self, capacity: int) -> None:
        """Enlarge the arrays to more rows."""
        more = (0, capacity - self.exposure.size)
        self.exposure, self.weighted = np.pad(self.exposure, more), np.pad(self.weighted, more)
        self.times = np.pad(self.times, more)

    def admit(self, rows: list[int], rate: float, bucket: int, weighting: Weighting | None) -> None:
        """Set the starting exposure of rows; `weighting` is that of the sums, None if they are to be recomputed."""
        self.exposure[rows], self.times[rows] = rate, bucket
        if weighting is not None:
            self.weighted[rows] = rate * weighting.newcomer_weight(bucket)

    def clear(self, rows: list[int]) -> None:
        """Clear the starting exposure of rows."""
        self.exposure[rows] = self.weighted[rows] = 0.0
        self.times[rows] = 0

    def reweigh(self, weighting: Weighting) -> None:
        """Recompute the values under decay."""
        self.weighted = self.exposure.copy()
        if weighting.half_life:
            for row in np.flatnonzero(self.exposure):
                self.weighted[row] *= weighting.newcomer_weight(int(self.times[row]))
