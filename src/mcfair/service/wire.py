"""Typed requests and responses of the service, shared by the HTTP interface, the clients and the library.

Limits are part of the annotations, from which the OpenAPI document is generated. The functions at the end check what an
annotation cannot express: sizes in bytes, distinct ids.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ..errors import RequestError

__all__ = [
    "MAX_BODY",
    "MAX_CELLS",
    "MAX_EVENTS",
    "MAX_ID",
    "MAX_ITEMS",
    "MAX_KEY",
    "MAX_POLICY",
    "MAX_QUERY",
    "SCOPES",
    "ActivePolicy",
    "CreatedKey",
    "DeletionCount",
    "Event",
    "EventResult",
    "Examination",
    "ExplainedItem",
    "Explanation",
    "Fairness",
    "Feedback",
    "FeedbackResults",
    "GroupFairness",
    "Health",
    "Inputs",
    "Item",
    "ItemDeletion",
    "ItemState",
    "KeyInfo",
    "KeyRequest",
    "PolicyChange",
    "Problem",
    "QueryLookup",
    "QueryState",
    "RankRequest",
    "Ranked",
    "Ranking",
    "RawRankRequest",
    "ResetRequest",
    "Scope",
    "Status",
    "Usage",
    "check_cells",
    "check_rank_request",
    "check_text",
    "decode_body",
    "encoder",
    "field_of",
    "read_items",
    "with_raw_items",
]

T = TypeVar("T")

encoder = msgspec.json.Encoder()

MAX_BODY = 4 << 20
"""Maximum size of a request body, in bytes."""

MAX_ITEMS = 5_000
MAX_EVENTS = 1_000
MAX_QUERY = 4_096
"""Maximum length of a query, in bytes of UTF-8."""

MAX_ID = 256
"""Maximum length of the id of an item or a group, in bytes of UTF-8."""

MAX_POLICY = 1_000
"""Maximum length of a policy specification, in bytes of UTF-8."""

MAX_KEY = 256
"""Maximum length of an Idempotency-Key, in characters."""

MAX_CELLS = 1_000_000
"""Maximum number of items times ranks of one request: the service counts impressions per item and rank."""

Scope = Literal["rank", "feedback", "read", "admin"]
SCOPES: tuple[Scope, ...] = ("rank", "feedback", "read", "admin")
"""Scopes of API keys; "admin" includes all others."""

Text = Annotated[str, Meta(min_length=1, max_length=MAX_QUERY, description="text of the query; every byte matters")]
Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID)]
ImpressionId = Annotated[str, Meta(max_length=64)]
Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
Time = Annotated[datetime.datetime, Meta(tz=True)]
Examination = (
    Annotated[float, Meta(ge=0.0, le=100.0)] | Annotated[list[Probability], Meta(min_length=1, max_length=MAX_ITEMS)]
)
"""A severity s for p_j = (1/log2(j + 1))^s at every rank j, or the probabilities themselves, 0 below the last one."""


# --- ranking ---------------------------------------------------------------------------------------------------------


class Item(Struct, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A candidate with an optional prior relevance and an optional group."""

    id: Id
    prior: Annotated[Probability | None, Meta(description="prior relevance, such as the score of another ranker")] = (
        None
    )
    group: Annotated[Id | None, Meta(description="provider of the item, such as a seller")] = None


Items = Annotated[list[Item], Meta(min_length=1, max_length=MAX_ITEMS)]


class RankRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A query and its candidates."""

    query: Text
    items: Items
    k: Annotated[int, Meta(ge=1, le=2**31 - 1, description="length of the list; shorter if there are fewer items")] = 10
    policy: Annotated[
        Annotated[str, Meta(max_length=MAX_POLICY)] | None, Meta(description="policy for this request only")
    ] = None
    explain: Annotated[bool, Meta(description="return the terms of each score")] = False
    defer_exposure: Annotated[bool, Meta(description="credit no exposure until `shown` is reported")] = False
    shadow: Annotated[bool, Meta(description="record the policy's list, but return the order of the request")] = False


FIELDS_BESIDES_ITEMS = [field for field in RankRequest.__struct_fields__ if field != "items"]
fields_besides_items = attrgetter(*FIELDS_BESIDES_ITEMS)


class RawRankRequest(RankRequest, kw_only=True):
    """A rank request whose items are still JSON: most candidate sets are repeated, and are decoded only once.

    The raw items reference the whole request body, so they must not be stored.
    """

    items: msgspec.Raw  # type: ignore[assignment]


class ItemsOnly(Struct):
    """The items of a rank request, for decoding them on their own."""

    items: Items


class Ranked(Struct, gc=False, omit_defaults=True):
    """An item of a ranking. A policy that fills ranks one by one, such as MMF, has no scores."""

    id: str
    rank: int
    score: float | None = None
    terms: dict[str, float] | None = None


class Ranking(Struct, kw_only=True):
    """A ranked list, and the id of the impression that feedback refers to."""

    impression: str
    query_id: str
    items: list[Ranked]
    policy: str
    version: int
    expires_at: Time


# --- feedback --------------------------------------------------------------------------------------------------------


class Event(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Feedback on an impression: a `click` on an item, or `shown` ranks (all ranks if none are given)."""

    impression: ImpressionId
    type: Annotated[str, Meta(max_length=32, description="click or shown")] = "click"
    item: Annotated[str, Meta(max_length=MAX_ID)] | None = None
    ranks: Annotated[list[int], Meta(max_length=MAX_ITEMS)] | None = None


class Feedback(Struct, kw_only=True, forbid_unknown_fields=True):
    """A batch of events."""

    events: Annotated[list[Event], Meta(min_length=1, max_length=MAX_EVENTS)]


Status = Literal["applied", "duplicate", "unknown_impression", "expired", "not_in_impression", "invalid"]


class EventResult(Struct, omit_defaults=True):
    """The result of an event; `detail` explains why it is invalid."""

    status: Status
    detail: str | None = None


class FeedbackResults(Struct):
    """The results of a batch of events, in order."""

    results: list[EventResult]


# --- explanations, state and fairness --------------------------------------------------------------------------------


class Inputs(Struct, kw_only=True):
    """The observations of an item that the policy ranked it by."""

    relevance: float
    exposure: float
    clicks: float
    prior: float | None


class ExplainedItem(Struct, kw_only=True):
    """The explanation of an item's rank; `without` gives its rank if a term of the score had no weight."""

    id: str | None
    rank: int
    score: float | None
    terms: dict[str, float]
    inputs: Inputs
    without: dict[str, int]
    shown: bool
    clicked: bool
    sentence: str


class Explanation(Struct, kw_only=True):
    """The exact explanation of a ranking; in shadow mode, of the list that the policy would have shown."""

    impression: str
    query_id: str
    policy: str
    version: int
    ranked_at: Time
    visits: int
    candidates: int
    deferred: bool
    shadow: bool
    items: list[ExplainedItem]
    summary: str


class QueryLookup(Struct, forbid_unknown_fields=True):
    """The text of a query. It is never part of a URL, because proxies log URLs."""

    query: Text


class ItemState(Struct, kw_only=True):
    """The observations of one item of a query, with its share of exposure and its share of merit."""

    id: str
    group: str | None
    exposure: float
    clicks: float
    relevance: float
    exposure_share: float
    merit_share: float


class QueryState(Struct, kw_only=True):
    """The observations of a query; `floor` is the lowest unfairness that was possible for these visits."""

    query_id: str
    visits: int
    unfairness: float
    floor: float
    items: list[ItemState]


class GroupFairness(Struct, kw_only=True):
    """Received exposure and merited exposure of one group, such as a provider, over all queries."""

    group: str | None
    items: int
    exposure: float
    clicks: float
    exposure_share: float
    merit_share: float


class Fairness(Struct, kw_only=True):
    """Fairness over all queries: means over queries, sums by group."""

    queries: int
    visits: int
    unfairness: float
    floor: float
    groups: list[GroupFairness]
    as_of: Time


class Usage(Struct, kw_only=True):
    """Amount of stored data."""

    queries: int
    items: int
    impressions: int
    events: int
    snapshots: int
    bytes: int


class ItemDeletion(Struct, forbid_unknown_fields=True):
    """An item to delete from every query."""

    item: Id


class ResetRequest(Struct, forbid_unknown_fields=True):
    """Confirmation that everything is to be deleted."""

    confirm: Literal["reset"]


class DeletionCount(Struct):
    """Number of queries that were changed or deleted."""

    queries: int


class Health(Struct):
    """Result of a health probe."""

    status: Literal["alive", "ready"]


# --- settings and keys -----------------------------------------------------------------------------------------------


class ActivePolicy(Struct, kw_only=True):
    """The rules in force and since when; durations are in seconds."""

    version: int
    since: Time
    policy: str
    examination: float | list[float]
    prior_mean: float | None
    prior_strength: float
    prior_certainty: float
    maturation: float
    half_life: float | None
    newcomer_exposure: Literal["zero", "fair"]
    retention: float
    seed: int


class PolicyChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """Rules to change; durations are in seconds. Rules that are not given stay."""

    policy: Annotated[str, Meta(max_length=MAX_POLICY)] | UnsetType = UNSET
    examination: Examination | UnsetType = UNSET
    prior_mean: Probability | UnsetType | None = UNSET
    prior_strength: Annotated[float, Meta(ge=0.0, le=1e9)] | UnsetType = UNSET
    prior_certainty: Annotated[float, Meta(ge=0.0, le=1e9)] | UnsetType = UNSET
    maturation: Annotated[float, Meta(ge=0.0, le=1e9)] | UnsetType = UNSET
    half_life: Annotated[float, Meta(ge=1.0, le=10000000000.0)] | UnsetType | None = UNSET
    newcomer_exposure: Literal["zero", "fair"] | UnsetType = UNSET
    retention: Annotated[float, Meta(ge=1.0, le=1e9)] | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=0, le=2**62)] | UnsetType = UNSET


class KeyRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """An API key to create."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=4)]


class KeyInfo(Struct, kw_only=True):
    """An API key, without its secret."""

    id: str
    name: str
    scopes: list[Scope]
    created: Time
    revoked: Time | None


class CreatedKey(Struct, kw_only=True):
    """A new API key; its secret is shown only once."""

    key: str
    info: KeyInfo


class Problem(Struct, kw_only=True, omit_defaults=True):
    """A problem (RFC 9457); `field` names the part of the request that is at fault."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    field: str | None = None


# --- decoding and validation -----------------------------------------------------------------------------------------


def with_raw_items(request: RankRequest) -> RawRankRequest:
    """Return a request with its items encoded as JSON, as the HTTP interface receives them."""
    try:
        items = msgspec.json.encode(request.items)
    except UnicodeEncodeError:
        check_items(request.items)
        raise
    return RawRankRequest(
        items=msgspec.Raw(items), **dict(zip(FIELDS_BESIDES_ITEMS, fields_besides_items(request), strict=True))
    )


def read_items(items: msgspec.Raw) -> list[Item]:
    """Decode and validate raw items; errors name the same fields as if the whole request had been decoded."""
    read: list[Item] = decode_body(items_decoder, b'{"items":%b}' % items).items
    check_items(read)
    return read


items_decoder = msgspec.json.Decoder(ItemsOnly)


def decode_body(decoder: msgspec.json.Decoder[Any], body: bytes | bytearray) -> Any:
    """Decode a request body; raise RequestError with the field at fault."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        field, detail = field_of(str(error))
        raise RequestError(detail, field) from None
    except msgspec.DecodeError as error:
        raise RequestError(f"the body is not JSON: {error}") from None
    except (UnicodeDecodeError, RecursionError):
        raise RequestError("the body is not JSON: it is not UTF-8, or nested too deeply") from None


def check_rank_request(request: RawRankRequest) -> None:
    """Check the lengths of a query and of a policy."""
    check_text("query", request.query, MAX_QUERY)
    if request.policy is not None:
        check_text("policy", request.policy, MAX_POLICY)


def check_cells(n: int, k: int) -> None:
    """Check the number of items times ranks."""
    if n * k > MAX_CELLS:
        raise RequestError(
            f"k = {k} is not allowed for {n} items: expected at most {MAX_CELLS // n:,}, because items times k may not "
            f"exceed {MAX_CELLS:,}",
            "k",
        )


def check_items(items: list[Item]) -> None:
    """Check the lengths of ids and groups, and that ids are distinct."""
    ids = [item.id for item in items]
    texts = ids + [item.group for item in items if item.group is not None]
    if len(set(ids)) == len(ids) and "".join(texts).isascii() and max(map(len, texts)) <= MAX_ID:
        return  # the common case in a few fast calls; the loop below finds what is wrong
    seen: set[str] = set()
    for i, item in enumerate(items):
        check_text(f"items[{i}].id", item.id, MAX_ID)
        if item.group is not None:
            check_text(f"items[{i}].group", item.group, MAX_ID)
        if item.id in seen:
            raise RequestError(f"items[{i}].id = {item.id!r} is a duplicate: ids must be distinct", f"items[{i}].id")
        seen.add(item.id)


def check_text(field: str, text: str, most: int) -> None:
    """Check that a text is valid Unicode and has at most `most` bytes."""
    if text.isascii() and len(text) <= most:
        return
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise RequestError(f"{field} is not valid Unicode: it contains a lone surrogate", field) from None
    if size > most:
        raise RequestError(f"{field} has {size:,} bytes: expected at most {most:,}", field)


def convert(kind: type[T], value: Any) -> T:
    """Convert plain data to a typed request; raise RequestError with the field at fault."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as refusal:
        field, message = field_of(str(refusal))
        raise RequestError(f"{field}: {message}" if field else message, field) from None


def field_of(message: str) -> tuple[str | None, str]:
    """Split a validation message of msgspec into the name of the field and the message.

    Examples
    --------
    >>> field_of("Expected `float` <= 1.0 - at `$.items[3].prior`")
    ('items[3].prior', 'Expected `float` <= 1.0')
    >>> field_of("Object missing required field `query`")
    ('query', 'Object missing required field `query`')
    """
    text, _, path = message.partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    named = re.search(r"field `([^`]+)`", text)
    if named:
        path = f"{path}.{named[1]}" if path else named[1]
    return path or None, text


def as_item(item: Item | str | dict[str, Any]) -> Item:
    """Convert an item from any form that the Python interface accepts."""
    if isinstance(item, Item):
        return item
    if isinstance(item, str):
        return Item(id=item)
    return convert(Item, {name: value.item() if hasattr(value, "item") else value for name, value in item.items()})


def as_events(events: Iterable[Event | dict[str, Any]]) -> list[Event]:
    """Convert events from any form that the Python interface accepts."""
    return [each if isinstance(each, Event) else convert(Event, each) for each in events]
