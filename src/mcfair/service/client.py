"""Clients of the service over HTTP: `Client` and, for asyncio, `AsyncClient`. No retry counts twice.

The logic is written once, without I/O, in `SansIOClient`: its methods are generators that yield a request to send or a
time to wait, receive the outcome, and return the result. The two clients only do the I/O.
"""

from __future__ import annotations

import asyncio
import email.utils
import inspect
import math
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from functools import wraps
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from ..errors import ConflictError, MCFairError, NotFoundError, RequestError, SettingError, UnavailableError
from ..service import wire

if TYPE_CHECKING:
    import httpx

    from ..policies.base import Policy

__all__ = ["AsyncClient", "Client"]

T = TypeVar("T")
P = ParamSpec("P")

RETRIED_STATUSES = (408, 429, 502, 503, 504)
ERRORS: dict[int, type[MCFairError]] = {404: NotFoundError, 409: ConflictError}

FIRST_BACKOFF = 0.1
MAX_BACKOFF = 5.0
"""Maximum wait after the first failure, in seconds; it doubles with every failure, up to the second value."""

JITTER = random.SystemRandom()
"""Randomises backoff. The global generator is not used: programs that seed it would all wait equally long, and they
would draw other numbers themselves."""


# --- the protocol, without I/O ---------------------------------------------------------------------------------------


class ClientRequest(NamedTuple):
    """A request to send; with `stream` the body of a successful response is left to be read later."""

    method: str
    path: str
    content: bytes | None = None
    headers: Mapping[str, str] = {}
    stream: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class ClientResponse(NamedTuple):
    """A received response; `response` is set only if its body is still to be read."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    response: httpx.Response | None = None

    def problem(self) -> wire.Problem | None:
        """Return the problem in the body; None if the response does not come from the service itself."""
        try:
            return msgspec.json.decode(self.content, type=wire.Problem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def __str__(self) -> str:
        problem = self.problem()
        return f"{self.status}, {problem.detail if problem else excerpt(self.content)}"


class TransportError(NamedTuple):
    """The outcome of a request without a response; if it was `sent`, it may have been executed."""

    reason: str
    sent: bool

    def __str__(self) -> str:
        return self.reason


Exchange: TypeAlias = Generator[ClientRequest | float, Any, T]
"""Yields requests, for which it is sent a ClientResponse or TransportError, and seconds to wait; returns the result."""


class SansIOClient:
    """Every request to the service, with retries, as generators without I/O."""

    def __init__(self, address: str, retry_timeout: float) -> None:
        self.address = address
        self.retry_timeout = retry_timeout

    # --- ranking and feedback

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
        key: str | None = None,
    ) -> Exchange[wire.Ranking]:
        """Rank the candidates of a query.

        Parameters
        ----------
        query
            Text of the query.
        items
            The candidates: ids, or items with a prior relevance and a group.
        k
            Maximum length of the list.
        policy
            Policy for this request, such as "MCFair(alpha=100)", instead of the one in force.
        explain
            Whether to return the terms of every score.
        defer_exposure
            Credit no exposure until `shown` is reported.
        shadow
            Return the items in the given order, and record the list that the policy would have shown.
        key
            Idempotency key: a repeated request with the same key gets the same response and counts once. Every call
            generates its own key unless one is given.

        Returns
        -------
        Ranking
            The list, and the id of the impression that feedback refers to.

        Raises
        ------
        RequestError
            If an argument is not allowed, or the key is missing or lacks the scope.
        ConflictError
            If the key was used for another request.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        key = secrets.token_hex(16) if key is None else key
        if not is_visible_ascii(key) or len(key) > wire.MAX_KEY:
            raise RequestError(
                f"key = {key!r} is not allowed: expected 1 to {wire.MAX_KEY} visible ASCII characters", "key"
            )
        body = wire.RankRequest(
            query=query,
            items=[wire.as_item(item) for item in items],
            k=k,
            policy=None if policy is None else str(policy),
            explain=explain,
            defer_exposure=defer_exposure,
            shadow=shadow,
        )
        for i, item in enumerate(body.items):
            if item.prior is not None and not math.isfinite(
                item.prior
            ):  # JSON has no nan: it would be sent as no prior
                field = f"items[{i}].prior"
                raise RequestError(f"{field} = {item.prior!r} is not allowed: expected a number in [0, 1]", field)
        request = ClientRequest("POST", "/v1/rank", encode(body), {"Idempotency-Key": key})
        advice = f"; a retry with key={key!r} counts once"
        return (yield from self.call(request, wire.Ranking, advice=advice))

    def feedback(self, events: Iterable[wire.Event | dict[str, Any]]) -> Exchange[list[wire.EventResult]]:
        """Report clicks and shown ranks.

        Parameters
        ----------
        events
            Any number of events: `{"impression": …, "item": …}` is a click, `{"impression": …, "type": "shown"}`
            reports shown ranks.

        Returns
        -------
        list of EventResult
            One result per event, in order. An event that a lost attempt had already delivered is a `duplicate`.

        Raises
        ------
        RequestError
            If an argument is not allowed, or the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        return (yield from self.report("/v1/feedback", events))

    def retract(self, events: Iterable[wire.Event | dict[str, Any]]) -> Exchange[list[wire.EventResult]]:
        """Retract events, such as fraudulent clicks.

        Parameters
        ----------
        events
            The events to retract, as `feedback` accepts them.

        Returns
        -------
        list of EventResult
            One result per event, in order. An event that a lost attempt had already delivered is a `duplicate`.

        Raises
        ------
        RequestError
            If an argument is not allowed, or the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        return (yield from self.report("/v1/retract", events))

    def click(self, impression: str, item: str) -> Exchange[wire.EventResult]:
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
            Whether the click was applied.

        Raises
        ------
        RequestError
            If the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        return (yield from self.report("/v1/feedback", [wire.Event(impression=impression, item=item)]))[0]

    def shown(self, impression: str, ranks: Iterable[int] | None = None) -> Exchange[wire.EventResult]:
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
            Whether the event was applied.

        Raises
        ------
        RequestError
            If the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        seen = None if ranks is None else list(ranks)
        event = wire.Event(impression=impression, type="shown", ranks=seen)
        return (yield from self.report("/v1/feedback", [event]))[0]

    # --- reading

    def explain(self, impression: str) -> Exchange[wire.Explanation]:
        """Explain the ranks of the items of an impression.

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
        RequestError
            If the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        return (
            yield from self.call(
                ClientRequest("GET", build_path("impressions", impression, "explain")), wire.Explanation
            )
        )

    def query_state(self, query: str | None = None, *, query_id: str | None = None) -> Exchange[wire.QueryState]:
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
        RequestError
            If an argument is not allowed, or the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        if (query is None) == (query_id is None):
            raise RequestError("expected a query or a query_id, one of the two", "query")
        if query is None:
            return (yield from self.call(ClientRequest("GET", build_path("queries", str(query_id))), wire.QueryState))
        lookup = encode(wire.QueryLookup(query))
        return (yield from self.call(ClientRequest("POST", "/v1/queries/lookup", lookup), wire.QueryState))

    def fairness(self) -> Exchange[wire.Fairness]:
        """Return fairness over all queries and by group.

        Returns
        -------
        Fairness
            Means over queries, and received and merited exposure by group.

        Raises
        ------
        RequestError
            If the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        return (yield from self.call(ClientRequest("GET", "/v1/fairness"), wire.Fairness))

    def usage(self) -> Exchange[wire.Usage]:
        """Return the amount of stored data.

        Returns
        -------
        Usage
            Numbers of queries, items, impressions, events and snapshots, and the size in bytes.

        Raises
        ------
        RequestError
            If the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        return (yield from self.call(ClientRequest("GET", "/v1/usage"), wire.Usage))

    def ready(self) -> Exchange[bool]:
        """Return whether the service is ready, without waiting until it is.

        Returns
        -------
        bool
            Whether the readiness probe succeeded.
        """
        outcome = yield ClientRequest("GET", "/readyz")
        return isinstance(outcome, ClientResponse) and outcome.status == 200

    def export(self) -> Exchange[httpx.Response]:
        """Start an export; return the response, whose body is read by the caller."""
        received = yield from self.send(ClientRequest("GET", "/v1/export", stream=True))
        assert received.response is not None
        return received.response

    # --- rules, deletion, keys

    def policy(self) -> Exchange[wire.ActivePolicy]:
        """Return the policy and the other rules in force.

        Returns
        -------
        ActivePolicy
            The rules, their version and since when they are in force.

        Raises
        ------
        RequestError
            If the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        return (yield from self.call(ClientRequest("GET", "/v1/policy"), wire.ActivePolicy))

    def change_policy(self, /, **changes: Any) -> Exchange[wire.ActivePolicy]:
        """Change the policy or other rules from now on; rules that are not given stay.

        Parameters
        ----------
        **changes
            Rules such as `policy="MCFair(alpha=10)"` or `half_life=86_400`.

        Returns
        -------
        ActivePolicy
            The rules now in force.

        Raises
        ------
        RequestError
            If an argument is not allowed, or the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        change = wire.convert(wire.PolicyChange, changes)
        return (yield from self.call(ClientRequest("PUT", "/v1/policy", encode(change)), wire.ActivePolicy))

    def delete_query(self, query_id: str) -> Exchange[None]:
        """Delete a query and its data.

        Parameters
        ----------
        query_id
            Id of the query.

        Raises
        ------
        NotFoundError
            If the query does not exist.
        RequestError
            If the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        yield from self.send(ClientRequest("DELETE", build_path("queries", query_id)), missing_is_success=True)

    def delete_item(self, item: str) -> Exchange[int]:
        """Delete an item from every query.

        Parameters
        ----------
        item
            Id of the item.

        Returns
        -------
        int
            Number of queries that had the item; after a retry, those that still had it.

        Raises
        ------
        RequestError
            If an argument is not allowed, or the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        request = ClientRequest("POST", "/v1/items/delete", encode(wire.ItemDeletion(item)))
        return (yield from self.call(request, wire.DeletionCount)).queries

    def reset(self) -> Exchange[int]:
        """Delete every query and its data; rules and API keys stay.

        Returns
        -------
        int
            Number of queries deleted.

        Raises
        ------
        RequestError
            If the key is missing or lacks the scope.
        MCFairError
            If the connection failed and it is not known whether the request was executed.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        request = ClientRequest("POST", "/v1/reset", encode(wire.ResetRequest("reset")))
        # A repeated reset would also delete what arrived after the first one.
        return (yield from self.call(request, wire.DeletionCount, retry_uncertain=False)).queries

    def keys(self) -> Exchange[list[wire.KeyInfo]]:
        """List the API keys, without their secrets.

        Returns
        -------
        list of KeyInfo
            The keys, in order of creation.

        Raises
        ------
        RequestError
            If the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        return (yield from self.call(ClientRequest("GET", "/v1/keys"), list[wire.KeyInfo]))

    def add_key(self, name: str, scopes: Iterable[wire.Scope]) -> Exchange[wire.CreatedKey]:
        """Create an API key.

        Parameters
        ----------
        name
            A label, such as the program that will use the key.
        scopes
            Any of "rank", "feedback", "read" and "admin".

        Returns
        -------
        CreatedKey
            The key, which is not shown again.

        Raises
        ------
        RequestError
            If an argument is not allowed, or the key is missing or lacks the scope.
        MCFairError
            If the connection failed and it is not known whether the request was executed.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        request = wire.convert(wire.KeyRequest, {"name": name, "scopes": list(scopes)})
        # A repeated request would leave a valid key behind that no caller knows.
        return (
            yield from self.call(
                ClientRequest("POST", "/v1/keys", encode(request)), wire.CreatedKey, retry_uncertain=False
            )
        )

    def revoke_key(self, id: str) -> Exchange[wire.KeyInfo]:
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
        RequestError
            If the key is missing or lacks the scope.
        UnavailableError
            If the service is still unavailable after `retry_timeout` seconds of retries.
        """
        return (yield from self.call(ClientRequest("DELETE", build_path("keys", id)), wire.KeyInfo))

    # --- sending with retries

    def report(self, where: str, events: Iterable[wire.Event | dict[str, Any]]) -> Exchange[list[wire.EventResult]]:
        """Send events in as many batches as needed; a batch may be retried, because repeated events count once."""
        results: list[wire.EventResult] = []
        for batch in batches(map(encode, wire.as_events(events))):
            body = b'{"events":[' + b",".join(batch) + b"]}"
            response = yield from self.call(ClientRequest("POST", where, body), wire.FeedbackResults)
            if len(response.results) != len(batch):
                raise MCFairError(f"{where} returned {len(response.results)} results for {len(batch)} events")
            results += response.results
        return results

    def call(
        self, request: ClientRequest, kind: type[T], *, retry_uncertain: bool = True, advice: str = ""
    ) -> Exchange[T]:
        """Send a request and decode the response."""
        response = yield from self.send(request, retry_uncertain=retry_uncertain, advice=advice)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self.foreign_response(request, response, str(error)) from None

    def send(
        self,
        request: ClientRequest,
        *,
        retry_uncertain: bool = True,
        missing_is_success: bool = False,
        advice: str = "",
    ) -> Exchange[ClientResponse]:
        """Send a request, with retries until there is a response or `retry_timeout` is over.

        Without `retry_uncertain` a request that may have been executed is not repeated. With `missing_is_success`, a
        404 after such an attempt is a success: that attempt has deleted the resource.
        """
        begun, attempts, uncertain = monotonic(), 0, False
        while True:
            outcome: ClientResponse | TransportError = yield request
            attempts += 1
            if isinstance(outcome, ClientResponse) and outcome.status not in RETRIED_STATUSES:
                if missing_is_success and uncertain and outcome.status == 404:
                    return outcome
                return self.check_response(request, outcome)
            uncertain = uncertain or possibly_done(outcome)
            if uncertain and not retry_uncertain:
                raise MCFairError(f"{request} of {self.address}: {outcome}; it is not known whether it was executed")
            wait = backoff(outcome, attempts)
            if monotonic() - begun + wait > self.retry_timeout:
                spent = f"after {attempts} attempts in {monotonic() - begun:.1f} s"
                after = spent if attempts > 1 else "at the first attempt"
                raise UnavailableError(f"{request} of {self.address} failed {after}: {outcome}{advice}", wait)
            yield wait

    def check_response(self, request: ClientRequest, response: ClientResponse) -> ClientResponse:
        """Return a successful response; raise the error of any other."""
        if 200 <= response.status < 300:
            return response
        problem = response.problem()
        if problem is None:
            raise self.foreign_response(request, response, "is the address right?")
        if response.status in ERRORS:
            raise ERRORS[response.status](problem.detail)
        if response.status < 500:
            raise RequestError(problem.detail, problem.field)
        raise MCFairError(f"{request} of {self.address} failed: {response}")

    def foreign_response(self, request: ClientRequest, response: ClientResponse, why: str) -> MCFairError:
        """Return the error for a response that does not come from the service, such as the page of a proxy."""
        kind = response.headers.get("content-type", "no type")
        return MCFairError(
            f"{request} of {self.address} got {response.status} and {kind}, not a response of the service "
            f"({why}): {excerpt(response.content)}"
        )


def possibly_done(outcome: ClientResponse | TransportError) -> bool:
    """Return whether a request may have been executed; a 503 of the service itself means that it was not."""
    if isinstance(outcome, TransportError):
        return outcome.sent
    return not (outcome.status in (408, 429) or (outcome.status == 503 and outcome.problem() is not None))


def backoff(outcome: ClientResponse | TransportError, attempts: int) -> float:
    """Return the seconds to wait: exponential backoff with jitter, so that clients do not retry in lockstep."""
    seconds = JITTER.uniform(0, min(MAX_BACKOFF, FIRST_BACKOFF * 2.0 ** min(attempts - 1, 10)))
    return seconds + (
        retry_after(outcome.headers.get("retry-after", "")) if isinstance(outcome, ClientResponse) else 0.0
    )


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


def encode(value: Any) -> bytes:
    """Encode a value as JSON."""
    try:
        return msgspec.json.encode(value, enc_hook=to_builtin)
    except UnicodeEncodeError as error:
        raise RequestError(f"{error.object!r} is not valid Unicode") from None


def to_builtin(value: Any) -> Any:
    """Convert a NumPy scalar to a Python one."""
    if hasattr(value, "item"):
        return value.item()
    raise RequestError(f"{value!r} cannot be sent: it is of type {type(value).__name__}")


def is_visible_ascii(text: str) -> bool:
    """Return whether a text consists of visible ASCII characters and can be sent in a header."""
    return text.isascii() and text.isprintable() and bool(text) and " " not in text


def build_path(*names: str) -> str:
    """Build a path from its segments and escape them."""
    return "/v1/" + "/".join(quote(name, safe="") for name in names)


def excerpt(content: bytes) -> str:
    """Return the beginning of a body in one line."""
    text = " ".join(content[:300].decode(errors="replace").split())
    return repr(text[:80]) if text else "an empty body"


class LineDecoder:
    """Decode JSON lines from a stream.

    Only a line feed ends a line: `httpx` and `str.splitlines` would also split at U+2028, which JSON does not escape.
    """

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, chunk: bytes) -> Iterator[Any]:
        """Add a chunk; iterate over the lines that are complete now."""
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        for line in filter(None, lines):
            try:
                yield msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise MCFairError(f"the export has a line that is not JSON ({error}): {excerpt(line)}") from None


def interrupted_export(error: Exception) -> UnavailableError:
    """Return the error for an export that was interrupted."""
    return UnavailableError(f"the export was interrupted: {error or type(error).__name__}; start it again")


# --- the clients -----------------------------------------------------------------------------------------------------


def blocking(exchange: Callable[Concatenate[SansIOClient, P], Exchange[T]]) -> Callable[Concatenate[Client, P], T]:
    """Build a method of `Client` from an exchange."""

    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(exchange(self._protocol, *args, **kwargs))

    return copy_signature(method, exchange, "{}")


def awaitable(
    exchange: Callable[Concatenate[SansIOClient, P], Exchange[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Build a method of `AsyncClient` from an exchange."""

    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(exchange(self._protocol, *args, **kwargs))

    return copy_signature(method, exchange, "Coroutine[Any, Any, {}]")


Method = TypeVar("Method", bound=Callable[..., Any])


def copy_signature(method: Method, exchange: Callable[..., Any], returns: str) -> Method:
    """Copy name, docstring and signature of an exchange to a method; the return type is the result of the exchange."""
    wraps(exchange)(method)
    signature = inspect.signature(exchange)
    response = str(signature.return_annotation).removeprefix("Exchange[").removesuffix("]")
    method.__signature__ = signature.replace(return_annotation=returns.format(response))  # type: ignore[attr-defined]
    return method


def httpx_options(address: str, key: str | None, timeout: float) -> dict[str, Any]:
    """Validate the settings of a client; return them as keyword arguments of httpx."""
    try:
        import httpx
    except ImportError:
        raise SettingError("the client needs httpx: pip install 'mcfair[client]'") from None
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL as error:
        raise SettingError(f"address = {address!r} is not allowed: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingError(f"address = {address!r} is not allowed: expected a URL such as http://127.0.0.1:8000")
    if key is not None and not is_visible_ascii(key):
        raise SettingError("key is not allowed: expected visible ASCII characters")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    return {"base_url": url, "headers": headers, "timeout": timeout}


def build_request(http: httpx.Client | httpx.AsyncClient, request: ClientRequest) -> httpx.Request:
    """Build a request of httpx."""
    return http.build_request(request.method, request.path, content=request.content, headers=dict(request.headers))


def transport_error(error: httpx.RequestError) -> TransportError:
    """Convert an error of httpx, noting whether the request may have been sent."""
    import httpx

    unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return TransportError(f"{type(error).__name__}{f' ({error})' if str(error) else ''}", sent=not unsent)


class Client:
    """A client of the service.

    Connection errors, timeouts and the statuses 408, 429, 502, 503 and 504 are retried with exponential backoff, which
    respects Retry-After. Retries are safe: `rank` sends an idempotency key, and all other requests are idempotent.
    `add_key` and `reset` are not; they are retried only if they certainly were not executed.

    Parameters
    ----------
    address
        URL of the service, such as http://127.0.0.1:8000.
    key
        The API key, if the service requires one.
    timeout
        Timeout of each phase of a request (connect, send, receive), in seconds.
    retry_timeout
        No attempt starts later than this number of seconds after the first one; 0 disables retries.

    Raises
    ------
    SettingError
        If httpx is not installed, or the address or the key is not allowed.

    Examples
    --------
    >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     ranking = client.rank("red shoes", ["sku1", "sku2", "sku3"])
    ...     client.click(ranking.impression, ranking.items[0].id)
    """

    def __init__(
        self, address: str, key: str | None = None, *, timeout: float = 5.0, retry_timeout: float = 30.0
    ) -> None:
        settings = httpx_options(address, key, timeout)
        import httpx

        self._http = httpx.Client(**settings)
        self._protocol = SansIOClient(address, retry_timeout)

    rank = blocking(SansIOClient.rank)
    feedback = blocking(SansIOClient.feedback)
    retract = blocking(SansIOClient.retract)
    click = blocking(SansIOClient.click)
    shown = blocking(SansIOClient.shown)
    explain = blocking(SansIOClient.explain)
    query_state = blocking(SansIOClient.query_state)
    fairness = blocking(SansIOClient.fairness)
    usage = blocking(SansIOClient.usage)
    ready = blocking(SansIOClient.ready)
    policy = blocking(SansIOClient.policy)
    change_policy = blocking(SansIOClient.change_policy)
    delete_query = blocking(SansIOClient.delete_query)
    delete_item = blocking(SansIOClient.delete_item)
    reset = blocking(SansIOClient.reset)
    keys = blocking(SansIOClient.keys)
    add_key = blocking(SansIOClient.add_key)
    revoke_key = blocking(SansIOClient.revoke_key)

    def export(self) -> Iterator[dict[str, Any]]:
        """Export everything that is stored.

        Yields
        ------
        dict
            One line: a version of the rules, a query with its counts, or an impression.

        Raises
        ------
        UnavailableError
            If the service is unavailable, or the export is interrupted.
        """
        import httpx

        response, lines = self._run(self._protocol.export()), LineDecoder()
        try:
            for chunk in response.iter_bytes():
                yield from lines.feed(chunk)
            yield from lines.feed(b"\n")
        except httpx.RequestError as error:
            raise interrupted_export(error) from error
        finally:
            response.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _run(self, exchange: Exchange[T]) -> T:
        """Run an exchange."""
        outcome: ClientResponse | TransportError | None = None
        while True:
            try:
                step = exchange.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, ClientRequest):
                outcome = self._send(step)
            else:
                time.sleep(step)

    def _send(self, request: ClientRequest) -> ClientResponse | TransportError:
        import httpx

        try:
            response = self._http.send(build_request(self._http, request), stream=True)
            if request.stream and response.is_success:
                return ClientResponse(response.status_code, response.headers, b"", response)
            try:
                return ClientResponse(response.status_code, response.headers, response.read())
            finally:
                response.close()
        except httpx.RequestError as error:
            return transport_error(error)


class AsyncClient:
    """A client of the service for asyncio, with the methods of `Client` as coroutines.

    Parameters
    ----------
    address, key, timeout, retry_timeout
        As in `Client`.

    Raises
    ------
    SettingError
        If httpx is not installed, or the address or the key is not allowed.

    Examples
    --------
    >>> async with AsyncClient("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     ranking = await client.rank("red shoes", ["sku1", "sku2", "sku3"])
    """

    def __init__(
        self, address: str, key: str | None = None, *, timeout: float = 5.0, retry_timeout: float = 30.0
    ) -> None:
        settings = httpx_options(address, key, timeout)
        import httpx

        self._http = httpx.AsyncClient(**settings)
        self._protocol = SansIOClient(address, retry_timeout)

    rank = awaitable(SansIOClient.rank)
    feedback = awaitable(SansIOClient.feedback)
    retract = awaitable(SansIOClient.retract)
    click = awaitable(SansIOClient.click)
    shown = awaitable(SansIOClient.shown)
    explain = awaitable(SansIOClient.explain)
    query_state = awaitable(SansIOClient.query_state)
    fairness = awaitable(SansIOClient.fairness)
    usage = awaitable(SansIOClient.usage)
    ready = awaitable(SansIOClient.ready)
    policy = awaitable(SansIOClient.policy)
    change_policy = awaitable(SansIOClient.change_policy)
    delete_query = awaitable(SansIOClient.delete_query)
    delete_item = awaitable(SansIOClient.delete_item)
    reset = awaitable(SansIOClient.reset)
    keys = awaitable(SansIOClient.keys)
    add_key = awaitable(SansIOClient.add_key)
    revoke_key = awaitable(SansIOClient.revoke_key)

    async def export(self) -> AsyncIterator[dict[str, Any]]:
        """Export everything that is stored.

        Yields
        ------
        dict
            One line: a version of the rules, a query with its counts, or an impression.

        Raises
        ------
        UnavailableError
            If the service is unavailable, or the export is interrupted.
        """
        import httpx

        response, lines = await self._run(self._protocol.export()), LineDecoder()
        try:
            async for chunk in response.aiter_bytes():
                for line in lines.feed(chunk):
                    yield line
            for line in lines.feed(b"\n"):
                yield line
        except httpx.RequestError as error:
            raise interrupted_export(error) from error
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()

    async def _run(self, exchange: Exchange[T]) -> T:
        """Run an exchange."""
        outcome: ClientResponse | TransportError | None = None
        while True:
            try:
                step = exchange.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, ClientRequest):
                outcome = await self._send(step)
            else:
                await asyncio.sleep(step)

    async def _send(self, request: ClientRequest) -> ClientResponse | TransportError:
        import httpx

        try:
            response = await self._http.send(build_request(self._http, request), stream=True)
            if request.stream and response.is_success:
                return ClientResponse(response.status_code, response.headers, b"", response)
            try:
                return ClientResponse(response.status_code, response.headers, await response.aread())
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            return transport_error(error)
