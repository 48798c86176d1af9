"""The operations of the service, each declared once: route, scope, types, documentation and execution.

The routes, the OpenAPI document and the requests of the clients follow from this table, and `Ranker` executes the same
functions. `methods` has the signatures of the Python interface.
"""

from collections.abc import Callable, Generator
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any

from . import wire
from .declaration import NDJSON, Operation
from .declaration import operation as declare

if TYPE_CHECKING:
    from .background.worker import Reading
    from .core.engine import Engine


OPERATIONS: dict[str, Operation] = {}
"""Every operation on stored data by name, in the order of the documentation."""

operation = partial(declare, table=OPERATIONS)


def submission(operation: Operation, arguments: dict[str, Any]) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """Return what an executor is to call, and its arguments after the engine, by position and by name.

    Rankings and feedback are methods of the engine itself, by which the executor recognises them.
    """
    name = operation.name
    if name == "rank":
        return engine_class().rank, [arguments["body"], arguments["key"], arguments.get("caller")], {}
    if name in ("feedback", "retract"):
        return engine_class().feedback, [arguments["body"].events, name == "retract"], {}
    return operation.function, [], arguments


@cache
def engine_class() -> type["Engine"]:
    """Import the engine on first use, because clients do without it."""
    from .core.engine import Engine

    return Engine


ImpressionPart = Annotated[str, wire.about("id of the impression, from the ranking")]
QueryPart = Annotated[str, wire.about("id of the query, from a ranking or a lookup")]
KeyPart = Annotated[str, wire.about("id of the key, as listed")]

RANK_EXAMPLE = {
    "query": "red shoes",
    "items": [{"id": "sku1", "prior": 0.42, "group": "seller A"}, {"id": "sku2"}, {"id": "sku3"}],
    "k": 2,
}
IMPORT_EXAMPLE = {
    "source": "shop-2026-01-31.csv, b2 5d41402abc4b2a76b9719d911017c592",
    "queries": [{"query": "red shoes", "visits": 40, "items": [{"id": "sku1", "counts": [[1, 30, 6], [2, 10, 1]]}]}],
}
EVENTS_EXAMPLE = {"events": [{"impression": "IMPRESSION", "item": "sku2", "type": "click"}]}
LOOKUP_EXAMPLE = {"query": "red shoes"}
COMPARE_EXAMPLE = {"policies": ["TopK", "MCFair(alpha=10)"], "max_age": 86_400, "lists": 200}
KEY_EXAMPLE = {"name": "shop", "scopes": ["rank", "feedback"]}

# --- ranking ---------------------------------------------------------------------------------------------------------


@operation(
    "POST",
    "/v1/rank",
    "Ranking",
    "rank",
    request=wire.RankRequest,
    errors=(409,),
    idempotent=True,
    example=RANK_EXAMPLE,
)
def rank(engine: "Engine", body: wire.RawRankRequest, key: str | None, caller: str | None = None) -> wire.Ranking:
    """Rank the candidates of a query.

    The impression and its exposure are durable before the response is sent. Ids must be distinct and have at most 256
    bytes, the query at most 4,096. A repeated request with the same Idempotency-Key, byte for byte in its items, gets
    the same response and counts once; without a key it counts again.
    """
    return engine.rank(body, key, caller)


@operation("POST", "/v1/feedback", "Ranking", "feedback", example=EVENTS_EXAMPLE)
def feedback(engine: "Engine", body: wire.Feedback) -> wire.FeedbackResults:
    """Report clicks and shown ranks.

    A click is one bit per impression and item, so events may be repeated and may arrive in any order. Every ranking
    that starts after the response takes the events into account. An event that cannot be applied does not keep others
    from being applied. A large batch is applied in parts: after an error some may have been, so repeat the whole batch.
    """
    return engine.feedback(body.events)


@operation("POST", "/v1/retract", "Ranking", "feedback", example=EVENTS_EXAMPLE)
def retract(engine: "Engine", body: wire.Feedback) -> wire.FeedbackResults:
    """Retract events, such as the clicks of a robot."""
    return engine.feedback(body.events, retract=True)


# --- reading ---------------------------------------------------------------------------------------------------------


@operation("GET", "/v1/impressions/{impression}/explain", "Reading", "read", runs="background")
def explain(reading: "Reading", impression: ImpressionPart) -> wire.Explanation:
    """Explain the ranks of the items of an impression.

    The score is a sum, so the explanation is exact: its terms, its inputs, and the ranks without each term.
    """
    from .core.explanations import explain

    return explain(reading.store, impression)


@operation(
    "POST", "/v1/queries/lookup", "Reading", "read", runs="background", errors=(404,), example={"query": "red shoes"}
)
def lookup(reading: "Reading", body: wire.QueryLookup) -> wire.QueryState:
    """Return the observations of a query, given by its text.

    The text of a query is never part of a URL, because proxies log URLs.
    """
    wire.check_text("query", body.query, wire.MAX_QUERY)
    return state_of(reading, body.after, query=body.query)


@operation("GET", "/v1/queries/{query_id}", "Reading", "read", runs="background")
def query(reading: "Reading", query_id: QueryPart, options: wire.QueryOptions) -> wire.QueryState:
    """Return the observations of a query, given by its id."""
    return state_of(reading, options.after, query_id=query_id)


def state_of(reading: "Reading", after: int, **given: str) -> wire.QueryState:
    """Return the observations of a query, with a page of its items."""
    from .core.reports import find_query, query_state

    with reading.store.read_transaction():
        return query_state(*find_query(reading.store, **given), reading.now, after, wire.MAX_ITEMS)


@operation("GET", "/v1/fairness", "Reading", "read", runs="background")
def fairness(reading: "Reading") -> wire.Fairness:
    """Return fairness over all queries and by group.

    The figures are those of the time of the call, in a large store those of the last summary; `as_of` is their time.
    """
    from .core.history_reports import fairness

    return fairness(reading.present().figures)


@operation("GET", "/v1/history", "Reading", "read", runs="background")
def history(reading: "Reading", options: wire.HistoryOptions) -> wire.History:
    """Return lists, clicks and fairness by hour or by day.

    Hours are kept for 28 days, and days for three years.
    """
    from .core.history_reports import history

    with reading.figures() as (present, unbooked):
        return history(reading.store, present.figures, unbooked, options)


@operation("GET", "/v1/queries", "Reading", "read", runs="background")
def unfair_queries(reading: "Reading", options: wire.UnfairQueriesOptions) -> wire.UnfairQueries:
    """Return the queries whose unfairness is furthest above its floor, or those with most visits.

    Queries are given by their ids, because their texts are not stored.
    """
    from .core.history_reports import unfair_queries

    return unfair_queries(reading.store, reading.present(), options)


@operation("GET", "/v1/items", "Reading", "read", runs="background")
def exposed_items(reading: "Reading", options: wire.ExposedItemsOptions) -> wire.ExposedItems:
    """Return the items that have had the most exposure too little, or too much, for their relevance in a query."""
    from .core.history_reports import exposed_items

    return exposed_items(reading.store, reading.present(), options)


@operation("POST", "/v1/compare", "Reading", "read", runs="background", example=COMPARE_EXAMPLE)
def compare(reading: "Reading", body: wire.CompareRequest) -> wire.PolicyComparisons:
    """Compare policies with the lists that were shown.

    A sample of the log is read concurrently with the traffic, and its decisions are repeated with each policy. Lists
    that were recorded in shadow mode are compared as well. Nothing is changed.
    """
    from .core.comparison import compare

    with reading.comparing():
        return compare(reading.store, reading.now, body.policies, max_age=body.max_age, lists=body.lists)


@operation("GET", "/v1/experiment", "Reading", "read", runs="background", errors=(404,))
def experiment(reading: "Reading") -> wire.ExperimentReport:
    """Return the results of the present experiment, or of the last one, by arm.

    They are totals that are added up as lists are ranked and clicked, so that reading them takes no scan.
    """
    from .core.arm_reports import experiment_report

    return experiment_report(reading.store, reading.now)


@operation("GET", "/v1/usage", "Reading", "read", runs="background")
def usage(reading: "Reading") -> wire.Usage:
    """Return the amount of stored data."""
    return wire.Usage(**reading.store.usage()._asdict())


# --- rules -----------------------------------------------------------------------------------------------------------


@operation("GET", "/v1/policy", "Policy", "read")
def policy(engine: "Engine") -> wire.ActivePolicy:
    """Return the policy and the other rules in force."""
    return engine.active_policy()


@operation("PUT", "/v1/policy", "Policy", "admin", errors=(409,), example={"policy": "MCFair(alpha=10)"})
def change_policy(engine: "Engine", body: wire.PolicyChange) -> wire.ActivePolicy:
    """Change the policy or other rules from now on; rules that are not given stay."""
    return engine.change(body)


# --- data ------------------------------------------------------------------------------------------------------------


@operation("GET", "/v1/export", "Data", "admin", runs="background", media_type=NDJSON)
def export(reading: "Reading") -> Generator[bytes, None, None]:
    """Export everything that is stored, as JSON lines."""
    from .core.history_reports import export_history
    from .core.reports import export

    yield from export(reading.store)
    yield from export_history(reading.store)


@operation("POST", "/v1/import", "Data", "admin", example=IMPORT_EXAMPLE)
def import_history(engine: "Engine", body: wire.ImportRequest) -> wire.ImportResults:
    """Import counts from a log that the service did not write.

    They count as if the lists had been shown now, under the examination in force. Each part of a source is counted once
    per query, however often it is sent: identify a source by a checksum of its content.
    """
    return engine.import_history(body.source, body.queries)


@operation("DELETE", "/v1/queries/{query_id}", "Data", "admin", status=204)
def delete_query(engine: "Engine", query_id: QueryPart) -> None:
    """Delete a query and its data."""
    engine.delete_query(query_id=query_id)


@operation("POST", "/v1/items/delete", "Data", "admin", example={"item": "sku1"})
def delete_item(engine: "Engine", body: wire.ItemDeletion) -> wire.DeletionCount:
    """Delete an item from every query."""
    wire.check_text("item", body.item, wire.MAX_ID)
    return wire.DeletionCount(engine.delete_item(body.item))


@operation("POST", "/v1/reset", "Data", "admin", repeatable=False, example={"confirm": "reset"})
def reset(engine: "Engine", body: wire.ResetRequest) -> wire.DeletionCount:
    """Delete every query, item and impression; API keys and rules stay."""
    return wire.DeletionCount(engine.reset())


# --- keys ------------------------------------------------------------------------------------------------------------


@operation("GET", "/v1/keys", "Keys", "admin")
def keys(engine: "Engine") -> list[wire.KeyInfo]:
    """List the API keys, without their secrets."""
    return engine.keys()


@operation("POST", "/v1/keys", "Keys", "admin", status=201, repeatable=False, example=KEY_EXAMPLE)
def add_key(engine: "Engine", body: wire.KeyRequest) -> wire.CreatedKey:
    """Create an API key; its secret is shown only once."""
    wire.check_label("name", body.name)
    return engine.add_key(body.name, body.scopes)


@operation("DELETE", "/v1/keys/{id}", "Keys", "admin")
def revoke_key(engine: "Engine", id: KeyPart) -> wire.KeyInfo:
    """Revoke a key."""
    return engine.revoke_key(id)
