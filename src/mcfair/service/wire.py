"""What goes over the wire, typed: the requests and answers of the service, which the library speaks as well.

Bounds stand in the annotations, from which the OpenAPI document is made. What an annotation cannot say (sizes in bytes,
distinct ids) is checked by the functions at the end.
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
    "Deleted",
    "Event",
    "EventResult",
    "Examination",
    "ExplainedItem",
    "Explanation",
    "Fairness",
    "Feedback",
    "FeedbackAnswer",
    "GroupFairness",
    "Health",
    "Inputs",
    "Item",
    "ItemDeletion",
    "ItemState",
    "KeyAdded",
    "KeyInfo",
    "KeyRequest",
    "PolicyChange",
    "PolicyInForce",
    "Problem",
    "QueryLookup",
    "QueryState",
    "RankRequest",
    "Ranked",
    "Ranking",
    "Reset",
    "Scope",
    "Status",
    "UnreadRank",
    "Usage",
    "check_cells",
    "check_rank",
    "check_text",
    "decoded",
    "encoder",
    "field_of",
    "read_items",
    "unread",
]

T = TypeVar("T")

encoder = msgspec.json.Encoder()

MAX_BODY = 4 << 20
"""Largest body of a request, in bytes."""

MAX_ITEMS = 5_000
MAX_EVENTS = 1_000
MAX_QUERY = 4_096
"""Longest text of a query, in bytes of UTF-8."""

MAX_ID = 256
"""Longest id of an item or a group, in bytes of UTF-8."""

MAX_POLICY = 1_000
"""Longest text of a policy, in bytes of UTF-8."""

MAX_KEY = 256
"""Longest Idempotency-Key, in characters."""

MAX_CELLS = 1_000_000
"""Most items times ranks of one request: how often each item stood at each rank is counted."""

Scope = Literal["rank", "feedback", "read", "admin"]
SCOPES: tuple[Scope, ...] = ("rank", "feedback", "read", "admin")
"""What a key may be good for: rank, report feedback, read, and everything."""

Text = Annotated[str, Meta(min_length=1, max_length=MAX_QUERY, description="the text of a query, exactly as it is")]
Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID)]
ImpressionId = Annotated[str, Meta(max_length=64)]
Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
Time = Annotated[datetime.datetime, Meta(tz=True)]
Examination = (
    Annotated[float, Meta(ge=0.0, le=100.0)] | Annotated[list[Probability], Meta(min_length=1, max_length=MAX_ITEMS)]
)
"""A severity s, for p_j = (1/log2(j + 1))^s at every rank j; or the probabilities themselves, 0 below the last."""


# --- ranking ---------------------------------------------------------------------------------------------------------


class Item(Struct, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A candidate: its id, a relevance it can start with, and whom it belongs to."""

    id: Id
    prior: Annotated[Probability | None, Meta(description="relevance to start with, such as another ranker's")] = None
    group: Annotated[Id | None, Meta(description="whom the item belongs to, such as a seller")] = None


Items = Annotated[list[Item], Meta(min_length=1, max_length=MAX_ITEMS)]


class RankRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A query and its candidates."""

    query: Text
    items: Items
    k: Annotated[int, Meta(ge=1, le=2**31 - 1, description="length of the list; less if there are fewer items")] = 10
    policy: Annotated[
        Annotated[str, Meta(max_length=MAX_POLICY)] | None, Meta(description="another policy than that in force")
    ] = None
    explain: Annotated[bool, Meta(description="whether to give the terms of each score")] = False
    defer_exposure: Annotated[bool, Meta(description="credit no exposure until `shown` is reported")] = False
    shadow: Annotated[bool, Meta(description="record the list, but answer in the order of the request")] = False


BESIDES_ITEMS = [field for field in RankRequest.__struct_fields__ if field != "items"]
besides_items = attrgetter(*BESIDES_ITEMS)


class UnreadRank(RankRequest, kw_only=True):
    """The same request with its items as they came, in JSON: most come again and again, and are read once.

    The items refer to the whole body that they came in, so nobody should keep them.
    """

    items: msgspec.Raw  # type: ignore[assignment]


class OnlyItems(Struct):
    """The part of a request that was left unread."""

    items: Items


class Ranked(Struct, gc=False, omit_defaults=True):
    """An item of the list. A policy that fills ranks one by one, such as MMF, gives no score."""

    id: str
    rank: int
    score: float | None = None
    terms: dict[str, float] | None = None


class Ranking(Struct, kw_only=True):
    """The list, and the name of the impression that feedback refers to."""

    impression: str
    query_id: str
    items: list[Ranked]
    policy: str
    version: int
    expires_at: Time


# --- feedback --------------------------------------------------------------------------------------------------------


class Event(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something that happened to an impression: a `click` on an item, or `shown` ranks, all if they are not given."""

    impression: ImpressionId
    type: Annotated[str, Meta(max_length=32, description="click or shown")] = "click"
    item: Annotated[str, Meta(max_length=MAX_ID)] | None = None
    ranks: Annotated[list[int], Meta(max_length=MAX_ITEMS)] | None = None


class Feedback(Struct, kw_only=True, forbid_unknown_fields=True):
    """A batch of events."""

    events: Annotated[list[Event], Meta(min_length=1, max_length=MAX_EVENTS)]


Status = Literal["applied", "duplicate", "unknown_impression", "expired", "not_in_impression", "invalid"]


class EventResult(Struct, omit_defaults=True):
    """What became of an event; `detail` says what is wrong with an invalid one."""

    status: Status
    detail: str | None = None


class FeedbackAnswer(Struct):
    """What became of each event, in order."""

    results: list[EventResult]


# --- what is known ---------------------------------------------------------------------------------------------------


class Inputs(Struct, kw_only=True):
    """What the policy knew of an item when it decided."""

    relevance: float
    exposure: float
    clicks: float
    prior: float | None


class ExplainedItem(Struct, kw_only=True):
    """Why an item stands where it stands; `without` has its ranks if a term had had no weight."""

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
    """A decision, exactly as it was made; in shadow mode, of the list that would have been shown."""

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
    """The text of a query; never part of a URL, because proxies log those."""

    query: Text


class ItemState(Struct, kw_only=True):
    """What was observed of one item of a query, and which share it has and is due."""

    id: str
    group: str | None
    exposure: float
    clicks: float
    relevance: float
    exposure_share: float
    merit_share: float


class QueryState(Struct, kw_only=True):
    """What was observed of a query; `floor` is the least unfairness that lists could have reached."""

    query_id: str
    visits: int
    unfairness: float
    floor: float
    items: list[ItemState]


class GroupFairness(Struct, kw_only=True):
    """What the items of one group, such as a provider, have had over all queries, and what they were due."""

    group: str | None
    items: int
    exposure: float
    clicks: float
    exposure_share: float
    merit_share: float


class Fairness(Struct, kw_only=True):
    """Fairness over all queries: means over queries, sums over groups."""

    queries: int
    visits: int
    unfairness: float
    floor: float
    groups: list[GroupFairness]
    as_of: Time


class Usage(Struct, kw_only=True):
    """How much is stored."""

    queries: int
    items: int
    impressions: int
    events: int
    snapshots: int
    bytes: int


class ItemDeletion(Struct, forbid_unknown_fields=True):
    """An item to forget, in every query."""

    item: Id


class Reset(Struct, forbid_unknown_fields=True):
    """A word that nobody says by accident."""

    confirm: Literal["reset"]


class Deleted(Struct):
    """How many queries were changed or forgotten."""

    queries: int


class Health(Struct):
    """That all is well."""

    status: Literal["alive", "ready"]


# --- settings and keys -----------------------------------------------------------------------------------------------


class PolicyInForce(Struct, kw_only=True):
    """How lists are made now, and since when; times are in seconds."""

    version: int
    since: Time
    policy: str
    examination: float | list[float]
    prior_mean: float | None
    prior_strength: float
    maturing: float
    half_life: float | None
    entry: Literal["zero", "fair"]
    retention: float
    seed: int


class PolicyChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """What to change; everything else stays."""

    policy: Annotated[str, Meta(max_length=MAX_POLICY)] | UnsetType = UNSET
    examination: Examination | UnsetType = UNSET
    prior_mean: Probability | UnsetType | None = UNSET
    prior_strength: Annotated[float, Meta(ge=0.0, le=1e9)] | UnsetType = UNSET
    maturing: Annotated[float, Meta(ge=0.0, le=1e9)] | UnsetType = UNSET
    half_life: Annotated[float, Meta(ge=1.0, le=10000000000.0)] | UnsetType | None = UNSET
    entry: Literal["zero", "fair"] | UnsetType = UNSET
    retention: Annotated[float, Meta(ge=1.0, le=1e9)] | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=0, le=2**62)] | UnsetType = UNSET


class KeyRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A key to make."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=4)]


class KeyInfo(Struct, kw_only=True):
    """A key, without its secret."""

    id: str
    name: str
    scopes: list[Scope]
    created: Time
    revoked: Time | None


class KeyAdded(Struct, kw_only=True):
    """A new key; its secret is shown this once."""

    key: str
    info: KeyInfo


class Problem(Struct, kw_only=True, omit_defaults=True):
    """What went wrong, as RFC 9457 has it; `field` names the part of the request at fault."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    field: str | None = None


# --- reading and checks ---------------------------------------------------------------------------------------------


def unread(request: RankRequest) -> UnreadRank:
    """Write the items of a request as they would have come."""
    try:
        items = msgspec.json.encode(request.items)
    except UnicodeEncodeError:
        check_items(request.items)
        raise
    return UnreadRank(items=msgspec.Raw(items), **dict(zip(BESIDES_ITEMS, besides_items(request), strict=True)))


def read_items(items: msgspec.Raw) -> list[Item]:
    """Read items that were left unread, and refuse them as if they had been read with the rest."""
    read: list[Item] = decoded(items_decoder, b'{"items":%b}' % items).items
    check_items(read)
    return read


items_decoder = msgspec.json.Decoder(OnlyItems)


def decoded(decoder: msgspec.json.Decoder[Any], body: bytes | bytearray) -> Any:
    """Make a typed request of a body, or name the field at fault."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        field, detail = field_of(str(error))
        raise RequestError(detail, field) from None
    except msgspec.DecodeError as error:
        raise RequestError(f"the body is not JSON: {error}") from None
    except (UnicodeDecodeError, RecursionError):
        raise RequestError("the body is not JSON: it is not UTF-8, or too deep") from None


def check_rank(request: UnreadRank) -> None:
    """Refuse a query and a policy of too many bytes."""
    check_text("query", request.query, MAX_QUERY)
    if request.policy is not None:
        check_text("policy", request.policy, MAX_POLICY)


def check_cells(n: int, k: int) -> None:
    """Refuse too many items times ranks."""
    if n * k > MAX_CELLS:
        raise RequestError(
            f"k = {k} of {n} items: their product may be at most {MAX_CELLS:,}, so k at most {MAX_CELLS // n:,} here",
            "k",
        )


def check_items(items: list[Item]) -> None:
    """Refuse ids of too many bytes and ids that repeat."""
    ids = [item.id for item in items]
    texts = ids + [item.group for item in items if item.group is not None]
    if len(set(ids)) == len(ids) and "".join(texts).isascii() and max(map(len, texts)) <= MAX_ID:
        return  # that nothing is wrong can be seen at once, what is wrong cannot
    seen: set[str] = set()
    for i, item in enumerate(items):
        check_text(f"items[{i}].id", item.id, MAX_ID)
        if item.group is not None:
            check_text(f"items[{i}].group", item.group, MAX_ID)
        if item.id in seen:
            raise RequestError(f"items[{i}].id = {item.id!r} is there twice: ids must be distinct", f"items[{i}].id")
        seen.add(item.id)


def check_text(field: str, text: str, most: int) -> None:
    """Refuse a text of too many bytes, or one that has none because half a character is missing."""
    if text.isascii() and len(text) <= most:
        return
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise RequestError(f"{field} is no text: it has half a character (a lone surrogate)", field) from None
    if size > most:
        raise RequestError(f"{field} has {size:,} bytes: at most {most:,} are allowed", field)


def convert(kind: type[T], value: Any) -> T:
    """Make a wire type of plain data, or refuse and name the field."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as refusal:
        field, message = field_of(str(refusal))
        raise RequestError(f"{field}: {message}" if field else message, field) from None


def field_of(message: str) -> tuple[str | None, str]:
    """Take the name of the field out of what msgspec says of a bad value.

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
    """Take an item in any of the forms of the Python interface."""
    if isinstance(item, Item):
        return item
    if isinstance(item, str):
        return Item(id=item)
    return convert(Item, {name: value.item() if hasattr(value, "item") else value for name, value in item.items()})


def as_events(events: Iterable[Event | dict[str, Any]]) -> list[Event]:
    """Take events in any of the forms of the Python interface."""
    return [each if isinstance(each, Event) else convert(Event, each) for each in events]
