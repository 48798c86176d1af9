"""The outermost layer of the service: who is let in, what is counted, and what happens when all else fails.

It stands before any parsing, so that under overload a refusal costs next to nothing and what was let in is not starved.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from ..errors import SettingError
from .http import Answer, Request, Stream, refusal
from .ranker import Ranker
from .wire import FeedbackAnswer

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
except ImportError:
    raise SettingError("the service needs prometheus-client: pip install 'mcfair[service]'") from None

__all__ = ["Gate", "Metrics", "log_failure"]

logger = logging.getLogger("mcfair.service")
access = logging.getLogger("mcfair.access")

Reply = Callable[[Request, Answer | Stream], None]

EXEMPT = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that are answered under any load, or overload could not be seen."""

METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "OPTIONS"})
SECONDS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
OPERATIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Router(Protocol):
    """Who knows the calls."""

    def admit(self, request: Request) -> Answer | None:
        """Find the call that a request is for, and check all that its head says; raise if anything is wrong."""

    def begin(self, request: Request) -> Any:
        """Begin the work of a request that is all there."""

    def answer(self, request: Request, result: Any) -> Answer | Stream:
        """Make an answer of what came of the work."""

    def problem(self, error: Exception, request: Request) -> Answer:
        """Make an answer of an error."""


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
    """Admission, metrics, the access log, and a proper answer to any failure, around whoever knows the calls.

    While `draining`, requests are still answered, but each answer asks its client to connect anew, elsewhere. Once
    `closed`, no more requests are let in.
    """

    def __init__(
        self, router: Router, metrics: Metrics, *, max_in_flight: int = 128, patience: float = 30.0,
        access_log: bool = False,
    ) -> None:  # fmt: skip
        self.router, self.metrics = router, metrics
        self.max_in_flight, self.patience = max_in_flight, patience
        self.access_log = access_log
        self.in_flight = 0
        self.draining = False
        self.closed = False
        metrics.in_flight.set_function(lambda: self.in_flight)

    def admit(self, request: Request) -> Answer | None:
        """Look at the head of a request: 503 at once if too many are in flight already."""
        if (self.in_flight >= self.max_in_flight or self.closed) and request.path not in EXEMPT:
            self.metrics.rejected.inc()
            return STOPPING if self.closed else BUSY
        self.in_flight += 1
        request.began = perf_counter()
        try:
            return self.router.admit(request)
        except Exception as error:
            return self.router.problem(error, request)

    def begin(self, request: Request, reply: Reply) -> Answer | Stream | None:
        """Have a request answered, now or later."""
        try:
            work = self.router.begin(request)
            if isinstance(work, asyncio.Future):
                work.add_done_callback(partial(self.ended, request, reply))
                return None
            return self.router.answer(request, work)
        except Exception as error:
            return self.router.problem(error, request)

    def ended(self, request: Request, reply: Reply, work: asyncio.Future[Any]) -> None:
        """Answer a request now that its work is done."""
        answer: Answer | Stream
        try:
            answer = self.router.answer(request, work.result())
        except asyncio.CancelledError:
            answer = STOPPING
        except Exception as error:
            answer = self.router.problem(error, request)
        reply(request, answer)

    def sent(self, request: Request, error: Exception | None = None) -> None:
        """Count a request that was let in, and log it, both by its route: what a client put into the path stays out."""
        if not request.began:
            return
        self.in_flight -= 1
        if error is not None:
            log_failure(request.route, error)
        status = 0 if request.answer is None or error is not None else request.answer.status
        seconds = perf_counter() - request.began
        method = request.method if request.method in METHODS else "other"
        self.metrics.answered(request.route, method, status, seconds)
        if self.access_log:
            access.info("%s %s %d %.1f ms", method, request.route, status, 1e3 * seconds)


def log_failure(where: str, error: BaseException) -> None:
    """Log where an error came from, but not what it says, because that may quote a request."""
    origin = error.__cause__ or error
    frames = "".join(traceback.format_tb(origin.__traceback__))
    logger.error("%s failed: %s\n%s", where, type(origin).__name__, frames)


BUSY = refusal(503, "too many requests are in flight; nothing was done", retry_after="1")
STOPPING = refusal(503, "the service is stopping; nothing was done", retry_after="1")
