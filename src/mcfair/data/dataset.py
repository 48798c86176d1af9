"""Dataset: queries with their candidate items, as frozen ragged arrays, and the relevance that grades stand for."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..arrays import BoolArray, FloatArray, IntArray
from ..errors import DataError, SettingError, renamed, renamed_fields, renamed_parameters
from .protocols import NO_PROTOCOL, Protocol

if TYPE_CHECKING:
    import polars as pl


HIGHEST_GRADE = 1000  # 2**grade must be finite

EPSILON = 0.1
"""Default relevance of an item of grade 0."""

GradeArray = npt.NDArray[np.int16]


def relevance(y: npt.ArrayLike, y_max: int, epsilon: float = EPSILON) -> FloatArray:
    """Return the probability that a user finds an item of grade y relevant.

    `R = ε + (1 - ε) (2**y - 1) / (2**y_max - 1)`; when y_max is 0 every item has R = ε.

    Parameters
    ----------
    y : (items,) int array
        Grades, 0 to y_max.
    y_max
        The highest grade there can be.
    epsilon
        Relevance of an item of grade 0.

    Returns
    -------
    (items,) float array

    Raises
    ------
    SettingError
        If epsilon is not a number from 0 to 1.

    Examples
    --------
    >>> relevance([0, 1, 2], y_max=2).round(3).tolist()
    [0.1, 0.4, 1.0]
    """
    if not 0 <= epsilon <= 1:
        raise SettingError(f"epsilon = {epsilon}: expected a probability, a number from 0 to 1")
    gain = np.ldexp(1.0, np.asarray(y, dtype=np.int64)) - 1.0
    share = gain / max(2.0**y_max - 1.0, 1.0)
    return np.minimum(epsilon + (1.0 - epsilon) * share, 1.0)  # rounding can lift the highest grade above 1


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
        put = self._put
        put("offsets", checked_offsets(self.offsets, self.name))
        y, y_max = checked_grades(self.y, self.y_max, self.name)
        put("y", y)
        put("y_max", y_max)
        put("R", relevance(self.y, self.y_max) if self.R is None else np.ascontiguousarray(self.R, dtype=np.float64))
        if self.scores is not None:
            put("scores", np.ascontiguousarray(self.scores, dtype=np.float64))
        if self.X is not None:
            put("X", np.ascontiguousarray(self.X))
        put("places", np.ascontiguousarray(np.arange(self.queries) if self.places is None else self.places, np.int64))
        self._check_arrays()
        if self.providers is not None:
            codes, names = encode_providers(self.providers, tuple(self.provider_names), self.name)
            put("providers", codes)
            put("provider_names", names)
        if self.query_ids is not None or self.item_ids is not None:
            check_ids(self)
        if not self.fingerprint:
            put("fingerprint", self._hash())

    def _check_arrays(self) -> None:
        for field in ("y", "R", "scores", "X", "providers", "item_ids", "query_ids", "places"):
            value = getattr(self, field)
            if value is None:
                continue
            dimensions = 2 if field == "X" else 1
            if isinstance(value, np.ndarray) and value.ndim != dimensions:
                raise DataError(f"{self.name}: {field} must have {dimensions} dimension(s), got shape {value.shape}")
            expected = self.queries if field in ("query_ids", "places") else self.items
            if len(value) != expected:
                raise DataError(f"{self.name}: {field} has {len(value)} entries, expected {expected}")
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
        from .frames import data_from_trec

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
        from .frames import qrels_table

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
        n, filled = self.sizes, self.sizes > 0
        if self.providers is None:
            codes = np.arange(self.items) - np.repeat(self.offsets[:-1], n)
        else:
            pairs = np.repeat(np.arange(n.size), n) * (int(self.providers.max(initial=0)) + 1) + self.providers
            _, first, pair = np.unique(pairs, return_index=True, return_inverse=True)
            rank = np.empty(first.size, np.int64)
            rank[np.argsort(first)] = np.arange(first.size)
            # Ranks go on from query to query, and the first item of a query has the lowest rank of the query.
            codes = rank[pair] - np.repeat(rank[pair][self.offsets[:-1][filled]], n[filled])
        codes.flags.writeable = False
        return codes

    def __len__(self) -> int:
        return self.queries

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}: {self._summary()})"

    def _summary(self) -> str:
        known = facts(self)
        parts = [f"{known[key]} {key}" for key in ("queries", "items")]
        parts += [f"{known['items per query']} per query", f"grades {known['grades']}"]
        parts += [f"{known[key]} {key}" for key in ("providers", "features") if known[key] != "none"]
        return ", ".join(parts + ["scores"] * (self.scores is not None))

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{key}</th><td>{escape(text)}</td></tr>" for key, text in facts(self).items())
        return f"<table><caption>{escape(self.name)}</caption><tbody>{rows}</tbody></table>"

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
        scores = np.ascontiguousarray(scores, dtype=np.float64)
        if scores.size != self.items:
            raise DataError(f"{self.name}: scores has {scores.size} entries, expected {self.items}")
        return self._derived(y=np.zeros_like(self.y), R=np.zeros_like(self.R), scores=scores)

    @cached_property
    def without_features(self) -> Dataset:
        """The same data without features, which are large and which results do not need."""
        return self if self.X is None and type(self) is Dataset else self._derived(X=None)

    def _replace(self, **changes: Any) -> Dataset:
        """Return a plain Dataset with other fields; a Fold's other parts, which hold the truth, are left behind."""
        return Dataset(**({field.name: getattr(self, field.name) for field in dataclasses.fields(Dataset)} | changes))

    def _derived(self, **changes: Any) -> Dataset:
        """Return what `_replace` does for fields that follow from valid ones, which are not validated again."""
        made = object.__new__(Dataset)
        for field in dataclasses.fields(Dataset):
            made._put(field.name, changes.get(field.name, getattr(self, field.name)))
        return made

    def _put(self, field: str, value: Any) -> None:
        """Set a field of a dataset that is being made; arrays become read-only views."""
        if isinstance(value, np.ndarray) and value.flags.writeable:
            value = value.view()
            value.flags.writeable = False
        object.__setattr__(self, field, value)

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
        """Return the queries at these positions, in this order."""
        chosen = np.asarray(queries, dtype=np.int64)
        if chosen.size == self.queries and np.array_equal(chosen, np.arange(self.queries)):
            return self if type(self) is Dataset else self._derived()
        n = self.sizes[chosen]
        offsets = np.concatenate(([0], np.cumsum(n)))
        fields: dict[str, Any] = {"offsets": offsets}
        of_items = ("y", "R", "scores", "X", "providers", "item_ids")
        items = np.repeat(self.offsets[chosen] - offsets[:-1], n) + np.arange(offsets[-1])
        for names, at in ((of_items, items), (("query_ids", "places"), chosen)):
            for name in names:
                values = getattr(self, name)
                if values is not None:
                    values = values[at] if isinstance(values, np.ndarray) else [values[i] for i in at.tolist()]
                fields[name] = values
        fields["fingerprint"] = hashlib.sha256(self.fingerprint.encode() + chosen.tobytes()).hexdigest()
        distinct = np.unique(chosen).size == chosen.size
        return self._derived(**fields) if distinct else self._replace(**fields)


# --- validation -------------------------------------------------------------------------------------------------------


def checked_offsets(offsets: npt.ArrayLike, name: str) -> IntArray:
    """Convert offsets to int64.

    Raises
    ------
    DataError
        If they are not whole numbers that begin with 0 and never fall.
    """
    try:
        given = np.asarray(offsets, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        given = np.full(1, np.nan)
    if given.ndim != 1 or not given.size or given[0] != 0 or not (np.diff(given) >= 0).all() or (given % 1).any():
        got = " ".join(str(np.asarray(offsets)).split())
        raise DataError(f"{name}: offsets must be whole numbers that begin with 0 and never fall, got {got}")
    return np.ascontiguousarray(offsets, dtype=np.int64)


def checked_grades(y: npt.ArrayLike, y_max: int | None, name: str) -> tuple[GradeArray, int]:
    """Convert grades to int16, and return the highest there can be, by default the highest there is.

    Raises
    ------
    DataError
        If a grade is not a whole number from 0 to 1000, or y_max none from the highest grade to 1000.

    Examples
    --------
    >>> grades, y_max = checked_grades([0.0, 2.0], None, "data")
    >>> grades.tolist(), y_max
    ([0, 2], 2)
    """
    allowed = f"{name}: grades must be whole numbers from 0 to {HIGHEST_GRADE}"
    try:
        given = np.asarray(y)
        if given.dtype.kind not in "biu":
            given = given.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{allowed}, got {' '.join(repr(y).split())[:60]}") from None
    good = (given >= 0) & (given <= HIGHEST_GRADE) & (given == np.floor(given))  # false for nan
    if not good.all():
        raise DataError(f"{allowed}, got {given[~good].flat[0]}")
    grades = np.ascontiguousarray(given, dtype=np.int16)
    highest = int(grades.max(initial=0))
    if y_max is None:
        return grades, highest
    if not highest <= y_max <= HIGHEST_GRADE or y_max != int(y_max):
        raise DataError(
            f"{name}: y_max = {y_max} is not allowed: expected a whole number from the highest grade, {highest}, to "
            f"{HIGHEST_GRADE}"
        )
    return grades, int(y_max)


def check_ids(data: Dataset) -> None:
    """Raise a DataError if an id occurs twice among the queries or among the items of a query, or is no text."""
    name, item_ids, query_ids = data.name, data.item_ids or (), data.query_ids or ()
    for ids in (query_ids, item_ids):
        try:
            "".join(ids).encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{name}: ids must be Unicode text, got {error.object[error.start]!a} in one") from None
        except TypeError as error:
            raise DataError(f"{name}: ids must be text: {error}") from None
    if len(set(query_ids)) < len(query_ids):
        raise DataError(f"{name}: query ids must be distinct, got {most_frequent(query_ids)!r} twice")
    for query, (begin, end) in enumerate(pairwise(data.offsets.tolist() if item_ids else ())):
        ids = item_ids[begin:end]
        if len(set(ids)) < len(ids):
            raise DataError(
                f"{name}: item ids must be distinct within a query, got {most_frequent(ids)!r} twice in query "
                f"{data.query_id(query)!r}"
            )


def most_frequent(ids: Sequence[str]) -> str:
    """Return the id that occurs most often."""
    return Counter(ids).most_common(1)[0][0]


# --- providers --------------------------------------------------------------------------------------------------------


def encode_providers(
    labels: Iterable[Any], names: tuple[str, ...], name: str
) -> tuple[IntArray | None, tuple[str, ...]]:
    """Assign numbers to providers in the order in which they first appear, unless they have names already.

    Parameters
    ----------
    labels : (items,) sequence of str or int
        The provider of each item; None, "" or nan for an item without one, which becomes a provider of its own. With
        `names`, its position among them.
    names
        The names that there are already.
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
        If a label is neither text nor a whole number, or no position in `names`.

    Examples
    --------
    >>> codes, names = encode_providers(["shop b", None, "shop a", "shop b"], (), "data")
    >>> codes.tolist(), names
    ([0, 1, 2, 0], ('shop b', '', 'shop a'))
    """
    given = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if names:
        codes = np.array(given, dtype=np.int64)
        if codes.size and not 0 <= codes.min() <= codes.max() < len(names):
            raise DataError(
                f"{name}: codes of providers must be from 0 to {len(names) - 1}, got {codes.min()} to {codes.max()}"
            )
        return codes, names
    codes, found, known = np.empty(len(given), np.int64), list[str](), dict[str, int]()
    for i, label in enumerate(given):
        text = label if isinstance(label, str) else label_text(label, name, i)
        codes[i] = known.setdefault(text, len(found)) if text else len(found)
        if codes[i] == len(found):
            found.append(text)
    return (codes, tuple(found)) if known else (None, ())


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


# --- descriptions -----------------------------------------------------------------------------------------------------


def facts(data: Dataset) -> dict[str, str]:
    """Return what there is to know about a dataset, as texts."""
    n = data.sizes
    return {
        "queries": f"{data.queries:,}",
        "items": f"{data.items:,}",
        "items per query": f"{n.min()}-{n.max()}" if n.size else "0",
        "grades": f"0-{data.y_max}",
        "providers": "none" if data.providers is None else f"{np.unique(data.providers).size:,}",
        "features": "none" if data.X is None else str(data.X.shape[1]),
        "protocol": data.protocol.name or "none",
    }
