"""Intervals of figures from their resamples."""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray

__all__ = ["interval"]

LEVELS = (2.5, 97.5)


def interval(values: FloatArray, estimate: FloatArray, most: float = np.inf) -> FloatArray:
    """Return the 95 % interval of figures from their resamples along the first axis; nan where most do not exist.

    Its ends are the percentiles of the resamples less the bias of these, which is their mean less the estimate. A
    resample has the noise of the log and, once more, that of the draw, so that a figure which noise raises, such as a
    squared distance, is larger in most resamples than in the log, and plain percentiles need not hold the estimate. The
    interval is of the expected figure of logs of the same size; figures are at least 0 and at most `most`.

    Examples
    --------
    >>> interval(np.arange(101.0), np.array(40.0)).tolist()
    [0.0, 87.5]
    """
    known = (np.isfinite(values).mean(axis=0) > 0.5) & np.isfinite(estimate)
    held = np.where(known & np.isfinite(values), values, np.where(known, np.nan, 0.0))
    centre = np.where(known, estimate, 0.0)
    ends = np.nanpercentile(held, LEVELS, axis=0) - np.nanmean(held, axis=0) + centre
    ends = np.clip(ends, 0.0, most)
    ends = np.stack((np.minimum(ends[0], centre), np.maximum(ends[1], centre)))  # whatever the skew
    return np.where(known, ends, np.nan)
