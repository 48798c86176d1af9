"""The methods of `Client`, `AsyncClient` and `Ranker`, declared once: signature, documentation, checks of arguments.

Each function here checks its arguments and returns a `Call`. The three classes bind the functions as methods and differ
only in how they execute a call: over HTTP, over HTTP in an event loop, or directly on the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..errors import RequestError, unknown
from ..service import wire
from .calls import Call, check_options, first, given_order, one_of, report, with_common_errors

if TYPE_CHECKING:
    from ..policies.base import Policy


# --- ranking and feedback --------------------------------------------------------------------------------------------


@with_common_errors
def rank(
    query: str,
    items: Iterable[wire.Item | str | dict[str, Any]],
    k: int = 10,
    *,
    policy: Policy | str | None = None,
    explain: bool = False,
    defer_exposure: bool = False,
    shadow: bool = False,
    key: str | None = None,
    deadline: float | None = None,
    fallback: bool = False,
) -> Call[wire.Ranking]:
    """Rank the candidates of a query and record the impression.

    Parameters
    ----------
    query
        Text of the query. It is not stored; the data is kept under a keyed hash of it.
    items
        The candidates: ids, or items with a `prior` relevance from 0 to 1 and a `group`.
    k
        Length of the list, at most the number of items.
    policy
        Policy for this list only, such as "MCFair(alpha=100)", instead of the one in force.
    explain
        Whether to return the terms of every score.
    defer_exposure
        Credit no exposure until `shown` is reported.
    shadow
        Return the items in the given order, and record the list that the policy would have shown.
    key
        Idempotency key: a repeated call with the same key and items returns the same ranking and counts once. A client
        generates one for every call if none is given.
    deadline
        Maximum duration of the call in seconds, retries included. If left out, the `rank_deadline` of a client; a
        `Ranker` waits until the ranking is durable.
    fallback
        Return the first k items in the given order, instead of raising UnavailableError, if the service is unavailable
        or the deadline passes. Such a list has `fallback` set and no impression; feedback on it is not sent.

    Returns
    -------
    Ranking
        The list, and the id of the impression that feedback refers to.

    Raises
    ------
    PolicyError
        If the policy fails; a client raises RequestError instead.
    ConflictError
        If the idempotency key was used for another request.
    """
    begun = monotonic()
    check_options(key, deadline)
    candidates = [wire.as_item(item) for item in items]
    request = wire.convert(
        wire.RankRequest,
        {
            "query": query,
            "items": candidates,
            "k": wire.as_builtin(k),
            "policy": None if policy is None else str(policy),
            "explain": explain,
            "defer_exposure": defer_exposure,
            "shadow": shadow,
        },
    )
    raw = wire.with_raw_items(request)
    wire.check_rank_request(raw)
    arguments = {"request": raw, "key": key, "begun": begun, "deadline": deadline}
    return Call("rank", arguments, fallback=given_order(candidates, request.k) if fallback else None)


@with_common_errors
def feedback(events: Iterable[wire.Event | dict[str, Any]]) -> Call[list[wire.EventResult]]:
    """Report clicks and shown ranks.

    Parameters
    ----------
    events
        Any number of events: `{"impression": …, "item": …}` is a click, `{"impression": …, "type": "shown", "ranks":
        [1, 2]}` reports shown ranks. An impression of None, as in a fallback ranking, is not sent.

    Returns
    -------
    list of EventResult
        One result per event, in order. Repeated events are duplicates and count once.
    """
    return report("feedback", events)


@with_common_errors
def retract(events: Iterable[wire.Event | dict[str, Any]]) -> Call[list[wire.EventResult]]:
    """Retract events, such as fraudulent clicks. A retracted event does not count again when it is repeated.

    Parameters
    ----------
    events
        The events to retract, as `feedback` accepts them.

    Returns
    -------
    list of EventResult
        One result per event, in order.
    """
    return report("retract", events)


@with_common_errors
def click(impression: str | None, item: str) -> Call[wire.EventResult]:
    """Report a click on an item of an impression.

    Parameters
    ----------
    impression
        Id of the impression, or None if the ranking was a fallback.
    item
        Id of the clicked item.

    Returns
    -------
    EventResult
        Whether the click was applied, and why not if it was not.
    """
    return first(report("feedback", [{"impression": impression, "item": item}]))


@with_common_errors
def shown(impression: str | None, ranks: Iterable[int] | None = None) -> Call[wire.EventResult]:
    """Report which ranks of an impression were shown.

    Parameters
    ----------
    impression
        Id of the impression, or None if the ranking was a fallback.
    ranks
        Shown ranks, from 1; all of them if left out.

    Returns
    -------
    EventResult
        Whether the event was applied, and why not if it was not.
    """
    seen = None if ranks is None else list(ranks)
    return first(report("feedback", [{"impression": impression, "type": "shown", "ranks": seen}]))


# --- reading ---------------------------------------------------------------------------------------------------------


@with_common_errors
def explain(impression: str | None) -> Call[wire.Explanation]:
    """Explain why the items of an impression are ranked as they are.

    Parameters
    ----------
    impression
        Id of the impression.

    Returns
    -------
    Explanation
        The terms and inputs of every score, and the ranks without each term.

    Raises
    ------
    NotFoundError
        If the impression does not exist or has expired.
    """
    if impression is None:
        raise RequestError("impression = None: the ranking was a fallback, so that nothing was recorded", "impression")
    return Call("explain", {"impression": impression})


@with_common_errors
def query_state(query: str | None = None, *, query_id: str | None = None) -> Call[wire.QueryState]:
    """Return the observations of a query.

    Parameters
    ----------
    query, query_id
        The text of the query, or its id.

    Returns
    -------
    QueryState
        Visits, unfairness, and exposure, clicks and relevance of the items.

    Raises
    ------
    NotFoundError
        If the query does not exist.
    """
    return Call("query_state", one_of(query, query_id))


@with_common_errors
def fairness() -> Call[wire.Fairness]:
    """Return fairness over all queries and by group.

    Returns
    -------
    Fairness
        Means over queries, and received and merited exposure by group.
    """
    return Call("fairness", {})


@with_common_errors
def usage() -> Call[wire.Usage]:
    """Return the amount of stored data.

    Returns
    -------
    Usage
        Numbers of queries, items, impressions, events and snapshots, and the size in bytes.
    """
    return Call("usage", {})


def ready() -> Call[bool]:
    """Return whether the service is ready, without waiting until it is.

    Returns
    -------
    bool
        Whether requests are accepted and the store can be written.
    """
    return Call("ready", {})


@with_common_errors
def export() -> Call[Iterator[dict[str, Any]]]:
    """Export everything that is stored.

    Yields
    ------
    dict
        One entry: a version of the rules, a query with its counts, or an impression.
    """
    return Call("export", {})


# --- rules, deletion, keys -------------------------------------------------------------------------------------------


@with_common_errors
def policy() -> Call[wire.ActivePolicy]:
    """Return the policy and the other rules in force.

    Returns
    -------
    ActivePolicy
        The rules, their version and since when they are in force.
    """
    return Call("policy", {})


@with_common_errors
def change_policy(**changes: Any) -> Call[wire.ActivePolicy]:
    """Change the policy or other rules from now on; rules that are not given stay.

    Parameters
    ----------
    **changes
        Rules such as `policy="MCFair(alpha=10)"` or `half_life=86_400`; see `mcfair.service.rules.Rules`.

    Returns
    -------
    ActivePolicy
        The rules now in force.
    """
    return Call("change_policy", {"change": wire.convert(wire.PolicyChange, changes)})


@with_common_errors
def delete_query(query: str | None = None, *, query_id: str | None = None) -> Call[None]:
    """Delete a query and its data.

    Parameters
    ----------
    query, query_id
        The text of the query, or its id.

    Raises
    ------
    NotFoundError
        If the query does not exist.
    """
    return Call("delete_query", one_of(query, query_id))


@with_common_errors
def delete_item(item: str) -> Call[int]:
    """Delete an item from every query.

    Parameters
    ----------
    item
        Id of the item.

    Returns
    -------
    int
        Number of queries that had the item; after a retry of a client, those that still had it.
    """
    return Call("delete_item", {"item": wire.convert(wire.ItemDeletion, {"item": item}).item})


@with_common_errors
def reset() -> Call[int]:
    """Delete every query and its data; rules and API keys stay.

    Returns
    -------
    int
        Number of queries deleted.

    Raises
    ------
    MCFairError
        If the connection of a client failed and it is not known whether the request was executed.
    """
    return Call("reset", {})


@with_common_errors
def keys() -> Call[list[wire.KeyInfo]]:
    """List the API keys, without their secrets.

    Returns
    -------
    list of KeyInfo
        The keys, in order of creation.
    """
    return Call("keys", {})


@with_common_errors
def add_key(name: str, scopes: Iterable[wire.Scope]) -> Call[wire.CreatedKey]:
    """Create an API key for the HTTP interface.

    Parameters
    ----------
    name
        A label, such as the program that will use the key.
    scopes
        Any of "rank", "feedback", "read" and "admin".

    Returns
    -------
    CreatedKey
        The key, which is not shown again: only a hash of it is stored.

    Raises
    ------
    MCFairError
        If the connection of a client failed and it is not known whether the request was executed.
    """
    chosen = list(scopes)
    for scope in chosen:
        if scope not in wire.SCOPES:
            raise RequestError(unknown("scope", str(scope), wire.SCOPES), "scopes")
    request = wire.convert(wire.KeyRequest, {"name": name, "scopes": chosen})
    return Call("add_key", {"name": request.name, "scopes": request.scopes})


@with_common_errors
def revoke_key(id: str) -> Call[wire.KeyInfo]:
    """Revoke an API key.

    Parameters
    ----------
    id
        Id of the key, as `keys` lists it.

    Returns
    -------
    KeyInfo
        The revoked key.

    Raises
    ------
    NotFoundError
        If the key does not exist.
    """
    return Call("revoke_key", {"id": id})
