"""A transformer for PyTerrier: `bm25 >> Fair("MCFair")` re-ranks what another retriever found."""

from __future__ import annotations

from typing import Any

from ..errors import DataError
from .reranker import FairReranker

try:
    import pyterrier
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"mcfair.plugs.pyterrier needs {error.name}: pip install pyterrier") from None

__all__ = ["Fair"]


class Fair(pyterrier.Transformer):  # type: ignore[misc]  # it has no types
    """Re-rank the first k documents of every query, so that exposure follows relevance over many searches.

    Every search counts as a list that was shown: the exposure of the documents is kept from search to search, and
    clicks that are reported with `partial_fit` change what is believed of them. Scores are taken as prior relevance;
    if they do not lie between 0 and 1 they are scaled within each query. A column `provider` (or `group`) names the
    provider of a document. Documents below the list follow in their previous order.

    Parameters
    ----------
    policy, k, store, estimator
        As for `FairReranker`.

    Examples
    --------
    >>> import pandas as pd
    >>> found = pd.DataFrame({"qid": ["1"] * 2, "query": ["red shoes"] * 2, "docno": ["a", "b"], "score": [9.0, 7.0]})
    >>> Fair("MCFair", k=2).transform(found)[["docno", "rank"]].values.tolist()
    [['a', 0], ['b', 1]]
    """

    def __init__(
        self, policy: Any = None, *, k: int = 10, store: str = "memory:", estimator: str | None = None
    ) -> None:
        super().__init__()
        self.reranker = FairReranker(policy, k=k, store=store, estimator=estimator)

    def transform(self, inp: Any) -> Any:
        """Return the documents of every query in their new order; ranks count from 0, and scores fall with them."""
        missing = [column for column in ("qid", "docno", "score") if column not in inp.columns]
        if missing:
            raise DataError(f"Fair: no column {missing[0]}; got {', '.join(map(str, inp.columns))}")
        kept = inp.drop(columns=["rank", "impression"], errors="ignore").reset_index(drop=True)
        if kept.empty:
            return kept.assign(rank=[], impression=[])
        # Two topics may have the same text, and different sets of topics the same ids.
        text = kept["query"] if "query" in kept.columns else kept["qid"]
        sent = [column for column in ("docno", "score", "provider", "group") if column in kept.columns]
        asked = kept[sent].assign(query=text.astype(str) + " #" + kept["qid"].astype(str))
        lists = self.reranker.rank(asked)
        place = lists["rank"].reindex(kept.index).fillna(float("inf"))
        kept = kept.assign(impression=lists["impression"].reindex(kept.index))
        by = kept[["qid", "score"]].assign(place=place)
        order = by.sort_values(["qid", "place", "score"], ascending=[True, True, False], kind="stable").index
        kept = kept.loc[order]
        rank = kept.groupby("qid", sort=False).cumcount()
        size = kept.groupby("qid", sort=False)["docno"].transform("size")
        return kept.assign(rank=rank, score=(size - rank).astype(float)).reset_index(drop=True)

    def partial_fit(self, clicks: Any) -> None:
        """Learn from clicks: a table with the columns impression and docno of results of `transform`."""
        self.reranker.partial_fit(clicks)
