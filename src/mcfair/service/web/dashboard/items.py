"""The page of items and groups: who has had more, and who less, than relevance earns."""

from __future__ import annotations

from typing import NamedTuple

from ...wire import Fairness
from .overview import Card, group_card

__all__ = ["ItemsView", "items_view"]

DRAWN_GROUPS = 30
"""Groups in the chart; the table below it has all."""


class ItemsView(NamedTuple):
    """The content of the page."""

    empty: bool
    groups: Card


def items_view(fairness: Fairness) -> ItemsView:
    """Build the content of the page."""
    return ItemsView(fairness.visits == 0, group_card(fairness.groups, DRAWN_GROUPS))
