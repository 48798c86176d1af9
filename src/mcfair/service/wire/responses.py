"""The types of responses. The descriptions of the fields are part of their annotations."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from .requests import (
    ESTIMATOR,
    EXAMINATION,
    EXPERIMENT,
    HALF_LIFE,
    MATURATION,
    NEWCOMER_EXPOSURE,
    POLICY,
    PRIOR_CERTAINTY,
    PRIOR_MEAN,
    PRIOR_STRENGTH,
    RETENTION,
    SEED,
    Newcomers,
    OnlineExperiment,
    Scope,
    about,
)

__all__ = [
    "ActivePolicy",
    "CreatedKey",
    "DeletionCount",
    "EventResult",
    "ExplainedItem",
    "Explanation",
    "ExposedItem",
    "ExposedItems",
    "Fairness",
    "FeedbackResults",
    "GroupFairness",
    "Health",
    "History",
    "HistoryPoint",
    "ImportResult",
    "ImportResults",
    "Inputs",
    "ItemState",
    "KeyInfo",
    "OmittedItem",
    "Problem",
    "QueryState",
    "Ranked",
    "Ranking",
    "ResponseBody",
    "Status",
    "UnfairQueries",
    "UnfairQuery",
    "Usage",
]

Time = Annotated[datetime.datetime, Meta(tz=True)]
Terms = dict[str, float]
WITHOUT = about("rank that it would have had without each part of the policy; null if it would not be in the list")
SENTENCE = about("the reason in plain words: the part of the policy without which its rank changes most")
INTERVAL = about("the two ends of an interval that holds the relevance with a probability of about 95 %")

AS_OF = about(
    "everything recorded before this time is included; in a store of up to 1,000 queries the time of the call"
)


class ResponseBody(Struct):
    """Base of the response types."""

    def to_dict(self) -> dict[str, Any]:
        """Return the response as plain Python data, as in its JSON form, for the routes of a web framework.

        Returns
        -------
        dict
            Dicts, lists, texts, numbers, booleans and None; times are ISO 8601 texts.
        """
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


class Ranked(ResponseBody, gc=False, omit_defaults=True):
    """An item of a ranking. A policy that fills ranks one by one, such as MMF, has no scores."""

    id: Annotated[str, about("id of the item")]
    rank: Annotated[int, about("rank in the list, from 1")]
    score: Annotated[float | None, about("score by which the policy ranked the item, if it has one")] = None
    terms: Annotated[Terms | None, about("terms of the score by name, if `explain` was requested")] = None


class Ranking(ResponseBody, kw_only=True, omit_defaults=True):
    """A ranked list, and the id of the impression that feedback refers to.

    `fallback` is true only in a list that a client returned in the caller's own order because the service was not
    available in time. Such a list has no impression: feedback on it is neither sent nor counted.
    """

    impression: Annotated[str | None, about("id of the impression, for feedback; null only in a fallback")]
    query_id: Annotated[str | None, about("id of the query, a keyed hash of its text; null only in a fallback")]
    items: Annotated[list[Ranked], about("the list, from rank 1")]
    policy: Annotated[str, about("the policy that ranked the list, with its parameters")]
    version: Annotated[int, about("version of the rules that the list was ranked with; 0 in a fallback")]
    expires_at: Annotated[Time | None, about("when the impression stops accepting feedback; null only in a fallback")]
    arm: Annotated[str | None, about("arm of the running experiment that the session belongs to, if any")] = None
    fallback: Annotated[bool, about("whether a client returned the caller's order; the service never sends it")] = False


Status = Literal[
    "applied", "duplicate", "unknown_impression", "expired", "not_in_impression", "invalid", "no_impression"
]


class EventResult(ResponseBody, omit_defaults=True):
    """The result of an event."""

    status: Annotated[
        Status,
        about(
            "applied; duplicate: it had been applied before; unknown_impression, expired, not_in_impression or invalid:"
            " it was not applied; no_impression: the list was a fallback, so that the client did not send the event"
        ),
    ]
    detail: Annotated[str | None, about("why the event is invalid")] = None


class FeedbackResults(ResponseBody):
    """The results of a batch of events."""

    results: Annotated[list[EventResult], about("one result per event, in order")]


class ImportResult(ResponseBody, omit_defaults=True):
    """The result of importing the history of a query."""

    status: Annotated[
        Literal["imported", "duplicate", "refused"],
        about("imported; duplicate: this part of the source had been imported before; refused: see the detail"),
    ]
    detail: Annotated[str | None, about("why the counts were refused")] = None


class ImportResults(ResponseBody):
    """The results of an import."""

    results: Annotated[list[ImportResult], about("one result per query, in order")]


class Inputs(ResponseBody, kw_only=True):
    """The observations of an item that the policy ranked it by."""

    relevance: Annotated[float, about("estimated relevance")]
    interval: Annotated[list[float], INTERVAL]
    exposure: Annotated[float, about("exposure received before this list")]
    clicks: Annotated[float, about("clicks received before this list")]
    prior: Annotated[float | None, about("prior relevance, if there is one")]


class ExplainedItem(ResponseBody, kw_only=True):
    """The explanation of an item's rank."""

    id: Annotated[str | None, about("id of the item; null if the item was deleted")]
    rank: Annotated[int, about("rank in the list, from 1")]
    score: Annotated[float | None, about("score by which the policy ranked the item, if it has one")]
    terms: Annotated[Terms, about("terms of the score by name; the score is their sum")]
    inputs: Annotated[Inputs, about("the observations that the score was computed from")]
    without: Annotated[dict[str, int | None], WITHOUT]
    shown: Annotated[bool, about("whether the rank counts as shown")]
    clicked: Annotated[bool, about("whether the item was clicked")]
    sentence: Annotated[str, SENTENCE]


class OmittedItem(ResponseBody, kw_only=True):
    """Why a candidate is not in the list."""

    id: Annotated[str | None, about("id of the item; null if the item was deleted")]
    rank: Annotated[int | None, about("rank by its score; null if the policy fills ranks one by one")]
    without: Annotated[dict[str, int | None], WITHOUT]
    sentence: Annotated[str, SENTENCE]


class Explanation(ResponseBody, kw_only=True):
    """The exact explanation of a ranking; in shadow mode, of the list that the policy would have shown."""

    impression: Annotated[str, about("id of the impression")]
    query_id: Annotated[str, about("id of the query")]
    policy: Annotated[str, about("the policy that ranked the list, with its parameters")]
    version: Annotated[int, about("version of the rules that the list was ranked with")]
    ranked_at: Annotated[Time, about("when the list was ranked")]
    visits: Annotated[int, about("visits of the query before this list")]
    candidates: Annotated[int, about("number of candidates")]
    deferred: Annotated[bool, about("whether exposure is credited only when `shown` is reported")]
    shadow: Annotated[bool, about("whether the caller's order was shown instead of this list")]
    arm: Annotated[str | None, about("arm of the experiment at the time, if any")]
    items: Annotated[list[ExplainedItem], about("the list, from rank 1")]
    omitted: Annotated[list[OmittedItem], about("candidates that are not in the list, the best 100 by rank")]
    summary: Annotated[str, about("what the policy weighs, in plain words")]


class ItemState(ResponseBody, kw_only=True):
    """The observations of one item of a query."""

    id: Annotated[str, about("id of the item")]
    group: Annotated[str | None, about("provider of the item, if it has one")]
    exposure: Annotated[float, about("exposure received: the sum of the examination probabilities of its ranks")]
    clicks: Annotated[float, about("clicks received")]
    relevance: Annotated[float, about("estimated relevance")]
    interval: Annotated[list[float], INTERVAL]
    exposure_share: Annotated[float, about("share of the exposure of the query")]
    merit_share: Annotated[float, about("share of the relevance of the query: the fair share of exposure")]


class QueryState(ResponseBody, kw_only=True, omit_defaults=True):
    """The observations of a query."""

    query_id: Annotated[str, about("id of the query")]
    visits: Annotated[int, about("number of rankings whose exposure counts")]
    unfairness: Annotated[float, about("unfairness of the exposure so far, by the estimated relevance")]
    floor: Annotated[float, about("fairness floor: the lowest unfairness that was possible for these visits")]
    items: Annotated[list[ItemState], about("the items of the query, up to 5,000; the figures above are of all")]
    next: Annotated[int | None, about("`after` of the next page; left out if this is the last")] = None


class GroupFairness(ResponseBody, kw_only=True):
    """Received exposure and merited exposure of one group, such as a provider, over all queries."""

    group: Annotated[str | None, about("the group; null for items without one")]
    items: Annotated[int, about("number of its items, counted per query")]
    exposure: Annotated[float, about("exposure received")]
    clicks: Annotated[float, about("clicks received")]
    exposure_share: Annotated[float, about("share of all exposure")]
    merit_share: Annotated[float, about("share of exposure that its relevance merits")]


class Fairness(ResponseBody, kw_only=True):
    """Fairness over all queries: means over queries, sums by group."""

    queries: Annotated[int, about("number of queries")]
    visits: Annotated[int, about("number of rankings whose exposure counts")]
    unfairness: Annotated[float, about("mean unfairness of the queries")]
    floor: Annotated[float, about("mean fairness floor of the queries")]
    groups: Annotated[
        list[GroupFairness], about("exposure by group, up to 1,000 groups, those with most exposure first")
    ]
    others: Annotated[GroupFairness | None, about("sums over all other groups; null if there are none")]
    as_of: Annotated[Time, AS_OF]


class HistoryPoint(ResponseBody, kw_only=True):
    """A period of the history: what was counted in it, and the figures at its end, as `Fairness` has them."""

    start: Annotated[Time, about("beginning of the period")]
    resolution: Annotated[Literal["hour", "day"], about("length of the period")]
    lists: Annotated[int, about("number of rankings")]
    clicks: Annotated[int, about("number of clicks that were applied")]
    retracted: Annotated[int, about("number of clicks that were retracted")]
    queries: Annotated[int | None, about("number of queries at the end; null if no figures were recorded")]
    unfairness: Annotated[float | None, about("mean unfairness of the queries at the end; null if not recorded")]
    floor: Annotated[float | None, about("mean fairness floor of the queries at the end; null if not recorded")]
    version: Annotated[int | None, about("version of the rules in force at the end; null if not recorded")]
    groups: Annotated[list[GroupFairness], about("exposure by group at the end, those with most exposure first")]
    others: Annotated[GroupFairness | None, about("sums over all other groups; null if there are none")]


class History(ResponseBody, kw_only=True):
    """The history of all queries; periods without any record are left out."""

    points: Annotated[list[HistoryPoint], about("the periods, oldest first; the last one may not have ended")]
    as_of: Annotated[Time, AS_OF]


class UnfairQuery(ResponseBody, kw_only=True):
    """The figures of one query."""

    query_id: Annotated[str, about("id of the query; its text is not stored")]
    visits: Annotated[int, about("number of rankings whose exposure counts")]
    unfairness: Annotated[float, about("unfairness of the exposure so far, by the estimated relevance")]
    floor: Annotated[float, about("fairness floor: the lowest unfairness that was possible for these visits")]
    items: Annotated[int, about("number of items")]


class UnfairQueries(ResponseBody, kw_only=True):
    """A page of the queries that are most unfair, or visited most; there are up to 1,000 of them."""

    queries: Annotated[list[UnfairQuery], about("the queries, in the requested order")]
    more: Annotated[bool, about("whether there are further pages")]
    as_of: Annotated[Time, AS_OF]


class ExposedItem(ResponseBody, kw_only=True):
    """The exposure of one item of a query, and what its relevance merits."""

    id: Annotated[str, about("id of the item")]
    group: Annotated[str | None, about("provider of the item, if it has one")]
    query_id: Annotated[str, about("id of the query")]
    exposure: Annotated[float, about("exposure received")]
    merited: Annotated[float, about("exposure that its relevance merits: its merit share of the query's exposure")]
    exposure_share: Annotated[float, about("share of the exposure of the query")]
    merit_share: Annotated[float, about("share of the relevance of the query: the fair share of exposure")]


class ExposedItems(ResponseBody, kw_only=True):
    """A page of the items whose exposure is furthest from what they merit; up to 1,000, and five of each query."""

    items: Annotated[list[ExposedItem], about("the items, in the requested order")]
    more: Annotated[bool, about("whether there are further pages")]
    as_of: Annotated[Time, AS_OF]


class Usage(ResponseBody, kw_only=True):
    """Amount of stored data."""

    queries: Annotated[int, about("number of queries")]
    items: Annotated[int, about("number of items, counted per query")]
    impressions: Annotated[int, about("number of impressions that have not expired")]
    events: Annotated[int, about("number of other log entries")]
    snapshots: Annotated[int, about("number of snapshots of queries")]
    deleting: Annotated[int, about("number of rows that deletions under way have yet to delete")]
    bytes: Annotated[int, about("size of the store, in bytes")]


class DeletionCount(ResponseBody):
    """Number of queries that were changed or deleted."""

    queries: Annotated[int, about("number of queries that were changed or deleted")]


class Health(ResponseBody):
    """Result of a health probe."""

    status: Annotated[Literal["alive", "ready"], about("alive or ready, by the probe")]


class ActivePolicy(ResponseBody, kw_only=True):
    """The rules in force and since when; durations are in seconds."""

    version: Annotated[int, about("version of the rules; every change increases it")]
    since: Annotated[Time, about("when these rules came into force")]
    policy: Annotated[str, POLICY]
    estimator: Annotated[str, ESTIMATOR]
    fitted: Annotated[str | None, about("the estimator with its fitted prior; null if none was fitted")]
    examination: Annotated[float | list[float], EXAMINATION]
    prior_mean: Annotated[float | None, PRIOR_MEAN]
    prior_strength: Annotated[float, PRIOR_STRENGTH]
    prior_certainty: Annotated[float, PRIOR_CERTAINTY]
    maturation: Annotated[float, MATURATION]
    half_life: Annotated[float | None, HALF_LIFE]
    newcomer_exposure: Annotated[Newcomers, NEWCOMER_EXPOSURE]
    retention: Annotated[float, RETENTION]
    seed: Annotated[int, SEED]
    experiment: Annotated[OnlineExperiment | None, EXPERIMENT]


class KeyInfo(ResponseBody, kw_only=True):
    """An API key, without its secret."""

    id: Annotated[str, about("id of the key, for revoking it")]
    name: Annotated[str, about("label of the key")]
    scopes: Annotated[list[Scope], about("scopes of the key")]
    created: Annotated[Time, about("when the key was created")]
    revoked: Annotated[Time | None, about("when the key was revoked; null if it is valid")]


class CreatedKey(ResponseBody, kw_only=True):
    """A new API key; its secret is shown only once."""

    key: Annotated[str, about("the key with its secret, for the Authorization header")]
    info: Annotated[KeyInfo, about("the key without its secret")]


class Problem(ResponseBody, kw_only=True, omit_defaults=True):
    """A problem (RFC 9457)."""

    title: Annotated[str, about("the phrase of the status")]
    status: Annotated[int, about("the HTTP status")]
    detail: Annotated[str, about("what was wrong, what was got and what is allowed, in one line")]
    type: Annotated[str, about("URI of the kind of problem")] = "about:blank"
    field: Annotated[str | None, about("part of the request that is at fault")] = None
