"""The operations as the HTTP API executes them: on the executor of a ranker, or in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any, Generic, TypeVar

from ...errors import SettingError, UnavailableError
from .. import operations, wire
from ..background.process import Reads
from ..background.worker import Reply
from ..declaration import JSON, NDJSON, Operation, operation
from ..ranker import Ranker
from ..work_items import Future, WorkItem
from .apidocs import openapi, page
from .layout import CONFINED, HTML
from .lifecycle import Lifecycle
from .metrics import Metrics
from .responses import NO_STORE, Response, StreamingResponse, encode_headers

try:
    from prometheus_client import CONTENT_TYPE_LATEST
except ImportError:
    raise SettingError("the service needs prometheus-client: pip install 'mcfair[service]'") from None


T = TypeVar("T")

RERANK_EXAMPLE = {
    "query": "red shoes",
    "documents": ["blue socks", {"id": "sku1", "text": "red canvas shoes", "prior": 0.42, "group": "seller A"}],
    "top_n": 2,
}

TRANSLATED: dict[str, Operation] = {}
"""Operations of other APIs, which are translated to those of the service."""

PROBES: dict[str, Operation] = {}
probe = partial(operation, "GET", tag="Operation", table=PROBES, probe=True)


class Operations:
    """The operations of the HTTP API.

    An operation without a method here is executed as it is declared, by the executor or in the background.
    """

    def __init__(self, ranker: Ranker, lifecycle: Lifecycle, metrics: Metrics, background: Reads) -> None:
        self.ranker, self.lifecycle, self.metrics = ranker, lifecycle, metrics
        self.background, self.exposition = background, SharedResult(metrics.exposition)
        self.document = openapi(OPERATIONS, version("mcfair"))
        self.page = page(self.document).encode()

    def bind(self, operation: Operation) -> Callable[..., Any] | None:
        """Return the function that executes an operation, given its arguments; None if `submit` does."""
        if hasattr(self, operation.name):
            return getattr(self, operation.name)  # type: ignore[no-any-return]
        if operation.runs == "background":
            return partial(self.read if operation.media_type == JSON else self.stream, operation.name)
        return None

    def submit(self, operation: Operation, arguments: dict[str, Any], future: Future) -> None:
        """Submit an operation to the engine; the future gets its result once its effect is durable."""
        work, args, kwargs = operations.submission(operation, arguments)
        self.ranker.executor.enqueue(WorkItem(work, args, kwargs, future, asyncio.get_running_loop()))

    async def read(self, name: str, **arguments: Any) -> Response:
        """Forward a read to the background."""
        return respond(await self.background.ask(name, arguments))

    async def stream(self, name: str, **arguments: Any) -> StreamingResponse:
        """Forward a read to the background whose result is a stream."""
        # The first chunk is read before the response starts: an error until then still gets a proper status.
        return StreamingResponse(encode_headers(NDJSON, **NO_STORE), await self.background.stream(name, arguments))

    @operation(
        "POST",
        "/v1/rerank",
        "Ranking",
        "rank",
        table=TRANSLATED,
        request=wire.RerankRequest,
        decode_as=wire.RerankRequest,
        response=wire.Reranking,
        errors=(409,),
        idempotent=True,
        aliases=("/v2/rerank",),
        example=RERANK_EXAMPLE,
    )
    async def rerank(self, body: wire.RerankRequest, key: str | None, caller: str | None) -> wire.Reranking:
        """Rank documents, in the shape of Cohere's rerank endpoint.

        It is `rank` in another shape, also at `/v2/rerank`. Documents are items: an object has an `id`, and a text
        without one gets `text-` and the first 32 hex digits of the SHA-256 of its UTF-8 bytes. A repeated text gets
        `-2`, `-3` and so on after that. The policy does not read the texts, and they are not stored. The score of a
        result is 1 / rank. Report clicks with the `impression` and the `id` of a result.
        """
        request = wire.as_rank_request(body)
        arguments = {"body": wire.with_raw_items(request), "key": key, "caller": caller}
        future: asyncio.Future[wire.Ranking] = asyncio.get_running_loop().create_future()
        self.submit(operations.OPERATIONS["rank"], arguments, future)
        return wire.as_reranking(body, request.items, await future)

    # --- probes and documentation -------------------------------------------------------------------------------------

    @probe("/livez", scope=None, response=wire.Health)
    def livez(self) -> wire.Health:
        """Liveness probe."""
        return wire.Health("alive")

    @probe("/readyz", scope=None, response=wire.Health)
    def readyz(self) -> wire.Health:
        """Readiness probe.

        It responds with 503 while the store cannot be written and while the service is draining.
        """
        if self.lifecycle.phase != "serving":
            raise UnavailableError("draining: the service is about to stop")
        if self.ranker.executor.store_error is not None:
            raise UnavailableError(self.ranker.executor.store_error)
        return wire.Health("ready")

    @probe("/metrics", scope="read", media_type="text/plain")
    async def metrics_text(self) -> Response:
        """Return metrics in the Prometheus text format."""
        return Response(200, encode_headers(CONTENT_TYPE_LATEST), await self.exposition())

    @probe("/openapi.json", scope=None, response=dict[str, Any], rooted=True)
    def openapi_document(self, root_path: str) -> dict[str, Any]:
        """Return the OpenAPI document."""
        return self.document | {"servers": [{"url": root_path or "/"}]}

    @probe("/docs", scope=None, media_type="text/html")
    def docs(self) -> Response:
        """Return the API documentation as an HTML page."""
        return Response(200, encode_headers(HTML, **CONFINED), self.page)


OPERATIONS = [*operations.OPERATIONS.values(), *TRANSLATED.values(), *PROBES.values()]
"""Every operation of the HTTP API, in the order of the documentation."""


def respond(reply: Reply) -> Response:
    """Return an encoded reply as a response."""
    headers = encode_headers(JSON, **NO_STORE) if reply.headers is None else reply.headers
    return Response(reply.status, headers, reply.body)


class SharedResult(Generic[T]):
    """The result of a function that runs in a thread: concurrent requests share one run."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.function = function
        self.run: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """Return the result of the present run, or of a new one."""
        if self.run is None or self.run.done():
            self.run = asyncio.create_task(asyncio.to_thread(self.function))
        return await asyncio.shield(self.run)  # one cancelled request must not cancel it
