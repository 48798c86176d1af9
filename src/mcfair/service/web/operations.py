"""The operations as the HTTP API executes them: on the executor of a ranker, without blocking the event loop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from typing import Any, Generic, TypeVar

from ...errors import SettingError, UnavailableError
from .. import operations, wire
from ..declaration import NDJSON, Operation, operation
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

__all__ = ["OPERATIONS", "Operations"]

T = TypeVar("T")

FRESH_SECONDS = 10.0
"""How long the result of a scan over all queries is reused."""

COMPARISONS = 4
"""Comparisons that are computed or wait for it; further ones are refused, so that rankings keep their places."""

COMPARE_SECONDS = 5.0
"""When a comparison that was refused may be asked for again."""

CHUNK = 1 << 16
"""Size of the chunks of an export, in bytes."""

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

    An operation without a method here is executed as it is declared, by the executor or in a thread.
    """

    def __init__(self, ranker: Ranker, lifecycle: Lifecycle, metrics: Metrics) -> None:
        self.ranker, self.lifecycle, self.metrics = ranker, lifecycle, metrics
        self.fairness = SharedResult(ranker.fairness, FRESH_SECONDS)
        self.exposition = SharedResult(metrics.exposition)
        self.exporter = ThreadPoolExecutor(1, "mcfair-export")
        self.comparing, self.comparisons = ThreadPoolExecutor(1, "mcfair-compare"), 0
        self.document = openapi(OPERATIONS, version("mcfair"))
        self.page = page(self.document).encode()

    def bind(self, operation: Operation) -> Callable[..., Any] | None:
        """Return the function that executes an operation, given its arguments; None if `submit` does."""
        if hasattr(self, operation.name):
            return getattr(self, operation.name)  # type: ignore[no-any-return]
        return partial(asyncio.to_thread, operation.function, self.ranker.executor) if operation.threaded else None

    def submit(self, operation: Operation, arguments: dict[str, Any], future: Future) -> None:
        """Submit an operation to the engine; the future gets its result once its effect is durable."""
        work, args, kwargs = operations.submission(operation, arguments)
        self.ranker.executor.enqueue(WorkItem(work, args, kwargs, future, asyncio.get_running_loop()))

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

    # --- reading the store --------------------------------------------------------------------------------------------

    async def export(self) -> StreamingResponse:
        """Start an export."""
        lines = operations.export(self.ranker.executor)
        # Read the first chunk before the response starts: an error until then still gets a proper status.
        first = await asyncio.get_running_loop().run_in_executor(self.exporter, next_chunk, lines)
        return StreamingResponse(encode_headers(NDJSON, **NO_STORE), self.chunks(lines, first))

    async def compare(self, body: wire.CompareRequest) -> wire.PolicyComparisons:
        """Compare policies, one request at a time: each takes a processor for seconds."""
        if self.comparisons >= COMPARISONS:
            raise UnavailableError("other comparisons are being computed", COMPARE_SECONDS)
        self.comparisons += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.comparing, operations.compare, self.ranker.executor, body)
        finally:
            self.comparisons -= 1

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


class SharedResult(Generic[T]):
    """The result of a function that runs in a thread: concurrent requests, and those soon after, share one run."""

    def __init__(self, function: Callable[[], T], fresh_seconds: float = 0.0) -> None:
        self.function, self.fresh_seconds = function, fresh_seconds
        self.run: asyncio.Task[T] | None = None
        self.ended = -math.inf

    async def __call__(self) -> T:
        """Return the result of the present run, of a recent one that succeeded, or of a new one."""
        if self.run is None or (self.run.done() and time.monotonic() - self.ended > self.fresh_seconds):
            self.run = asyncio.create_task(asyncio.to_thread(self.function))
            self.run.add_done_callback(self.end)
        return await asyncio.shield(self.run)  # one cancelled request must not cancel it

    def end(self, run: asyncio.Task[T]) -> None:
        """Record when a run ended; a failed one is not reused."""
        self.ended = -math.inf if run.cancelled() or run.exception() else time.monotonic()


def next_chunk(lines: Iterator[bytes]) -> bytes:
    """Join lines to one chunk; return nothing at the end."""
    taken, size = [], 0
    for line in lines:
        taken.append(line)
        size += len(line)
        if size >= CHUNK:
            break
    return b"".join(taken)
