"""The calls of the service, who may make them, and a problem as RFC 9457 has it for every refusal.

They are few and fixed, and msgspec decodes and encodes, so a framework would only add to the time of every request.
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
from .apidocs import KEY_PATTERN, Call, openapi, page
from .engine import Engine
from .gate import Gate, Metrics, log_failure
from .http import JSON, TOO_LARGE, Answer, Request, Stream, head_of, refusal
from .ranker import Ranker

try:
    from prometheus_client import CONTENT_TYPE_LATEST
except ImportError:
    raise SettingError("the service needs prometheus-client: pip install 'mcfair[service]'") from None

__all__ = ["CALLS", "Service", "is_loopback", "make_app"]

NDJSON = "application/x-ndjson"
FRESH_SECONDS = 10.0
"""How long a scan over all queries is good for."""

NO_STORE = {"cache-control": "no-store"}
CHUNK = 1 << 16
"""Bytes of an export that are sent at once."""


class RefusedError(Exception):
    """A request that is turned down before the core sees it."""

    def __init__(self, status: int, detail: str, field: str | None = None, **headers: str) -> None:
        super().__init__(detail)
        self.status = status
        self.field = field
        self.headers = headers


def next_chunk(lines: Iterator[bytes]) -> bytes:
    """Take lines together until there is enough to send; nothing at the end."""
    taken, size = [], 0
    for line in lines:
        taken.append(line)
        size += len(line)
        if size >= CHUNK:
            break
    return b"".join(taken)


# --- what comes in ---------------------------------------------------------------------------------------------------


def check_body(headers: dict[bytes, bytes]) -> None:
    """Refuse a body that does not say it is JSON, and one that says it is too large."""
    media = headers.get(b"content-type", b"")
    if media != b"application/json" and media.partition(b";")[0].strip().lower() != b"application/json":
        raise RefusedError(415, f"the body must be {JSON}, and the Content-Type header must say so")
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise RefusedError(415, "the body must not be compressed")
    if int(headers.get(b"content-length", 0)) > wire.MAX_BODY:
        raise RefusedError(413, TOO_LARGE)


def idempotency_key(headers: dict[bytes, bytes]) -> str | None:
    """Take the key out of the headers, if there is one."""
    given = headers.get(b"idempotency-key")
    if given is None:
        return None
    key = given.decode("latin-1")
    if not KEY.match(key):
        raise RequestError(
            f"Idempotency-Key: expected 1 to {wire.MAX_KEY} visible ASCII characters", "Idempotency-Key"
        )  # fmt: skip
    return key


KEY = re.compile(KEY_PATTERN)


def is_loopback(host: str) -> bool:
    """Whether a host, such as that of a URL, is sure to be this machine.

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
    """Whether a Host header, which may have a port, names this machine."""
    return is_loopback(re.sub(r":\d*$", "", host.decode("latin-1")))


# --- the calls -------------------------------------------------------------------------------------------------------

CALLS: list[Call] = []
"""Every call of the service, in the order of the documentation."""


def call(method: Any, path: str, group: str, scope: wire.Scope | None, **options: Any) -> Callable[..., Any]:
    """Enter a method of `Service` into the list of calls."""

    def enter(work: Callable[..., Any]) -> Callable[..., Any]:
        CALLS.append(Call(method=method, path=path, group=group, scope=scope, work=work, **options))
        return work

    return enter


EXAMPLE_IMPRESSION = "IMPRESSION"
RANK_EXAMPLE = {
    "query": "red shoes",
    "items": [{"id": "sku1", "prior": 0.42, "group": "seller A"}, {"id": "sku2"}, {"id": "sku3"}],
    "k": 2,
}
EVENTS_EXAMPLE = {"events": [{"impression": EXAMPLE_IMPRESSION, "item": "sku2", "type": "click"}]}


class Service:
    """The calls, and what they need."""

    def __init__(self, ranker: Ranker, *, admin_token: str | None = None, loopback: bool = True) -> None:
        self.ranker = ranker
        self.admin_token = admin_token
        self.loopback = loopback
        self.metrics = Metrics(ranker)
        self.scan: asyncio.Task[wire.Fairness] | None = None
        self.scanned_at = -math.inf
        self.exporter = ThreadPoolExecutor(1, "mcfair-export")
        self.document = openapi(CALLS, version("mcfair"))
        self.page = page(self.document)
        self.gate: Gate

    # ranking

    @call(
        "POST", "/v1/rank", "Ranking", "rank", takes=wire.RankRequest, reads=wire.UnreadRank, gives=wire.Ranking,
        also=(409,), keyed=True, example=RANK_EXAMPLE,
    )  # fmt: skip
    def rank(self, body: wire.UnreadRank, key: str | None) -> Awaitable[wire.Ranking]:
        """Rank the candidates of a query.

        The list is recorded as an impression and its exposure counted before the answer is sent. Ids must be distinct
        and have at most 256 bytes, the query at most 4,096. With an Idempotency-Key, the same request, byte for byte in
        its items, gets the same answer again and counts once; without one, it counts again.
        """
        return self.ranker.ask(Engine.rank, body, key)

    @call(
        "POST", "/v1/feedback", "Ranking", "feedback", takes=wire.Feedback, gives=wire.FeedbackAnswer,
        example=EVENTS_EXAMPLE,
    )  # fmt: skip
    async def feedback(self, body: wire.Feedback) -> wire.FeedbackAnswer:
        """Report what was clicked, or what was shown.

        A click is one bit for each impression and item: it may be sent again, in any order. Every ranking that starts
        after the answer knows of it.
        """
        answer: wire.FeedbackAnswer = await self.ranker.ask(Engine.feedback, body.events)
        self.metrics.reported("feedback", answer)
        return answer

    @call(
        "POST", "/v1/retract", "Ranking", "feedback", takes=wire.Feedback, gives=wire.FeedbackAnswer,
        example=EVENTS_EXAMPLE,
    )  # fmt: skip
    async def retract(self, body: wire.Feedback) -> wire.FeedbackAnswer:
        """Take back what was reported, such as the clicks of a robot."""
        answer: wire.FeedbackAnswer = await self.ranker.ask(Engine.feedback, body.events, retract=True)
        self.metrics.reported("retract", answer)
        return answer

    # what is known

    @call("GET", "/v1/impressions/{impression}/explain", "What is known", "read", gives=wire.Explanation)
    async def explain(self, impression: str) -> wire.Explanation:
        """Say why the items of a list stand where they stand.

        The score is a sum, so the explanation is exact: its terms, what was known, and the ranks without each term.
        """
        return await self.ranker.ask(Engine.explain, impression)

    @call(
        "POST", "/v1/queries/lookup", "What is known", "read", takes=wire.QueryLookup, gives=wire.QueryState,
        also=(404,), example={"query": "red shoes"},
    )  # fmt: skip
    async def lookup(self, body: wire.QueryLookup) -> wire.QueryState:
        """Give what was observed of a query, by its text.

        The text of a query never stands in a URL, because proxies log those.
        """
        wire.check_text("query", body.query, wire.MAX_QUERY)
        return await self.ranker.ask(Engine.query_state, query=body.query)

    @call("GET", "/v1/queries/{query_id}", "What is known", "read", gives=wire.QueryState)
    async def query(self, query_id: str) -> wire.QueryState:
        """Give what was observed of a query, by its id."""
        return await self.ranker.ask(Engine.query_state, query_id=query_id)

    @call("GET", "/v1/fairness", "What is known", "read", gives=wire.Fairness)
    async def fairness(self) -> wire.Fairness:
        """Give fairness over all queries and by group.

        All queries are looked at for it, so the answer may be some seconds old; `as_of` says of when it is.
        """
        # as long as a scan runs, everybody waits for that one
        if self.scan is None or (self.scan.done() and time.monotonic() - self.scanned_at > FRESH_SECONDS):
            self.scan = asyncio.create_task(asyncio.to_thread(self.ranker.fairness))
            self.scan.add_done_callback(self.scan_ended)
        return await asyncio.shield(self.scan)

    def scan_ended(self, scan: asyncio.Task[wire.Fairness]) -> None:
        """Note when a scan was done; one that failed is not good for any time."""
        self.scanned_at = -math.inf if scan.cancelled() or scan.exception() else time.monotonic()

    @call("GET", "/v1/usage", "What is known", "read", gives=wire.Usage)
    async def usage(self) -> wire.Usage:
        """Say how much is stored."""
        return await self.ranker.ask(Engine.usage)

    # settings

    @call("GET", "/v1/policy", "Policy", "read", gives=wire.PolicyInForce)
    async def policy(self) -> wire.PolicyInForce:
        """Say how lists are made now."""
        return await self.ranker.ask(Engine.in_force)

    @call(
        "PUT", "/v1/policy", "Policy", "admin", takes=wire.PolicyChange, gives=wire.PolicyInForce, also=(409,),
        example={"policy": "MCFair(alpha=10)"},
    )  # fmt: skip
    async def change_policy(self, body: wire.PolicyChange) -> wire.PolicyInForce:
        """Change how lists are made from now on; what is not mentioned stays."""
        return await self.ranker.ask(Engine.change, body)

    # data

    @call("GET", "/v1/export", "Data", "admin", media=NDJSON)
    async def export(self) -> Stream:
        """Give everything that is stored, as lines of JSON."""
        lines = cast(Generator[bytes, None, None], self.ranker.export())
        # what fails before the first line can still be answered properly
        first = await asyncio.get_running_loop().run_in_executor(self.exporter, next_chunk, lines)
        return Stream(head_of(200, NDJSON, **NO_STORE), self.chunks(lines, first))

    async def chunks(self, lines: Generator[bytes, None, None], first: bytes) -> AsyncGenerator[bytes, None]:
        """Give chunk after chunk, all from one thread, because a connection to a store belongs to one."""
        loop = asyncio.get_running_loop()
        try:
            chunk = first
            while chunk:
                yield chunk
                chunk = await loop.run_in_executor(self.exporter, next_chunk, lines)
        finally:
            self.exporter.submit(lines.close)

    @call("DELETE", "/v1/queries/{query_id}", "Data", "admin", status=204)
    async def delete_query(self, query_id: str) -> None:
        """Forget a query and all that was observed of it."""
        await self.ranker.ask(Engine.delete_query, query_id=query_id)

    @call(
        "POST", "/v1/items/delete", "Data", "admin", takes=wire.ItemDeletion, gives=wire.Deleted,
        example={"item": "sku1"},
    )  # fmt: skip
    async def delete_item(self, body: wire.ItemDeletion) -> wire.Deleted:
        """Forget an item, in every query."""
        return wire.Deleted(await self.ranker.ask(Engine.delete_item, body.item))

    @call(
        "POST", "/v1/reset", "Data", "admin", takes=wire.Reset, gives=wire.Deleted, example={"confirm": "reset"}
    )  # fmt: skip
    async def reset(self, body: wire.Reset) -> wire.Deleted:
        """Forget every query, item and impression; keys and the policy stay."""
        return wire.Deleted(await self.ranker.ask(Engine.reset))

    # keys

    @call("GET", "/v1/keys", "Keys", "admin", gives=list[wire.KeyInfo])
    async def keys(self) -> list[wire.KeyInfo]:
        """List the keys, without their secrets."""
        return await self.ranker.ask(Engine.keys)

    @call(
        "POST", "/v1/keys", "Keys", "admin", takes=wire.KeyRequest, gives=wire.KeyAdded, status=201,
        example={"name": "shop", "scopes": ["rank", "feedback"]},
    )  # fmt: skip
    async def add_key(self, body: wire.KeyRequest) -> wire.KeyAdded:
        """Make a key; its secret is shown this once."""
        return await self.ranker.ask(Engine.add_key, body.name, body.scopes)

    @call("DELETE", "/v1/keys/{id}", "Keys", "admin", gives=wire.KeyInfo)
    async def revoke_key(self, id: str) -> wire.KeyInfo:
        """Revoke a key, at once and for good."""
        return await self.ranker.ask(Engine.revoke_key, id)

    # operation

    @call("GET", "/livez", "Operation", None, gives=wire.Health)
    def livez(self) -> wire.Health:
        """Say that the process runs."""
        return wire.Health("alive")

    @call("GET", "/readyz", "Operation", None, gives=wire.Health)
    def readyz(self) -> wire.Health:
        """Say whether requests are welcome; 503 when nothing can be written, or when the service is about to stop."""
        if self.gate.draining:
            raise UnavailableError("draining: the service is about to stop")
        if self.ranker.trouble is not None:
            raise UnavailableError(self.ranker.trouble)
        return wire.Health("ready")

    @call("GET", "/metrics", "Operation", "read", media="text/plain")
    async def measured(self) -> Answer:
        """Give figures in the text format of Prometheus."""
        body = await asyncio.to_thread(self.metrics.exposition)
        return Answer(200, head_of(200, CONTENT_TYPE_LATEST), body)

    @call("GET", "/openapi.json", "Operation", None, media=JSON, gives=dict[str, Any])
    def described(self) -> dict[str, Any]:
        """Give the OpenAPI document."""
        return self.document

    @call("GET", "/docs", "Operation", None, media="text/html")
    def docs(self) -> Answer:
        """Give this page."""
        safe = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return Answer(200, head_of(200, "text/html; charset=utf-8", **safe), self.page.encode())

    # who may

    def authorize(self, headers: dict[bytes, bytes], scope: wire.Scope) -> None:
        """Turn down whoever has no key for a call.

        Without any key all is allowed on this machine, but not what a page of another site makes a browser do: after
        it had its own name resolve to this machine, the Host header still has that name.
        """
        if self.loopback and not self.ranker.has_keys:
            if not is_loopback_name(headers.get(b"host", b"")):
                raise RefusedError(
                    403, "without keys, only requests to localhost are answered: mcfair keys add", "Host"
                )
            return
        scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        scopes = self.scopes_of(key.strip()) if scheme.lower() == "bearer" else None
        if scopes is None:
            detail = "the key is unknown or revoked" if scheme else "a key is needed: Authorization: Bearer KEY"
            raise RefusedError(401, detail, **{"WWW-Authenticate": "Bearer"})
        if scope not in scopes and "admin" not in scopes:
            raise RefusedError(403, f"the key is not good for this call: it needs the scope {scope!r}")

    def scopes_of(self, key: str) -> frozenset[wire.Scope] | None:
        """Say what a key is good for."""
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
    patience: float = 30.0,
    access_log: bool = False,
) -> Gate:
    """Make what answers requests.

    Parameters
    ----------
    ranker
        What ranks; it is not closed here.
    admin_token
        A secret that is accepted like a key that may do everything.
    loopback
        Whether only this machine can connect: if not, nothing is allowed while there are no keys.
    max_in_flight
        How many requests are answered at the same time; more are refused with 503.
    patience
        Seconds in which a body must arrive, or a piece of an export be taken.
    access_log
        Whether to log each answer, to the logger `mcfair.access`.
    """
    service = Service(ranker, admin_token=admin_token, loopback=loopback)
    service.gate = Gate(
        Router(service), service.metrics, max_in_flight=max_in_flight, patience=patience, access_log=access_log
    )  # fmt: skip
    return service.gate


class Router:
    """Finds the call that a request is for, has it done, and makes the answer."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.paths: dict[str, dict[str, Handler]] = {}
        for each in CALLS:
            self.paths.setdefault(each.path, {})[each.method] = Handler(service, each)
        self.patterns = [
            (re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path)), path) for path in self.paths if "{" in path
        ]  # fmt: skip

    def admit(self, request: Request) -> Answer | None:
        """Find the call that a request is for, and check all that its head says."""
        handler = self.find(request)
        if handler is None:
            return OPTIONS[request.route]
        handler.check(request)
        request.handler = handler
        return None

    def find(self, request: Request) -> Handler | None:
        """Find who answers, none if the request only asks who might; note the template of the path."""
        path, method = request.path, request.method
        found: dict[str, Handler] = {} if "{" in path else self.paths.get(path, {})
        route = path
        if method not in found:  # a fixed path may also be an example of a template
            for pattern, name in self.patterns:
                match = pattern.fullmatch(path)
                if match and (method in self.paths[name] or not found):
                    route, found, request.parts = name, self.paths[name], match.groupdict()
        if not found:
            raise RefusedError(404, "there is nothing at this path: see /docs")
        request.route = route
        if method == "OPTIONS":
            return None
        if method not in found:
            raise RefusedError(405, "this path has other methods: see the Allow header", allow=allowed(route))
        return found[method]

    def begin(self, request: Request) -> Any:
        """Begin the work of a request."""
        handler = request.handler
        assert isinstance(handler, Handler)
        return handler.begin(request)

    def answer(self, request: Request, result: Any) -> Answer | Stream:
        """Make an answer of what came of the work."""
        if isinstance(result, Answer | Stream):
            return result
        if result is None:
            return NOTHING
        handler = request.handler
        assert isinstance(handler, Handler)
        return Answer(handler.call.status, handler.head, wire.encoder.encode(result))

    def problem(self, error: Exception, request: Request) -> Answer:
        """Make a problem of an error."""
        return problem(error, request.route)


class Handler:
    """One call: checks the key, decodes the body, begins the work."""

    def __init__(self, service: Service, call: Call) -> None:
        self.service = service
        self.call = call
        self.decoder = None if call.takes is None else msgspec.json.Decoder(call.reads or call.takes)
        self.head = head_of(call.status, JSON, **NO_STORE)

    def check(self, request: Request) -> None:
        """Check all that a head says, so that nobody sends a body for nothing."""
        call = self.call
        if call.scope is not None:
            self.service.authorize(request.headers, call.scope)
        if self.decoder is not None:
            check_body(request.headers)

    def begin(self, request: Request) -> Any:
        """Begin the work; gives the result, or a future for it."""
        call, given = self.call, request.parts
        if call.keyed:
            given["key"] = idempotency_key(request.headers)  # type: ignore[assignment]
        if self.decoder is not None:
            given["body"] = wire.decoded(self.decoder, request.body)
        result = call.work(self.service, **given)
        return asyncio.ensure_future(result) if inspect.iscoroutine(result) else result


NOTHING = Answer(204, head_of(204, None, **NO_STORE))


def allowed(path: str) -> str:
    """Say which methods a path has."""
    return ", ".join([*(call.method for call in CALLS if call.path == path), "OPTIONS"])


OPTIONS = {call.path: Answer(204, head_of(204, None, allow=allowed(call.path))) for call in CALLS}


def problem(error: Exception, where: str) -> Answer:
    """Make a problem of an error."""
    status, detail, field = 500, "something unexpected happened, and was logged", None
    headers: dict[str, str] = {}
    match error:
        case RefusedError():
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
        case StoreError():  # part of what is stored cannot be read
            log_failure(where, error)
            status, detail, headers = 503, str(error), {"retry-after": "60"}
        case _:
            log_failure(where, error)
    return refusal(status, detail, field, **{name.lower(): value for name, value in headers.items()})
