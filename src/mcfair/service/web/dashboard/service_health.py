"""The state of this instance: how long lists take, whether the store can be written, and how much it holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from prometheus_client import Histogram

from ..operations import OPERATIONS, Operations
from .formatting import format_bytes, format_count, format_seconds

__all__ = ["ServiceHealth", "quantile", "service_health"]

RANKINGS = {path for each in OPERATIONS if each.name in ("rank", "rerank") for path in (each.path, *each.aliases)}
"""Routes of requests for a list."""


class ServiceHealth(NamedTuple):
    """The state of this instance in words."""

    ready: bool
    title: str
    lists: int
    """Lists that this instance has ranked since it started."""
    facts: list[tuple[str, str]]
    """Names and values, as texts."""


def service_health(operations: Operations) -> ServiceHealth:
    """Summarise the state of this instance, from what it knows without a look at the store."""
    executor, lifecycle = operations.ranker.executor, operations.lifecycle
    buckets, lists = latency_buckets(operations.metrics.latency, RANKINGS)
    median, slow = quantile(buckets, 0.5), quantile(buckets, 0.99)
    error, damaged = executor.store_error, len(executor.engine.damaged)
    ready = error is None and lifecycle.phase == "serving"
    if not ready:
        title = "The store cannot be written: new lists are refused" if error else "This instance is about to stop"
    elif lists:
        title = f"Half of the lists take at most {format_seconds(median)}, 99 % at most {format_seconds(slow)}"
    else:
        title = "The service is ready"
    facts = [
        ("Lists since the start", format_count(lists)),
        ("Median time of a list", format_seconds(median)),
        ("99th percentile", format_seconds(slow)),
        ("Requests in flight", format_count(lifecycle.in_flight)),
        ("Operations waiting", format_count(executor.queue_depth)),
        ("Store", "cannot be written" if error else "can be written"),
    ]
    if executor.store.size:  # known after the first maintenance
        facts.append(("Size of the store", format_bytes(executor.store.size)))
    if damaged:
        facts.append(("Damaged queries", format_count(damaged)))
    return ServiceHealth(ready, title, lists, facts)


def latency_buckets(histogram: Histogram, routes: Collection[str]) -> tuple[list[tuple[float, float]], int]:
    """Return the upper bounds and cumulative counts of the buckets of some routes, and the number of their requests."""
    counts: dict[float, float] = {}
    for metric in histogram.collect():
        for sample in metric.samples:
            if sample.name.endswith("_bucket") and sample.labels["route"] in routes:
                bound = float(sample.labels["le"])
                counts[bound] = counts.get(bound, 0.0) + sample.value
    buckets = sorted(counts.items())
    return buckets, int(buckets[-1][1]) if buckets else 0


def quantile(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """Estimate a quantile of a histogram as Prometheus does: linear within a bucket; None if it is empty.

    Examples
    --------
    >>> quantile([(0.001, 0.0), (0.002, 50.0), (float("inf"), 100.0)], 0.25), quantile([], 0.5)
    (0.0015, None)
    """
    if not buckets or not buckets[-1][1]:
        return None
    wanted = share * buckets[-1][1]
    below, count_below = 0.0, 0.0
    for bound, count in buckets:
        if count >= wanted and count > count_below:
            if bound == float("inf"):
                return below
            return below + (bound - below) * (wanted - count_below) / (count - count_below)
        below, count_below = bound, count
    return below
