"""The service as a library: every operation, from any thread, without a network."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import StoreError, UnavailableError
from ..policies.base import Policy
from ..service import history
from .clock import Clock
from .engine import CACHE, KEY_PREFIX, Engine, hash_secret
from .group_commit import QUEUE, GroupCommit
from .rules import change_rules
from .stores import Store, open_store
from .wire import (
    ActivePolicy,
    CreatedKey,
    Event,
    EventResult,
    Explanation,
    Fairness,
    Item,
    KeyInfo,
    PolicyChange,
    QueryState,
    Ranking,
    RankRequest,
    Scope,
    Usage,
    as_events,
    as_item,
    convert,
    with_raw_items,
)

__all__ = ["Ranker"]


class Ranker(GroupCommit):
    """Rank fairly and learn from feedback. Every method returns once its effect is durable.

    All methods may be called from any thread. Use it as a context manager, or call `close` at the end.

    Parameters
    ----------
    store
        `sqlite:///PATH`, a path, or `memory:`.
    policy
        The ranking policy. If left out, the last policy of the store, or MCFair for a new store.
    max_queued
        Maximum number of queued operations; further ones are refused with UnavailableError.
    cache
        Memory for cached queries, in bytes; queries that do not fit are evicted and loaded again when needed.
    warm
        Whether to compile or load all kernels now instead of during the first request.
    clock
        Returns the time in ms; a `mcfair.service.clock.Clock` if left out.
    **settings
        The other rules, such as `prior_strength=0, half_life=86_400`; see `mcfair.service.rules.Rules`.

    Raises
    ------
    StoreError
        If the store cannot be opened, is damaged, or is in use by another process.
    RequestError
        If the policy or a rule is not allowed.

    Examples
    --------
    >>> with Ranker("memory:", policy="MCFair(alpha=1, beta=10)") as ranker:
    ...     answer = ranker.rank("red shoes", ["sku1", "sku2", {"id": "sku3", "prior": 0.4}], k=2)
    ...     [item.id for item in answer.items]
    ...     ranker.feedback([{"impression": answer.impression, "item": answer.items[0].id}])[0].status
    ['sku3', 'sku1']
    'applied'
    """

    def __init__(
        self,
        store: str | Path | Store = "sqlite:///mcfair.db",
        *,
        policy: Policy | str | None = None,
        max_queued: int = QUEUE,
        cache: int = CACHE,
        warm: bool = True,
        clock: Callable[[], int] | None = None,
        **settings: Any,
    ) -> None:
        clock = Clock() if clock is None else clock
        opened = open_store(store) if isinstance(store, str | Path) else store
        try:
            opened.begin()
            engine = Engine(opened, lambda stored: change_rules(stored, policy, settings), clock=clock, cache=cache)
            opened.commit()
            if warm:
                warm_up(engine)
        except BaseException:
            opened.rollback()
            opened.close()
            raise
        super().__init__(opened, engine, max_queued)

    def __enter__(self) -> Ranker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- operations --------------------------------------------------------------------------------------------------

    def rank(
        self,
        query: str,
        items: Sequence[Item | str | dict[str, Any]],
        k: int = 10,
        *,
        policy: Policy | str | None = None,
        explain: bool = False,
        defer_exposure: bool = False,
        shadow: bool = False,
        key: str | None = None,
    ) -> Ranking:
        """Rank the candidates of a query and record the impression.

        Parameters
        ----------
        query
            The text of the query. It is not stored; the data is kept under a keyed hash of it.
        items
            The candidates: ids, or items with a `prior` relevance from 0 to 1 and a `group`.
        k
            Length of the list, at most the number of items.
        policy
            A policy for this list only, instead of the one in force.
        explain
            Whether to return the terms of each score.
        defer_exposure
            Credit no exposure until `shown` is reported.
        shadow
            Return the items in the order of the request, and record the list that the policy would have shown.
        key
            Idempotency key: repeating the call with the same key returns the same ranking and changes nothing.

        Returns
        -------
        Ranking
            The list, and the id of the impression that feedback refers to.

        Raises
        ------
        RequestError
            If an argument is not allowed; its `field` names the argument.
        PolicyError
            If the policy fails.
        ConflictError
            If the key was used for another request.
        UnavailableError
            If the queue is full, the store cannot be written, or the ranker is closed. Nothing was changed.
        """
        request = convert(RankRequest, {
            "query": query, "items": [as_item(item) for item in items], "k": k,
            "policy": None if policy is None else str(policy), "explain": explain,
            "defer_exposure": defer_exposure, "shadow": shadow,
        })  # fmt: skip
        return self.submit(Engine.rank, with_raw_items(request), key).result()

    def feedback(self, events: Sequence[Event | dict[str, Any]]) -> list[EventResult]:
        """Report clicks and shown ranks.

        Parameters
        ----------
        events
            Events: `{"impression": …, "item": …}` is a click, `{"impression": …, "type": "shown", "ranks": [1, 2]}`
            reports shown ranks.

        Returns
        -------
        list of EventResult
            One result per event, in order. Repeated events are duplicates and count once.

        Raises
        ------
        RequestError
            If an event is malformed.
        UnavailableError
            If the queue is full, the store cannot be written, or the ranker is closed. Nothing was changed.
        """
        return self.submit(Engine.feedback, as_events(events)).result().results

    def click(self, impression: str, item: str) -> EventResult:
        """Report a click on an item of an impression.

        Parameters
        ----------
        impression
            Id of the impression.
        item
            Id of the clicked item.

        Returns
        -------
        EventResult
            Whether the click was applied, and why not if it was not.

        Raises
        ------
        UnavailableError
            If the queue is full, the store cannot be written, or the ranker is closed. Nothing was changed.
        """
        return self.feedback([Event(impression=impression, item=item)])[0]

    def shown(self, impression: str, ranks: Sequence[int] | None = None) -> EventResult:
        """Report which ranks of an impression were shown.

        Parameters
        ----------
        impression
            Id of the impression.
        ranks
            Shown ranks, from 1; all of them if left out.

        Returns
        -------
        EventResult
            Whether the event was applied, and why not if it was not.

        Raises
        ------
        UnavailableError
            If the queue is full, the store cannot be written, or the ranker is closed. Nothing was changed.
        """
        seen = None if ranks is None else list(ranks)
        return self.feedback([Event(impression=impression, type="shown", ranks=seen)])[0]

    def retract(self, events: Sequence[Event | dict[str, Any]]) -> list[EventResult]:
        """Retract events, such as fraudulent clicks. A retracted event does not count again when it is repeated.

        Parameters
        ----------
        events
            The events to retract, as `feedback` accepts them.

        Returns
        -------
        list of EventResult
            One result per event, in order.

        Raises
        ------
        RequestError
            If an event is malformed.
        UnavailableError
            If the queue is full, the store cannot be written, or the ranker is closed. Nothing was changed.
        """
        return self.submit(Engine.feedback, as_events(events), retract=True).result().results

    def explain(self, impression: str) -> Explanation:
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
        return self.submit(Engine.explain, impression).result()

    def query_state(self, query: str | None = None, *, query_id: str | None = None) -> QueryState:
        """Return the observations of a query: visits, unfairness, and exposure, clicks and relevance of its items.

        Parameters
        ----------
        query, query_id
            The text of the query, or its id.

        Returns
        -------
        QueryState
            The observations.

        Raises
        ------
        NotFoundError
            If the query does not exist.
        """
        return self.submit(Engine.query_state, query, query_id).result()

    def policy(self) -> ActivePolicy:
        """Return the policy and the other rules in force.

        Returns
        -------
        ActivePolicy
            The rules, their version and since when they are in force.
        """
        return self.submit(Engine.active_policy).result()

    def change_policy(self, **changes: Any) -> ActivePolicy:
        """Change the policy or other rules from now on; rules that are not given stay.

        Parameters
        ----------
        **changes
            Rules such as `policy="MCFair(alpha=10)"` or `half_life=86_400`; see `mcfair.service.rules.Rules`.

        Returns
        -------
        ActivePolicy
            The rules now in force.

        Raises
        ------
        RequestError
            If a rule is unknown or its value is not allowed.
        """
        return self.submit(Engine.change, convert(PolicyChange, changes)).result()

    def delete_query(self, query: str | None = None, *, query_id: str | None = None) -> None:
        """Delete a query and its data.

        Parameters
        ----------
        query, query_id
            The text of the query, or its id.

        Raises
        ------
        NotFoundError
            If the query does not exist.
        """
        self.submit(Engine.delete_query, query, query_id).result()

    def delete_item(self, item: str) -> int:
        """Delete an item from every query.

        Parameters
        ----------
        item
            Id of the item.

        Returns
        -------
        int
            Number of queries that had the item.
        """
        return self.submit(Engine.delete_item, item).result()

    def reset(self) -> int:
        """Delete every query and its data; rules and API keys stay.

        Returns
        -------
        int
            Number of queries deleted.
        """
        return self.submit(Engine.reset).result()

    def usage(self) -> Usage:
        """Count what is stored.

        Returns
        -------
        Usage
            Numbers of queries, items, impressions, events and snapshots, and the size in bytes.
        """
        return self.submit(Engine.usage).result()

    def add_key(self, name: str, scopes: list[Scope]) -> CreatedKey:
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
        RequestError
            If a scope is unknown.
        """
        return self.submit(Engine.add_key, name, scopes).result()

    def keys(self) -> list[KeyInfo]:
        """List the API keys, without their secrets.

        Returns
        -------
        list of KeyInfo
            The keys, in order of creation.
        """
        return self.submit(Engine.keys).result()

    def revoke_key(self, id: str) -> KeyInfo:
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
            If there is no such key.
        """
        return self.submit(Engine.revoke_key, id).result()

    # --- reads that bypass the queue ---------------------------------------------------------------------------------

    def fairness(self) -> Fairness:
        """Compute fairness over all queries and by group. It reads every query, concurrently with other operations.

        Returns
        -------
        Fairness
            Means over queries, and received and merited exposure by group.

        Raises
        ------
        UnavailableError
            If the store cannot be read.
        """
        now = self.submit(Engine.now).result()
        with self.readable(), self.store.reader() as store:
            return history.fairness(store, now)

    def export(self) -> Iterator[bytes]:
        """Export everything that is stored, as JSON lines.

        Yields
        ------
        bytes
            One line: a version of the rules, a query with its counts, or an impression.

        Raises
        ------
        UnavailableError
            If the store cannot be read.
        """
        with self.readable(), self.store.reader() as store:
            yield from history.export(store)

    @contextmanager
    def readable(self) -> Iterator[None]:
        """Convert errors of reading the store to UnavailableError; log the cause, which may name paths."""
        try:
            yield
        except (StoreError, OSError) as error:
            self.log_unreadable(error)
            raise UnavailableError("the store cannot be read") from error

    @property
    def has_keys(self) -> bool:
        """Whether API keys are required: true once a key has been created, even if all are revoked by now."""
        return bool(self.engine.api_keys)

    def authenticate(self, key: str) -> frozenset[Scope] | None:
        """Return the scopes of an API key.

        Parameters
        ----------
        key
            The key, with its secret.

        Returns
        -------
        frozenset of str, or None
            The scopes; None if the key is unknown or revoked.
        """
        prefix, _, rest = key.partition("_")
        id, _, secret = rest.partition("_")
        stored = self.engine.api_keys.get(id)
        digest = hash_secret(secret)
        good = stored is not None and hmac.compare_digest(stored.digest, digest) and prefix == KEY_PREFIX
        if stored is None or not good or stored.revoked is not None:
            return None
        return frozenset(stored.scopes.split())  # type: ignore[arg-type]


def warm_up(engine: Engine) -> None:
    """Compile or load every kernel that a request may need, so that no request waits for it."""
    from .stores import SQLiteStore

    scratch = Engine(SQLiteStore(None), lambda stored: engine.version.rules)
    for policy in ("MCFair", "MMF", "FairCo", "TopK", engine.version.rules.policy):
        for n in (3, 40):
            request = RankRequest(query="warm", items=[Item(str(i)) for i in range(n)], k=2, policy=policy)
            answer = scratch.rank(with_raw_items(request))
            scratch.feedback([Event(impression=answer.impression, item=answer.items[0].id)])
    scratch.query_state("warm")
    scratch.store.close()
