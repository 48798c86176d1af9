"""Providers of items: from labels to codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import IntArray
from ..errors import DataError

__all__ = ["checked_codes", "encode_providers", "providers_within_queries"]


def encode_providers(labels: Iterable[Any], name: str) -> tuple[IntArray | None, tuple[str, ...]]:
    """Assign numbers to providers in the order in which they first appear.

    Parameters
    ----------
    labels : (items,) sequence of str or int
        The provider of each item; None, "" or nan for an item without one, which becomes a provider of its own.
    name
        What error messages call the data.

    Returns
    -------
    codes : (items,) int array or None
        The number of each item's provider; None if no item has a label.
    names : tuple of str
        The label of each provider, "" for an item without one.

    Raises
    ------
    DataError
        If a label is neither text nor a whole number.

    Examples
    --------
    >>> codes, names = encode_providers(["shop b", None, "shop a", "shop b"], "data")
    >>> codes.tolist(), names
    ([0, 1, 2, 0], ('shop b', '', 'shop a'))
    """
    given = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    codes = np.empty(len(given), np.int64)
    names: list[str] = []
    known: dict[str, int] = {}
    for i, label in enumerate(given):
        text = label if isinstance(label, str) else label_text(label, name, i)
        code = known.get(text) if text else None
        if code is None:
            code = len(names)
            names.append(text)
            if text:
                known[text] = code
        codes[i] = code
    return (codes, tuple(names)) if known else (None, ())


def label_text(label: object, name: str, item: int) -> str:
    """Return a label that is no text as text, "" where there is none."""
    if label is None or label != label:
        return ""
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, float) and label.is_integer():  # whole numbers with gaps among them are floats in pandas
        label = int(label)
    if isinstance(label, bool) or not isinstance(label, int | str):
        raise DataError(
            f"{name}: providers must be text or whole numbers, None for an item without one, got {label!r} for item "
            f"{item}"
        )
    return str(label)


def checked_codes(providers: npt.ArrayLike, names: tuple[str, ...], name: str) -> tuple[IntArray, tuple[str, ...]]:
    """Convert codes of providers to int64; raise DataError if one is no position in `names`."""
    codes = np.ascontiguousarray(providers, dtype=np.int64)
    if codes.size and not 0 <= codes.min() <= codes.max() < len(names):
        raise DataError(
            f"{name}: codes of providers must be from 0 to {len(names) - 1}, got {codes.min()} to {codes.max()}"
        )
    return codes, names


def providers_within_queries(providers: IntArray | None, offsets: IntArray) -> IntArray:
    """Assign numbers from 0 to the providers of each query, in the order of their first items.

    Without providers every item is a provider of its own.

    Examples
    --------
    >>> providers_within_queries(np.array([7, 5, 7, 5, 5]), np.array([0, 3, 5])).tolist()
    [0, 1, 0, 0, 0]
    """
    n = np.diff(offsets)
    items = int(offsets[-1])
    if providers is None:
        return np.arange(items) - np.repeat(offsets[:-1], n)
    pairs = np.repeat(np.arange(n.size), n) * (int(providers.max(initial=0)) + 1) + providers
    _, first, pair = np.unique(pairs, return_index=True, return_inverse=True)
    rank = np.empty(first.size, np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    # Ranks go on from query to query, and the first item of a query has the lowest rank of the query.
    ranks: IntArray = rank[pair]
    filled = n > 0
    return ranks - np.repeat(ranks[offsets[:-1][filled]], n[filled])
