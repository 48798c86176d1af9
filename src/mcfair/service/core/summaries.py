"""Summaries of queries, their sums over all queries, and what log entries add to the history.

A summary is computed from one ledger, so a walk over all queries computes those of changed queries only and adds up the
stored ones. What is kept is bounded: the groups, the items of a query, and the lists of extreme queries and items.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from heapq import heappush, heapreplace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...metrics.exposure import query_unfairness
from ..stores import KIND_FEEDBACK, KIND_IMPRESSION, LogEntry
from .ledger import Ledger
from .records import decode_flips, decoder, is_clicked
from .reports import least_unfairness, observed_state
from .rules import Version

HOUR = 3_600_000
"""An hour, in ms."""

MAX_GROUPS, HISTORY_GROUPS = 1_000, 100
"""Groups whose present figures are kept, and those kept in each period of the history: those with most exposure. The
others are summed up."""

COUNTED_GROUPS = 10_000
"""Groups that are told apart while the summaries are added up."""

QUERY_GROUPS, QUERY_ITEMS = 100, 5
"""Groups that are kept for a query; and its items of either kind, under- and over-exposed."""

EXTREMES = 1_000
"""Length of the lists of extreme queries and items over all queries."""

Counts = dict[int, list[int]]
"""Lists, clicks and retracted clicks by the start of the hour, in ms."""


class GroupSums(msgspec.Struct, array_like=True):
    """Sums over the items of a group: their number, exposure, clicks, and the exposure that their relevance merits."""

    group: str | None
    items: int = 0
    exposure: float = 0.0
    clicks: float = 0.0
    merited: float = 0.0

    def add(self, other: GroupSums) -> None:
        """Add the sums of another group."""
        self.items += other.items
        self.exposure += other.exposure
        self.clicks += other.clicks
        self.merited += other.merited


Standing = tuple[int, float, float, float]
"""An item of a query: its row, its exposure, its share of the exposure of the query, and its share of the merit."""

ExtremeQuery = tuple[float, int, int, float, float, int]
"""The value that a query is ordered by, its number, its visits, unfairness and floor, and the number of its items."""

ExtremeItem = tuple[float, int, int, float, float, float]
"""The distance between exposure and merited exposure, the number of the query, and the standing of the item."""


class QueryFigures(msgspec.Struct, array_like=True):
    """The figures of a query: see `mcfair.service.wire.QueryState`."""

    unfairness: float
    floor: float
    items: int
    groups: list[GroupSums]
    others: GroupSums
    under: list[Standing]
    over: list[Standing]


class StoreFigures(msgspec.Struct, array_like=True):
    """The figures of all queries: means over queries, sums by group, and the version of the rules in force.

    They include every log entry from before `time`, in ms.
    """

    time: int
    version: int
    queries: int
    visits: int
    unfairness: float
    floor: float
    groups: list[GroupSums]
    others: GroupSums

    def with_groups(self, names: Collection[str | None]) -> StoreFigures | None:
        """Return the figures with all groups but these added to the others; None if there is no other one."""
        kept, others = [], msgspec.structs.replace(self.others)
        for each in self.groups:
            if each.group in names:
                kept.append(each)
            else:
                others.add(each)
        return None if len(kept) == len(self.groups) else msgspec.structs.replace(self, groups=kept, others=others)

    def largest_groups(self, number: int) -> tuple[list[GroupSums], GroupSums]:
        """Return the groups with most exposure, and the sums over all others."""
        return largest_groups(self.groups, self.others, number)


class Present(NamedTuple):
    """The present figures, and the extreme queries and items, the most extreme ones first."""

    figures: StoreFigures
    unfair: list[ExtremeQuery]
    visited: list[ExtremeQuery]
    under: list[ExtremeItem]
    over: list[ExtremeItem]


decode_query_figures: Callable[[bytes], QueryFigures] = decoder(QueryFigures, "a summary")
decode_figures: Callable[[bytes], StoreFigures] = decoder(StoreFigures, "the figures of a period")
decode_queries: Callable[[bytes], list[ExtremeQuery]] = decoder(list[ExtremeQuery], "a list of queries")
decode_items: Callable[[bytes], list[ExtremeItem]] = decoder(list[ExtremeItem], "a list of items")


def largest_groups(groups: Iterable[GroupSums], others: GroupSums, number: int) -> tuple[list[GroupSums], GroupSums]:
    """Return the groups with most exposure, and the sums over all others, without a change of the arguments."""
    ordered = sorted(groups, key=lambda each: (-each.exposure, each.group or ""))
    rest = msgspec.structs.replace(others)
    for each in ordered[number:]:
        rest.add(each)
    return ordered[:number], rest


def summarize(ledger: Ledger, version: Version, now: int) -> QueryFigures:
    """Compute the figures of a query."""
    rows, E, R, _ = observed_state(ledger, version, now)
    total, relevance = float(E.sum()), float(R.sum())
    merit = R / relevance if relevance else np.zeros(rows.size)
    gap = E - merit * total
    groups: dict[str | None, GroupSums] = {}
    for i, row in enumerate(rows.tolist()):
        name = ledger.groups[row]
        sums = groups.get(name)
        if sums is None:
            sums = groups[name] = GroupSums(name)
        sums.items += 1
        sums.exposure += float(E[i])
        sums.clicks += ledger.clicks(row)
        sums.merited += float(merit[i]) * total
    kept, others = largest_groups(groups.values(), GroupSums(None), QUERY_GROUPS)
    order = np.argsort(gap, kind="stable").tolist()

    def standing(i: int) -> Standing:
        return int(rows[i]), float(E[i]), float(E[i]) / total, float(merit[i])

    return QueryFigures(
        unfairness=float(query_unfairness(E, R)) if rows.size else 0.0,
        floor=least_unfairness(ledger, rows, E, R),
        items=rows.size,
        groups=kept,
        others=others,
        under=[standing(i) for i in order[:QUERY_ITEMS] if gap[i] < 0.0],
        over=[standing(i) for i in order[::-1][:QUERY_ITEMS] if gap[i] > 0.0],
    )


def booked_counts(entries: Iterable[LogEntry]) -> Counts:
    """Count the lists, clicks and retracted clicks of log entries by hour."""
    counts: Counts = {}
    for entry in entries:
        sums = counts.setdefault(entry.time - entry.time % HOUR, [0, 0, 0])
        if entry.kind == KIND_IMPRESSION:
            sums[0] += 1
        elif entry.kind == KIND_FEEDBACK:
            for _, _, before, after in decode_flips(entry.body).changes:
                sums[1] += is_clicked(after) and not is_clicked(before)
                sums[2] += is_clicked(before) and not is_clicked(after)
    return counts


class FigureSums:
    """Adds up the figures of queries, in bounded memory."""

    def __init__(self) -> None:
        self.queries = self.visits = 0
        self.unfairness = self.floor = 0.0
        self.groups: dict[str | None, GroupSums] = {}
        self.others = GroupSums(None)
        self.extremes: tuple[list[Any], ...] = ([], [], [], [])

    def add(self, number: int, visits: int, figures: QueryFigures) -> None:
        """Add a query."""
        self.queries += 1
        self.visits += visits
        self.unfairness += figures.unfairness
        self.floor += figures.floor
        self.others.add(figures.others)
        total = figures.others.exposure
        for each in figures.groups:
            total += each.exposure
            sums = self.groups.get(each.group)
            if sums is not None:
                sums.add(each)
            elif len(self.groups) < COUNTED_GROUPS:
                self.groups[each.group] = each
            else:
                self.others.add(each)
        unfair, visited, under, over = self.extremes
        described = (number, visits, figures.unfairness, figures.floor, figures.items)
        keep(unfair, (figures.unfairness - figures.floor, *described))
        keep(visited, (float(visits), *described))
        for items, extreme in ((figures.under, under), (figures.over, over)):
            for row, exposure, share, merit in items:
                keep(extreme, (abs(exposure - merit * total), number, row, exposure, share, merit))

    def present(self, time: int, version: int) -> Present:
        """Return the figures of all queries that were added."""
        groups, others = largest_groups(self.groups.values(), self.others, MAX_GROUPS)
        figures = StoreFigures(
            time=time,
            version=version,
            queries=self.queries,
            visits=self.visits,
            unfairness=self.unfairness / max(self.queries, 1),
            floor=self.floor / max(self.queries, 1),
            groups=groups,
            others=others,
        )
        unfair, visited, under, over = (sorted(each, key=lambda x: (-x[0], x[1:])) for each in self.extremes)
        return Present(figures, unfair, visited, under, over)


def keep(heap: list[Any], entry: tuple[Any, ...]) -> None:
    """Add an entry to a heap of the largest ones, those above 0."""
    if entry[0] <= 0.0:
        return
    if len(heap) < EXTREMES:
        heappush(heap, entry)
    elif entry > heap[0]:
        heapreplace(heap, entry)
