"""The methods that `Client`, `AsyncClient` and `Ranker` share: signatures, documentation and checks of arguments."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import RequestError
from . import wire
from .calls import Call, check_options, first, given_order, key_request, report
from .comparison_methods import ComparisonMethods
from .history_methods import HistoryMethods
from .import_methods import ImportMethods
from .reranking_methods import RerankingMethods

if TYPE_CHECKING:
    from ..policies.base import Policy


class Methods(ComparisonMethods, HistoryMethods, ImportMethods, RerankingMethods):
    """The operations of the service as methods. Each builds a call; a subclass executes it.

    Every method raises RequestError if an argument is not allowed, or if the API key of a client is missing or lacks
    the scope; and UnavailableError if the service is unavailable, for a client after its retries.
    """

    def rank(
        self,
        query: str,
        items: Iterable[wire.Item | str | dict[str, Any]],
        k: int = 10,
        *,
        policy: Policy | str | None = None,
        explain: bool = False,
        defer_exposure: bool = False,
        shadow: bool = False,
        session: str | None = None,
        key: str | None = None,
        deadline: float | None = None,
        fallback: bool = False,
    ) -> wire.Ranking:
        """Rank the candidates of a query and record the impression.

        Parameters
        ----------
        query
            Text of the query. It is not stored; the data is kept under a keyed hash of it.
        items
            The candidates: ids, or items with a `prior` relevance from 0 to 1 and a `group`.
        k
            Length of the list, at most the number of items.
        policy
            Policy for this list only, such as "MCFair(alpha=100)", instead of the one in force.
        explain
            Whether to return the terms of every score.
        defer_exposure
            Credit no exposure until `shown` is reported.
        shadow
            Return the items in the given order, and record the list that the policy would have shown.
        session
            Id of the user's session, which decides on the arm of a running experiment. It is not stored.
        key
            Idempotency key: a repeated call with the same key and items returns the same ranking and counts once. A
            client generates one for every call if none is given.
        deadline
            Maximum duration of the call in seconds, retries included. If left out, the `rank_deadline` of a client; a
            `Ranker` waits until the ranking is durable.
        fallback
            Return the first k items in the given order, instead of raising UnavailableError, if the service is
            unavailable, the deadline passes or something else responds in its place. Such a list has `fallback` set and
            no impression; feedback on it is not sent.

        Returns
        -------
        Ranking
            The list, and the id of the impression that feedback refers to.

        Raises
        ------
        PolicyError
            If the policy fails; a client raises RequestError instead.
        ConflictError
            If the idempotency key was used for another request.
        """
        begun = monotonic()
        check_options(key, deadline)
        candidates = wire.as_items(items)
        fields = {
            "query": query,
            "items": candidates,
            "k": wire.as_builtin(k),
            "policy": None if policy is None else str(policy),
            "explain": explain,
            "defer_exposure": defer_exposure,
            "shadow": shadow,
            "session": session,
        }
        request = wire.convert(wire.RankRequest, fields)
        arguments = {"body": wire.with_raw_items(request), "key": key}
        order = given_order(candidates, request.k) if fallback else None
        return self._run(Call("rank", arguments, fallback=order, deadline=deadline, begun=begun))

    def feedback(self, events: Iterable[wire.Event | dict[str, Any]]) -> list[wire.EventResult]:
        """Report clicks and shown ranks.

        Parameters
        ----------
        events
            Any number of events: `{"impression": …, "item": …}` is a click, `{"impression": …, "type": "shown",
            "ranks": [1, 2]}` reports shown ranks. An impression of None, as in a fallback ranking, is not sent.

        Returns
        -------
        list of EventResult
            One result per event, in order. Repeated events are duplicates and count once.
        """
        return self._run(report("feedback", events))

    def retract(self, events: Iterable[wire.Event | dict[str, Any]]) -> list[wire.EventResult]:
        """Retract events, such as fraudulent clicks. A retracted event does not count again when it is repeated.

        Parameters
        ----------
        events
            The events to retract, as `feedback` accepts them.

        Returns
        -------
        list of EventResult
            One result per event, in order.
        """
        return self._run(report("retract", events))

    def click(self, impression: str | None, item: str) -> wire.EventResult:
        """Report a click on an item of an impression.

        Parameters
        ----------
        impression
            Id of the impression, or None if the ranking was a fallback.
        item
            Id of the clicked item.

        Returns
        -------
        EventResult
            Whether the click was applied, and why not if it was not.
        """
        return self._run(first(report("feedback", [{"impression": impression, "item": item}])))

    def shown(self, impression: str | None, ranks: Iterable[int] | None = None) -> wire.EventResult:
        """Report which ranks of an impression were shown.

        Parameters
        ----------
        impression
            Id of the impression, or None if the ranking was a fallback.
        ranks
            Shown ranks, from 1; all of them if left out.

        Returns
        -------
        EventResult
            Whether the event was applied, and why not if it was not.
        """
        seen = None if ranks is None else wire.as_list("ranks", ranks)
        return self._run(first(report("feedback", [{"impression": impression, "type": "shown", "ranks": seen}])))

    # --- reading -----------------------------------------------------------------------------------------------------

    def explain(self, impression: str | None) -> wire.Explanation:
        """Explain why the items of an impression are ranked as they are.

        Parameters
        ----------
        impression
            Id of the impression.

        Returns
        -------
        Explanation
            The terms and inputs of every score, and the ranks without each term.

        Raises
        ------
        NotFoundError
            If the impression does not exist or has expired.
        """
        if impression is None:
            raise RequestError(
                "impression = None: the ranking was a fallback, so that nothing was recorded", "impression"
            )
        return self._run(Call("explain", {"impression": wire.check_id("impression", impression)}))

    def query_state(self, query: str | None = None, *, query_id: str | None = None) -> wire.QueryState:
        """Return the observations of a query.

        Parameters
        ----------
        query, query_id
            The text of the query, or its id.

        Returns
        -------
        QueryState
            Visits, unfairness, and exposure, clicks and relevance of the items.

        Raises
        ------
        NotFoundError
            If the query does not exist.
        """
        return self._run(query_call(query, query_id))

    def usage(self) -> wire.Usage:
        """Return the amount of stored data.

        Returns
        -------
        Usage
            Numbers of queries, items, impressions, events and snapshots, and the size in bytes.
        """
        return self._run(Call("usage"))

    @abstractmethod
    def ready(self) -> bool:
        """Return whether the service is ready, without waiting until it is.

        Returns
        -------
        bool
            Whether requests are accepted and the store can be written.
        """

    @abstractmethod
    def export(self) -> Iterator[dict[str, Any]]:
        """Export everything that is stored.

        Yields
        ------
        dict
            One entry: a version of the rules, a query with its counts, an impression, or a period of the history.
        """

    # --- rules, deletion, keys ---------------------------------------------------------------------------------------

    def policy(self) -> wire.ActivePolicy:
        """Return the policy and the other rules in force.

        Returns
        -------
        ActivePolicy
            The rules, their version and since when they are in force.
        """
        return self._run(Call("policy"))

    def change_policy(self, /, **changes: Any) -> wire.ActivePolicy:
        """Change the policy or other rules from now on; rules that are not given stay.

        Parameters
        ----------
        **changes
            Rules such as `policy="MCFair(alpha=10)"` or `half_life=86_400`; see `mcfair.service.core.rules.Rules`.

        Returns
        -------
        ActivePolicy
            The rules now in force.
        """
        return self._run(Call("change_policy", {"body": wire.convert(wire.PolicyChange, changes)}))

    def delete_query(self, query: str | None = None, *, query_id: str | None = None) -> None:
        """Delete a query and its data.

        Parameters
        ----------
        query, query_id
            The text of the query, or its id. A text is looked up first, because it must not be part of a URL.

        Raises
        ------
        NotFoundError
            If the query does not exist.
        """
        found: Call[Any] = query_call(query, query_id)
        if query is not None:
            found = replace(found, convert=lambda state: Call("delete_query", {"query_id": state.query_id}))
        else:
            found = Call("delete_query", {"query_id": found.arguments["query_id"]})
        return self._run(found)  # type: ignore[no-any-return]

    def delete_item(self, item: str) -> int:
        """Delete an item from every query.

        Parameters
        ----------
        item
            Id of the item.

        Returns
        -------
        int
            Number of queries that had the item; after a retry of a client, those that still had it.
        """
        body = wire.convert(wire.ItemDeletion, {"item": item})
        return self._run(Call("delete_item", {"body": body}, lambda deleted: int(deleted.queries)))

    def reset(self) -> int:
        """Delete every query and its data; rules and API keys stay.

        Returns
        -------
        int
            Number of queries deleted.

        Raises
        ------
        MCFairError
            If the connection of a client failed and it is not known whether the request was executed.
        """
        return self._run(Call("reset", {"body": wire.ResetRequest("reset")}, lambda deleted: int(deleted.queries)))

    def keys(self) -> list[wire.KeyInfo]:
        """List the API keys, without their secrets.

        Returns
        -------
        list of KeyInfo
            The keys, in order of creation.
        """
        return self._run(Call("keys"))

    def add_key(self, name: str, scopes: Iterable[wire.Scope]) -> wire.CreatedKey:
        """Create an API key for the HTTP interface.

        Parameters
        ----------
        name
            A label, such as the program that will use the key.
        scopes
            Any of "rank", "feedback", "read" and "admin".

        Returns
        -------
        CreatedKey
            The key, which is not shown again: only a hash of it is stored.

        Raises
        ------
        MCFairError
            If the connection of a client failed and it is not known whether the request was executed.
        """
        return self._run(Call("add_key", {"body": key_request(name, scopes)}))

    def revoke_key(self, id: str) -> wire.KeyInfo:
        """Revoke an API key.

        Parameters
        ----------
        id
            Id of the key, as `keys` lists it.

        Returns
        -------
        KeyInfo
            The revoked key.

        Raises
        ------
        NotFoundError
            If the key does not exist.
        """
        return self._run(Call("revoke_key", {"id": wire.check_id("id", id)}))


def query_call(
    query: str | None, query_id: str | None, after: int = 0, items: Sequence[wire.ItemState] = ()
) -> Call[wire.QueryState]:
    """Build the call that finds a query by its text or by its id, and reads the pages of its items one by one."""
    if (query is None) == (query_id is None):
        raise RequestError("expected a query or a query_id, one of the two", "query")

    def add_page(state: wire.QueryState) -> wire.QueryState | Call[wire.QueryState]:
        found, following = [*items, *state.items], state.next
        if following is not None:
            return query_call(None, state.query_id, following, found)
        return msgspec.structs.replace(state, items=found)

    if query is None:
        arguments = {"query_id": wire.check_id("query_id", query_id), "options": wire.QueryOptions(after=after)}
        return Call("query", arguments, add_page)
    return Call("lookup", {"body": wire.convert(wire.QueryLookup, {"query": query})}, add_page)
