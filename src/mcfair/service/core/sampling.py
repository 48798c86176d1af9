"""Even samples of log entries."""

from __future__ import annotations

import numpy as np

from ...arrays import IntArray


def spread(total: int, wanted: int) -> IntArray:
    """Return up to so many distinct places below a total, one drawn from each of as many equal parts.

    At exactly equal distances, a log in which lists and clicks alternate might show clicks alone.
    """
    if wanted >= total:
        return np.arange(total)
    within = np.random.default_rng(0).random(wanted)
    return np.unique(((np.arange(wanted) + within) * (total / wanted)).astype(np.int64))


def sample_entries(spans: list[tuple[int, int, int]], wanted: int) -> list[tuple[int, int]]:
    """Return up to so many log entries, evenly spread over all spans together.

    Parameters
    ----------
    spans
        Query, first and last sequence number of parts of logs.
    wanted
        Maximum number of entries.

    Returns
    -------
    list of (int, int)
        Query and sequence number of each entry, in the order of the spans.
    """
    ends = np.cumsum([last - first + 1 for _, first, last in spans])
    places = spread(int(ends[-1]) if spans else 0, wanted)
    found = []
    for place, at in zip(places.tolist(), np.searchsorted(ends, places, side="right").tolist(), strict=True):
        number, _, last = spans[at]
        found.append((number, last + 1 - int(ends[at]) + place))
    return found
