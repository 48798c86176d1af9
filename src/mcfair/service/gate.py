"""The outermost layer of the service: who is let in, what is counted, and what happens when all else fails.

It stands before any parsing, so that under overload a refusal costs next to nothing and what was let in is not starved.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from time import perf_counter
from typing import Any

import msgspec

from ..errors import SettingError
from .apidocs import PROBLEM
from .ranker import Ranker
from .wire import FeedbackAnswer, Problem

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
except ImportError:
    raise SettingError("the service needs prometheus-client: pip install 'mcfair[service]'") from None

__all__ = ["Gate", "Metrics", "log_failure"]

logger = logging.getLogger("mcfair.service")
access = logging.getLogger("mcfair.access")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGI = Callable[[Message, Receive, Send], Awaitable[None]]

EXEMPT = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that are answered under any load, or overload could not be seen."""

METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "OPTIONS"})
SECONDS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
OPERATIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """What is counted, in a registry of its own; labels come from a fixed set, never from a request."""

    def __init__(self, ranker: Ranker) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "mcfair_requests", "Requests answered.", ["route", "method", "status"], registry=registry
        )  # fmt: skip
        self.latency = Histogram(
            "mcfair_request_seconds", "Time from the head of a request to the end of its answer.", ["route"],
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.rejected = Counter(
            "mcfair_rejected_requests",
            "Requests refused because too many were in flight, or at the end.",
            registry=registry,
        )
        self.results = Counter(
            "mcfair_feedback_events", "What became of events.", ["call", "status"], registry=registry
        )  # fmt: skip
        self.in_flight = Gauge("mcfair_requests_in_flight", "Requests being answered.", registry=registry)
        commits = Histogram("mcfair_commit_seconds", "Time of one commit.", buckets=SECONDS, registry=registry)
        sizes = Histogram(
            "mcfair_commit_operations", "Operations in one commit.", buckets=OPERATIONS, registry=registry
        )  # fmt: skip
        waiting = Gauge("mcfair_waiting_operations", "Operations that wait for a commit.", registry=registry)
        waiting.set_function(lambda: ranker.depth)
        trouble = Gauge("mcfair_trouble", "1 while nothing can be written, else 0.", registry=registry)
        trouble.set_function(lambda: ranker.trouble is not None)
        ProcessCollector(registry=registry)
        self.series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

        def on_batch(operations: int, seconds: float) -> None:
            sizes.observe(operations)
            commits.observe(seconds)

        ranker.on_batch.append(on_batch)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request; its series are looked up once, because to look them up costs more than to count."""
        series = self.series.get((route, method, status))
        if series is None:
            series = self.requests.labels(route, method, status), self.latency.labels(route)
            self.series[route, method, status] = series
        series[0].inc()
        series[1].observe(seconds)

    def reported(self, call: str, answer: FeedbackAnswer) -> None:
        """Count what became of events."""
        statuses = [result.status for result in answer.results]
        for status in set(statuses):
            self.results.labels(call, status).inc(statuses.count(status))

    def exposition(self) -> bytes:
        """Write everything in the text format of Prometheus."""
        return generate_latest(self.registry)


class Gate:
    """An ASGI application around another: admission, metrics, the access log, and a proper answer to any failure.

    While `draining`, requests are still answered, but each answer asks its client to connect anew, elsewhere. Once
    `closed`, no more requests are let in.
    """

    def __init__(self, app: ASGI, metrics: Metrics, *, max_in_flight: int = 128, access_log: bool = False) -> None:
        self.app = app
        self.metrics = metrics
        self.max_in_flight = max_in_flight
        self.access_log = access_log
        self.in_flight = 0
        self.draining = False
        self.closed = False
        metrics.in_flight.set_function(lambda: self.in_flight)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, at once with 503 if too many are in flight already."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if (self.in_flight >= self.max_in_flight or self.closed) and scope["path"] not in EXEMPT:
            self.metrics.rejected.inc()
            for message in STOPPING if self.closed else BUSY:
                await send(message)
            return
        self.in_flight += 1
        started = perf_counter()
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.draining:
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception as error:
            log_failure(str(scope.get("path_template")), error)
            if not status:  # otherwise the connection is closed in the middle of the answer, which cannot be mistaken
                for message in FAILED:
                    await noted({**message})
        finally:
            self.in_flight -= 1
            self.note(scope, status, perf_counter() - started)

    def note(self, scope: Message, status: int, seconds: float) -> None:
        """Count an answer and log it, both by the template of its path: what a client put into it stays out."""
        route = scope.get("path_template", "none")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.answered(route, method, status, seconds)
        if self.access_log:
            access.info("%s %s %d %.1f ms", method, route, status, 1e3 * seconds)


def log_failure(where: str, error: BaseException) -> None:
    """Log where an error came from, but not what it says, because that may quote a request."""
    origin = error.__cause__ or error
    frames = "".join(traceback.format_tb(origin.__traceback__))
    logger.error("%s failed: %s\n%s", where, type(origin).__name__, frames)


def ready_made(problem: Problem, *headers: tuple[bytes, bytes]) -> tuple[Message, Message]:
    """Make the two messages of an answer that is always the same."""
    body = msgspec.json.encode(problem)
    head = [(b"content-type", PROBLEM.encode()), (b"content-length", b"%d" % len(body)), *headers]
    return (
        {"type": "http.response.start", "status": problem.status, "headers": head},
        {"type": "http.response.body", "body": body},
    )


BUSY = ready_made(
    Problem(title="Service Unavailable", status=503, detail="too many requests are in flight; nothing was done"),
    (b"retry-after", b"1"),
)
STOPPING = ready_made(
    Problem(title="Service Unavailable", status=503, detail="the service is stopping; nothing was done"),
    (b"retry-after", b"1"),
    (b"connection", b"close"),
)
FAILED = ready_made(
    Problem(title="Internal Server Error", status=500, detail="something unexpected happened, and was logged"),
)
