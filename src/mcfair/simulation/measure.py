"""Metrics over a run: the value of every query at every checkpoint, or of every list, added up block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .._jit import INTERPRET, AnyKernel, Kernel, compile_kernel, kernel
from ..arrays import CountArray, FloatArray, IntArray
from ..errors import PartError
from ..metrics.base import LIST_VALUE, QUERY_VALUE, Metric
from .loop import QueryTable, Snapshots, Stream

__all__ = ["Sums", "measure"]


@kernel(driver=True)
def fill_query_values(
    value: Callable[..., float],
    theta: FloatArray,
    table: QueryTable,
    snapshots: Snapshots,
    bounds: IntArray,
    blocks: tuple[int, int],
    totals: FloatArray,
    counted: IntArray,
    left_out: IntArray,
    latest: FloatArray,
) -> None:
    """Add the value of every judged, visited query with a relevant item to its block, at each checkpoint.

    `latest` keeps the value of each query at the last checkpoint.
    """
    for mark in range(snapshots.E.shape[0]):
        m = snapshots.first_mark + mark
        for block in range(blocks[0], blocks[1]):
            for q in range(bounds[block], bounds[block + 1]):
                low, high = table.offsets[q], table.offsets[q + 1]
                visits = snapshots.visits[mark, q - snapshots.first_query]
                if table.judged[q] and visits > 0 and table.ideal[q, 0] > 0.0:
                    E = snapshots.E[mark, low - snapshots.first_item : high - snapshots.first_item]
                    x = value(E, table.R[low:high], table.groups[low:high], visits, theta)
                    latest[q] = x
                    if x == x:
                        totals[block, m] += x
                        counted[block, m] += 1
                    else:
                        left_out[block, m] += 1


@kernel(driver=True)
def fill_list_values(
    value: Callable[..., float],
    theta: FloatArray,
    table: QueryTable,
    stream: Stream,
    p: FloatArray,
    lists: CountArray,
    bounds: IntArray,
    pi: IntArray,
    totals: FloatArray,
    counted: IntArray,
    left_out: IntArray,
    latest: FloatArray,
) -> None:
    """Add the value of every list of the judged queries to the next checkpoint; `latest` keeps their means."""
    for block in range(bounds.shape[0] - 1):
        for q in range(bounds[block], bounds[block + 1]):
            low, high = table.offsets[q], table.offsets[q + 1]
            k = min(p.shape[0], high - low)
            m, total, size = 0, 0.0, 0
            for at in range(stream.starts[q], stream.starts[q + 1]):
                t = stream.when[at]
                while t >= stream.ends[m]:
                    m += 1
                if table.judged[q]:
                    for j in range(k):
                        pi[j] = lists[t, j]
                    x = value(pi[:k], table.R[low:high], p, theta)
                    if x == x:
                        totals[block, m] += x
                        counted[block, m] += 1
                        total += x
                        size += 1
                    else:
                        left_out[block, m] += 1
            if size > 0:
                latest[q] = total / size


class Sums:
    """Values of one metric, added up by block and checkpoint, and the latest value of each query."""

    def __init__(self, metric: Metric, blocks: int, marks: int, queries: int) -> None:
        self.metric = metric
        self.totals = np.zeros((blocks, marks))
        self.counted, self.left_out = np.zeros((blocks, marks), np.int64), np.zeros((blocks, marks), np.int64)
        self.latest = np.full(queries, np.nan)

    def means(self) -> FloatArray:
        """Return the mean at each checkpoint: over queries, or lists over all sessions so far; nan if all were nan."""
        totals, counted, left_out = (each.sum(axis=0) for each in (self.totals, self.counted, self.left_out))
        if self.metric.per_list:
            totals, counted, left_out = np.cumsum(totals), np.cumsum(counted), np.cumsum(left_out)
        return np.where((counted == 0) & (left_out > 0), np.nan, totals / np.maximum(counted, 1))


# A kernel is inlined into its driver, because a function argument takes Numba a tenth of a millisecond to prepare.


def query_driver(value: AnyKernel) -> AnyKernel:
    """Return `fill_query_values` for one metric's kernel."""

    def driver(
        theta: FloatArray,
        table: QueryTable,
        snapshots: Snapshots,
        bounds: IntArray,
        blocks: tuple[int, int],
        totals: FloatArray,
        counted: IntArray,
        left_out: IntArray,
        latest: FloatArray,
    ) -> None:
        fill_query_values(value, theta, table, snapshots, bounds, blocks, totals, counted, left_out, latest)

    return Kernel(driver, cached=value.cached, allocates=value.allocates)


def list_driver(value: AnyKernel) -> AnyKernel:
    """Return `fill_list_values` for one metric's kernel."""

    def driver(
        theta: FloatArray,
        table: QueryTable,
        stream: Stream,
        p: FloatArray,
        lists: CountArray,
        bounds: IntArray,
        pi: IntArray,
        totals: FloatArray,
        counted: IntArray,
        left_out: IntArray,
        latest: FloatArray,
    ) -> None:
        fill_list_values(value, theta, table, stream, p, lists, bounds, pi, totals, counted, left_out, latest)

    return Kernel(driver, cached=value.cached, allocates=value.allocates)


DRIVERS: WeakKeyDictionary[AnyKernel, Callable[..., None]] = WeakKeyDictionary()
"""The compiled driver of each metric's kernel: the types of its arguments are the same in every run."""


def measure(sums: Sums, *arguments: Any) -> None:
    """Add the values of a metric over what it is given: of queries at checkpoints, or of lists."""
    metric, kernel = sums.metric, sums.metric.kernel
    every = metric.theta, *arguments, sums.totals, sums.counted, sums.left_out, sums.latest
    if kernel is None or INTERPRET:
        driver = fill_list_values if metric.per_list else fill_query_values
        driver.interpreted(metric.plain_value if kernel is None else kernel.interpreted, *every)
        return
    if kernel not in DRIVERS:
        metric.compiled(*(LIST_VALUE if metric.per_list else QUERY_VALUE))  # alone first, for a clear error
        driver = (list_driver if metric.per_list else query_driver)(kernel)
        DRIVERS[kernel] = compile_kernel(driver, f"metric {metric!r}", PartError, *every)[1]
    DRIVERS[kernel](*every)
