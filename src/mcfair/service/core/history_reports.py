"""Reports on summaries and history: fairness over all queries, its history, and extreme queries and items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from ..stores import Store, StoredPeriod
from ..wire import (
    ExposedItem,
    ExposedItems,
    ExposedItemsOptions,
    Fairness,
    GroupFairness,
    History,
    HistoryOptions,
    HistoryPoint,
    UnfairQueries,
    UnfairQueriesOptions,
    UnfairQuery,
)
from .history import DAY_MS, DAYS_KEPT, HOURS_KEPT, counted_periods, current_figures, summed
from .reports import to_datetime
from .repository import PAGE_SIZE
from .summaries import HISTORY_GROUPS, HOUR, Counts, GroupSums, Present, StoreFigures, decode_figures


def fairness(figures: StoreFigures) -> Fairness:
    """Return fairness over all queries: means over queries, and received and merited exposure by group."""
    groups, others = group_fairness(figures, len(figures.groups))
    return Fairness(
        queries=figures.queries,
        visits=figures.visits,
        unfairness=figures.unfairness,
        floor=figures.floor,
        groups=groups,
        others=others,
        as_of=to_datetime(figures.time),
    )


def group_fairness(figures: StoreFigures, number: int) -> tuple[list[GroupFairness], GroupFairness | None]:
    """Return the exposure of the groups that have most, and that of all others together, if there are any."""
    groups, others = figures.largest_groups(number)
    total = sum(each.exposure for each in groups) + others.exposure

    def shares(sums: GroupSums) -> GroupFairness:
        return GroupFairness(
            group=sums.group,
            items=sums.items,
            exposure=sums.exposure,
            clicks=sums.clicks,
            exposure_share=sums.exposure / total if total else 0.0,
            merit_share=sums.merited / total if total else 0.0,
        )

    return [shares(each) for each in groups], shares(others) if others.items else None


def history(store: Store, figures: StoreFigures, unbooked: Counts, options: HistoryOptions) -> History:
    """Return the last periods of the history, given the present figures and the counts that are not booked yet.

    Those that begin more than a day later are left out: they were recorded while the clock was ahead.
    """
    until, today = figures.time + DAY_MS, figures.time // DAY_MS * DAY_MS
    more = [*counted_periods(unbooked, figures.time), current_figures(figures)]
    if options.resolution == "hour":
        since = today - HOURS_KEPT * DAY_MS  # earlier ones are about to be summed up to days
        hours = [*store.periods(HOUR, since, until, options.limit), *(each for each in more if each.resolution == HOUR)]
        periods = summed(hours, HOUR)
    else:  # a day may have been booked late, when it was folded already
        since = today - DAYS_KEPT * DAY_MS
        days = store.periods(DAY_MS, since, until, options.limit)
        periods = summed([*days, *store.periods(HOUR, since, until, 24 * (HOURS_KEPT + 2)), *more], DAY_MS)
    return History(
        points=[point(each, options) for each in periods[-options.limit :]],
        as_of=to_datetime(figures.time),
    )


def export_history(store: Store) -> Iterator[bytes]:
    """Export the history as JSON lines, the last periods first."""
    line = msgspec.json.Encoder().encode
    resolutions: tuple[tuple[int, Literal["hour", "day"]], ...] = ((HOUR, "hour"), (DAY_MS, "day"))
    for resolution, name in resolutions:
        options = HistoryOptions(resolution=name, groups=HISTORY_GROUPS)
        until = 2**62
        while page := store.periods(resolution, 0, until, PAGE_SIZE):
            until = page[0].start
            yield from (line(point(each, options)) + b"\n" for each in reversed(page))


def point(period: StoredPeriod, options: HistoryOptions) -> HistoryPoint:
    """Return a period of the history."""
    figures = None if period.body is None else decode_figures(period.body)
    groups, others = ([], None) if figures is None else group_fairness(figures, options.groups)
    return HistoryPoint(
        start=to_datetime(period.start),
        resolution=options.resolution,
        lists=period.lists,
        clicks=period.clicks,
        retracted=period.retracted,
        queries=None if figures is None else figures.queries,
        unfairness=None if figures is None else figures.unfairness,
        floor=None if figures is None else figures.floor,
        version=None if figures is None else figures.version,
        groups=groups,
        others=others,
    )


def unfair_queries(store: Store, present: Present, options: UnfairQueriesOptions) -> UnfairQueries:
    """Return a page of the extreme queries, without those that were deleted since."""
    found = present.unfair if options.order == "unfairness" else present.visited
    page = found[options.offset : options.offset + options.limit]
    keys = {number: store.key_of(number) for _, number, *_ in page}
    return UnfairQueries(
        queries=[
            UnfairQuery(query_id=key.hex(), visits=visits, unfairness=unfairness, floor=floor, items=items)
            for _, number, visits, unfairness, floor, items in page
            if (key := keys[number]) is not None
        ],
        more=len(found) > options.offset + options.limit,
        as_of=to_datetime(present.figures.time),
    )


def exposed_items(store: Store, present: Present, options: ExposedItemsOptions) -> ExposedItems:
    """Return a page of the extreme items, without those that were deleted since."""
    found = present.under if options.order == "under" else present.over
    page = found[options.offset : options.offset + options.limit]
    deletions = store.deletions()
    items = []
    for gap, number, row, exposure, exposure_share, merit_share in page:
        key = store.key_of(number)
        id, group = store.item(number, row) or (None, None)
        deleted = any(each.item == id and not store.is_exempt(each.number, number) for each in deletions)
        if key is not None and id is not None and not deleted:
            items.append(
                ExposedItem(
                    id=id,
                    group=group,
                    query_id=key.hex(),
                    exposure=exposure,
                    merited=exposure + gap if options.order == "under" else exposure - gap,
                    exposure_share=exposure_share,
                    merit_share=merit_share,
                )
            )
    return ExposedItems(
        items=items,
        more=len(found) > options.offset + options.limit,
        as_of=to_datetime(present.figures.time),
    )
