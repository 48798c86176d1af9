"""Dataset: queries with their candidate items, as frozen ragged arrays."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import FloatArray, IntArray
from ..errors import DataError
from .grades import relevance

__all__ = ["Dataset", "concatenate"]


@dataclasses.dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Dataset:
    """Queries and their candidate items; item i of query q stands at position `offsets[q] + i` of every item array.

    Parameters
    ----------
    offsets : (queries + 1,) int array
        Where each query's items begin; the last entry is the number of items.
    y : (items,) int array
        Relevance grades, 0 to y_max.
    R : (items,) float array, optional
        True relevance in [0, 1], which users click by and metrics judge by. From the grades with ε = 0.1 if left out.
    y_max : int, optional
        The highest grade there can be; kept by `select`. The highest grade seen if left out.
    scores : (items,) float array, optional
        What policies see instead of R when relevance is given, such as the output of a trained model.
    X : (items, features) float array, optional
        Features.
    query_ids, item_ids : sequences of str, optional
        Names; by default the places of the queries in the file and of the items in their query.
    places : (queries,) int array, optional
        Each query's place in the file it came from: random draws belong to it, so they survive a selection.
    name : str
        What to call it in tables.
    fingerprint : str
        Hash of the content it was made from; computed from the arrays if left out.
    preset : str
        The protocol it was loaded for, "" for none.

    Examples
    --------
    >>> Dataset(offsets=[0, 2, 5], y=[0, 1, 0, 2, 1], name="toy")
    Dataset('toy': 2 queries, 5 items, 2-3 per query, grades 0-2)
    """

    offsets: IntArray
    y: npt.NDArray[np.int16]
    R: FloatArray = None  # type: ignore[assignment]  # filled in by __post_init__, as are the next ones
    y_max: int = None  # type: ignore[assignment]
    scores: FloatArray | None = None
    X: npt.NDArray[np.float32] | None = None
    query_ids: Sequence[str] | None = None
    item_ids: Sequence[str] | None = None
    places: IntArray = None  # type: ignore[assignment]
    name: str = "data"
    fingerprint: str = ""
    preset: str = ""

    def __post_init__(self) -> None:
        def put(field: str, value: Any) -> None:
            if isinstance(value, np.ndarray) and value.flags.writeable:
                value = value.view()
                value.flags.writeable = False
            object.__setattr__(self, field, value)

        put("offsets", np.ascontiguousarray(self.offsets, dtype=np.int64))
        if self.offsets.ndim != 1 or self.offsets.size < 1 or self.offsets[0] != 0 or np.any(np.diff(self.offsets) < 0):
            raise DataError(f"{self.name}: offsets must begin with 0 and never fall, got {self.offsets}")
        put("y", np.ascontiguousarray(self.y, dtype=np.int16))
        if self.y.size and self.y.min() < 0:
            raise DataError(f"{self.name}: grades must be 0 or more, got {self.y.min()}")
        put("y_max", int(self.y.max(initial=0) if self.y_max is None else self.y_max))
        if self.y.size and self.y.max() > self.y_max:
            raise DataError(f"{self.name}: grades must be at most y_max = {self.y_max}, got {self.y.max()}")
        put("R", relevance(self.y, self.y_max) if self.R is None else np.ascontiguousarray(self.R, dtype=np.float64))
        if self.scores is not None:
            put("scores", np.ascontiguousarray(self.scores, dtype=np.float64))
        if self.X is not None:
            put("X", np.ascontiguousarray(self.X))
        put("places", np.ascontiguousarray(np.arange(self.queries) if self.places is None else self.places, np.int64))
        self._check_shapes()
        if not self.fingerprint:
            put("fingerprint", self._hash())

    def _check_shapes(self) -> None:
        for field in ("y", "R", "scores", "X", "item_ids", "query_ids", "places"):
            value, size = getattr(self, field), self.queries if field in ("query_ids", "places") else self.items
            if value is not None and len(value) != size:
                raise DataError(f"{self.name}: {field} has {len(value)} entries, expected {size}")
        for field, low, high in (("R", 0.0, 1.0), ("scores", -np.inf, np.inf), ("X", -np.inf, np.inf)):
            value = getattr(self, field)
            if value is not None and not (np.isfinite(value).all() and np.all((value >= low) & (value <= high))):
                raise DataError(f"{self.name}: {field} must hold finite numbers" + (" from 0 to 1" * (field == "R")))

    def _hash(self) -> str:
        digest = hashlib.sha256()
        for array in (self.offsets, self.y, self.R, self.scores, self.X, self.places):
            digest.update(b"-" if array is None else f"{array.dtype}{array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    @property
    def queries(self) -> int:
        """Number of queries."""
        return self.offsets.size - 1

    @property
    def items(self) -> int:
        """Number of items, over all queries."""
        return int(self.offsets[-1])

    @property
    def sizes(self) -> IntArray:
        """Number of items of each query, shape (queries,)."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return self.queries

    def __repr__(self) -> str:
        n = self.sizes
        span = f"{n.min()}-{n.max()}" if n.size else "0"
        extras = "" if self.X is None else f", {self.X.shape[1]} features"
        extras += "" if self.scores is None else ", scores"
        return (f"Dataset({self.name!r}: {self.queries:,} queries, {self.items:,} items, {span} per query, "
                f"grades 0-{self.y_max}{extras})")  # fmt: skip

    def query_id(self, query: int) -> str:
        """Name of a query."""
        return str(self.places[query]) if self.query_ids is None else self.query_ids[query]

    def with_relevance(self, epsilon: float) -> Dataset:
        """Return the same data with R made from the grades with another ε."""
        return dataclasses.replace(self, R=relevance(self.y, self.y_max, epsilon), fingerprint="")

    def select(
        self, *, min_items: int = 0, max_items: int | None = None, relevant_only: bool = False, drop_last: bool = False
    ) -> Dataset:
        """Keep some of the queries; draws, y_max and identifiers stay those of the whole.

        Parameters
        ----------
        min_items, max_items
            Keep queries with at least and at most so many items.
        relevant_only
            Keep queries with at least one item of a grade above 0.
        drop_last
            Leave out the last query.
        """
        n = self.sizes
        keep = n >= min_items
        if max_items is not None:
            keep &= n <= max_items
        if relevant_only:
            relevant = np.concatenate(([0], np.cumsum(self.y > 0)))
            keep &= relevant[self.offsets[1:]] > relevant[self.offsets[:-1]]
        if drop_last:
            keep[-1:] = False
        if not keep.any():
            span = f"{min_items} or more" if max_items is None else f"{min_items} to {max_items}"
            also = " and a relevant one among them" if relevant_only else ""
            sizes = f"; its queries have {n.min()} to {n.max()}" if n.size else ""
            raise DataError(f"{self.name}: none of {self.queries} queries is left: asked for {span} items{also}{sizes}")
        return self.take(np.flatnonzero(keep))

    def take(self, queries: npt.ArrayLike) -> Dataset:
        """Keep the queries at these positions, in this order."""
        chosen = np.asarray(queries, dtype=np.int64)
        if chosen.size == self.queries and np.array_equal(chosen, np.arange(self.queries)):
            return self
        n = self.sizes[chosen]
        offsets = np.concatenate(([0], np.cumsum(n)))
        items = np.repeat(self.offsets[chosen] - offsets[:-1], n) + np.arange(offsets[-1])
        digest = hashlib.sha256(self.fingerprint.encode() + chosen.tobytes()).hexdigest()
        return Dataset(
            offsets=offsets, y=self.y[items], R=self.R[items], y_max=self.y_max,
            scores=None if self.scores is None else self.scores[items],
            X=None if self.X is None else self.X[items],
            query_ids=None if self.query_ids is None else [self.query_ids[q] for q in chosen],
            item_ids=None if self.item_ids is None else [self.item_ids[i] for i in items],
            places=self.places[chosen], name=self.name, fingerprint=digest, preset=self.preset,
        )  # fmt: skip

    def hiding_truth(self, scores: FloatArray) -> Dataset:
        """Return the same queries as a policy may know them: `scores` is what it is told; y and R are all 0."""
        return dataclasses.replace(self, y=np.zeros_like(self.y), R=np.zeros_like(self.R), scores=scores)


def concatenate(parts: Sequence[Dataset], name: str) -> Dataset:
    """Join datasets one after the other; features, ids and scores are kept where all parts have them.

    The draws of a query belong to its place in the whole.
    """

    def joined(field: str) -> Any:
        values = [getattr(part, field) for part in parts]
        return None if any(each is None for each in values) else np.concatenate(values)

    def listed(field: str) -> list[str] | None:
        values = [getattr(part, field) for part in parts]
        return None if any(each is None for each in values) else [name for each in values for name in each]

    return Dataset(
        offsets=np.concatenate(([0], np.cumsum(np.concatenate([part.sizes for part in parts])))),
        y=joined("y"), R=joined("R"), y_max=max(part.y_max for part in parts), scores=joined("scores"), X=joined("X"),
        query_ids=listed("query_ids"), item_ids=listed("item_ids"), name=name, preset=parts[0].preset,
        fingerprint=hashlib.sha256("".join(part.fingerprint for part in parts).encode()).hexdigest(),
    )  # fmt: skip
