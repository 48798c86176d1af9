"""Some of the queries of a dataset: which ones, and their part of every array."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import BoolArray, IntArray
from ..errors import DataError

if TYPE_CHECKING:
    from .dataset import Dataset

__all__ = ["chosen_queries", "rows_of_queries"]


def chosen_queries(
    data: Dataset, min_items: int, max_items: int | None, relevant_only: bool, drop_last: bool
) -> BoolArray:
    """Return which queries `Dataset.select` keeps; DataError if none is left."""
    n = data.sizes
    keep = n >= min_items
    if max_items is not None:
        keep &= n <= max_items
    if relevant_only:
        relevant = np.concatenate(([0], np.cumsum(data.y > 0)))
        keep &= relevant[data.offsets[1:]] > relevant[data.offsets[:-1]]
    if drop_last:
        keep[-1:] = False
    if not keep.any():
        span = f"{min_items} or more" if max_items is None else f"{min_items} to {max_items}"
        also = " and a relevant one among them" if relevant_only else ""
        sizes = f"; its queries have {n.min()} to {n.max()}" if n.size else ""
        raise DataError(f"{data.name}: none of {data.queries} queries is left: asked for {span} items{also}{sizes}")
    return keep


def rows_of_queries(data: Dataset, chosen: IntArray) -> dict[str, Any]:
    """Return the arrays, ids and the fingerprint of the queries at these positions."""
    n = data.sizes[chosen]
    offsets = np.concatenate(([0], np.cumsum(n)))
    items = np.repeat(data.offsets[chosen] - offsets[:-1], n) + np.arange(offsets[-1])

    def rows(values: Any, at: IntArray) -> Any:
        if values is None or isinstance(values, np.ndarray):
            return None if values is None else values[at]
        return [values[i] for i in at.tolist()]

    return {
        "offsets": offsets,
        **{field: rows(getattr(data, field), items) for field in ("y", "R", "scores", "X", "providers", "item_ids")},
        **{field: rows(getattr(data, field), chosen) for field in ("query_ids", "places")},
        "fingerprint": hashlib.sha256(data.fingerprint.encode() + chosen.tobytes()).hexdigest(),
    }
