"""The types of requests, with their limits. Limits and descriptions of the fields are part of their annotations."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

__all__ = [
    "CONTROL",
    "FIELDS_BESIDES_ITEMS",
    "MAX_BODY",
    "MAX_CELLS",
    "MAX_EVENTS",
    "MAX_ID",
    "MAX_IMPORTS",
    "MAX_ITEMS",
    "MAX_KEY",
    "MAX_POLICY",
    "MAX_QUERY",
    "MAX_RANK",
    "MAX_SESSION",
    "SCOPES",
    "Arm",
    "ArmGuard",
    "Event",
    "Examination",
    "ExposedItemsOptions",
    "Feedback",
    "HistoryOptions",
    "ImportRequest",
    "ImportedItem",
    "ImportedQuery",
    "Item",
    "ItemDeletion",
    "ItemsOnly",
    "KeyRequest",
    "OnlineExperiment",
    "PolicyChange",
    "QueryLookup",
    "QueryOptions",
    "RankRequest",
    "RawFeedback",
    "RawRankRequest",
    "ResetRequest",
    "Scope",
    "UnfairQueriesOptions",
    "about",
    "fields_besides_items",
]

MAX_BODY = 4 << 20
"""Maximum size of a request body, in bytes."""

MAX_ITEMS = 5_000
MAX_EVENTS = 1_000
MAX_IMPORTS = 1_000
"""Maximum number of queries of one import request."""

MAX_RANK = 1_000
"""Lowest rank of imported counts."""

MAX_QUERY = 4_096
"""Maximum length of a query, in bytes of UTF-8."""

MAX_ID = 256
"""Maximum length of the id of an item or a group, in bytes of UTF-8."""

MAX_POLICY = 1_000
"""Maximum length of a policy specification, in bytes of UTF-8."""

MAX_ESTIMATOR = 4_000
"""Maximum length of an estimator specification, in characters: it may name a fitted prior."""

MAX_KEY = 256
"""Maximum length of an Idempotency-Key, in characters."""

MAX_SESSION = 256
"""Maximum length of a session id, in bytes of UTF-8."""

CONTROL = "control"
"""Name of the arm that has the policy of the rules."""

MAX_CELLS = 1_000_000
"""Maximum number of items times ranks of one request: the service counts impressions per item and rank."""

Scope = Literal["rank", "feedback", "read", "admin"]
SCOPES: tuple[Scope, ...] = ("rank", "feedback", "read", "admin")
"""Scopes of API keys; "admin" includes all others."""


def about(text: str) -> Meta:
    """Return the description of a field for the OpenAPI document."""
    return Meta(description=text)


Text = Annotated[str, Meta(min_length=1, max_length=MAX_QUERY)]
Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID)]
ImpressionId = Annotated[str, Meta(max_length=64)]
PolicyText = Annotated[str, Meta(max_length=MAX_POLICY)]
EstimatorText = Annotated[str, Meta(max_length=MAX_ESTIMATOR)]
Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e9)]
Newcomers = Literal["zero", "fair"]
Examination = (
    Annotated[float, Meta(ge=0.0, le=100.0)] | Annotated[list[Probability], Meta(min_length=1, max_length=MAX_ITEMS)]
)
"""A severity s for p_j = (1/log2(j + 1))^s at every rank j, or the probabilities themselves, 0 below the last one."""


class Item(Struct, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A candidate with an optional prior relevance and an optional group."""

    id: Annotated[Id, about("id of the item, unique within the request")]
    prior: Annotated[Probability | None, about("prior relevance, such as the score of another ranker")] = None
    group: Annotated[Id | None, about("provider of the item, such as a seller")] = None


Items = Annotated[list[Item], Meta(min_length=1, max_length=MAX_ITEMS)]
OwnPolicy = Annotated[PolicyText | None, about("policy for this request only")]
DeferExposure = Annotated[bool, about("credit no exposure until `shown` is reported")]
Shadow = Annotated[bool, about("record the policy's list, but return the order of the request")]
SessionId = Annotated[
    Annotated[str, Meta(min_length=1, max_length=MAX_SESSION)] | None,
    about("id of the user's session, which decides on the arm of an experiment; only a keyed hash of it is used"),
]


class RankRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A query and its candidates."""

    query: Annotated[Text, about("text of the query; every byte matters")]
    items: Annotated[Items, about("the candidates, with distinct ids")]
    k: Annotated[int, Meta(ge=1, le=2**31 - 1, description="length of the list; shorter if there are fewer items")] = 10
    policy: OwnPolicy = None
    explain: Annotated[bool, about("return the terms of each score")] = False
    defer_exposure: DeferExposure = False
    shadow: Shadow = False
    session: SessionId = None


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


class Event(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Feedback on an impression: a `click` on an item, or `shown` ranks (all ranks if none are given)."""

    impression: Annotated[ImpressionId, about("id of the impression, from the ranking")]
    type: Annotated[str, Meta(max_length=32, description="click or shown")] = "click"
    item: Annotated[Annotated[str, Meta(max_length=MAX_ID)] | None, about("id of the clicked item")] = None
    ranks: Annotated[
        Annotated[list[int], Meta(max_length=MAX_ITEMS)] | None, about("shown ranks, from 1; all if left out")
    ] = None


class Feedback(Struct, kw_only=True, forbid_unknown_fields=True):
    """A batch of events."""

    events: Annotated[list[Event], Meta(min_length=1, max_length=MAX_EVENTS, description="the events, in any order")]


class RawFeedback(Feedback, kw_only=True, forbid_unknown_fields=True):
    """A batch of events that are still JSON, for decoding them one by one."""

    events: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=MAX_EVENTS)]  # type: ignore[assignment]


Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
RankCounts = Annotated[list[Count], Meta(min_length=3, max_length=3)]
"""A rank, and how often an item was shown and clicked there."""


class ImportedItem(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How often an item was shown and clicked at each rank, before the service."""

    id: Annotated[Id, about("id of the item, unique within the query")]
    group: Annotated[Id | None, about("provider of the item, such as a seller")] = None
    counts: Annotated[
        Annotated[list[RankCounts], Meta(min_length=1, max_length=MAX_RANK)],
        about("rank, from 1, how often the item was shown there, and how often it was clicked there"),
    ]


class ImportedQuery(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The history of a query."""

    query: Annotated[Text, about("text of the query; every byte matters")]
    visits: Annotated[Count, about("number of lists that were shown")]
    items: Annotated[
        Annotated[list[ImportedItem], Meta(min_length=1, max_length=MAX_ITEMS)], about("the items, with distinct ids")
    ]
    part: Annotated[Count, about("number of the part, if the items of a query are imported in several")] = 0


class ImportRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """Counts from a log that the service did not write."""

    source: Annotated[
        str, Meta(min_length=1, max_length=128, description="identifies the log, such as a checksum of its content")
    ]
    queries: Annotated[
        Annotated[list[ImportedQuery], Meta(min_length=1, max_length=MAX_IMPORTS)], about("the queries, in any order")
    ]


PAGE = Meta(ge=0, le=2**31 - 1, description="`next` of the page before; 0 for the first page, of up to 5,000 items")


class QueryOptions(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which of the items of a query to return."""

    after: Annotated[int, PAGE] = 0


class QueryLookup(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The text of a query. It is never part of a URL, because proxies log URLs."""

    query: Annotated[Text, about("text of the query; every byte matters")]
    after: Annotated[int, PAGE] = 0


class ItemDeletion(Struct, forbid_unknown_fields=True):
    """An item to delete from every query."""

    item: Annotated[Id, about("id of the item")]


class ResetRequest(Struct, forbid_unknown_fields=True):
    """Confirmation that everything is to be deleted."""

    confirm: Annotated[Literal["reset"], about("the word reset")]


class Arm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A policy that an experiment shows to a share of the sessions."""

    name: Annotated[str, Meta(min_length=1, max_length=64, description="printable name of the arm, unique")]
    policy: Annotated[PolicyText, about("its ranking policy, with its parameters")]
    share: Annotated[float, Meta(gt=0.0, lt=1.0, description="share of the sessions; the control has the rest")]
    stopped: Annotated[
        Annotated[str, Meta(max_length=500)] | None,
        about("why the arm was stopped; null while it runs. Its sessions get the control, and count in no arm"),
    ] = None


class ArmGuard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an arm is stopped: it is worse than the control by more than a margin, with confidence."""

    unfairness: Annotated[
        Annotated[float, Meta(ge=0.0, le=1.0)] | None,
        about("margin of the unfairness that a list adds, on its scale from -1 to 1; null to tolerate any"),
    ] = 0.02
    clicks: Annotated[
        Annotated[float, Meta(ge=0.0, lt=1.0)] | None,
        about("share of the control's clicks per list that an arm may lose; null to tolerate any"),
    ] = 0.05
    level: Annotated[
        float, Meta(gt=0.0, le=0.5, description="probability of ever stopping an arm that is within the margins")
    ] = 0.05


class OnlineExperiment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An A/B test: arms beside the control, which is the policy of the rules, each for a share of the sessions."""

    name: Annotated[
        str, Meta(min_length=1, max_length=64, description="printable name; another name assigns sessions anew")
    ]
    arms: Annotated[list[Arm], Meta(min_length=1, max_length=8, description="the arms besides the control")]
    guard: Annotated[ArmGuard | None, about("when an arm is stopped; null for never")] = ArmGuard()


POLICY = about("the ranking policy, with its parameters")
ESTIMATOR = about("the relevance estimator, with its parameters; auto for the policy's own")
EXAMINATION = about("severity of position bias, or examination probabilities by rank")
PRIOR_MEAN = about("prior relevance of items without a prior; null for none")
PRIOR_STRENGTH = about("weight of the prior, as pseudo-exposure")
PRIOR_CERTAINTY = about("exposure that a prior counts for in marginal certainty, at most its weight")
MATURATION = about("age at which impressions enter the relevance estimate, in seconds")
HALF_LIFE = about("time in which counts lose half their weight, in seconds; null for no decay")
NEWCOMER_EXPOSURE = about("starting exposure of new items: zero, or the exposure that their relevance merits")
RETENTION = about("how long impressions accept feedback, in seconds")
SEED = about("seed of randomised policies")
EXPERIMENT = about("the A/B test that runs; null for none")


class PolicyChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """Rules to change; durations are in seconds. Rules that are not given stay."""

    policy: Annotated[PolicyText | UnsetType, POLICY] = UNSET
    estimator: Annotated[EstimatorText | UnsetType, ESTIMATOR] = UNSET
    examination: Annotated[Examination | UnsetType, EXAMINATION] = UNSET
    prior_mean: Annotated[Probability | UnsetType | None, PRIOR_MEAN] = UNSET
    prior_strength: Annotated[Annotated[float, Meta(ge=0.0, le=1e9)] | UnsetType, PRIOR_STRENGTH] = UNSET
    prior_certainty: Annotated[Annotated[float, Meta(ge=0.0, le=1e9)] | UnsetType, PRIOR_CERTAINTY] = UNSET
    maturation: Annotated[Seconds | UnsetType, MATURATION] = UNSET
    half_life: Annotated[Annotated[float, Meta(ge=1.0, le=10000000000.0)] | UnsetType | None, HALF_LIFE] = UNSET
    newcomer_exposure: Annotated[Newcomers | UnsetType, NEWCOMER_EXPOSURE] = UNSET
    retention: Annotated[Annotated[float, Meta(ge=1.0, le=1e9)] | UnsetType, RETENTION] = UNSET
    seed: Annotated[Annotated[int, Meta(ge=0, le=2**62)] | UnsetType, SEED] = UNSET
    experiment: Annotated[OnlineExperiment | UnsetType | None, EXPERIMENT] = UNSET


LIMIT = Meta(ge=1, le=100, description="maximum number of entries to return")
OFFSET = Meta(ge=0, le=1_000, description="number of entries to leave out at the beginning, for the next page")


class HistoryOptions(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which part of the history to return."""

    resolution: Annotated[Literal["hour", "day"], about("length of the periods")] = "hour"
    limit: Annotated[int, Meta(ge=1, le=1_200, description="number of periods to return, the last ones")] = 168
    groups: Annotated[int, Meta(ge=0, le=100, description="number of groups to tell apart in each period")] = 10


class UnfairQueriesOptions(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which queries to return."""

    order: Annotated[
        Literal["unfairness", "visits"], about("by unfairness above the floor, or by visits; largest first")
    ] = "unfairness"
    limit: Annotated[int, LIMIT] = 20
    offset: Annotated[int, OFFSET] = 0


class ExposedItemsOptions(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which items to return."""

    order: Annotated[
        Literal["under", "over"], about("items with too little exposure, or with too much; most extreme first")
    ] = "under"
    limit: Annotated[int, LIMIT] = 20
    offset: Annotated[int, OFFSET] = 0


class KeyRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """An API key to create."""

    name: Annotated[
        str, Meta(min_length=1, max_length=100, description="printable label, such as the program that will use it")
    ]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=4, description="scopes of the key")]
