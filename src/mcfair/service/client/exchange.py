"""Calls of the service over a transport, with retries, deadlines and a choice of instances."""

from __future__ import annotations

import email.utils
import math
import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from ...errors import ConflictError, MCFairError, NotFoundError, RequestError, UnavailableError
from .. import wire
from ..calls import Call
from ..declaration import Operation
from ..operations import OPERATIONS
from .routing import Instances, route

if TYPE_CHECKING:
    import httpcore

    from .transport import AsyncTransport, BlockingTransport


T = TypeVar("T")

RETRIED_STATUSES = (408, 429, 502, 503, 504)
ERRORS: dict[int, type[MCFairError]] = {404: NotFoundError, 409: ConflictError}

MAX_BACKOFF = 5.0
"""Maximum backoff, in seconds, without Retry-After."""

JITTER = random.SystemRandom()
"""Randomises backoff. The global generator is not used: programs that seed it would all wait equally long, and they
would draw other numbers themselves."""


class ServerError(MCFairError):
    """The service failed while it processed a request, or something else responded; a retry would fail as well."""


class ClientRequest(NamedTuple):
    """A request to send to one instance within `timeout` seconds.

    With `stream` the body of a successful response is left to be read later.
    """

    method: str
    path: str
    content: bytes | None = None
    headers: Mapping[str, str] = {}
    stream: bool = False
    address: str = ""
    timeout: float = 0.0

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class TransportError(NamedTuple):
    """The outcome of a request without a response; if it was `sent`, it may have been executed."""

    reason: str
    sent: bool


Reply: TypeAlias = "httpcore.Response | TransportError"


class Exchange:
    """The calls of the service over a transport; `Client` describes the settings.

    `clock` returns the time in seconds, and `uniform` draws a number between two others.
    """

    def __init__(
        self,
        transport: AsyncTransport | BlockingTransport,
        instances: Instances,
        *,
        timeout: float,
        retry_timeout: float,
        rank_deadline: float,
        backoff: float,
        clock: Callable[[], float] = monotonic,
        uniform: Callable[[float, float], float] = JITTER.uniform,
    ) -> None:
        self.transport, self.instances = transport, instances
        self.timeout, self.retry_timeout, self.rank_deadline = timeout, retry_timeout, rank_deadline
        self.backoff, self.clock, self.uniform = backoff, clock, uniform
        self.closed = False

    async def run(self, call: Call[T]) -> T:
        """Execute a call; return its fallback, if it has one, when the service is unavailable."""
        try:
            result = call.convert(await self.execute(call))
        except (UnavailableError, ServerError):
            if call.fallback is None:
                raise
            return call.fallback
        return await self.run(result) if isinstance(result, Call) else result

    async def execute(self, call: Call[Any]) -> Any:
        """Send the request of a call to the instance of its query, and decode the response."""
        operation, arguments = OPERATIONS[call.operation], call.arguments
        if isinstance(body := arguments.get("body"), wire.Feedback):
            return await self.report(operation, body.events)
        names = {name: quote(str(arguments[name]), safe="") for name in operation.parameters}
        content = None if body is None else wire.encode(body)
        key_route, headers = self.route_of(body, arguments), {}
        options: dict[str, Any] = {}
        if operation.idempotent:
            key = arguments["key"] or secrets.token_hex(16)
            headers["Idempotency-Key"] = key
            options["end"] = call.begun + (call.deadline or self.rank_deadline)
            options["advice"] = f"; a retry with key={key!r} counts once"
        path = operation.path.format(**names)
        if chosen := msgspec.to_builtins(arguments.get("options")):
            path += f"?{urlencode(chosen)}"
        request = ClientRequest(operation.method, path, content, headers)
        result = await self.call(operation, request, key_route, **options)
        if isinstance(result, wire.Ranking):
            self.instances.remember(result.impression, key_route)
        if isinstance(result, wire.Ranking | wire.QueryState):
            self.instances.remember(result.query_id, key_route)
        return result

    def route_of(self, body: Any, arguments: dict[str, Any]) -> bytes:
        """Return the route of a call: that of its query, as far as it is known."""
        if isinstance(body, wire.RankRequest | wire.QueryLookup):
            return route(body.query)
        id = arguments.get("impression") or arguments.get("query_id")
        return b"" if id is None else self.instances.recall(id)

    async def report(self, operation: Operation, events: list[wire.Event]) -> wire.FeedbackResults:
        """Send events in as many batches as needed, each to the instance of its first event."""
        results: list[wire.EventResult] = []
        for batch in batches(map(wire.encode, events)):
            request = ClientRequest("POST", operation.path, b'{"events":[' + b",".join(batch) + b"]}")
            response = await self.call(operation, request, self.instances.recall(events[len(results)].impression))
            if len(response.results) != len(batch):
                raise MCFairError(f"{request.path} returned {len(response.results)} results for {len(batch)} events")
            results += response.results
        return wire.FeedbackResults(results)

    async def ready(self) -> bool:
        """Return whether an instance is ready, without retries."""
        for address in [] if self.closed else self.instances.addresses:
            outcome = await self.transport.send(ClientRequest("GET", "/readyz", address=address, timeout=self.timeout))
            if not isinstance(outcome, TransportError) and outcome.status == 200:
                return True
        return False

    async def export(self) -> httpcore.Response:
        """Start an export; return the response, whose body is read by the caller."""
        operation = OPERATIONS["export"]
        return await self.send(operation, ClientRequest(operation.method, operation.path, stream=True))

    # --- sending with retries ----------------------------------------------------------------------------------------

    async def call(self, operation: Operation, request: ClientRequest, key_route: bytes, **options: Any) -> Any:
        """Send a request and decode the response; the options are those of `send`."""
        response = await self.send(operation, request, key_route, **options)
        if operation.response is None:
            return None
        try:
            return msgspec.json.decode(response.content, type=operation.response)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self.foreign_response(request, response, str(error)) from None

    async def send(
        self,
        operation: Operation,
        request: ClientRequest,
        key_route: bytes = b"",
        *,
        end: float | None = None,
        advice: str = "",
    ) -> httpcore.Response:
        """Send a request, with retries until there is a response or the time is over.

        A failed attempt is repeated at once with the next instance, and after a wait once all of them were tried.
        Without `end`, no attempt starts later than `retry_timeout`. With `end`, no attempt lasts longer than that, and
        each gets an equal share of the remaining time, so that the instances that were not tried yet get theirs.

        A request of an operation that is not repeatable is not repeated if it may have been executed. After such an
        attempt to delete, 404 is a success: that attempt has deleted the resource.
        """
        if self.closed:
            raise UnavailableError(f"{request} was not sent: the client is closed")
        begun, attempts, uncertain = self.clock(), 0, False
        untried: list[str] = []
        outcome: Reply = TransportError("the deadline has passed", sent=False)
        last_start = begun + self.retry_timeout if end is None else end
        wait = 0.0
        while attempts == 0 or self.clock() + wait <= last_start:
            if wait:
                await self.transport.sleep(wait)
            untried = untried or self.instances.order(key_route)
            share = math.inf if end is None else (end - self.clock()) / len(untried)
            if share <= 0:
                break
            address = untried.pop(0)
            outcome = await self.transport.send(request._replace(address=address, timeout=min(self.timeout, share)))
            attempts += 1
            retried = isinstance(outcome, TransportError) or outcome.status in RETRIED_STATUSES
            self.instances.mark(address, failed=retried)
            if not isinstance(outcome, TransportError) and not retried:
                return self.check_response(request, outcome, operation.status == 204 and uncertain)
            uncertain = uncertain or possibly_done(outcome)
            if uncertain and not operation.repeatable:
                raise MCFairError(
                    f"{request} of {address}: {describe(outcome)}; it is not known whether it was executed"
                )
            wait = 0.0 if untried else self.wait_after(outcome, attempts // len(self.instances.addresses))
        spent = f"after {attempts} attempts in {self.clock() - begun:.1f} s"
        after = spent if attempts > 1 else "at the first attempt"
        raise UnavailableError(f"{request} of {self.instances} failed {after}: {describe(outcome)}{advice}", wait)

    def wait_after(self, outcome: Reply, rounds: int) -> float:
        """Return the seconds to wait: exponential backoff with jitter, so that clients do not retry in lockstep."""
        seconds = self.uniform(0, min(MAX_BACKOFF, self.backoff * 2.0 ** min(rounds - 1, 10)))
        if isinstance(outcome, TransportError):
            return seconds
        return seconds + retry_after(header(outcome, b"retry-after"))

    def check_response(
        self, request: ClientRequest, response: httpcore.Response, missing_is_success: bool
    ) -> httpcore.Response:
        """Return a successful response; raise the error of any other."""
        if 200 <= response.status < 300 or (missing_is_success and response.status == 404):
            return response
        problem = problem_of(response)
        if problem is None:
            raise self.foreign_response(request, response, "is the address right?")
        if response.status in ERRORS:
            raise ERRORS[response.status](problem.detail)
        if response.status < 500:
            raise RequestError(problem.detail, problem.field)
        raise ServerError(f"{request} of {self.instances} failed: {describe(response)}")

    def foreign_response(self, request: ClientRequest, response: httpcore.Response, why: str) -> ServerError:
        """Return the error for a response that does not come from the service, such as the page of a proxy."""
        kind = header(response, b"content-type") or "no type"
        return ServerError(
            f"{request} of {self.instances} got {response.status} and {kind}, not a response of the service "
            f"({why}): {excerpt(response.content)}"
        )


# --- outcomes --------------------------------------------------------------------------------------------------------


def problem_of(response: httpcore.Response) -> wire.Problem | None:
    """Return the problem in the body; None if the response does not come from the service itself."""
    try:
        return msgspec.json.decode(response.content, type=wire.Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def describe(outcome: Reply) -> str:
    """Describe an outcome for an error message."""
    if isinstance(outcome, TransportError):
        return outcome.reason
    problem = problem_of(outcome)
    return f"{outcome.status}, {problem.detail if problem else excerpt(outcome.content)}"


def header(response: httpcore.Response, name: bytes) -> str:
    """Return a header of a response; an empty text if it has none."""
    return next((value.decode("latin-1") for each, value in response.headers if each.lower() == name), "")


def possibly_done(outcome: Reply) -> bool:
    """Return whether a request may have been executed; a 503 of the service itself means that it was not."""
    if isinstance(outcome, TransportError):
        return outcome.sent
    return not (outcome.status in (408, 429) or (outcome.status == 503 and problem_of(outcome) is not None))


def retry_after(text: str) -> float:
    """Parse a Retry-After header, in seconds or as a date.

    Examples
    --------
    >>> retry_after("3"), retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), retry_after("soon")
    (3.0, 0.0, 0.0)
    """
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except ValueError:
            return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def batches(events: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Split events into batches within the limits of the service."""
    batch: list[bytes] = []
    size, room = 0, wire.MAX_BODY - 100
    for event in events:
        if batch and (len(batch) == wire.MAX_EVENTS or size + len(event) + 1 > room):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += len(event) + 1
    if batch:
        yield batch


def excerpt(content: bytes) -> str:
    """Return the beginning of a body in one line."""
    text = " ".join(content[:300].decode(errors="replace").split())
    return repr(text[:80]) if text else "an empty body"


def decode_lines(rest: bytes, chunk: bytes) -> tuple[list[Any], bytes]:
    """Decode the JSON lines that a chunk completes; return them, and the rest for the next chunk.

    Only a line feed ends a line: `str.splitlines` would also split at U+2028, which JSON does not escape.
    """
    *lines, rest = (rest + chunk).split(b"\n")
    return [decode_line(line) for line in lines if line], rest


def decode_line(line: bytes) -> Any:
    """Decode one JSON line of an export."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MCFairError(f"the export has a line that is not JSON ({error}): {excerpt(line)}") from None
