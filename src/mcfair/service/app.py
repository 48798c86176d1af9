"""The operations of the HTTP API, their authorization, and problem responses (RFC 9457) for every error.

The operations are few and fixed, and msgspec decodes and encodes them, so a web framework would only add latency.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import math
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.metadata import version
from ipaddress import ip_address
from typing import Any, cast

import msgspec

from ..errors import ConflictError, NotFoundError, PolicyError, RequestError, SettingError, StoreError, UnavailableError
from ..service import wire
from .admission import AdmissionControl, Metrics, log_failure
from .apidocs import KEY_PATTERN, Operation, openapi, page
from .engine import Engine
from .http import JSON, TOO_LARGE, Request, Response, StreamingResponse, encode_head, problem_response
from .ranker import Ranker

try:
    from prometheus_client import CONTENT_TYPE_LATEST
except ImportError:
    raise SettingError("the service needs prometheus-client: pip install 'mcfair[service]'") from None

__all__ = ["OPERATIONS", "Service", "is_loopback", "make_app"]

NDJSON = "application/x-ndjson"
FRESH_SECONDS = 10.0
"""How long the result of a scan over all queries is reused."""

NO_STORE = {"cache-control": "no-store"}
CHUNK = 1 << 16
"""Size of the chunks of an export, in bytes."""


class HTTPError(Exception):
    """An error response that is decided before the engine is involved."""

    def __init__(self, status: int, detail: str, field: str | None = None, **headers: str) -> None:
        super().__init__(detail)
        self.status = status
        self.field = field
        self.headers = headers


def next_chunk(lines: Iterator[bytes]) -> bytes:
    """Join lines to one chunk; return nothing at the end."""
    taken, size = [], 0
    for line in lines:
        taken.append(line)
        size += len(line)
        if size >= CHUNK:
            break
    return b"".join(taken)


# --- request headers -------------------------------------------------------------------------------------------------


def check_body_headers(headers: dict[bytes, bytes]) -> None:
    """Check the media type, encoding and declared length of a request body."""
    media = headers.get(b"content-type", b"")
    if media != b"application/json" and media.partition(b";")[0].strip().lower() != b"application/json":
        raise HTTPError(415, f"the Content-Type header must be {JSON}")
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise HTTPError(415, "the body must not be compressed")
    if int(headers.get(b"content-length", 0)) > wire.MAX_BODY:
        raise HTTPError(413, TOO_LARGE)


def idempotency_key(headers: dict[bytes, bytes]) -> str | None:
    """Return the Idempotency-Key of a request, if it has one."""
    given = headers.get(b"idempotency-key")
    if given is None:
        return None
    key = given.decode("latin-1")
    if not KEY.match(key):
        raise RequestError(
            f"Idempotency-Key: expected 1 to {wire.MAX_KEY} visible ASCII characters", "Idempotency-Key"
        )  # fmt: skip
    return key


def caller_id(headers: dict[bytes, bytes]) -> str | None:
    """Return the id of the API key of an authorized request; idempotency keys belong to it."""
    return headers.get(b"authorization", b"").decode("latin-1").partition("_")[2].partition("_")[0] or None


KEY = re.compile(KEY_PATTERN)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address certainly refers to this machine.

    Examples
    --------
    >>> [is_loopback(host) for host in ("localhost", "127.1.2.3", "[::1]", "::1", "example.org", "")]
    [True, True, True, True, False, False]
    """
    host = host.lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


@lru_cache(256)
def is_loopback_name(host: bytes) -> bool:
    """Return whether a Host header, which may have a port, refers to this machine."""
    return is_loopback(re.sub(r":\d*$", "", host.decode("latin-1")))


# --- the operations --------------------------------------------------------------------------------------------------

OPERATIONS: list[Operation] = []
"""Every operation of the service, in the order of the documentation."""


def route(method: Any, path: str, tag: str, scope: wire.Scope | None, **options: Any) -> Callable[..., Any]:
    """Register a method of `Service` as an operation."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        OPERATIONS.append(Operation(method=method, path=path, tag=tag, scope=scope, function=function, **options))
        return function

    return register


EXAMPLE_IMPRESSION = "IMPRESSION"
RANK_EXAMPLE = {
    "query": "red shoes",
    "items": [{"id": "sku1", "prior": 0.42, "group": "seller A"}, {"id": "sku2"}, {"id": "sku3"}],
    "k": 2,
}
EVENTS_EXAMPLE = {"events": [{"impression": EXAMPLE_IMPRESSION, "item": "sku2", "type": "click"}]}


class Service:
    """The operations of the HTTP API."""

    def __init__(self, ranker: Ranker, *, admin_token: str | None = None, loopback: bool = True) -> None:
        self.ranker = ranker
        self.admin_token = admin_token
        self.loopback = loopback
        self.metrics = Metrics(ranker)
        self.scan: asyncio.Task[wire.Fairness] | None = None
        self.scanned_at = -math.inf
        self.exporter = ThreadPoolExecutor(1, "mcfair-export")
        self.document = openapi(OPERATIONS, version("mcfair"))
        self.page = page(self.document)
        self.admission: AdmissionControl

    # ranking

    @route(
        "POST", "/v1/rank", "Ranking", "rank", request=wire.RankRequest, decode_as=wire.RawRankRequest,
        response=wire.Ranking, errors=(409,), idempotent=True, example=RANK_EXAMPLE,
    )  # fmt: skip
    def rank(self, body: wire.RawRankRequest, key: str | None, caller: str | None) -> Awaitable[wire.Ranking]:
        """Rank the candidates of a query.

        The impression and its exposure are durable before the response is sent. Ids must be distinct and have at most
        256 bytes, the query at most 4,096. A repeated request with the same Idempotency-Key, byte for byte in its
        items, gets the same response and counts once; without a key it counts again.
        """
        return self.ranker.submit_async(Engine.rank, body, key, caller)

    @route(
        "POST", "/v1/feedback", "Ranking", "feedback", request=wire.Feedback, response=wire.FeedbackResults,
        example=EVENTS_EXAMPLE,
    )  # fmt: skip
    async def feedback(self, body: wire.Feedback) -> wire.FeedbackResults:
        """Report clicks and shown ranks.

        A click is one bit per impression and item, so events may be repeated and may arrive in any order. Every ranking
        that starts after the response takes the events into account.
        """
        results: wire.FeedbackResults = await self.ranker.submit_async(Engine.feedback, body.events)
        self.metrics.count_events("feedback", results)
        return results

    @route(
        "POST", "/v1/retract", "Ranking", "feedback", request=wire.Feedback, response=wire.FeedbackResults,
        example=EVENTS_EXAMPLE,
    )  # fmt: skip
    async def retract(self, body: wire.Feedback) -> wire.FeedbackResults:
        """Retract events, such as the clicks of a robot."""
        results: wire.FeedbackResults = await self.ranker.submit_async(Engine.feedback, body.events, retract=True)
        self.metrics.count_events("retract", results)
        return results

    # reading

    @route("GET", "/v1/impressions/{impression}/explain", "Reading", "read", response=wire.Explanation)
    async def explain(self, impression: str) -> wire.Explanation:
        """Explain the ranks of the items of an impression.

        The score is a sum, so the explanation is exact: its terms, its inputs, and the ranks without each term.
        """
        return await self.ranker.submit_async(Engine.explain, impression)

    @route(
        "POST", "/v1/queries/lookup", "Reading", "read", request=wire.QueryLookup, response=wire.QueryState,
        errors=(404,), example={"query": "red shoes"},
    )  # fmt: skip
    async def lookup(self, body: wire.QueryLookup) -> wire.QueryState:
        """Return the observations of a query, given by its text.

        The text of a query is never part of a URL, because proxies log URLs.
        """
        wire.check_text("query", body.query, wire.MAX_QUERY)
        return await self.ranker.submit_async(Engine.query_state, query=body.query)

    @route("GET", "/v1/queries/{query_id}", "Reading", "read", response=wire.QueryState)
    async def query(self, query_id: str) -> wire.QueryState:
        """Return the observations of a query, given by its id."""
        return await self.ranker.submit_async(Engine.query_state, query_id=query_id)

    @route("GET", "/v1/fairness", "Reading", "read", response=wire.Fairness)
    async def fairness(self) -> wire.Fairness:
        """Return fairness over all queries and by group.

        It takes a scan over all queries, so the result is reused for some seconds; `as_of` is the time of the scan.
        """
        # Concurrent requests share one scan; it is shielded, because one cancelled request must not cancel it.
        if self.scan is None or (self.scan.done() and time.monotonic() - self.scanned_at > FRESH_SECONDS):
            self.scan = asyncio.create_task(asyncio.to_thread(self.ranker.fairness))
            self.scan.add_done_callback(self.scan_ended)
        return await asyncio.shield(self.scan)

    def scan_ended(self, scan: asyncio.Task[wire.Fairness]) -> None:
        """Record when a scan ended; a failed scan is not reused."""
        self.scanned_at = -math.inf if scan.cancelled() or scan.exception() else time.monotonic()

    @route("GET", "/v1/usage", "Reading", "read", response=wire.Usage)
    async def usage(self) -> wire.Usage:
        """Return the amount of stored data."""
        return await self.ranker.submit_async(Engine.usage)

    # rules

    @route("GET", "/v1/policy", "Policy", "read", response=wire.ActivePolicy)
    async def policy(self) -> wire.ActivePolicy:
        """Return the policy and the other rules in force."""
        return await self.ranker.submit_async(Engine.active_policy)

    @route(
        "PUT", "/v1/policy", "Policy", "admin", request=wire.PolicyChange, response=wire.ActivePolicy, errors=(409,),
        example={"policy": "MCFair(alpha=10)"},
    )  # fmt: skip
    async def change_policy(self, body: wire.PolicyChange) -> wire.ActivePolicy:
        """Change the policy or other rules from now on; rules that are not given stay."""
        return await self.ranker.submit_async(Engine.change, body)

    # data

    @route("GET", "/v1/export", "Data", "admin", media_type=NDJSON)
    async def export(self) -> StreamingResponse:
        """Export everything that is stored, as JSON lines."""
        lines = cast(Generator[bytes, None, None], self.ranker.export())
        # Read the first chunk before the response starts: an error until then still gets a proper status.
        first = await asyncio.get_running_loop().run_in_executor(self.exporter, next_chunk, lines)
        return StreamingResponse(encode_head(200, NDJSON, **NO_STORE), self.chunks(lines, first))

    async def chunks(self, lines: Generator[bytes, None, None], first: bytes) -> AsyncGenerator[bytes, None]:
        """Iterate over the chunks of an export, all read by one thread: the connection to a store belongs to it."""
        loop = asyncio.get_running_loop()
        try:
            chunk = first
            while chunk:
                yield chunk
                chunk = await loop.run_in_executor(self.exporter, next_chunk, lines)
        finally:
            self.exporter.submit(lines.close)

    @route("DELETE", "/v1/queries/{query_id}", "Data", "admin", status=204)
    async def delete_query(self, query_id: str) -> None:
        """Delete a query and its data."""
        await self.ranker.submit_async(Engine.delete_query, query_id=query_id)

    @route(
        "POST", "/v1/items/delete", "Data", "admin", request=wire.ItemDeletion, response=wire.DeletionCount,
        example={"item": "sku1"},
    )  # fmt: skip
    async def delete_item(self, body: wire.ItemDeletion) -> wire.DeletionCount:
        """Delete an item from every query."""
        return wire.DeletionCount(await self.ranker.submit_async(Engine.delete_item, body.item))

    @route(
        "POST", "/v1/reset", "Data", "admin", request=wire.ResetRequest, response=wire.DeletionCount,
        example={"confirm": "reset"}
    )  # fmt: skip
    async def reset(self, body: wire.ResetRequest) -> wire.DeletionCount:
        """Delete every query, item and impression; API keys and rules stay."""
        return wire.DeletionCount(await self.ranker.submit_async(Engine.reset))

    # keys

    @route("GET", "/v1/keys", "Keys", "admin", response=list[wire.KeyInfo])
    async def keys(self) -> list[wire.KeyInfo]:
        """List the API keys, without their secrets."""
        return await self.ranker.submit_async(Engine.keys)

    @route(
        "POST", "/v1/keys", "Keys", "admin", request=wire.KeyRequest, response=wire.CreatedKey, status=201,
        example={"name": "shop", "scopes": ["rank", "feedback"]},
    )  # fmt: skip
    async def add_key(self, body: wire.KeyRequest) -> wire.CreatedKey:
        """Create an API key; its secret is shown only once."""
        return await self.ranker.submit_async(Engine.add_key, body.name, body.scopes)

    @route("DELETE", "/v1/keys/{id}", "Keys", "admin", response=wire.KeyInfo)
    async def revoke_key(self, id: str) -> wire.KeyInfo:
        """Revoke a key."""
        return await self.ranker.submit_async(Engine.revoke_key, id)

    # operation

    @route("GET", "/livez", "Operation", None, response=wire.Health)
    def livez(self) -> wire.Health:
        """Liveness probe."""
        return wire.Health("alive")

    @route("GET", "/readyz", "Operation", None, response=wire.Health)
    def readyz(self) -> wire.Health:
        """Readiness probe.

        It responds with 503 while the store cannot be written and while the service is draining.
        """
        if self.admission.draining:
            raise UnavailableError("draining: the service is about to stop")
        if self.ranker.store_error is not None:
            raise UnavailableError(self.ranker.store_error)
        return wire.Health("ready")

    @route("GET", "/metrics", "Operation", "read", media_type="text/plain")
    async def metrics_text(self) -> Response:
        """Return metrics in the Prometheus text format."""
        body = await asyncio.to_thread(self.metrics.exposition)
        return Response(200, encode_head(200, CONTENT_TYPE_LATEST), body)

    @route("GET", "/openapi.json", "Operation", None, media_type=JSON, response=dict[str, Any])
    def openapi_document(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        return self.document

    @route("GET", "/docs", "Operation", None, media_type="text/html")
    def docs(self) -> Response:
        """Return the API documentation as an HTML page."""
        safe = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return Response(200, encode_head(200, "text/html; charset=utf-8", **safe), self.page.encode())

    # authorization

    def authorize(self, headers: dict[bytes, bytes], scope: wire.Scope) -> None:
        """Raise HTTPError unless the request has an API key with the scope.

        A service without keys accepts all requests from this machine. The check of the Host header defends against DNS
        rebinding: a web page whose name was made to resolve to this machine still sends its own name there.
        """
        if self.loopback and not self.ranker.has_keys:
            if not is_loopback_name(headers.get(b"host", b"")):
                raise HTTPError(
                    403, "the service has no keys and accepts only requests to localhost: see mcfair keys add", "Host"
                )
            return
        scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        scopes = self.scopes_of(key.strip()) if scheme.lower() == "bearer" else None
        if scopes is None:
            detail = "the key is unknown or revoked" if scheme else "a key is required: Authorization: Bearer KEY"
            raise HTTPError(401, detail, **{"WWW-Authenticate": "Bearer"})
        if scope not in scopes and "admin" not in scopes:
            raise HTTPError(403, f"the key lacks the scope {scope!r}")

    def scopes_of(self, key: str) -> frozenset[wire.Scope] | None:
        """Return the scopes of a key or of the admin token; None if it is invalid."""
        if self.admin_token is not None and hmac.compare_digest(key.encode(), self.admin_token.encode()):
            return ADMIN
        return self.ranker.authenticate(key) if key.isascii() else None


ADMIN: frozenset[wire.Scope] = frozenset({"admin"})


# --- the application -------------------------------------------------------------------------------------------------


def make_app(
    ranker: Ranker,
    *,
    admin_token: str | None = None,
    loopback: bool = True,
    max_in_flight: int = 128,
    io_timeout: float = 30.0,
    access_log: bool = False,
) -> AdmissionControl:
    """Build the application that processes requests.

    Parameters
    ----------
    ranker
        The ranker; it is not closed here.
    admin_token
        A secret that is accepted like an API key of scope "admin".
    loopback
        Whether only this machine can connect. If not, all requests are refused while there are no keys.
    max_in_flight
        Maximum number of concurrent requests; further ones are refused with 503.
    io_timeout
        Seconds within which a request body must arrive, and within which a client must read what it was sent.
    access_log
        Whether to log every request to the logger `mcfair.access`.

    Returns
    -------
    AdmissionControl
        The application, for `mcfair.service.server.Server`.
    """
    service = Service(ranker, admin_token=admin_token, loopback=loopback)
    service.admission = AdmissionControl(
        Router(service), service.metrics, max_in_flight=max_in_flight, io_timeout=io_timeout, access_log=access_log
    )  # fmt: skip
    return service.admission


class Router:
    """Route requests to operations and encode the results."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.paths: dict[str, dict[str, Handler]] = {}
        for each in OPERATIONS:
            self.paths.setdefault(each.path, {})[each.method] = Handler(service, each)
        self.patterns = [
            (re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path)), path) for path in self.paths if "{" in path
        ]  # fmt: skip

    def admit(self, request: Request) -> Response | None:
        """Find the operation of a request and validate its head."""
        handler = self.find(request)
        if handler is None:
            return OPTIONS[request.route]
        handler.check(request)
        request.handler = handler
        return None

    def find(self, request: Request) -> Handler | None:
        """Return the handler of a request, None for OPTIONS; set the route and the path parameters."""
        path, method = request.path, request.method
        found: dict[str, Handler] = {} if "{" in path else self.paths.get(path, {})
        route = path
        if method not in found:  # a fixed path may also match a template
            for pattern, name in self.patterns:
                match = pattern.fullmatch(path)
                if match and (method in self.paths[name] or not found):
                    route, found, request.path_parameters = name, self.paths[name], match.groupdict()
        if not found:
            raise HTTPError(404, "unknown path: see /docs")
        request.route = route
        if method == "OPTIONS":
            return None
        if method not in found:
            raise HTTPError(405, f"{method} is not allowed here: see the Allow header", allow=allowed(route))
        return found[method]

    def begin(self, request: Request) -> Any:
        """Start a request; return its result, or a future of it."""
        handler = request.handler
        assert isinstance(handler, Handler)
        return handler.begin(request)

    def respond(self, request: Request, result: Any) -> Response | StreamingResponse:
        """Encode a result as a response."""
        if isinstance(result, Response | StreamingResponse):
            return result
        if result is None:
            return NO_CONTENT
        handler = request.handler
        assert isinstance(handler, Handler)
        return Response(handler.operation.status, handler.head, wire.encoder.encode(result))

    def problem(self, error: Exception, request: Request) -> Response:
        """Build the problem response for an error."""
        return problem(error, request.route)


class Handler:
    """Handle requests for one operation: authorize, decode the body, start the operation."""

    def __init__(self, service: Service, operation: Operation) -> None:
        self.service = service
        self.operation = operation
        self.decoder = (
            None if operation.request is None else msgspec.json.Decoder(operation.decode_as or operation.request)
        )
        self.head = encode_head(operation.status, JSON, **NO_STORE)

    def check(self, request: Request) -> None:
        """Validate the head of a request, before its body is read."""
        operation = self.operation
        if operation.scope is not None:
            self.service.authorize(request.headers, operation.scope)
        if self.decoder is not None:
            check_body_headers(request.headers)

    def begin(self, request: Request) -> Any:
        """Decode the body and start the operation; return its result, or a future of it."""
        operation, arguments = self.operation, request.path_parameters
        if operation.idempotent:
            arguments["key"] = idempotency_key(request.headers)  # type: ignore[assignment]
            arguments["caller"] = caller_id(request.headers)  # type: ignore[assignment]
        if self.decoder is not None:
            arguments["body"] = wire.decode_body(self.decoder, request.body)
        result = operation.function(self.service, **arguments)
        return asyncio.ensure_future(result) if inspect.iscoroutine(result) else result


NO_CONTENT = Response(204, encode_head(204, None, **NO_STORE))


def allowed(path: str) -> str:
    """Return the allowed methods of a path, for the Allow header."""
    return ", ".join([*(operation.method for operation in OPERATIONS if operation.path == path), "OPTIONS"])


OPTIONS = {
    operation.path: Response(204, encode_head(204, None, allow=allowed(operation.path))) for operation in OPERATIONS
}


def problem(error: Exception, route: str) -> Response:
    """Build the problem response for an error."""
    status, detail, field = 500, "an unexpected error occurred and was logged", None
    headers: dict[str, str] = {}
    match error:
        case HTTPError():
            status, detail, field, headers = error.status, str(error), error.field, error.headers
        case RequestError():
            status, detail, field = 400, str(error), error.field
        case PolicyError():
            status, detail, field = 400, str(error), "policy"
        case SettingError():
            status, detail = 400, str(error)
        case NotFoundError():
            status, detail = 404, str(error)
        case ConflictError():
            status, detail = 409, str(error)
        case UnavailableError():
            status, detail = 503, str(error)
            headers = {"retry-after": str(max(1, math.ceil(error.retry_after)))}
        case StoreError():  # some stored data cannot be read
            log_failure(route, error)
            status, detail, headers = 503, str(error), {"retry-after": "60"}
        case _:
            log_failure(route, error)
    return problem_response(status, detail, field, **{name.lower(): value for name, value in headers.items()})
