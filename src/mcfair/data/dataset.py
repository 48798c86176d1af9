"""Dataset: queries with their candidate items, as frozen ragged arrays."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..arrays import BoolArray, FloatArray, IntArray
from ..errors import DataError, renamed, renamed_fields, renamed_parameters
from . import facts
from .checks import check_ids, checked_grades, checked_offsets, checked_y_max
from .grades import GradeArray, relevance
from .protocols import NO_PROTOCOL, Protocol
from .providers import checked_codes, encode_providers, providers_within_queries
from .selecting import chosen_queries, rows_of_queries

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Dataset"]


@renamed_fields(groups="providers", group_names="provider_names")
@dataclasses.dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Dataset:
    """Queries and their candidate items; item i of query q is at position `offsets[q] + i` of every item array.

    Parameters
    ----------
    offsets : (queries + 1,) int array
        Where each query's items begin; the last entry is the number of items.
    y : (items,) int array
        Relevance grades, whole numbers from 0 to y_max.
    R : (items,) float array, optional
        True relevance in [0, 1], by which users click and metrics judge; if left out, that of the grades with ε = 0.1.
    y_max : int, optional
        The highest grade there can be; kept by `select`. The highest grade in `y` if left out.
    scores : (items,) float array, optional
        What policies see instead of R when relevance is given, such as the output of a trained model.
    X : (items, features) float array, optional
        Features.
    providers : (items,) sequence of str or int, optional
        Who offers each item: a seller, a brand, an author, or any other group of items. An item whose label is None, ""
        or nan is a provider of its own, and without labels every item is. Stored as codes, see `provider_names`.
    provider_names : tuple of str, optional
        The label of each provider, "" for the provider of an item without a label. If given, `providers` are codes:
        positions in this tuple.
    query_ids, item_ids : sequences of str, optional
        Names, distinct among all queries and among the items of a query; by default the places of the queries in the
        file and of the items in their query.
    places : (queries,) int array, optional
        Each query's place in the file it came from. Random draws depend on it, so a selection does not change them.
    name : str
        Name in tables.
    fingerprint : str
        Hash of the content; computed from the arrays if left out.
    protocol : Protocol
        The protocol it was loaded by.
    catalogue : str
        Name in the catalogue that its file was recognised as by checksum, such as "mq2008/fold1"; "" if it was not.

    Raises
    ------
    DataError
        If an array has the wrong length or a value that is not allowed, or if an id occurs twice.

    Examples
    --------
    >>> Dataset(offsets=[0, 2, 5], y=[0, 1, 0, 2, 1], name="toy")
    Dataset('toy': 2 queries, 5 items, 2-3 per query, grades 0-2)
    """

    offsets: IntArray
    y: GradeArray
    R: FloatArray = None  # type: ignore[assignment]  # filled in by __post_init__, as are the next ones
    y_max: int = None  # type: ignore[assignment]
    scores: FloatArray | None = None
    X: npt.NDArray[np.float32] | None = None
    providers: IntArray | None = None
    provider_names: tuple[str, ...] = ()
    query_ids: Sequence[str] | None = None
    item_ids: Sequence[str] | None = None
    places: IntArray = None  # type: ignore[assignment]
    name: str = "data"
    fingerprint: str = ""
    protocol: Protocol = NO_PROTOCOL
    catalogue: str = ""

    if TYPE_CHECKING:  # whatever can be made into an array may be given, but the fields are arrays

        def __init__(
            self,
            *,
            offsets: npt.ArrayLike,
            y: npt.ArrayLike,
            R: npt.ArrayLike | None = None,
            y_max: int | None = None,
            scores: npt.ArrayLike | None = None,
            X: npt.ArrayLike | None = None,
            providers: Sequence[str | int | None] | IntArray | None = None,
            provider_names: tuple[str, ...] = (),
            query_ids: Sequence[str] | None = None,
            item_ids: Sequence[str] | None = None,
            places: npt.ArrayLike | None = None,
            name: str = "data",
            fingerprint: str = "",
            protocol: Protocol = NO_PROTOCOL,
            catalogue: str = "",
        ) -> None: ...

    def __post_init__(self) -> None:
        def put(field: str, value: Any) -> None:
            if isinstance(value, np.ndarray) and value.flags.writeable:
                value = value.view()
                value.flags.writeable = False
            object.__setattr__(self, field, value)

        put("offsets", checked_offsets(self.offsets, self.name))
        put("y", checked_grades(self.y, self.name))
        put("y_max", checked_y_max(self.y_max, self.y, self.name))
        put("R", relevance(self.y, self.y_max) if self.R is None else np.ascontiguousarray(self.R, dtype=np.float64))
        if self.scores is not None:
            put("scores", np.ascontiguousarray(self.scores, dtype=np.float64))
        if self.X is not None:
            put("X", np.ascontiguousarray(self.X))
        put("places", np.ascontiguousarray(np.arange(self.queries) if self.places is None else self.places, np.int64))
        if self.providers is not None:
            self._check_length("providers", len(self.providers), self.items)
            names = tuple(self.provider_names)
            given = self.providers
            codes, names = checked_codes(given, names, self.name) if names else encode_providers(given, self.name)
            put("providers", codes)
            put("provider_names", names)
        self._check_arrays()
        check_ids(self.query_ids, self.item_ids, self.offsets, self.query_id, self.name)
        if not self.fingerprint:
            put("fingerprint", self._hash())

    def _check_length(self, field: str, length: int, expected: int) -> None:
        if length != expected:
            raise DataError(f"{self.name}: {field} has {length} entries, expected {expected}")

    def _check_arrays(self) -> None:
        for field in ("y", "R", "scores", "X", "providers", "item_ids", "query_ids", "places"):
            value = getattr(self, field)
            if value is None:
                continue
            dimensions = 2 if field == "X" else 1
            if isinstance(value, np.ndarray) and value.ndim != dimensions:
                raise DataError(f"{self.name}: {field} must have {dimensions} dimension(s), got shape {value.shape}")
            self._check_length(field, len(value), self.queries if field in ("query_ids", "places") else self.items)
        for field, low, high in (("R", 0.0, 1.0), ("scores", -np.inf, np.inf), ("X", -np.inf, np.inf)):
            value = getattr(self, field)
            if value is not None and not (good := np.isfinite(value) & (value >= low) & (value <= high)).all():
                allowed = "numbers from 0 to 1" if field == "R" else "finite numbers"
                raise DataError(f"{self.name}: {field} must hold {allowed}, got {value[~good].flat[0]}")

    def _hash(self) -> str:
        digest = hashlib.sha256()
        for array in (self.offsets, self.y, self.R, self.scores, self.X, self.places):
            digest.update(b"-" if array is None else f"{array.dtype}{array.shape}".encode() + array.tobytes())
        if self.providers is not None:  # data without providers keeps the hash it had before there were any
            digest.update(b"groups" + self.providers.tobytes() + json.dumps(self.provider_names).encode())
        return digest.hexdigest()

    @classmethod
    @renamed_parameters(group="provider")
    def from_frame(
        cls,
        df: Any,
        *,
        query: str,
        item: str | None = None,
        grade: str | None = None,
        relevance: str | None = None,
        score: str | None = None,
        provider: str | None = None,
        name: str = "data",
    ) -> Dataset:
        """Build a dataset from a pandas, Polars or Arrow table with one row for each item of each query.

        Rows of a query need not be adjacent: queries are in the order of their first rows, items in that of their rows.

        Parameters
        ----------
        df
            A pandas or Polars data frame, an Arrow table or another object with the Arrow PyCapsule interface.
        query
            Column of the query ids: text or whole numbers.
        item
            Column of the item ids, distinct within a query.
        grade, relevance
            Column of the grades (whole numbers from 0) or of the relevance (numbers from 0 to 1): one of the two. With
            relevance the grade is 1 where the relevance is above 0.
        score
            Column of the scores that policies see instead of the relevance.
        provider
            Column of the providers: text or whole numbers, null where an item has none.
        name
            Name in tables.

        Returns
        -------
        Dataset

        Raises
        ------
        DataError
            If a column does not exist, or a value is missing, of the wrong type or out of range, or if an item occurs
            twice in a query. The error names the column and the row, counted from 1.

        Examples
        --------
        >>> import polars as pl
        >>> df = pl.DataFrame({"q": ["x", "y", "x"], "label": [2, 0, 1], "seller": ["A", "A", None]})
        >>> data = Dataset.from_frame(df, query="q", grade="label", provider="seller", name="shop")
        >>> data
        Dataset('shop': 2 queries, 3 items, 1-2 per query, grades 0-2, 2 providers)
        >>> data.y.tolist()
        [2, 1, 0]
        """
        from .frames import build_dataset  # imports Polars, which simulations and services need not load

        roles = {"query": query, "item": item, "grade": grade, "relevance": relevance, "score": score}
        columns = roles | {"provider": provider}
        return build_dataset(df, {role: column for role, column in columns.items() if column is not None}, name)

    @classmethod
    def from_trec(cls, qrels: Any, run: Any = None, *, name: str = "data") -> Dataset:
        """Build a dataset from TREC's judgements, and from a run if its documents are the candidates.

        Parameters
        ----------
        qrels
            Path of a qrels file, or a table with columns query_id, doc_id, relevance (or qid, docno, label). Grades
            below 0 count as 0.
        run
            Path of a run, or a table with columns query_id, doc_id, score. Its documents are the candidates, its scores
            what policies see; a document that was not judged has grade 0. Without a run, all judged documents.
        name
            Name in tables.

        Raises
        ------
        DataError
            If a file or a table is not as expected, or no query of the judgements is in the run.
        """
        from .trec import data_from_trec

        return data_from_trec(qrels, run, name)

    def to_qrels(self) -> pl.DataFrame:
        """Return the grades as TREC's judgements, for other evaluation tools; `write_trec` writes them to a file.

        Returns
        -------
        polars.DataFrame
            Columns query_id, doc_id, relevance: the grade, or without grades 1 wherever relevance is above 0.

        Examples
        --------
        >>> Dataset(offsets=[0, 2], y=[0, 2], query_ids=["shoes"], item_ids=["u", "v"]).to_qrels().rows()
        [('shoes', 'u', 0), ('shoes', 'v', 2)]
        """
        from .trec import qrels_table

        return qrels_table(self)

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

    @cached_property
    def query_providers(self) -> IntArray:
        """Each item's provider, numbered from 0 within its query in order of first appearance, shape (items,).

        Examples
        --------
        >>> Dataset(offsets=[0, 3, 5], y=[0] * 5, providers=["b", "a", "b", "a", None]).query_providers.tolist()
        [0, 1, 0, 0, 1]
        """
        codes = providers_within_queries(self.providers, self.offsets)
        codes.flags.writeable = False
        return codes

    def __len__(self) -> int:
        return self.queries

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}: {self._summary()})"

    def _summary(self) -> str:
        return facts.summary(self)

    def _repr_html_(self) -> str:
        return facts.html_table(self)

    def query_id(self, query: int) -> str:
        """Return the name of a query."""
        return str(self.places[query]) if self.query_ids is None else self.query_ids[query]

    def provider_name(self, code: int) -> str:
        """Return the label of a provider, or for an item without a label its query and its name.

        Examples
        --------
        >>> data = Dataset(offsets=[0, 2], y=[0, 1], providers=["shop", None], query_ids=["shoes"], item_ids=["u", "v"])
        >>> data.provider_name(0), data.provider_name(1)
        ('shop', 'item v of query shoes')
        """
        if self.providers is None:
            position = code
        elif self.provider_names[code]:
            return self.provider_names[code]
        else:
            position = int(np.argmax(self.providers == code))
        query = int(np.searchsorted(self.offsets, position, side="right")) - 1
        item = position - self.offsets[query] if self.item_ids is None else self.item_ids[position]
        return f"item {item} of query {self.query_id(query)}"

    def pool(self) -> tuple[Dataset, BoolArray]:
        """Return the queries that sessions are drawn from, and which of them are evaluated.

        Returns
        -------
        Dataset, (queries,) bool array

        Examples
        --------
        >>> queries, evaluated = Dataset(offsets=[0, 2], y=[0, 1]).pool()
        >>> queries.queries, evaluated.tolist()
        (1, [True])
        """
        return self, np.ones(self.queries, bool)

    @property
    def query_groups(self) -> IntArray:
        """The old name of `query_providers`."""
        renamed("query_groups", "query_providers")
        return self.query_providers

    def group_name(self, code: int) -> str:
        """Return what `provider_name` does; its old name."""
        renamed("group_name", "provider_name")
        return self.provider_name(code)

    def with_groups(self, groups: Sequence[Any]) -> Dataset:
        """Return what `with_providers` does; its old name."""
        renamed("with_groups", "with_providers")
        return self.with_providers(groups)

    def with_relevance(self, epsilon: float) -> Dataset:
        """Return the same data with R computed from the grades with another ε, see `relevance`."""
        return self._replace(R=relevance(self.y, self.y_max, epsilon), fingerprint="")

    def with_providers(self, providers: Sequence[Any]) -> Dataset:
        """Return the same data with these providers, one for each item, as the constructor expects them."""
        return self._replace(providers=providers, provider_names=(), fingerprint="")

    def hiding_truth(self, scores: FloatArray) -> Dataset:
        """Return the same queries as a policy may see them: `scores` in place of relevance; y and R are all 0."""
        return self._replace(y=np.zeros_like(self.y), R=np.zeros_like(self.R), scores=scores)

    @cached_property
    def without_features(self) -> Dataset:
        """The same data without features, which are large and which results do not need."""
        return self if self.X is None and type(self) is Dataset else self._replace(X=None)

    def _replace(self, **changes: Any) -> Dataset:
        """Return a plain Dataset with other fields; a Fold's other parts, which hold the truth, are left behind."""
        return Dataset(**({field.name: getattr(self, field.name) for field in dataclasses.fields(Dataset)} | changes))

    def select(
        self, *, min_items: int = 0, max_items: int | None = None, relevant_only: bool = False, drop_last: bool = False
    ) -> Dataset:
        """Return some of the queries; draws, y_max, providers and identifiers stay those of the whole.

        Parameters
        ----------
        min_items, max_items
            Keep queries with at least and at most so many items.
        relevant_only
            Keep queries with at least one item of a grade above 0.
        drop_last
            Leave out the last query.

        Raises
        ------
        DataError
            If no query is left.
        """
        keep = chosen_queries(self, min_items, max_items, relevant_only, drop_last)
        return self.take(np.flatnonzero(keep))

    def take(self, queries: npt.ArrayLike) -> Dataset:
        """Return the queries at these positions, in this order."""
        chosen = np.asarray(queries, dtype=np.int64)
        if chosen.size == self.queries and np.array_equal(chosen, np.arange(self.queries)):
            return self if type(self) is Dataset else self._replace()
        return self._replace(**rows_of_queries(self, chosen))
