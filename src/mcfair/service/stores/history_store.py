"""The part of the interface of a store that concerns summaries of queries and history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class StoredSummary(NamedTuple):
    """The summary of a query: its figures after the log entry `seq`, under a version of the rules, at a time.

    History has booked the log entries up to `booked`. `seq` is 0 and the body empty until the query is summarised.
    """

    query: int
    booked: int
    seq: int
    version: int
    time: int
    visits: int
    body: bytes


class StoredPeriod(NamedTuple):
    """A period of the history, of `resolution` ms from `start` on: what was booked in it, and figures at its end.

    Rows of resolution 0 have present figures, and `start` tells them apart.
    """

    resolution: int
    start: int
    lists: int
    clicks: int
    retracted: int
    body: bytes | None


class HistoryStore(Protocol):
    """Part of `Store`."""

    def summaries(self, after: int, limit: int) -> list[tuple[int, int, StoredSummary | None]]:
        """Return up to `limit` queries above `after`: number, last sequence number, and summary, if there is one."""

    def booked(self, number: int) -> int | None:
        """Return the log entry up to which history has booked a query; None if it has booked nothing yet."""

    def book(self, queries: Sequence[tuple[int, int | None, int]]) -> set[int]:
        """Move the log entries up to which queries are booked; return the numbers of those that were moved.

        Each query occurs once, with the entry before and the entry after. A query that is deleted, or booked up to
        another entry by now, is left out, so that no entry is booked twice.
        """

    def add_summaries(self, summaries: Sequence[StoredSummary]) -> None:
        """Update the summaries of queries, all but `booked`.

        A query that is deleted, was never booked, or whose log was compacted beyond its summary is left out: rows of
        items that the summary refers to may have been freed.
        """

    def periods(self, resolution: int, since: int, until: int, limit: int) -> list[StoredPeriod]:
        """Return the last `limit` periods with `since <= start < until`, in order."""

    def add_to_period(self, resolution: int, start: int, lists: int, clicks: int, retracted: int) -> None:
        """Add to the counts of a period."""

    def set_figures(self, resolution: int, start: int, body: bytes) -> None:
        """Set the figures of a period."""

    def erase_figures(self, resolution: int, start: int, body: bytes) -> None:
        """Replace the figures of a period by ones without names that must not be stored any more."""

    def delete_periods(self, resolution: int, before: int) -> None:
        """Delete the periods with `start < before`."""
