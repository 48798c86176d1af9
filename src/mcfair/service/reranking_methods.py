"""The method that ranks documents in the shape of Cohere's rerank endpoint."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from . import wire
from .calls import Call, Caller, check_options, given_order

if TYPE_CHECKING:
    from ..policies.base import Policy


class RerankingMethods(Caller):
    """Part of `mcfair.service.methods.Methods`."""

    def rerank(
        self,
        query: str,
        documents: Iterable[wire.RerankDocument | str | dict[str, Any]],
        top_n: int | None = None,
        *,
        return_documents: bool = False,
        policy: Policy | str | None = None,
        defer_exposure: bool = False,
        shadow: bool = False,
        session: str | None = None,
        key: str | None = None,
        deadline: float | None = None,
        fallback: bool = False,
    ) -> wire.Reranking:
        """Rank documents and record the impression, as `rank` does, in the shape of Cohere's rerank endpoint.

        A client sends only the ids, priors and groups of the documents; their texts stay with the caller.

        Parameters
        ----------
        query
            Text of the query. It is not stored; the data is kept under a keyed hash of it.
        documents
            Texts, or documents with an `id`, a `text`, a `prior` relevance from 0 to 1 and a `group`. A document
            without an id gets that of its text, see `mcfair.service.wire.document_id`; other fields are ignored.
        top_n
            Length of the list, which is what the users are shown; all documents if left out.
        return_documents
            Whether to return the texts of the documents.
        policy, defer_exposure, shadow, session, key, deadline, fallback
            As in `rank`.

        Returns
        -------
        Reranking
            The results from rank 1, each with the `index` of its document, the `id` for feedback and 1 / rank as the
            `relevance_score`; and the id of the impression that feedback refers to.

        Raises
        ------
        PolicyError
            If the policy fails; a client raises RequestError instead.
        ConflictError
            If the idempotency key was used for another request.

        Examples
        --------
        >>> from mcfair import Ranker
        >>> with Ranker("memory:", policy="MCFair") as ranker:
        ...     answer = ranker.rerank("red shoes", ["blue socks", {"id": "sku3", "prior": 0.4}], top_n=1)
        ...     [(result.index, result.id, result.relevance_score) for result in answer.results]
        ...     ranker.click(answer.impression, answer.results[0].id).status
        [(1, 'sku3', 1.0)]
        'applied'
        """
        begun = monotonic()
        check_options(key, deadline)
        fields = {
            "query": query,
            "documents": [as_plain(document) for document in wire.as_list("documents", documents)],
            "top_n": wire.as_builtin(top_n),
            "return_documents": return_documents,
            "policy": None if policy is None else str(policy),
            "defer_exposure": defer_exposure,
            "shadow": shadow,
            "session": session,
        }
        request = wire.convert(wire.RerankRequest, fields)
        translated = wire.as_rank_request(request)
        convert = partial(wire.as_reranking, request, translated.items)
        order = convert(given_order(translated.items, translated.k)) if fallback else None
        arguments = {"body": wire.with_raw_items(translated), "key": key}
        return self._run(Call("rank", arguments, convert, fallback=order, deadline=deadline, begun=begun))


def as_plain(document: Any) -> Any:
    """Return a document with NumPy scalars as Python ones; anything but a dict is left to the conversion."""
    if not isinstance(document, dict):
        return document
    return {name: wire.as_builtin(value) if name == "prior" else value for name, value in document.items()}
