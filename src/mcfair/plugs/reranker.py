"""A re-ranker in the manner of scikit-learn: parameters, `rank` and `partial_fit`."""

from __future__ import annotations

import inspect
from types import TracebackType
from typing import Any, Self

import polars as pl

from ..data.frames import as_frame, columns_of, read_candidates
from ..errors import DataError, SettingError, unknown
from ..service.ranker import Ranker

__all__ = ["FairReranker"]


class FairReranker:
    """Rank tables of candidates fairly, and learn from clicks.

    It is a `Ranker` behind the interface that scikit-learn's users expect: `get_params` and `set_params`, so that
    `sklearn.base.clone` works, tables in and out, and `partial_fit` for what arrives later.

    Parameters
    ----------
    policy
        The policy or its text; None for the default policy of the service.
    k
        Length of a list.
    store
        Where exposure and clicks are kept: `memory:`, or `sqlite:///PATH` to keep them for the next program.
    estimator
        How relevance is estimated.

    Attributes
    ----------
    ranker_ : Ranker
        The ranker, once something was ranked.

    Examples
    --------
    >>> table = pl.DataFrame({"query": ["shoes"] * 3, "item": ["a", "b", "c"], "prior": [0.9, 0.5, 0.1]})
    >>> with FairReranker(policy="MCFair", k=2) as reranker:
    ...     lists = reranker.rank(table)
    ...     _ = reranker.partial_fit(lists.head(1))
    ...     lists.select("item", "rank").rows()
    [('a', 1), ('b', 2)]
    """

    def __init__(
        self, policy: Any = None, *, k: int = 10, store: str = "memory:", estimator: str | None = None
    ) -> None:
        self.policy, self.k, self.store, self.estimator = policy, k, store, estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; what was counted before is no longer used.

        Raises
        ------
        SettingError
            If there is no parameter of this name.
        """
        for name in params:
            if name not in self.get_params():
                raise SettingError(unknown("parameter", name, self.get_params()))
        self.close()
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        return f"FairReranker({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"

    def rank(self, table: Any) -> Any:
        """Rank the candidates of every query in a table, and count the lists as shown.

        Parameters
        ----------
        table
            A pandas, Polars or Arrow table with columns query, item and optionally prior (or score) and provider.

        Returns
        -------
        table of the same library (Polars for Arrow)
            The rows of the items in the lists, query by query and in their order, with the columns rank (from 1) and
            impression added.

        Raises
        ------
        DataError
            If the table is not as expected.
        """
        table = as_frame(table, "the table")
        read = read_candidates(table).with_row_index("row")
        chosen: list[int] = []
        ranks: list[int] = []
        impressions: list[str] = []
        for (query,), part in read.group_by("query", maintain_order=True):
            answer = self._opened().rank(str(query), [candidate(each) for each in part.iter_rows(named=True)], k=self.k)
            rows = dict(zip(part["item"], part["row"], strict=True))
            chosen += [rows[item.id] for item in answer.items]
            ranks += range(1, len(answer.items) + 1)
            impressions += [str(answer.impression)] * len(answer.items)
        if hasattr(table, "iloc"):
            return table.iloc[chosen].assign(rank=ranks, impression=impressions)
        return table[chosen].with_columns(pl.Series("rank", ranks), pl.Series("impression", impressions))

    def partial_fit(self, clicks: Any) -> Self:
        """Learn from clicks on lists that `rank` returned; repeated clicks count once.

        Parameters
        ----------
        clicks
            A table with columns impression and item, a row for each click: rows of a result of `rank`, for example.

        Raises
        ------
        DataError
            If a column is missing, or an impression or an item in it is not known.
        """
        clicks = as_frame(clicks, "clicks")
        item = next(
            (name for name in map(str, clicks.columns) if name in ("item", "item_id", "doc_id", "docno")), "item"
        )
        read = columns_of(clicks, {"impression": "impression", "item": item}, "clicks")
        events = [{"impression": impression, "item": str(item)} for impression, item in read.iter_rows()]
        for event, result in zip(events, self._opened().feedback(events), strict=True):
            if result.status not in ("applied", "duplicate"):
                raise DataError(
                    f"click on item {event['item']!r} of impression {event['impression']!r}: {result.status}"
                )
        return self

    def _opened(self) -> Ranker:
        if not hasattr(self, "ranker_"):
            rules: dict[str, Any] = {} if self.estimator is None else {"estimator": self.estimator}
            self.ranker_ = Ranker(self.store, policy=self.policy, **rules)
        return self.ranker_

    def close(self) -> None:
        """Close the ranker; what is not in a file is lost."""
        if hasattr(self, "ranker_"):
            self.ranker_.close()
            del self.ranker_

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def candidate(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a table of candidates as the ranker expects it."""
    fields = {"id": row["item"], "prior": row.get("relevance"), "group": row.get("provider")}
    return {name: value for name, value in fields.items() if value is not None}
