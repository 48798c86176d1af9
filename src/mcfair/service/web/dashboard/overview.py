"""The overview: unfairness against its floor, traffic, exposure by group, and the rules of the service."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from ...wire import Fairness, GroupFairness, History
from .charts import Moment, Pair, Quantity, dumbbell_chart, line_chart, traffic_chart
from .formatting import format_count, format_figure, format_points, format_ratio, format_share, format_time, plural
from .queries import CLOSE, chart_label, format_floor, without_noise
from .reads import RuleChange

DRAWN_GROUPS = 12
"""Groups in the chart: those with the most exposure and merit. The page of items and groups has all."""

NO_GROUP, OTHER_GROUPS = "without a group", "all other groups"

MUCH = 100
"""A ratio of unfairness to its floor that says no more than the two numbers."""

LENGTHS = {"hour": datetime.timedelta(hours=1), "day": datetime.timedelta(days=1)}


class Period(NamedTuple):
    """A period of the history: its length, what was counted in it, and unfairness and floor at its end."""

    time: datetime.datetime
    seconds: float
    lists: int
    clicks: int
    unfairness: float
    floor: float


class Card(NamedTuple):
    """A chart with its title, its legend and its data as a table."""

    title: str
    about: str
    legend: list[tuple[str, str]]
    """Classes of marks, and what they stand for."""
    chart: Markup | None
    columns: list[str]
    rows: list[list[str]]


class OverviewView(NamedTuple):
    """The content of the overview."""

    empty: bool
    title: str
    tiles: list[tuple[str, str, str]]
    """Names, values and remarks."""
    fairness: Card
    traffic: Card
    groups: Card
    changes: list[RuleChange]
    as_of: str


def overview_view(fairness: Fairness, changes: list[RuleChange], points: Sequence[Period], span: str) -> OverviewView:
    """Build the content of the overview; `span` names the period of the points, such as "24 hours"."""
    floor = format_floor(fairness.floor, fairness.unfairness)
    lists, clicks = sum(point.lists for point in points), sum(point.clicks for point in points)
    return OverviewView(
        empty=fairness.visits == 0,
        title=headline(fairness),
        tiles=[
            (
                "Unfairness",
                format_figure(fairness.unfairness),
                f"floor {floor}",
            ),
            ("Lists", format_count(lists), f"in the last {span}"),
            ("Clicks", format_count(clicks), f"{clicks / lists:.2f} a list" if lists else "no lists yet"),
            ("Queries", format_count(fairness.queries), plural(fairness.visits, "visit")),
        ],
        fairness=fairness_card(points, changes, span),
        traffic=traffic_card(points, lists, clicks, span),
        groups=group_card(fairness),
        changes=changes,
        as_of=format_time(fairness.as_of),
    )


def complete(history: History, span: datetime.timedelta) -> list[Period]:
    """Return every period of a span from the first one on record; those without a record repeat the figures before.

    Nothing was ranked then, so nothing has changed.
    """
    if not history.points:
        return []
    step = LENGTHS[history.points[0].resolution]
    last = history.points[-1].start
    recorded = {point.start: point for point in history.points}
    time, unfairness, floor = max(history.points[0].start, last - span + step), 0.0, 0.0
    points = []
    while time <= last:
        found = recorded.get(time)
        if found is not None and found.unfairness is not None:
            unfairness, floor = found.unfairness, without_noise(found.floor or 0.0, found.unfairness)
        lists, clicks = (0, 0) if found is None else (found.lists, found.clicks)
        points.append(Period(time, step.total_seconds(), lists, clicks, unfairness, floor))
        time += step
    return points


def headline(fairness: Fairness) -> str:
    """Return the result in one sentence: by group if there are any, else by unfairness."""
    unfairness, floor = fairness.unfairness, fairness.floor
    if not fairness.visits:
        return "No lists have been ranked yet"
    groups = [*fairness.groups, *([] if fairness.others is None else [fairness.others])]
    if any(each.group is not None for each in groups):
        moved = sum(abs(each.exposure_share - each.merit_share) for each in groups) / 2
        if moved <= CLOSE:
            return "Every group gets the exposure that it merits, to within 1 %"
        return f"{format_share(moved)} of all exposure goes to other groups than relevance merits"
    if unfairness <= floor * 1.05 or unfairness == 0.0:
        return "Exposure is as fair as it could be"
    if floor * MUCH <= unfairness:
        return f"Unfairness is {format_figure(unfairness)}, its floor {format_floor(floor, unfairness)}"
    return f"Exposure is {format_ratio(unfairness / floor)} times as unfair as it had to be"


def fairness_card(points: Sequence[Period], changes: list[RuleChange], span: str) -> Card:
    """Build the chart of unfairness against its floor."""
    if len(points) < 2:
        title = "The curve begins with the second hour of traffic"
        return Card(title, "", [], None, [], [])
    events = [Moment(each.since, f"version {each.number}: {each.policy}") for each in changes if each.changes]
    series = [
        Quantity("unfairness", [point.unfairness for point in points], "main"),
        Quantity("floor", [point.floor for point in points], "reference"),
    ]
    rows = [
        [format_time(point.time), format_figure(point.unfairness), format_figure(point.floor)]
        for point in reversed(points)
    ]
    first, last = points[0], points[-1]
    label = (
        f"Unfairness and its floor over the last {span}: from {format_figure(first.unfairness)} over a floor of "
        f"{format_figure(first.floor)} to {format_figure(last.unfairness)} over a floor of {format_figure(last.floor)}."
    )
    return Card(
        trend_title(points),
        "Mean over queries. Both grow with the number of visits; what is between them could have been avoided.",
        [("line main", "unfairness"), ("line reference", "floor (lowest possible)"), ("flag", "change of the rules")],
        line_chart([point.time for point in points], series, label, events),
        ["until", "unfairness", "floor"],
        rows,
    )


def trend_title(points: Sequence[Period]) -> str:
    """Return how unfairness has changed: as a ratio to its floor, or by itself where that says little."""
    first, last, most = points[0], points[-1], max(point.unfairness for point in points)
    before, now = (each.unfairness / each.floor if each.floor else math.inf for each in (first, last))
    if max(before, now) > MUCH and last.unfairness < 0.95 * most:
        return f"Unfairness has fallen from {format_figure(most)} to {format_figure(last.unfairness)}"
    if max(before, now) > MUCH:
        return f"Unfairness is now {format_figure(last.unfairness)}, its floor {format_figure(last.floor)}"
    if abs(now - before) < 0.02 * before:
        return f"Unfairness keeps to {format_ratio(now)} times its floor"
    way = "rose" if now > before else "fell"
    return f"Unfairness {way} from {format_ratio(before)} to {format_ratio(now)} times its floor"


def traffic_card(points: Sequence[Period], lists: float, clicks: float, span: str) -> Card:
    """Build the chart of lists and clicks."""
    title = f"{plural(lists, 'list')} and {plural(clicks, 'click')} in the last {span}"
    if not lists:
        return Card(title, "", [], None, [], [])
    unit = "day" if points[-1].seconds > 3600 else "hour"
    bars, over = (
        Quantity("lists", [float(point.lists) for point in points], "light"),
        Quantity("clicks", [float(point.clicks) for point in points], "main"),
    )
    rows = [[format_time(each.time), format_count(each.lists), format_count(each.clicks)] for each in reversed(points)]
    chart = traffic_chart([each.time for each in points], bars, over, points[0].seconds, f"{title}.")
    return Card(
        title,
        f"Per {unit}, in UTC.",
        [("bar light", f"lists per {unit}"), ("line main", f"clicks per {unit}")],
        chart,
        ["from", "lists", "clicks"],
        rows,
    )


def group_card(fairness: Fairness, drawn: int = DRAWN_GROUPS) -> Card:
    """Build the chart of exposure against merit by group."""
    groups = fairness.groups
    if all(each.group is None for each in groups):
        title = "No item belongs to a group"
        return Card(title, "Send a group with each item, such as its seller, to compare groups.", [], None, [], [])
    largest = sorted(groups, key=lambda each: -(each.exposure_share + each.merit_share))[:drawn]
    shown = sorted(largest, key=lambda each: each.merit_share - each.exposure_share)
    pairs = [Pair(each.group or NO_GROUP, each.merit_share, each.exposure_share) for each in shown]
    ordered = sorted(groups, key=lambda each: each.merit_share - each.exposure_share)
    rows = [group_row(each.group or NO_GROUP, each) for each in ordered]
    if fairness.others is not None:
        rows.append(group_row(OTHER_GROUPS, fairness.others))
    rest = f" The {len(largest)} largest of {format_count(len(groups))} groups." if len(groups) > len(largest) else ""
    return Card(
        group_title([each for each in groups if each.group is not None]),
        f"Over all queries.{rest} The number on the right is the difference in percentage points.",
        [("had", "share of exposure"), ("due", "share that relevance merits")],
        dumbbell_chart(pairs, chart_label(pairs)),
        ["group", "exposure", "merit", "difference", "items", "clicks"],
        rows,
    )


def group_row(name: str, group: GroupFairness) -> list[str]:
    """Format a group as a row of a table."""
    gap = group.exposure_share - group.merit_share
    return [
        name,
        format_share(group.exposure_share),
        format_share(group.merit_share),
        format_points(gap),
        format_count(group.items),
        format_count(group.clicks),
    ]


def group_title(groups: Sequence[GroupFairness]) -> str:
    """Return which group is furthest from its fair share."""
    worst = max(groups, key=lambda each: abs(each.exposure_share - each.merit_share))
    gap = worst.exposure_share - worst.merit_share
    if abs(gap) <= CLOSE:
        return "Every group is within one point of its fair share"
    return f"{worst.group} has {100 * abs(gap):.1f} points {'more' if gap > 0 else 'less'} exposure than it merits"
