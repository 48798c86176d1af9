"""The methods that read figures over all queries and their history."""

from __future__ import annotations

from typing import Literal

from . import wire
from .calls import Call, Caller


class HistoryMethods(Caller):
    """Part of `mcfair.service.methods.Methods`.

    The figures are those of the last summary of all queries; `as_of` in a result is its time.
    """

    def fairness(self) -> wire.Fairness:
        """Return fairness over all queries and by group.

        Returns
        -------
        Fairness
            Means over queries, and received and merited exposure by group.
        """
        return self._run(Call("fairness"))

    def history(
        self, resolution: Literal["hour", "day"] = "hour", *, limit: int = 168, groups: int = 10
    ) -> wire.History:
        """Return lists, clicks and fairness by hour or by day.

        Parameters
        ----------
        resolution
            Length of the periods: "hour" for the last 28 days, "day" for the last three years.
        limit
            Number of periods to return, the last ones, at most 1,200.
        groups
            Number of groups to tell apart in each period, at most 100.

        Returns
        -------
        History
            The periods that have any record, oldest first.
        """
        fields = {"resolution": resolution, "limit": wire.as_builtin(limit), "groups": wire.as_builtin(groups)}
        return self._run(Call("history", {"options": wire.convert(wire.HistoryOptions, fields)}))

    def unfair_queries(
        self, order: Literal["unfairness", "visits"] = "unfairness", *, limit: int = 20, offset: int = 0
    ) -> wire.UnfairQueries:
        """Return the queries whose unfairness is furthest above its floor, or those with most visits.

        Parameters
        ----------
        order
            What the queries are ordered by, largest first.
        limit
            Maximum number of queries to return, at most 100.
        offset
            Number of queries to leave out at the beginning, for the next page.

        Returns
        -------
        UnfairQueries
            Ids, visits, unfairness and floors of the queries.
        """
        fields = {"order": order, "limit": wire.as_builtin(limit), "offset": wire.as_builtin(offset)}
        return self._run(Call("unfair_queries", {"options": wire.convert(wire.UnfairQueriesOptions, fields)}))

    def exposed_items(
        self, order: Literal["under", "over"] = "under", *, limit: int = 20, offset: int = 0
    ) -> wire.ExposedItems:
        """Return the items that have had the most exposure too little, or too much, for their relevance in a query.

        Parameters
        ----------
        order
            "under" for items with too little exposure, "over" for those with too much.
        limit
            Maximum number of items to return, at most 100.
        offset
            Number of items to leave out at the beginning, for the next page.

        Returns
        -------
        ExposedItems
            Ids, groups, exposure and merited exposure of the items.
        """
        fields = {"order": order, "limit": wire.as_builtin(limit), "offset": wire.as_builtin(offset)}
        return self._run(Call("exposed_items", {"options": wire.convert(wire.ExposedItemsOptions, fields)}))
