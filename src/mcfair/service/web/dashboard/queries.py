"""The pages of queries: the most unfair ones, and what is known of one of them."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from ...wire import Explanation, ItemState, QueryState
from .charts import Pair, dumbbell_chart, interval_mark
from .formatting import format_count, format_figure, format_points, format_ratio, format_share, format_time, plural
from .reads import QueryReading

__all__ = ["QueryView", "query_view", "standing"]

DRAWN_ITEMS, LISTED_ITEMS = 12, 200
"""Items of a query in its chart, and in its table: those furthest from their fair share."""

CLOSE = 0.01
"""Difference of shares below which an item has what it is due."""

NEGLIGIBLE = 1e-9
"""A floor below this share of the unfairness is zero but for rounding."""


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
    chart_title: str
    items: list[QueryItem]
    count: int
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
        title=unfairness_title(state.unfairness, state.floor, state.visits),
        facts=[
            ("Visits", format_count(state.visits)),
            ("Candidates", format_count(len(state.items))),
            ("Clicks", format_count(sum(item.clicks for item in state.items))),
            ("Unfairness", format_figure(state.unfairness)),
            ("Floor (lowest possible)", format_figure(state.floor)),
        ],
        chart=dumbbell_chart(pairs, chart_label(pairs)) if seen else None,
        chart_title=furthest_title(state),
        items=[query_item(item) for item in ordered[:LISTED_ITEMS]],
        count=len(state.items),
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


def standing(had: float, due: float) -> str:
    """Return whether something has had more or less than it is due; empty if about as much."""
    return "over" if had - due > CLOSE else "under" if due - had > CLOSE else ""


def unfairness_title(unfairness: float, floor: float, visits: int) -> str:
    """Return a title that compares unfairness with its floor.

    Examples
    --------
    >>> unfairness_title(2.0, 1.0, 5), unfairness_title(1.01, 1.0, 5), unfairness_title(1.0, 0.0, 1)
    ('2.00 times as unfair as it had to be', 'As fair as it could be', 'Unfairness is 1.00 where none was needed')
    """
    if not visits:
        return "Nothing has been shown yet"
    if unfairness <= floor * 1.05 or unfairness == 0.0:
        return "As fair as it could be"
    if floor <= NEGLIGIBLE * unfairness:
        return f"Unfairness is {format_figure(unfairness)} where none was needed"
    return f"{format_ratio(unfairness / floor)} times as unfair as it had to be"


def furthest_title(state: QueryState) -> str:
    """Return a title that names the item furthest from its fair share."""
    if not any(item.exposure for item in state.items):
        return "No item has been shown"
    worst = max(state.items, key=lambda item: abs(item.exposure_share - item.merit_share))
    gap = worst.exposure_share - worst.merit_share
    if abs(gap) <= CLOSE:
        return "Every item is within one point of its fair share"
    return f"{worst.id} has had {format_points(gap)} points {'over' if gap > 0 else 'under'} its fair share"


def chart_label(pairs: list[Pair]) -> str:
    """Describe a dumbbell chart for those who cannot see it."""
    named = "; ".join(
        f"{each.name} {format_share(each.had)} of the exposure, {format_share(each.due)} due" for each in pairs[:8]
    )
    rest = f"; and {plural(len(pairs) - 8, 'other row')}" if len(pairs) > 8 else ""
    return f"Share of exposure against share of merit: {named}{rest}."
