"""The page of items and groups: which have had more, and which less, exposure than their relevance merits, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...wire import ExposedItem, Fairness
from .formatting import format_figure, format_share
from .overview import Card, group_card

DRAWN_GROUPS = 30
"""Groups in the chart; the table below it has all."""

Reasons = Mapping[str, Mapping[str, str]]
"""Sentences on the places of items in the last list of a query, by query and item."""


class ExposedRow(NamedTuple):
    """An item in a query."""

    id: str
    group: str
    query_id: str
    words: str
    reason: str


class ItemsView(NamedTuple):
    """The content of the page."""

    empty: bool
    title: str
    groups: Card
    under: list[ExposedRow]
    over: list[ExposedRow]


def items_view(
    fairness: Fairness, under: Sequence[ExposedItem], over: Sequence[ExposedItem], reasons: Reasons
) -> ItemsView:
    """Build the content of the page."""
    return ItemsView(
        empty=fairness.visits == 0,
        title=items_title(under),
        groups=group_card(fairness, DRAWN_GROUPS),
        under=[exposed_row(each, reasons) for each in under],
        over=[exposed_row(each, reasons) for each in over],
    )


def items_title(under: Sequence[ExposedItem]) -> str:
    """Return which item lacks most exposure."""
    if not under:
        return "Items and groups"
    worst = under[0]
    return f"{worst.id} lacks {format_figure(worst.merited - worst.exposure)} views that its relevance merits"


def exposed_row(item: ExposedItem, reasons: Reasons) -> ExposedRow:
    """Describe the standing of an item in words."""
    gap = item.exposure - item.merited
    words = (
        f"It has had {format_share(item.exposure_share)} of the views of this query where its relevance earns "
        f"{format_share(item.merit_share)}: {format_figure(abs(gap))} views too {'many' if gap > 0 else 'few'}."
    )
    return ExposedRow(item.id, item.group or "", item.query_id, words, reasons.get(item.query_id, {}).get(item.id, ""))
