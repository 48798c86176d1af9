"""The types of `POST /v1/rerank`, which has the shape of Cohere's endpoint, and their translation to a ranking."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct, field

from ...errors import RequestError
from .checks import check_cells, check_items, is_finite
from .requests import (
    MAX_ITEMS,
    DeferExposure,
    Id,
    Item,
    OwnPolicy,
    Probability,
    RankRequest,
    SessionId,
    Shadow,
    Text,
    about,
)
from .responses import Ranking, ResponseBody, Time

__all__ = [
    "RerankDocument",
    "RerankMeta",
    "RerankRequest",
    "Reranked",
    "RerankedText",
    "Reranking",
    "as_rank_request",
    "as_reranking",
    "document_id",
]

IGNORED = about("accepted, because clients of Cohere send it, and ignored")
"""Of fields that are left encoded: a megabyte of empty lists takes a second to decode."""


class RerankDocument(Struct, omit_defaults=True):
    """A document with an id, or with a text that its id is derived from; fields that are not listed are ignored."""

    id: Annotated[Id | None, about("id of the item, unique within the request; derived from the text if left out")] = (
        None
    )
    text: Annotated[str | None, about("text of the document; it is neither read by the policy nor stored")] = None
    prior: Annotated[Probability | None, about("prior relevance, such as the score of a retriever, scaled")] = None
    group: Annotated[Id | None, about("provider of the document, such as a publisher")] = None


Names = Annotated[list[Id | None], Meta(max_length=MAX_ITEMS)] | None
Priors = Annotated[list[Probability | None], Meta(max_length=MAX_ITEMS)] | None


class RerankRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A query and the documents to rank for it."""

    query: Annotated[Text, about("text of the query; every byte matters")]
    documents: Annotated[
        Annotated[list[str | RerankDocument], Meta(min_length=1, max_length=MAX_ITEMS)],
        about("the documents: texts, or objects with an id, a text, a prior and a group"),
    ]
    top_n: Annotated[
        Annotated[int, Meta(ge=1, le=2**31 - 1)] | None,
        about("length of the list, which is what the users are shown; all documents if left out"),
    ] = None
    return_documents: Annotated[bool, about("return the texts of the documents")] = False
    order: Annotated[
        Literal["rank", "documents"],
        about("order of the results: by rank; or as the documents were sent, one for each, with 0 below the list"),
    ] = "rank"
    ids: Annotated[Names, about("ids of the documents, one for each, for callers that send columns")] = None
    priors: Annotated[Priors, about("priors of the documents, likewise")] = None
    groups: Annotated[Names, about("groups of the documents, likewise")] = None
    policy: OwnPolicy = None
    defer_exposure: DeferExposure = False
    shadow: Shadow = False
    session: SessionId = None
    model: Annotated[Raw, IGNORED] = field(default_factory=Raw)
    rank_fields: Annotated[Raw, IGNORED] = field(default_factory=Raw)
    max_chunks_per_doc: Annotated[Raw, IGNORED] = field(default_factory=Raw)
    max_tokens_per_doc: Annotated[Raw, IGNORED] = field(default_factory=Raw)
    priority: Annotated[Raw, IGNORED] = field(default_factory=Raw)


class RerankedText(ResponseBody):
    """The text of a ranked document."""

    text: Annotated[str, about("text of the document, as it was sent")]


class Reranked(ResponseBody, omit_defaults=True):
    """A ranked document."""

    index: Annotated[int, about("position of the document in the request, from 0")]
    relevance_score: Annotated[float, about("1 / rank, by which clients sort; no estimate of relevance")]
    id: Annotated[str, about("id of the item, for feedback")]
    document: Annotated[RerankedText | None, about("the text, if it was requested and the document has one")] = None


class RerankMeta(ResponseBody, kw_only=True, omit_defaults=True):
    """How the documents were ranked."""

    query_id: Annotated[str | None, about("id of the query, a keyed hash of its text; null only in a fallback")]
    policy: Annotated[str, about("the policy that ranked the list, with its parameters")]
    version: Annotated[int, about("version of the rules that the list was ranked with; 0 in a fallback")]
    expires_at: Annotated[Time | None, about("when the impression stops accepting feedback; null only in a fallback")]
    arm: Annotated[str | None, about("arm of the running experiment that the session belongs to, if any")] = None


class Reranking(ResponseBody, kw_only=True, omit_defaults=True):
    """Ranked documents, and the id of the impression that feedback refers to."""

    id: Annotated[str | None, about("the impression once more, under the name that clients of Cohere expect")]
    impression: Annotated[str | None, about("id of the impression, for feedback; null only in a fallback")]
    results: Annotated[list[Reranked], about("the ranked documents")]
    meta: Annotated[RerankMeta, about("how they were ranked")]
    fallback: Annotated[bool, about("whether a client returned the caller's order; the service never sends it")] = False


# --- translation -----------------------------------------------------------------------------------------------------


def document_id(text: str) -> str:
    """Return the id of a document that has only a text: `text-`, and half of the SHA-256 of its UTF-8 bytes in hex.

    Parameters
    ----------
    text
        The text of the document.

    Returns
    -------
    str
        The id; equal texts have equal ids, in every store.

    Examples
    --------
    >>> document_id("red canvas shoes")
    'text-1ef766c9a3c9ecd06d59a7a717af5741'
    """
    return f"text-{sha256(text.encode()).hexdigest()[:32]}"


def as_rank_request(request: RerankRequest) -> RankRequest:
    """Translate a request to one for a ranking; raise RequestError with the field at fault."""
    items = items_of(request)
    check_items(items, "documents")
    k = len(items) if request.top_n is None else request.top_n
    check_cells(len(items), min(k, len(items)), "top_n")
    return RankRequest(
        query=request.query,
        items=items,
        k=k,
        policy=request.policy,
        defer_exposure=request.defer_exposure,
        shadow=request.shadow,
        session=request.session,
    )


def items_of(request: RerankRequest) -> list[Item]:
    """Return the items that the documents of a request stand for, in their order.

    Repeated texts are items of their own, `ID-2`, `ID-3` and so on, because a caller expects a result for each. Ids
    that other documents of the request bring along are left out.
    """
    n = len(request.documents)
    columns: list[list[Any]] = []
    for name in ("ids", "priors", "groups"):
        values = getattr(request, name)
        if values is not None and len(values) != n:
            raise RequestError(f"{name} has {len(values):,} entries for {n:,} documents: expected one for each", name)
        columns.append([None] * n if values is None else values)
    taken = {each.id for each in request.documents if not isinstance(each, str)}.union(request.ids or ())
    repeated: Counter[str] = Counter()
    items = []
    for i, (given, id, prior, group) in enumerate(zip(request.documents, *columns, strict=True)):
        field = f"documents[{i}]"
        document = RerankDocument(text=given) if isinstance(given, str) else given
        id = id if document.id is None else document.id
        prior = prior if document.prior is None else document.prior
        if prior is not None and not is_finite(prior):  # Python has nan, which would become no prior
            raise RequestError(
                f"{field}.prior = {prior!r} is not allowed: expected a number in [0, 1]", f"{field}.prior"
            )
        if id is None:
            derived = derived_id(document.text, field)
            while id is None or id in taken:
                repeated[derived] += 1
                id = derived if repeated[derived] == 1 else f"{derived}-{repeated[derived]}"
        items.append(Item(id, prior, group if document.group is None else document.group))
    return items


def derived_id(text: str | None, field: str) -> str:
    """Return the id of a document without one; raise RequestError if it has no valid text either."""
    if text is None:
        raise RequestError(f"{field} has neither an id nor a text: expected one of them", field)
    try:
        return document_id(text)
    except UnicodeEncodeError:
        raise RequestError(
            f"{field}.text is not valid Unicode: it contains a lone surrogate", f"{field}.text"
        ) from None


def as_reranking(request: RerankRequest, items: list[Item], ranking: Ranking) -> Reranking:
    """Translate the ranking of the items of a request back to a response about its documents."""
    ranks = {ranked.id: ranked.rank for ranked in ranking.items}
    index = {item.id: i for i, item in enumerate(items)}
    order = [index[id] for id in ranks] if request.order == "rank" else range(len(items))
    results = []
    for i in order:
        id, given = items[i].id, request.documents[i]
        text = given if isinstance(given, str) else given.text
        document = RerankedText(text) if request.return_documents and text is not None else None
        results.append(Reranked(i, 1.0 / ranks[id] if id in ranks else 0.0, id, document))
    meta = RerankMeta(
        query_id=ranking.query_id,
        policy=ranking.policy,
        version=ranking.version,
        expires_at=ranking.expires_at,
        arm=ranking.arm,
    )
    return Reranking(
        id=ranking.impression, impression=ranking.impression, results=results, meta=meta, fallback=ranking.fallback
    )
