"""Admission control and the phases of the service: serving, draining, stopped.

Requests are admitted after their head has been authorized and before their body is read, so that strangers cannot use
up the places, and under overload a refused request costs almost nothing. A place is held until the response is
complete, not until the client has read it. Probes need no place, so nothing can keep them from responding.

Every class of requests has places of its own, so that no number of viewers, reads or feedback can shut out rankings.
"""

from __future__ import annotations

import math
import time
from typing import Literal

from .requests import HTTPError

RequestClass = Literal["rank", "feedback", "read", "page", "admin"]

PLACES = 96
"""Default number of places for rankings."""

SHARES: dict[RequestClass, float] = {"rank": 1, "feedback": 1 / 4, "read": 1 / 12, "page": 1 / 24, "admin": 1 / 48}
"""The places of each class, relative to those for rankings; at least one each."""

MAX_BYTES = 64 << 20
"""Maximum size of all bodies in flight together."""

WAITING_SECONDS = 1.0
"""For how long after its refusal a caller counts as waiting: no other caller gets more than half of the places."""


class AdmissionError(HTTPError):
    """A request was refused by admission control."""

    def __init__(self, detail: str) -> None:
        super().__init__(503, f"{detail}; nothing was changed", retry_after="1")


class Places:
    """The places of one class of requests, and who holds them: callers are API keys, None without one."""

    def __init__(self, name: RequestClass) -> None:
        self.name, self.taken = name, 0
        self.held: dict[str | None, int] = {}
        self.waiting: str | None = None  # the caller that was refused last
        self.refused_at = -math.inf

    def check(self, caller: str | None, limit: int) -> None:
        """Raise AdmissionError unless a caller may have one more place.

        A caller may have all places, until another one finds none: from then on each may have half of them.
        """
        if self.taken < limit:
            if not self.waiting_beside(caller) or 2 * (self.held.get(caller, 0) + 1) <= max(limit, 2):
                return
            raise AdmissionError(f"this key has half of the places for {self.name} requests, and others wait")
        if 2 * self.held.get(caller, 0) < limit:
            self.waiting, self.refused_at = caller, time.monotonic()
        raise AdmissionError(f"too many {self.name} requests are in flight")

    def waiting_beside(self, caller: str | None) -> bool:
        """Return whether another caller waits for a place."""
        if self.refused_at == -math.inf or self.waiting == caller:
            return False
        if time.monotonic() - self.refused_at > WAITING_SECONDS:
            self.refused_at = -math.inf
            return False
        return True


class Lifecycle:
    """The phase of the service, and the places of its requests in flight.

    While draining, requests are processed, but every response closes its connection, so that clients reconnect
    elsewhere. Once stopped, requests are refused, but probes are not.

    Parameters
    ----------
    max_in_flight
        Maximum number of concurrent rankings. Other requests have places of their own, see `SHARES`.
    """

    def __init__(self, max_in_flight: int = PLACES) -> None:
        self.max_in_flight, self.bytes = max_in_flight, 0
        self.places = {name: Places(name) for name in SHARES}
        self.phase: Literal["serving", "draining", "stopped"] = "serving"

    @property
    def in_flight(self) -> int:
        """Number of requests in flight, except probes."""
        return sum(each.taken for each in self.places.values())

    def admit(self, name: RequestClass, caller: str | None, size: int) -> None:
        """Admit a request with a body of a size, or raise AdmissionError; `leave` ends it, with the same arguments."""
        if self.phase == "stopped":
            raise AdmissionError("the service is stopping")
        if self.bytes + size > MAX_BYTES and self.bytes:
            raise AdmissionError(f"{self.bytes:,} bytes of other requests are in flight")
        places = self.places[name]
        places.check(caller, math.ceil(SHARES[name] * self.max_in_flight))
        places.taken += 1
        places.held[caller] = places.held.get(caller, 0) + 1
        self.bytes += size

    def leave(self, name: RequestClass, caller: str | None, size: int) -> None:
        """End a request that was admitted."""
        places = self.places[name]
        places.taken -= 1
        places.held[caller] -= 1
        if not places.held[caller]:
            del places.held[caller]
        self.bytes -= size
