"""Admission control, metrics, the access log, and the response to unexpected failures.

Admission comes before any decoding, so that under overload a refused request costs almost nothing and admitted requests
are not starved.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from ..errors import SettingError
from .http import Reply, Request, Response, StreamingResponse, problem_response
from .ranker import Ranker
from .wire import FeedbackResults

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
except ImportError:
    raise SettingError("the service needs prometheus-client: pip install 'mcfair[service]'") from None

__all__ = ["AdmissionControl", "Metrics", "log_failure"]

logger = logging.getLogger("mcfair.service")
access = logging.getLogger("mcfair.access")

EXEMPT = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that are always admitted, so that overload can be observed."""

METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "OPTIONS"})
LATENCY_BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Dispatcher(Protocol):
    """Executes admitted requests."""

    def admit(self, request: Request) -> Response | None:
        """Find the operation of a request and validate its head; return a response if that settles the request."""

    def begin(self, request: Request) -> Any:
        """Start a complete request; return its result, or a future of it."""

    def respond(self, request: Request, result: Any) -> Response | StreamingResponse:
        """Build the response from a result."""

    def problem(self, error: Exception, request: Request) -> Response:
        """Build the problem response for an error."""


class Metrics:
    """Prometheus metrics in a registry of their own. Label values come from fixed sets, never from a request."""

    def __init__(self, ranker: Ranker) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "mcfair_http_requests", "Admitted HTTP requests (status 0: no complete response).",
            ["route", "method", "status"], registry=registry,
        )  # fmt: skip
        self.latency = Histogram(
            "mcfair_http_request_duration_seconds", "Time from the head of a request to the end of its response.",
            ["route"], buckets=LATENCY_BUCKETS, registry=registry,
        )  # fmt: skip
        self.rejected = Counter(
            "mcfair_http_requests_rejected", "HTTP requests refused by admission control.", registry=registry
        )
        self.events = Counter(
            "mcfair_feedback_events", "Feedback events by result.", ["operation", "status"], registry=registry
        )
        self.in_flight = Gauge(
            "mcfair_http_requests_in_flight", "HTTP requests being processed.", registry=registry
        )  # fmt: skip
        durations = Histogram(
            "mcfair_commit_duration_seconds",
            "Time to commit a batch; includes executing it where the writer thread does that.",
            buckets=LATENCY_BUCKETS, registry=registry,
        )  # fmt: skip
        sizes = Histogram(
            "mcfair_commit_batch_size", "Operations per batch.", buckets=BATCH_SIZE_BUCKETS, registry=registry
        )  # fmt: skip
        queued = Gauge("mcfair_queue_depth", "Operations waiting to be executed.", registry=registry)
        queued.set_function(lambda: ranker.executor.queue_depth)
        writable = Gauge(
            "mcfair_store_writable", "1 if the last write to the store succeeded, else 0.", registry=registry
        )
        writable.set_function(lambda: ranker.executor.store_error is None)
        ProcessCollector(registry=registry)
        self.series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

        def observe_batch(operations: int, seconds: float) -> None:
            sizes.observe(operations)
            durations.observe(seconds)

        ranker.executor.batch_listeners.append(observe_batch)

    def count_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request. The series are cached, because looking them up costs more than counting."""
        series = self.series.get((route, method, status))
        if series is None:
            series = self.requests.labels(route, method, status), self.latency.labels(route)
            self.series[route, method, status] = series
        series[0].inc()
        series[1].observe(seconds)

    def count_events(self, operation: str, response: FeedbackResults) -> None:
        """Count feedback events by result."""
        statuses = [result.status for result in response.results]
        for status in set(statuses):
            self.events.labels(operation, status).inc(statuses.count(status))

    def exposition(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)


class AdmissionControl:
    """Admit requests to a dispatcher, count and log them, and turn every failure into a response.

    While `draining`, requests are processed, but every response closes its connection, so that clients reconnect
    elsewhere. Once `closed`, requests are refused.
    """

    def __init__(
        self, dispatcher: Dispatcher, metrics: Metrics, *, max_in_flight: int = 128, io_timeout: float = 30.0,
        access_log: bool = False,
    ) -> None:  # fmt: skip
        self.dispatcher, self.metrics = dispatcher, metrics
        self.max_in_flight, self.io_timeout = max_in_flight, io_timeout
        self.access_log = access_log
        self.in_flight = 0
        self.draining = False
        self.closed = False
        metrics.in_flight.set_function(lambda: self.in_flight)

    def admit(self, request: Request) -> Response | None:
        """Admit a request by its head, or refuse it with 503 if too many are in flight."""
        if (self.in_flight >= self.max_in_flight or self.closed) and request.path not in EXEMPT:
            self.metrics.rejected.inc()
            return STOPPING if self.closed else BUSY
        self.in_flight += 1
        request.started_at = perf_counter()
        try:
            return self.dispatcher.admit(request)
        except Exception as error:
            return self.dispatcher.problem(error, request)

    def begin(self, request: Request, reply: Reply) -> Response | StreamingResponse | None:
        """Dispatch a request; return its response, or None if it will follow."""
        try:
            work = self.dispatcher.begin(request)
            if isinstance(work, asyncio.Future):
                work.add_done_callback(partial(self.finish, request, reply))
                return None
            return self.dispatcher.respond(request, work)
        except Exception as error:
            return self.dispatcher.problem(error, request)

    def finish(self, request: Request, reply: Reply, work: asyncio.Future[Any]) -> None:
        """Send the response of a request whose future is done."""
        response: Response | StreamingResponse
        try:
            response = self.dispatcher.respond(request, work.result())
        except asyncio.CancelledError:
            response = STOPPING
        except Exception as error:
            response = self.dispatcher.problem(error, request)
        reply(request, response)

    def finished(self, request: Request, error: Exception | None = None) -> None:
        """Count and log an admitted request by its route, never by its path, which may contain data of a client."""
        if not request.started_at:
            return
        self.in_flight -= 1
        if error is not None:
            log_failure(request.route, error)
        status = 0 if request.response is None or error is not None else request.response.status
        seconds = perf_counter() - request.started_at
        method = request.method if request.method in METHODS else "other"
        self.metrics.count_request(request.route, method, status, seconds)
        if self.access_log:
            access.info("%s %s %d %.1f ms", method, request.route, status, 1e3 * seconds)


def log_failure(where: str, error: BaseException) -> None:
    """Log the traceback of an error without its message, which may quote a request."""
    origin = error.__cause__ or error
    frames = "".join(traceback.format_tb(origin.__traceback__))
    logger.error("%s failed: %s\n%s", where, type(origin).__name__, frames)


BUSY = problem_response(503, "too many requests are in flight; nothing was changed", retry_after="1")
STOPPING = problem_response(503, "the service is stopping; nothing was changed", retry_after="1")
