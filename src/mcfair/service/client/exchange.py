"""Requests of the service with retries, deadlines and a choice of instances, without I/O.

Every operation is a generator: it yields requests to send and times to wait, receives the outcome of each request, and
returns the result. `asynchronous` does the I/O.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable, Generator
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from ...errors import ConflictError, MCFairError, NotFoundError, RequestError, UnavailableError
from ...service import wire
from ..calls import Call
from .messages import (
    ClientRequest,
    ClientResponse,
    TransportError,
    batches,
    build_path,
    excerpt,
    possibly_done,
    retry_after,
)
from .routing import Instances, route

if TYPE_CHECKING:
    import httpcore

__all__ = ["Exchange", "SansIOClient", "ServerError"]

T = TypeVar("T")

RETRIED_STATUSES = (408, 429, 502, 503, 504)
ERRORS: dict[int, type[MCFairError]] = {404: NotFoundError, 409: ConflictError}

MAX_BACKOFF = 5.0
"""Maximum backoff, in seconds, without Retry-After."""

JITTER = random.SystemRandom()
"""Randomises backoff. The global generator is not used: programs that seed it would all wait equally long, and they
would draw other numbers themselves."""


class ServerError(MCFairError):
    """The service failed while it processed a request, and a retry would probably fail as well."""


Exchange: TypeAlias = Generator[ClientRequest | float, Any, T]
"""Yields requests, for which it is sent a ClientResponse or TransportError, and seconds to wait; returns the result."""


class SansIOClient:
    """Every operation of the service as a generator.

    Parameters
    ----------
    instances
        The instances of the service.
    timeout
        Timeout of an attempt, in seconds.
    retry_timeout
        No attempt starts later than this number of seconds after the first one; `rank` has a deadline instead.
    rank_deadline
        Maximum duration of `rank`, in seconds.
    backoff
        Maximum wait after the first failure, in seconds; it doubles with every failure.
    clock
        Returns the time in seconds.
    uniform
        Draws a number between two others.
    """

    def __init__(
        self,
        instances: Instances,
        *,
        timeout: float,
        retry_timeout: float,
        rank_deadline: float,
        backoff: float,
        clock: Callable[[], float] = monotonic,
        uniform: Callable[[float, float], float] = JITTER.uniform,
    ) -> None:
        self.instances = instances
        self.timeout, self.retry_timeout, self.rank_deadline = timeout, retry_timeout, rank_deadline
        self.backoff, self.clock, self.uniform = backoff, clock, uniform

    def run(self, call: Call[T]) -> Exchange[T]:
        """Execute a call; return its fallback, if it has one, when the service is unavailable."""
        try:
            return call.convert((yield from getattr(self, call.operation)(**call.arguments)))
        except (UnavailableError, ServerError):
            if call.fallback is None:
                raise
            return call.fallback

    # --- operations --------------------------------------------------------------------------------------------------

    def rank(
        self, request: wire.RawRankRequest, key: str | None, begun: float, deadline: float | None
    ) -> Exchange[wire.Ranking]:
        """Rank within the deadline, and remember the route of the impression."""
        key = secrets.token_hex(16) if key is None else key
        key_route = route(request.query)
        ranking = yield from self.call(
            ClientRequest("POST", "/v1/rank", wire.encode(request), {"Idempotency-Key": key}),
            wire.Ranking,
            key_route,
            end=begun + (self.rank_deadline if deadline is None else deadline),
            advice=f"; a retry with key={key!r} counts once",
        )
        self.instances.remember(ranking.impression, key_route)
        self.instances.remember(ranking.query_id, key_route)
        return ranking

    def feedback(self, events: list[wire.Event], path: str = "/v1/feedback") -> Exchange[list[wire.EventResult]]:
        """Send events in as many batches as needed, each to the instance of its first event."""
        results: list[wire.EventResult] = []
        for batch in batches(map(wire.encode, events)):
            body = b'{"events":[' + b",".join(batch) + b"]}"
            key_route = self.instances.recall(events[len(results)].impression)
            response = yield from self.call(ClientRequest("POST", path, body), wire.FeedbackResults, key_route)
            if len(response.results) != len(batch):
                raise MCFairError(f"{path} returned {len(response.results)} results for {len(batch)} events")
            results += response.results
        return results

    def retract(self, events: list[wire.Event]) -> Exchange[list[wire.EventResult]]:
        """Retract events."""
        return self.feedback(events, "/v1/retract")

    def explain(self, impression: str) -> Exchange[wire.Explanation]:
        """Explain an impression."""
        request = ClientRequest("GET", build_path("impressions", impression, "explain"))
        return self.call(request, wire.Explanation, self.instances.recall(impression))

    def query_state(self, query: str | None, query_id: str | None) -> Exchange[wire.QueryState]:
        """Return the observations of a query, given by its text or its id."""
        if query is None:
            request = ClientRequest("GET", build_path("queries", str(query_id)))
            return self.call(request, wire.QueryState, self.instances.recall(str(query_id)))
        request = ClientRequest("POST", "/v1/queries/lookup", wire.encode(wire.QueryLookup(query)))
        return self.call(request, wire.QueryState, route(query))

    def delete_query(self, query: str | None, query_id: str | None) -> Exchange[None]:
        """Delete a query. Its text is not sent in a URL, because proxies log URLs: its id is looked up first."""
        if query is not None:
            query_id = (yield from self.query_state(query, None)).query_id
            self.instances.remember(query_id, route(query))
        request = ClientRequest("DELETE", build_path("queries", str(query_id)))
        yield from self.send(request, self.instances.recall(str(query_id)), missing_is_success=True)

    def fairness(self) -> Exchange[wire.Fairness]:
        """Return fairness over all queries."""
        return self.call(ClientRequest("GET", "/v1/fairness"), wire.Fairness)

    def usage(self) -> Exchange[wire.Usage]:
        """Return the amount of stored data."""
        return self.call(ClientRequest("GET", "/v1/usage"), wire.Usage)

    def policy(self) -> Exchange[wire.ActivePolicy]:
        """Return the rules in force."""
        return self.call(ClientRequest("GET", "/v1/policy"), wire.ActivePolicy)

    def change_policy(self, change: wire.PolicyChange) -> Exchange[wire.ActivePolicy]:
        """Change the rules."""
        return self.call(ClientRequest("PUT", "/v1/policy", wire.encode(change)), wire.ActivePolicy)

    def delete_item(self, item: str) -> Exchange[int]:
        """Delete an item."""
        request = ClientRequest("POST", "/v1/items/delete", wire.encode(wire.ItemDeletion(item)))
        return (yield from self.call(request, wire.DeletionCount)).queries

    def reset(self) -> Exchange[int]:
        """Delete every query; not repeated after an uncertain failure, to keep what arrived after the first attempt."""
        request = ClientRequest("POST", "/v1/reset", wire.encode(wire.ResetRequest("reset")))
        return (yield from self.call(request, wire.DeletionCount, retry_uncertain=False)).queries

    def keys(self) -> Exchange[list[wire.KeyInfo]]:
        """List the API keys."""
        return self.call(ClientRequest("GET", "/v1/keys"), list[wire.KeyInfo])

    def add_key(self, name: str, scopes: list[wire.Scope]) -> Exchange[wire.CreatedKey]:
        """Create a key; not repeated after an uncertain failure, which could leave a valid key that no caller knows."""
        request = ClientRequest("POST", "/v1/keys", wire.encode(wire.KeyRequest(name=name, scopes=scopes)))
        return self.call(request, wire.CreatedKey, retry_uncertain=False)

    def revoke_key(self, id: str) -> Exchange[wire.KeyInfo]:
        """Revoke a key."""
        return self.call(ClientRequest("DELETE", build_path("keys", id)), wire.KeyInfo)

    def ready(self) -> Exchange[bool]:
        """Return whether an instance is ready, without retries."""
        for address in self.instances.addresses:
            outcome = yield ClientRequest("GET", "/readyz", address=address, timeout=self.timeout)
            if isinstance(outcome, ClientResponse) and outcome.status == 200:
                return True
        return False

    def export(self) -> Exchange[httpcore.Response]:
        """Start an export; return the response, whose body is read by the caller."""
        received = yield from self.send(ClientRequest("GET", "/v1/export", stream=True))
        assert received.response is not None
        return received.response

    # --- sending with retries ----------------------------------------------------------------------------------------

    def call(self, request: ClientRequest, kind: type[T], key_route: bytes = b"", **options: Any) -> Exchange[T]:
        """Send a request and decode the response; the options are those of `send`."""
        response = yield from self.send(request, key_route, **options)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self.foreign_response(request, response, str(error)) from None

    def send(
        self,
        request: ClientRequest,
        key_route: bytes = b"",
        *,
        end: float | None = None,
        retry_uncertain: bool = True,
        missing_is_success: bool = False,
        advice: str = "",
    ) -> Exchange[ClientResponse]:
        """Send a request, with retries until there is a response or the time is over.

        A failed attempt is repeated at once with the next instance, and after a wait once all of them were tried.
        Without `end`, no attempt starts later than `retry_timeout`. With `end`, no attempt lasts longer than that, and
        each gets an equal share of the remaining time, so that the instances that were not tried yet get theirs.

        Without `retry_uncertain` a request that may have been executed is not repeated. With `missing_is_success`, a
        404 after such an attempt is a success: that attempt has deleted the resource.
        """
        begun, attempts, uncertain = self.clock(), 0, False
        untried: list[str] = []
        outcome: ClientResponse | TransportError = TransportError("the deadline has passed", sent=False)
        last_start = begun + self.retry_timeout if end is None else end
        wait = 0.0
        while attempts == 0 or self.clock() + wait <= last_start:
            if wait:
                yield wait
            untried = untried or self.instances.order(key_route)
            share = math.inf if end is None else (end - self.clock()) / len(untried)
            if share <= 0:
                break
            address = untried.pop(0)
            outcome = yield request._replace(address=address, timeout=min(self.timeout, share))
            attempts += 1
            retried = not isinstance(outcome, ClientResponse) or outcome.status in RETRIED_STATUSES
            self.instances.mark(address, failed=retried)
            if isinstance(outcome, ClientResponse) and not retried:
                return self.check_response(request, outcome, missing_is_success and uncertain)
            uncertain = uncertain or possibly_done(outcome)
            if uncertain and not retry_uncertain:
                raise MCFairError(f"{request} of {address}: {outcome}; it is not known whether it was executed")
            wait = 0.0 if untried else self.wait_after(outcome, attempts // len(self.instances.addresses))
        spent = f"after {attempts} attempts in {self.clock() - begun:.1f} s"
        after = spent if attempts > 1 else "at the first attempt"
        raise UnavailableError(f"{request} of {self.instances} failed {after}: {outcome}{advice}", wait)

    def wait_after(self, outcome: ClientResponse | TransportError, rounds: int) -> float:
        """Return the seconds to wait: exponential backoff with jitter, so that clients do not retry in lockstep."""
        seconds = self.uniform(0, min(MAX_BACKOFF, self.backoff * 2.0 ** min(rounds - 1, 10)))
        return seconds + (
            retry_after(outcome.headers.get("retry-after", "")) if isinstance(outcome, ClientResponse) else 0.0
        )

    def check_response(
        self, request: ClientRequest, response: ClientResponse, missing_is_success: bool
    ) -> ClientResponse:
        """Return a successful response; raise the error of any other."""
        if 200 <= response.status < 300 or (missing_is_success and response.status == 404):
            return response
        problem = response.problem()
        if problem is None:
            raise self.foreign_response(request, response, "is the address right?")
        if response.status in ERRORS:
            raise ERRORS[response.status](problem.detail)
        if response.status < 500:
            raise RequestError(problem.detail, problem.field)
        raise ServerError(f"{request} of {self.instances} failed: {response}")

    def foreign_response(self, request: ClientRequest, response: ClientResponse, why: str) -> MCFairError:
        """Return the error for a response that does not come from the service, such as the page of a proxy."""
        kind = response.headers.get("content-type", "no type")
        error = ServerError if response.status >= 500 else MCFairError
        return error(
            f"{request} of {self.instances} got {response.status} and {kind}, not a response of the service "
            f"({why}): {excerpt(response.content)}"
        )
