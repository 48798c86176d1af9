"""Prometheus metrics of the service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ...errors import SettingError
from ..background.process import Reads
from ..core.history_reports import group_fairness
from ..group_commit import GroupCommit
from ..ranker import Ranker
from ..wire import FeedbackResults
from .lifecycle import Lifecycle

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError:
    raise SettingError("the service needs prometheus-client: pip install 'mcfair[service]'") from None


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})
LATENCY_BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

GROUP_SERIES = 50
"""Maximum number of groups that have series of their own: those with most exposure."""


GAUGES: dict[str, tuple[str, Callable[[GroupCommit, Lifecycle], float]]] = {
    "http_requests_in_flight": (
        "HTTP requests being processed, except probes.",
        lambda executor, lifecycle: lifecycle.in_flight,
    ),
    "queue_depth": ("Operations waiting to be executed.", lambda executor, lifecycle: executor.queue_depth),
    "store_writable": (
        "1 if the last write to the store succeeded, else 0.",
        lambda executor, lifecycle: executor.store_error is None,
    ),
    "ready": (
        "1 if the service is ready, as /readyz reports it, else 0.",
        lambda executor, lifecycle: lifecycle.phase == "serving" and executor.store_error is None,
    ),
    "store_bytes": (
        "Size of the store, as of its last maintenance.",
        lambda executor, lifecycle: executor.store.size,
    ),
    "compaction_pass_seconds": (
        "How long the present pass of compaction over all queries has run; 0 if there is none.",
        lambda executor, lifecycle: executor.engine.compaction_seconds(),
    ),
    "damaged": (
        "Queries, and other data, that compaction and deletions leave out because they are damaged.",
        lambda executor, lifecycle: len(executor.engine.damaged),
    ),
}
"""Gauges by name, without the prefix: what they mean, and how they are read."""


class FairnessGauges(Collector):
    """Gauges of the last summary of all queries; there are none before the first one."""

    def __init__(self, executor: GroupCommit, background: Reads) -> None:
        self.executor, self.background = executor, background

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Iterate over the gauges."""
        figures = self.background.figures
        if figures is None:
            return
        age = max(0, self.executor.engine.latest - figures.time) / 1000
        yield GaugeMetricFamily("mcfair_unfairness", "Mean unfairness of the queries.", figures.unfairness)
        yield GaugeMetricFamily("mcfair_fairness_floor", "Mean fairness floor of the queries.", figures.floor)
        yield GaugeMetricFamily("mcfair_summary_age_seconds", "Age of the figures over all queries.", age)
        about = "Share of all exposure that a group has received."
        exposure = GaugeMetricFamily("mcfair_group_exposure_share", about, labels=["group"])
        about = "Share of all exposure that the relevance of a group merits."
        merit = GaugeMetricFamily("mcfair_group_merit_share", about, labels=["group"])
        for each in group_fairness(figures, GROUP_SERIES)[0]:
            exposure.add_metric([each.group or ""], each.exposure_share)
            merit.add_metric([each.group or ""], each.merit_share)
        yield exposure
        yield merit


class BackgroundStarts(Collector):
    """Counts how often background work was started."""

    def __init__(self, background: Reads) -> None:
        self.background = background

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Iterate over the counter."""
        about = "Starts of the background work: each but the first one follows a failure."
        yield CounterMetricFamily("mcfair_background_starts", about, self.background.starts)


class Metrics:
    """Prometheus metrics in a registry of their own.

    Label values come from fixed sets, except the names of a bounded number of groups.
    """

    def __init__(self, ranker: Ranker, lifecycle: Lifecycle, background: Reads) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "mcfair_http_requests",
            "HTTP requests (status 0: no complete response).",
            ["route", "method", "status"],
            registry=registry,
        )
        self.latency = Histogram(
            "mcfair_http_request_duration_seconds",
            "Time from the head of a request to the end of its response.",
            ["route"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.rejected = Counter(
            "mcfair_http_requests_rejected", "HTTP requests refused by admission control.", registry=registry
        )
        self.events = Counter(
            "mcfair_feedback_events", "Feedback events by result.", ["operation", "status"], registry=registry
        )
        durations = Histogram(
            "mcfair_commit_duration_seconds",
            "Time to execute and commit a batch.",
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        sizes = Histogram(
            "mcfair_commit_batch_size", "Operations per batch.", buckets=BATCH_SIZE_BUCKETS, registry=registry
        )
        for name, (meaning, value) in GAUGES.items():
            gauge = Gauge(f"mcfair_{name}", meaning, registry=registry)
            gauge.set_function(partial(value, ranker.executor, lifecycle))
        conflicts = Counter(
            "mcfair_conflicts", "Queries decided again because another instance wrote first.", registry=registry
        )
        ranker.executor.conflict_listeners.append(conflicts.inc)
        up = Gauge("mcfair_background_up", "1 if reads and background work are executed, else 0.", registry=registry)
        up.set_function(lambda: background.up)
        registry.register(BackgroundStarts(background))
        ProcessCollector(registry=registry)
        registry.register(FairnessGauges(ranker.executor, background))
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
