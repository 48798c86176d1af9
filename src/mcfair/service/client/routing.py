"""Rendezvous hashing: the requests of one query go to one instance of the service.

Any instance can process any request. Routing only keeps the data of a query in the cache of one instance: a request
that is routed elsewhere is slower, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from time import monotonic


def route(name: str) -> bytes:
    """Return the route of a query, given its text."""
    return blake2b(name.encode(), digest_size=8).digest()


class Instances:
    """The instances of a service, in the order in which the requests of a query try them.

    An instance that failed is tried last for `cooldown` seconds. The routes of at most `max_hints` impressions and
    queries are remembered. `clock` returns the time in seconds.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        cooldown: float,
        *,
        max_hints: int = 20_000,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.addresses = list(addresses)
        self.cooldown, self.max_hints, self.clock = cooldown, max_hints, clock
        self.failed_until: dict[str, float] = {}
        # Two generations instead of an ordered cache: threads share them, and each step is atomic.
        self.recent: dict[str, bytes] = {}
        self.older: dict[str, bytes] = {}

    def __str__(self) -> str:
        return ", ".join(self.addresses)

    def order(self, key: bytes) -> list[str]:
        """Return the instances by decreasing rendezvous hash for a route, those that failed recently last.

        If an instance is added or removed, only the queries routed to it move.
        """
        now = self.clock()

        def preference(address: str) -> tuple[bool, bytes]:
            failed = self.failed_until.get(address, 0.0) > now
            return not failed, blake2b(key, key=blake2b(address.encode()).digest(), digest_size=8).digest()

        return sorted(self.addresses, key=preference, reverse=True)

    def mark(self, address: str, *, failed: bool) -> None:
        """Record whether an instance failed."""
        if failed:
            self.failed_until[address] = self.clock() + self.cooldown
        else:
            self.failed_until.pop(address, None)

    def remember(self, id: str | None, key: bytes) -> None:
        """Remember the route of an impression or a query id, which do not contain the text of the query."""
        if id is not None and len(self.addresses) > 1:
            if len(self.recent) >= self.max_hints // 2:
                self.older, self.recent = self.recent, {}
            self.recent[id] = key

    def recall(self, id: str) -> bytes:
        """Return the route of an impression or a query id; any route if the query is not known."""
        return self.recent.get(id) or self.older.get(id) or route(id)
