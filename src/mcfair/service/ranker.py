"""The service inside a Python program: all that can be asked of it, from any thread."""

from __future__ import annotations

import hmac
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import StoreError, UnavailableError
from ..policies.base import Policy
from ..service import history
from .engine import CACHE, KEY_PREFIX, Engine, hashed
from .rules import make_rules
from .stores import Store, open_store
from .wire import (
    Event,
    EventResult,
    Explanation,
    Fairness,
    Item,
    KeyAdded,
    KeyInfo,
    PolicyChange,
    PolicyInForce,
    QueryState,
    Ranking,
    RankRequest,
    Scope,
    Usage,
    as_events,
    as_item,
    convert,
    unread,
)
from .worker import QUEUE, Worker

__all__ = ["Ranker"]


class Ranker(Worker):
    """Ranks fairly and learns from feedback; an answer comes after what it says is on disk.

    Parameters
    ----------
    store
        `sqlite:///PATH`, a path, or `memory:`.
    policy
        Who ranks; what the store had last if left out, at first MCFair.
    most_waiting
        Operations that may wait; more are refused with `UnavailableError`.
    cache
        Memory for queries, in bytes; what does not fit is read back when it is needed.
    warm
        Whether to load compiled code now, so that the first request does not wait for it.
    **settings
        Other fields of `Rules`, such as `prior_strength=0, half_life=86_400`.

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
        most_waiting: int = QUEUE,
        cache: int = CACHE,
        warm: bool = True,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        **settings: Any,
    ) -> None:
        kept = open_store(store) if isinstance(store, str | Path) else store
        try:
            kept.begin()
            engine = Engine(kept, lambda stored: make_rules(stored, policy, settings), clock=clock, cache=cache)
            kept.commit()
            if warm:
                warm_up(engine)
        except BaseException:
            kept.rollback()
            kept.close()
            raise
        super().__init__(kept, engine, most_waiting)

    def __enter__(self) -> Ranker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what there is to ask ----------------------------------------------------------------------------------------

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
        """Rank candidates and write the impression down.

        Parameters
        ----------
        query
            Its text, which is stored nowhere: what it has is kept under a keyed hash of it.
        items
            Candidates: ids, or items with a `prior` relevance from 0 to 1 and a `group`.
        k
            Length of the list, at most the number of items.
        policy
            Another policy than the one in force, for this list.
        explain
            Whether to give the terms of each score.
        defer_exposure
            Credit nothing until `shown` arrives.
        shadow
            Return the items as they came, and write down what would have been done.
        key
            Idempotency key: the same call with the same key again gives the same answer and changes nothing.
        """
        request = convert(RankRequest, {
            "query": query, "items": [as_item(item) for item in items], "k": k,
            "policy": None if policy is None else str(policy), "explain": explain,
            "defer_exposure": defer_exposure, "shadow": shadow,
        })  # fmt: skip
        return self.submit(Engine.rank, unread(request), key).result()

    def feedback(self, events: Sequence[Event | dict[str, Any]]) -> list[EventResult]:
        """Report what happened to impressions: `{"impression": …, "item": …}` is a click."""
        return self.submit(Engine.feedback, as_events(events)).result().results

    def click(self, impression: str, item: str) -> EventResult:
        """Report a click on an item of an impression."""
        return self.feedback([Event(impression=impression, item=item)])[0]

    def shown(self, impression: str, ranks: Sequence[int] | None = None) -> EventResult:
        """Report which ranks of an impression were seen, all if they are not given."""
        seen = None if ranks is None else list(ranks)
        return self.feedback([Event(impression=impression, type="shown", ranks=seen)])[0]

    def retract(self, events: Sequence[Event | dict[str, Any]]) -> list[EventResult]:
        """Take back what was reported: fraud, returns. The same event reported again does not count any more."""
        return self.submit(Engine.feedback, as_events(events), retract=True).result().results

    def explain(self, impression: str) -> Explanation:
        """Say why a list was as it was."""
        return self.submit(Engine.explain, impression).result()

    def query_state(self, query: str | None = None, *, query_id: str | None = None) -> QueryState:
        """Tell what was observed of a query."""
        return self.submit(Engine.query_state, query, query_id).result()

    def policy(self) -> PolicyInForce:
        """Say how lists are made now."""
        return self.submit(Engine.in_force).result()

    def change_policy(self, **changes: Any) -> PolicyInForce:
        """Make lists otherwise from now on: fields of `Rules`."""
        return self.submit(Engine.change, convert(PolicyChange, changes)).result()

    def delete_query(self, query: str | None = None, *, query_id: str | None = None) -> None:
        """Forget a query."""
        self.submit(Engine.delete_query, query, query_id).result()

    def delete_item(self, item: str) -> int:
        """Forget an item in every query; say in how many it was."""
        return self.submit(Engine.delete_item, item).result()

    def reset(self) -> int:
        """Forget every query; say how many there were."""
        return self.submit(Engine.reset).result()

    def usage(self) -> Usage:
        """Say how much is stored."""
        return self.submit(Engine.usage).result()

    def add_key(self, name: str, scopes: list[Scope]) -> KeyAdded:
        """Make a key for the network interface."""
        return self.submit(Engine.add_key, name, scopes).result()

    def keys(self) -> list[KeyInfo]:
        """Every key, without its secret."""
        return self.submit(Engine.keys).result()

    def revoke_key(self, id: str) -> KeyInfo:
        """Make a key good for nothing."""
        return self.submit(Engine.revoke_key, id).result()

    # --- what does not go through the writer -------------------------------------------------------------------------

    def fairness(self) -> Fairness:
        """Tell fairness over all queries; reads all of them, beside the writer."""
        now = self.submit(Engine.now).result()
        with readable(), self.store.reader() as store:
            return history.fairness(store, now)

    def export(self) -> Iterator[bytes]:
        """Give everything as lines of JSON."""
        with readable(), self.store.reader() as store:
            yield from history.export(store)

    @property
    def has_keys(self) -> bool:
        """Whether keys are asked for: once there was one, even if all are revoked by now."""
        return bool(self.engine.stored_keys)

    def authenticate(self, key: str) -> frozenset[Scope] | None:
        """Say what a key is good for; None if it is good for nothing."""
        prefix, _, rest = key.partition("_")
        id, _, secret = rest.partition("_")
        stored = self.engine.stored_keys.get(id)
        digest = hashed(secret)
        good = stored is not None and hmac.compare_digest(stored.digest, digest) and prefix == KEY_PREFIX
        if stored is None or not good or stored.revoked is not None:
            return None
        return frozenset(stored.scopes.split())  # type: ignore[arg-type]


@contextmanager
def readable() -> Iterator[None]:
    """Say of a store that cannot be read that the service is unavailable."""
    try:
        yield
    except (StoreError, sqlite3.Error, OSError) as error:
        raise UnavailableError(f"the store cannot be read: {error}") from error


def warm_up(engine: Engine) -> None:
    """Compile, or load, every kernel that a request may need, so that no request waits for it."""
    from .stores import SQLiteStore

    scratch = Engine(SQLiteStore(None), lambda stored: engine.version.rules)
    for policy in ("MCFair", "MMF", "FairCo", "TopK", engine.version.rules.policy):
        for n in (3, 40):
            request = RankRequest(query="warm", items=[Item(str(i)) for i in range(n)], k=2, policy=policy)
            answer = scratch.rank(unread(request))
            scratch.feedback([Event(impression=answer.impression, item=answer.items[0].id)])
    scratch.query_state("warm")
    scratch.store.close()
