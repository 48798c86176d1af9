"""The operations of the HTTP API: each is declared once, with its route, scope, request and response types."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from ...errors import SettingError, UnavailableError
from .. import wire
from ..engine import Engine
from ..ranker import Ranker, export_lines
from .apidocs import Operation, openapi, page
from .lifecycle import Lifecycle
from .metrics import Metrics
from .responses import NDJSON, NO_STORE, Response, StreamingResponse, encode_headers

try:
    from prometheus_client import CONTENT_TYPE_LATEST
except ImportError:
    raise SettingError("the service needs prometheus-client: pip install 'mcfair[service]'") from None

__all__ = ["OPERATIONS", "Operations"]

FRESH_SECONDS = 10.0
"""How long the result of a scan over all queries is reused."""

CHUNK = 1 << 16
"""Size of the chunks of an export, in bytes."""


def next_chunk(lines: Iterator[bytes]) -> bytes:
    """Join lines to one chunk; return nothing at the end."""
    taken, size = [], 0
    for line in lines:
        taken.append(line)
        size += len(line)
        if size >= CHUNK:
            break
    return b"".join(taken)


# --- the operations --------------------------------------------------------------------------------------------------

OPERATIONS: list[Operation] = []
"""Every operation of the service, in the order of the documentation."""


def route(method: Any, path: str, tag: str, scope: wire.Scope | None, **options: Any) -> Callable[..., Any]:
    """Register a method of `Operations` as an operation."""

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


class Operations:
    """The operations of the HTTP API."""

    def __init__(self, ranker: Ranker, lifecycle: Lifecycle, metrics: Metrics) -> None:
        self.ranker, self.lifecycle, self.metrics = ranker, lifecycle, metrics
        self.scan: asyncio.Task[wire.Fairness] | None = None
        self.scanned_at = -math.inf
        self.exporter = ThreadPoolExecutor(1, "mcfair-export")
        self.document = openapi(OPERATIONS, version("mcfair"))
        self.page = page(self.document).encode()

    # ranking

    @route(
        "POST",
        "/v1/rank",
        "Ranking",
        "rank",
        request=wire.RankRequest,
        decode_as=wire.RawRankRequest,
        response=wire.Ranking,
        errors=(409,),
        idempotent=True,
        example=RANK_EXAMPLE,
    )
    def rank(self, body: wire.RawRankRequest, key: str | None, caller: str | None) -> Awaitable[wire.Ranking]:
        """Rank the candidates of a query.

        The impression and its exposure are durable before the response is sent. Ids must be distinct and have at most
        256 bytes, the query at most 4,096. A repeated request with the same Idempotency-Key, byte for byte in its
        items, gets the same response and counts once; without a key it counts again.
        """
        return self.ranker.executor.submit_async(Engine.rank, body, key, caller)

    @route(
        "POST",
        "/v1/feedback",
        "Ranking",
        "feedback",
        request=wire.Feedback,
        response=wire.FeedbackResults,
        example=EVENTS_EXAMPLE,
    )
    async def feedback(self, body: wire.Feedback) -> wire.FeedbackResults:
        """Report clicks and shown ranks.

        A click is one bit per impression and item, so events may be repeated and may arrive in any order. Every ranking
        that starts after the response takes the events into account.
        """
        results = await self.ranker.executor.submit_async(Engine.feedback, body.events)
        self.metrics.count_events("feedback", results)
        return results

    @route(
        "POST",
        "/v1/retract",
        "Ranking",
        "feedback",
        request=wire.Feedback,
        response=wire.FeedbackResults,
        example=EVENTS_EXAMPLE,
    )
    async def retract(self, body: wire.Feedback) -> wire.FeedbackResults:
        """Retract events, such as the clicks of a robot."""
        results = await self.ranker.executor.submit_async(Engine.feedback, body.events, retract=True)
        self.metrics.count_events("retract", results)
        return results

    # reading

    @route("GET", "/v1/impressions/{impression}/explain", "Reading", "read", response=wire.Explanation)
    async def explain(self, impression: str) -> wire.Explanation:
        """Explain the ranks of the items of an impression.

        The score is a sum, so the explanation is exact: its terms, its inputs, and the ranks without each term.
        """
        return await self.ranker.executor.submit_async(Engine.explain, impression)

    @route(
        "POST",
        "/v1/queries/lookup",
        "Reading",
        "read",
        request=wire.QueryLookup,
        response=wire.QueryState,
        errors=(404,),
        example={"query": "red shoes"},
    )
    async def lookup(self, body: wire.QueryLookup) -> wire.QueryState:
        """Return the observations of a query, given by its text.

        The text of a query is never part of a URL, because proxies log URLs.
        """
        wire.check_text("query", body.query, wire.MAX_QUERY)
        return await self.ranker.executor.submit_async(Engine.query_state, query=body.query)

    @route("GET", "/v1/queries/{query_id}", "Reading", "read", response=wire.QueryState)
    async def query(self, query_id: str) -> wire.QueryState:
        """Return the observations of a query, given by its id."""
        return await self.ranker.executor.submit_async(Engine.query_state, query_id=query_id)

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
        return await asyncio.to_thread(self.ranker.usage)

    # rules

    @route("GET", "/v1/policy", "Policy", "read", response=wire.ActivePolicy)
    async def policy(self) -> wire.ActivePolicy:
        """Return the policy and the other rules in force."""
        return await self.ranker.executor.submit_async(Engine.active_policy)

    @route(
        "PUT",
        "/v1/policy",
        "Policy",
        "admin",
        request=wire.PolicyChange,
        response=wire.ActivePolicy,
        errors=(409,),
        example={"policy": "MCFair(alpha=10)"},
    )
    async def change_policy(self, body: wire.PolicyChange) -> wire.ActivePolicy:
        """Change the policy or other rules from now on; rules that are not given stay."""
        return await self.ranker.executor.submit_async(Engine.change, body)

    # data

    @route("GET", "/v1/export", "Data", "admin", media_type=NDJSON)
    async def export(self) -> StreamingResponse:
        """Export everything that is stored, as JSON lines."""
        lines = export_lines(self.ranker.executor)
        # Read the first chunk before the response starts: an error until then still gets a proper status.
        first = await asyncio.get_running_loop().run_in_executor(self.exporter, next_chunk, lines)
        return StreamingResponse(encode_headers(NDJSON, **NO_STORE), self.chunks(lines, first))

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
        await self.ranker.executor.submit_async(Engine.delete_query, query_id=query_id)

    @route(
        "POST",
        "/v1/items/delete",
        "Data",
        "admin",
        request=wire.ItemDeletion,
        response=wire.DeletionCount,
        example={"item": "sku1"},
    )
    async def delete_item(self, body: wire.ItemDeletion) -> wire.DeletionCount:
        """Delete an item from every query."""
        return wire.DeletionCount(await self.ranker.executor.submit_async(Engine.delete_item, body.item))

    @route(
        "POST",
        "/v1/reset",
        "Data",
        "admin",
        request=wire.ResetRequest,
        response=wire.DeletionCount,
        example={"confirm": "reset"},
    )
    async def reset(self, body: wire.ResetRequest) -> wire.DeletionCount:
        """Delete every query, item and impression; API keys and rules stay."""
        return wire.DeletionCount(await asyncio.to_thread(self.ranker.reset))

    # keys

    @route("GET", "/v1/keys", "Keys", "admin", response=list[wire.KeyInfo])
    async def keys(self) -> list[wire.KeyInfo]:
        """List the API keys, without their secrets."""
        return await self.ranker.executor.submit_async(Engine.keys)

    @route(
        "POST",
        "/v1/keys",
        "Keys",
        "admin",
        request=wire.KeyRequest,
        response=wire.CreatedKey,
        status=201,
        example={"name": "shop", "scopes": ["rank", "feedback"]},
    )
    async def add_key(self, body: wire.KeyRequest) -> wire.CreatedKey:
        """Create an API key; its secret is shown only once."""
        return await self.ranker.executor.submit_async(Engine.add_key, body.name, body.scopes)

    @route("DELETE", "/v1/keys/{id}", "Keys", "admin", response=wire.KeyInfo)
    async def revoke_key(self, id: str) -> wire.KeyInfo:
        """Revoke a key."""
        return await self.ranker.executor.submit_async(Engine.revoke_key, id)

    # operation

    @route("GET", "/livez", "Operation", None, response=wire.Health, probe=True)
    def livez(self) -> wire.Health:
        """Liveness probe."""
        return wire.Health("alive")

    @route("GET", "/readyz", "Operation", None, response=wire.Health, probe=True)
    def readyz(self) -> wire.Health:
        """Readiness probe.

        It responds with 503 while the store cannot be written and while the service is draining.
        """
        if self.lifecycle.phase != "serving":
            raise UnavailableError("draining: the service is about to stop")
        if self.ranker.executor.store_error is not None:
            raise UnavailableError(self.ranker.executor.store_error)
        return wire.Health("ready")

    @route("GET", "/metrics", "Operation", "read", media_type="text/plain", probe=True)
    async def metrics_text(self) -> Response:
        """Return metrics in the Prometheus text format."""
        body = await asyncio.to_thread(self.metrics.exposition)
        return Response(200, encode_headers(CONTENT_TYPE_LATEST), body)

    @route("GET", "/openapi.json", "Operation", None, response=dict[str, Any], probe=True, rooted=True)
    def openapi_document(self, root_path: str) -> dict[str, Any]:
        """Return the OpenAPI document."""
        return self.document | {"servers": [{"url": root_path or "/"}]}

    @route("GET", "/docs", "Operation", None, media_type="text/html", probe=True)
    def docs(self) -> Response:
        """Return the API documentation as an HTML page."""
        safe = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return Response(200, encode_headers("text/html; charset=utf-8", **safe), self.page)
