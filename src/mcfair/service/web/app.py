"""The ASGI application: it authorizes, admits and routes requests, and turns every result and error into a response.

The operations are few and fixed, and msgspec decodes and encodes them, so a web framework would only add latency. HTTP
itself is the work of the ASGI server.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import msgspec

from .. import wire
from ..declaration import JSON, NDJSON, Operation
from ..ranker import Ranker
from ..work_items import Future
from .auth import Authorizer
from .dashboard import Dashboard
from .forwarding import background_of
from .lifecycle import PLACES, AdmissionError, Lifecycle, RequestClass
from .metrics import METHODS, Metrics
from .operations import OPERATIONS, Operations
from .problems import Problems, log_failure
from .requests import (
    ClientDisconnectedError,
    HTTPError,
    Receive,
    Request,
    Scope,
    Send,
    check_body_headers,
    idempotency_key,
    read_body,
)
from .responses import NO_STORE, Response, StreamingResponse, closing, encode_headers

access = logging.getLogger("mcfair.access")

ADDRESS = re.compile(r"[0-9A-Za-z.:%-]{1,64}")


def create_app(
    store: str | Path | Ranker,
    *,
    admin_token: str | None = None,
    max_in_flight: int = PLACES,
    io_timeout: float = 30.0,
    access_log: bool = False,
) -> RankingApp:
    """Build the ASGI application of the service, for any ASGI server or to be mounted in another program.

    A server that supports the lifespan protocol starts and stops it. A program that mounts it may pass `lifespan` of
    the result on; if it does not, the application works all the same, but a thread of the ranker executes everything,
    which costs more per request.

    Parameters
    ----------
    store
        A ranker, which is not closed here; or the URL or path of a store, which is opened now and closed at the end of
        the lifespan.
    admin_token
        A secret that is accepted like an API key of scope "admin".
    max_in_flight
        Maximum number of concurrent rankings; further ones are refused with 503. Feedback, reads, pages of the
        dashboard and administration have places of their own, in proportion to it.
    io_timeout
        Seconds within which a request body must arrive, and within which a client must read each part of an export.
    access_log
        Whether to log every request to the logger `mcfair.access`.

    Returns
    -------
    RankingApp
        The application, an ASGI 3 callable.

    Raises
    ------
    StoreError
        If the store cannot be opened, is damaged, or is in use by another process.

    Examples
    --------
    >>> from mcfair import Ranker
    >>> with Ranker("memory:") as ranker:
    ...     app = create_app(ranker)
    """
    ranker = store if isinstance(store, Ranker) else Ranker(store)
    lifecycle = Lifecycle(max_in_flight)
    authorizer = Authorizer(ranker, admin_token)
    app = RankingApp(ranker, lifecycle, authorizer, io_timeout=io_timeout, access_log=access_log)
    app.owns_ranker = ranker is not store
    return app


class RankingApp:
    """The ASGI application of the service; `create_app` builds it."""

    def __init__(
        self, ranker: Ranker, lifecycle: Lifecycle, authorizer: Authorizer, *, io_timeout: float, access_log: bool
    ) -> None:
        self.ranker, self.lifecycle = ranker, lifecycle
        self.io_timeout, self.access_log = io_timeout, access_log
        self.owns_ranker = False
        self.background = background_of(ranker)
        self.metrics = Metrics(ranker, lifecycle, self.background)
        self.problems = Problems(ranker)
        operations = Operations(ranker, lifecycle, self.metrics, self.background)
        self.dashboard = Dashboard(self.background, authorizer)
        self.router = Router()
        for operation in OPERATIONS:
            handler = Handler(operations, operation, authorizer)
            for path in (operation.path, *operation.aliases):
                self.router.add(operation.method, path, handler)
        for page in self.dashboard.handlers:
            self.router.add(page.method, page.path, page)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process a request, or the lifespan of the server."""
        if scope["type"] == "http":
            await self.handle(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self.run_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    # --- lifespan ----------------------------------------------------------------------------------------------------

    async def run_lifespan(self, receive: Receive, send: Send) -> None:
        """Attach the ranker to the event loop of the server until it shuts down."""
        await receive()
        async with self.lifespan():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Attach the ranker to the running event loop while the block runs; then refuse requests.

        Parameters
        ----------
        app
            Ignored; a program that mounts the service may pass this method as its own lifespan.
        """
        self.ranker.executor.attach_loop()
        await self.background.start()
        self.lifecycle.phase = "serving"
        try:
            yield
        finally:
            self.lifecycle.phase = "stopped"
            await self.background.stop()
            self.ranker.executor.detach_loop()
            if self.owns_ranker:
                await asyncio.to_thread(self.ranker.close)

    # --- requests ----------------------------------------------------------------------------------------------------

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process a request: its head, admission, its body, its response. Count and log it at the end."""
        exchange, status = Exchange(self, Request(scope)), 0
        try:
            response = exchange.begin(scope) or await exchange.run(receive)
            if isinstance(response, Response):  # a slow reader does not keep the place
                exchange.leave()
            await self.send(exchange.request, response, receive, send)
            status = response.status
        except ClientDisconnectedError:
            pass
        finally:
            exchange.leave()
            exchange.count(status)

    def answer(self, scope: Scope, body: bytes, reply: Callable[[Response], None]) -> None:
        """Process a request for a serving operation whose body has arrived; call `reply` with the response, in time.

        It does what `handle` does, without a task. `mcfair.service.web.connections` calls it for short requests.
        """
        call = Call(self, Request(scope), reply)
        response = call.begin(scope)
        if response is not None:
            call.complete(response)
            return
        try:
            call.handler.start(call.request, body, call)
        except Exception as error:
            call.complete(call.failed(error))

    @property
    def uses_client_address(self) -> bool:
        """Whether the address of a client matters: without keys only this machine may connect."""
        return self.access_log or not self.ranker.has_keys

    def is_last(self, request: Request) -> bool:
        """Return whether the connection of a request closes after its response."""
        return (self.lifecycle.phase != "serving" or request.last) and request.version in ("1.0", "1.1")

    async def send(
        self, request: Request, response: Response | StreamingResponse, receive: Receive, send: Send
    ) -> None:
        """Send a response."""
        headers = closing(response.headers) if self.is_last(request) else response.headers
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        if request.method == "HEAD":
            if isinstance(response, StreamingResponse):
                await response.chunks.aclose()
            await send({"type": "http.response.body", "body": b""})
        elif isinstance(response, Response):
            await send({"type": "http.response.body", "body": response.body})
        else:
            await self.send_stream(request, response, receive, send)

    async def send_stream(self, request: Request, response: StreamingResponse, receive: Receive, send: Send) -> None:
        """Send a stream; stop if the client disconnects, and abort the connection if it stalls or the stream fails."""
        disconnected = asyncio.create_task(wait_for_disconnect(receive))
        failed = False
        try:
            async with aclosing(response.chunks) as chunks:
                async for chunk in chunks:
                    async with asyncio.timeout(self.io_timeout):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    if disconnected.done():
                        return
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            failed = True
        except Exception as error:
            failed = True
            log_failure(request.route, error)
        finally:
            disconnected.cancel()
            with suppress(asyncio.CancelledError):
                await disconnected
        if failed:  # raised here, so that servers do not log the original error: its message may quote stored data
            raise StreamAbortedError("a stream was aborted: it failed, or its client does not read it")

    def count(self, request: Request, status: int, seconds: float) -> None:
        """Count and log a request by its route, never by its path, which may contain data of a client."""
        method = request.method if request.method in METHODS else "other"
        self.metrics.count_request(request.route, method, status, seconds)
        if self.access_log:
            client = request.client if ADDRESS.fullmatch(request.client) else "-"  # it may be what a header says
            access.info("%s %s %s %d %.1f ms", client, method, request.route, status, 1e3 * seconds)


class Exchange:
    """A request between its head and its response, whichever way it arrived."""

    handler: RequestHandler

    def __init__(self, app: RankingApp, request: Request) -> None:
        self.app, self.request, self.begun = app, request, perf_counter()
        self.admitted: tuple[RequestClass, str | None, int] | None = None

    def begin(self, scope: Scope) -> Response | None:
        """Check the head and admit the request; return the response if that ends it."""
        app, request = self.app, self.request
        try:
            request.check(scope)
            handler = app.router.find(request)
            if handler is None:
                return Response(204, encode_headers(None, allow=app.router.allowed(request.route)))
            self.handler = handler
            handler.check(request)
            if handler.places is not None:
                place = handler.places, request.caller, int(request.headers.get(b"content-length", b"0"))
                app.lifecycle.admit(*place)
                self.admitted = place
        except Exception as error:
            return self.failed(error)
        return None

    async def run(self, receive: Receive) -> Response | StreamingResponse:
        """Read the body and execute the request."""
        try:
            return await self.handler.run(self.request, receive, self.app.io_timeout)
        except ClientDisconnectedError:
            raise
        except Exception as error:
            return self.failed(error)

    def failed(self, error: Exception) -> Response:
        """Return the response to a request that failed."""
        app, request = self.app, self.request
        if isinstance(error, AdmissionError):
            app.metrics.rejected.inc()
        response = app.problems.respond(error, request.route)
        return app.dashboard.problem_page(request, response) if request.route in app.dashboard.routes else response

    def leave(self) -> None:
        """Give the place back, if the request has one."""
        if self.admitted is not None:
            self.app.lifecycle.leave(*self.admitted)
            self.admitted = None

    def count(self, status: int) -> None:
        """Count the request."""
        self.app.count(self.request, status, perf_counter() - self.begun)


class Call(Exchange):
    """A request that is answered without a task: it is itself the future of its operation.

    Parameters
    ----------
    app, request
        The application, and the head of the request.
    reply
        Called with the response.
    """

    handler: Handler

    def __init__(self, app: RankingApp, request: Request, reply: Callable[[Response], None]) -> None:
        super().__init__(app, request)
        self.reply, self.answered = reply, False

    def complete(self, response: Response) -> None:
        """End the request, and pass its response on."""
        self.answered = True
        self.leave()
        if self.app.is_last(self.request):
            response.headers = closing(response.headers)
        try:
            self.reply(response)
        finally:
            self.count(response.status)

    def done(self) -> bool:
        """Return whether the request has its response; nothing cancels an operation that was submitted."""
        return self.answered

    def set_result(self, result: Any) -> None:
        """Respond with the result of the operation."""
        try:
            response = self.handler.encode(result)
        except Exception as error:
            response = self.failed(error)
        self.complete(response)

    def set_exception(self, error: Exception) -> None:
        """Respond with the error of the operation."""
        self.complete(self.failed(error))


class StreamAbortedError(Exception):
    """A response was begun and cannot be completed: the server must close its connection."""


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


# --- routing ---------------------------------------------------------------------------------------------------------


class RequestHandler(Protocol):
    """A handler of the requests for one method and path; they take `places` of a class, None if always admitted."""

    places: RequestClass | None

    def check(self, request: Request) -> None:
        """Validate the head of a request, before it is admitted and before its body is read."""

    async def run(self, request: Request, receive: Receive, io_timeout: float) -> Response | StreamingResponse:
        """Read the body, and return the response."""


class Router:
    """Find the handler of a request."""

    def __init__(self) -> None:
        self.paths: dict[str, dict[str, RequestHandler]] = {}
        self.patterns: list[tuple[re.Pattern[str], str]] = []

    def add(self, method: str, path: str, handler: RequestHandler) -> None:
        """Add a handler; names in braces are path parameters."""
        if path not in self.paths and "{" in path:
            self.patterns.append((re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path)), path))
        self.paths.setdefault(path, {})[method] = handler

    def find(self, request: Request) -> RequestHandler | None:
        """Return the handler of a request, None for OPTIONS; set the route and the path parameters.

        HEAD is handled as GET: its response has the same head, and no body.
        """
        path, method = request.path, "GET" if request.method == "HEAD" else request.method
        found: dict[str, RequestHandler] = {} if "{" in path else self.paths.get(path, {})
        route = path
        if method not in found:  # a fixed path may also match a template
            for pattern, name in self.patterns:
                match = pattern.fullmatch(path)
                if match and (method in self.paths[name] or not found):
                    route, found, request.parameters = name, self.paths[name], dict(match.groupdict())
        if not found:
            raise HTTPError(404, "unknown path: see /docs")
        request.route = route
        if method == "OPTIONS":
            return None
        if method not in found:
            detail = f"{request.method} is not allowed here: see the Allow header"
            raise HTTPError(405, detail, allow=self.allowed(route))
        return found[method]

    def allowed(self, path: str) -> str:
        """Return the allowed methods of a path, for the Allow header."""
        named = (["GET", "HEAD"] if method == "GET" else [method] for method in self.paths[path])
        return ", ".join([*(method for methods in named for method in methods), "OPTIONS"])


class Handler:
    """Handle requests for one operation: authorize, decode the body, execute, encode the result."""

    def __init__(self, operations: Operations, operation: Operation, authorizer: Authorizer) -> None:
        self.operations, self.operation, self.authorizer = operations, operation, authorizer
        self.execute = operations.bind(operation)
        self.places: RequestClass | None = None if operation.probe or operation.scope is None else operation.scope
        self.decoder = None if operation.request is None else msgspec.json.Decoder(operation.decode_as)
        self.headers = encode_headers(JSON, **NO_STORE)

    def check(self, request: Request) -> None:
        """Validate the head of a request, before it is admitted and before its body is read."""
        if self.operation.scope is not None:
            self.authorizer.authorize(request, self.operation.scope)
        if self.operation.media_type == NDJSON and request.version == "1.0":
            raise HTTPError(505, "a stream of unknown length needs HTTP/1.1")
        if self.decoder is not None:
            check_body_headers(request.headers)

    async def run(self, request: Request, receive: Receive, io_timeout: float) -> Response | StreamingResponse:
        """Read and decode the body, execute the operation, and encode its result."""
        body = b""
        if self.decoder is not None:
            body, waited = await read_body(receive, io_timeout)
            if waited and self.operation.scope is not None:  # the key may have been revoked meanwhile
                self.authorizer.authorize(request, self.operation.scope)
        if self.execute is None:
            future = asyncio.get_running_loop().create_future()
            self.start(request, body, future)
            return self.encode(await future)
        result: Any = self.execute(**self.arguments(request, body))
        if hasattr(result, "__await__"):
            result = await result
        return result if isinstance(result, Response | StreamingResponse) else self.encode(result)

    def start(self, request: Request, body: bytes, future: Future) -> None:
        """Submit the operation, whose result the future gets."""
        self.operations.submit(self.operation, self.arguments(request, body), future)

    def arguments(self, request: Request, body: bytes) -> dict[str, Any]:
        """Return the arguments of the operation: from the path, the query string, the head and the body."""
        operation, arguments = self.operation, request.parameters
        if operation.idempotent:
            arguments["key"] = idempotency_key(request.headers)
            arguments["caller"] = request.caller
        if operation.options is not None:
            arguments["options"] = wire.decode_options(operation.options, request.query_string)
        if operation.rooted:
            arguments["root_path"] = request.root_path
        if self.decoder is not None:
            arguments["body"] = wire.decode_body(self.decoder, body)
        return arguments

    def encode(self, result: Any) -> Response:
        """Return the response for the result of the operation."""
        if result is None:
            return NO_CONTENT
        if isinstance(result, wire.FeedbackResults):
            self.operations.metrics.count_events(self.operation.name, result)
        return Response(self.operation.status, self.headers, wire.encoder.encode(result))


NO_CONTENT = Response(204, encode_headers(None, **NO_STORE))
