"""The pages of queries: the most unfair ones, and what is known of one of them."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from ...wire import Explanation, Fairness, ItemState, QueryState, UnfairQueries, UnfairQueriesOptions
from .charts import Pair, bar_mark, dumbbell_chart, interval_mark
from .formatting import format_count, format_figure, format_points, format_share, format_time, plural
from .reads import QueryReading

DRAWN_ITEMS, LISTED_ITEMS = 12, 200
"""Items of a query in its chart, and in its table: those furthest from their fair share."""

MAX_OFFSET = 1_000
"""Number of queries that can be listed."""

CLOSE = 0.01
"""Difference of shares below which an item has what it is due."""

NEGLIGIBLE = 1e-9
"""A floor below this share of the unfairness is zero but for rounding."""


class QueryRow(NamedTuple):
    """A row of the table of queries."""

    query_id: str
    visits: str
    items: str
    unfairness: str
    floor: str
    excess: str
    mark: Markup


class QueriesView(NamedTuple):
    """The content of the page of all queries."""

    title: str
    rows: list[QueryRow]
    order: str
    first: int
    previous: int | None
    """Offset of the page before; None if there is none."""
    next: int | None
    as_of: str


def queries_view(found: UnfairQueries, fairness: Fairness, options: UnfairQueriesOptions) -> QueriesView:
    """Build the content of the page of all queries."""
    excesses = [each.unfairness - each.floor for each in found.queries]
    most = max(excesses, default=0.0)
    before, after = options.offset - options.limit, options.offset + options.limit
    return QueriesView(
        title=queries_title(found, fairness, options),
        rows=[
            QueryRow(
                each.query_id,
                format_count(each.visits),
                format_count(each.items),
                format_figure(each.unfairness),
                format_floor(each.floor, each.unfairness),
                format_figure(excess),
                bar_mark(excess / most if most > 0.0 else 0.0),
            )
            for each, excess in zip(found.queries, excesses, strict=True)
        ],
        order=options.order,
        first=options.offset + 1,
        previous=max(before, 0) if options.offset else None,
        next=after if found.more and after <= MAX_OFFSET else None,
        as_of=format_time(found.as_of),
    )


def queries_title(found: UnfairQueries, fairness: Fairness, options: UnfairQueriesOptions) -> str:
    """Return what the queries on the page amount to."""
    if not found.queries:
        return "No query is more unfair than it had to be" if fairness.visits else "No queries yet"
    listed, total = len(found.queries), fairness.queries
    if options.order == "visits":
        visits = share(sum(each.visits for each in found.queries), fairness.visits)
        return f"{plural(listed, 'query')} of {format_count(total)} had {format_share(visits)} of all visits"
    excess = sum(each.unfairness - each.floor for each in found.queries)
    whole = fairness.queries * (fairness.unfairness - fairness.floor)
    if listed == total or whole <= 0.0:
        return f"{plural(total, 'query')}, the most unfair first"
    part = format_share(share(excess, whole))
    return f"{plural(listed, 'query')} of {format_count(total)} make up {part} of the unfairness above the floor"


def share(part: float, whole: float) -> float:
    """Return a share, at most 1: both numbers may be of slightly different times."""
    return min(part / whole, 1.0) if whole > 0.0 else 0.0


class QueryItem(NamedTuple):
    """A row of the table of items."""

    id: str
    group: str
    exposure: str
    had: str
    due: str
    gap: str
    standing: str
    clicks: str
    relevance: str
    interval: str
    mark: Markup


class QueryView(NamedTuple):
    """The content of the page of a query."""

    query_id: str
    title: str
    facts: list[tuple[str, str]]
    chart: Markup | None
    drawn: int
    items: list[QueryItem]
    candidates: int
    latest: Explanation | None
    ranked_at: str


def query_view(reading: QueryReading) -> QueryView:
    """Build the content of the page of a query."""
    state, latest = reading
    ordered = sorted(state.items, key=lambda item: -abs(item.exposure_share - item.merit_share))
    drawn = sorted(ordered[:DRAWN_ITEMS], key=lambda item: item.merit_share - item.exposure_share)
    pairs = [Pair(item.id, item.merit_share, item.exposure_share) for item in drawn]
    seen = any(item.exposure for item in state.items)
    return QueryView(
        query_id=state.query_id,
        title=furthest_title(state),
        facts=[
            ("Visits", format_count(state.visits)),
            ("Candidates", format_count(len(state.items))),
            ("Clicks", format_count(sum(item.clicks for item in state.items))),
            ("Unfairness", format_figure(state.unfairness)),
            ("Floor (lowest possible)", format_floor(state.floor, state.unfairness)),
        ],
        chart=dumbbell_chart(pairs, chart_label(pairs)) if seen else None,
        drawn=len(drawn),
        items=[query_item(item) for item in ordered[:LISTED_ITEMS]],
        candidates=len(state.items),
        latest=latest,
        ranked_at="" if latest is None else format_time(latest.ranked_at),
    )


def query_item(item: ItemState) -> QueryItem:
    """Format an item of a query."""
    low, high = item.interval
    return QueryItem(
        id=item.id,
        group=item.group or "",
        exposure=format_figure(item.exposure),
        had=format_share(item.exposure_share),
        due=format_share(item.merit_share),
        gap=format_points(item.exposure_share - item.merit_share),
        standing=standing(item.exposure_share, item.merit_share),
        clicks=format_count(item.clicks),
        relevance=format_figure(item.relevance),
        interval=f"{low:.2f} to {high:.2f}",
        mark=interval_mark(low, item.relevance, high),
    )


def format_floor(floor: float, unfairness: float) -> str:
    """Format a floor; rounding errors are zero.

    Examples
    --------
    >>> format_floor(0.25, 1.0), format_floor(1e-29, 564.0)
    ('0.250', '0')
    """
    return format_figure(without_noise(floor, unfairness))


def without_noise(floor: float, unfairness: float) -> float:
    """Return a floor, 0 if it is nothing but rounding errors."""
    return floor if floor > NEGLIGIBLE * unfairness else 0.0


def standing(had: float, due: float) -> str:
    """Return whether something has had more or less than it is due; empty if about as much."""
    return "over" if had - due > CLOSE else "under" if due - had > CLOSE else ""


def furthest_title(state: QueryState) -> str:
    """Return a title that names the item furthest from its fair share."""
    if not any(item.exposure for item in state.items):
        return "No list of this query has been shown yet"
    worst = max(state.items, key=lambda item: abs(item.exposure_share - item.merit_share))
    gap = worst.exposure_share - worst.merit_share
    if abs(gap) <= CLOSE:
        return "Every item is within one point of its fair share"
    return f"{worst.id} has had {100 * abs(gap):.1f} points {'more' if gap > 0 else 'less'} than its fair share"


def chart_label(pairs: list[Pair]) -> str:
    """Describe a dumbbell chart for those who cannot see it."""
    named = "; ".join(
        f"{each.name} {format_share(each.had)} of the exposure, {format_share(each.due)} due" for each in pairs[:8]
    )
    rest = f"; and {plural(len(pairs) - 8, 'other row')}" if len(pairs) > 8 else ""
    return f"Share of exposure against share of merit: {named}{rest}."
