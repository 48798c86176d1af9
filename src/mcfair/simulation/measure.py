"""Metrics over a run: the value of every query at every checkpoint, or of every list, added up block by block."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from .._jit import INTERPRET, AnyKernel, Kernel, compile_kernel, kernel
from ..arrays import CountArray, FloatArray, IntArray
from ..errors import PartError
from ..metrics.base import LIST_VALUE, QUERY_VALUE, Metric
from ..users import ClickModel
from .loop import Log, QueryTable, Snapshots, Stream


class SumArrays(NamedTuple):
    """Sums of a metric by block and checkpoint, numbers of values and of nan, and the latest value of each query."""

    totals: FloatArray
    counted: IntArray
    left_out: IntArray
    latest: FloatArray


class ExposureRun(NamedTuple):
    """Arguments of a metric of exposure: the queries of some blocks at the checkpoints of one call of the loop."""

    table: QueryTable
    snapshots: Snapshots
    bounds: IntArray
    blocks: tuple[int, int]


class ListRun(NamedTuple):
    """Arguments of a metric of lists: all recorded lists of a run."""

    table: QueryTable
    stream: Stream
    p: FloatArray
    lists: CountArray
    bounds: IntArray
    pi: IntArray  # scratch


@kernel
def add_value(x: float, block: int, m: int, sums: SumArrays) -> None:
    """Add a value to its block at checkpoint m; nan is left out."""
    if x == x:
        sums.totals[block, m] += x
        sums.counted[block, m] += 1
    else:
        sums.left_out[block, m] += 1


Fill = Callable[[FloatArray, Any, SumArrays], None]
"""A function that adds the values of a metric with given parameters: all of a run, or of one call of its loop."""


# The kernel of a metric is compiled into these loops: as an argument it would take Numba 0.1 ms to prepare.
def fill_query_values(value: Callable[..., float]) -> Fill:
    """Return a function that adds the value of every judged, visited query with a relevant item, at each checkpoint.

    `sums.latest` keeps the value of each query at the last checkpoint.
    """

    def fill(theta: FloatArray, run: ExposureRun, sums: SumArrays) -> None:
        table, snapshots = run.table, run.snapshots
        for mark in range(snapshots.E.shape[0]):
            for block in range(run.blocks[0], run.blocks[1]):
                for q in range(run.bounds[block], run.bounds[block + 1]):
                    low, high = table.offsets[q], table.offsets[q + 1]
                    visits = snapshots.visits[mark, q - snapshots.first_query]
                    if table.judged[q] and visits > 0 and table.ideal[q, 0] > 0.0:
                        E = snapshots.E[mark, low - snapshots.first_item : high - snapshots.first_item]
                        x = value(E, table.R[low:high], table.providers[low:high], visits, theta)
                        sums.latest[q] = x
                        add_value(x, block, snapshots.first_mark + mark, sums)

    return fill


def fill_list_values(value: Callable[..., float]) -> Fill:
    """Return a function that adds the value of every list of the judged queries to the next checkpoint.

    `sums.latest` keeps the mean of each query.
    """

    def fill(theta: FloatArray, run: ListRun, sums: SumArrays) -> None:
        table, stream = run.table, run.stream
        for block in range(run.bounds.shape[0] - 1):
            for q in range(run.bounds[block], run.bounds[block + 1]):
                low, high = table.offsets[q], table.offsets[q + 1]
                k = min(run.p.shape[0], high - low)
                m, total, size = 0, 0.0, 0
                for at in range(stream.starts[q], stream.starts[q + 1]):
                    t = stream.when[at]
                    while t >= stream.ends[m]:
                        m += 1
                    if table.judged[q]:
                        for j in range(k):
                            run.pi[j] = run.lists[t, j]
                        x = value(run.pi[:k], table.R[low:high], run.p, theta)
                        add_value(x, block, m, sums)
                        if x == x:
                            total += x
                            size += 1
                if size > 0:
                    sums.latest[q] = total / size

    return fill


def users_exposure(
    clicks: ClickModel, p: FloatArray, table: QueryTable, log: Log, queries: CountArray, ends: IntArray
) -> Snapshots:
    """Return the exposure that users really gave to the lists of a run, at each checkpoint, and the visits so far.

    Parameters
    ----------
    clicks, p
        The users, and the examination that exposure assumes.
    table, log, queries
        The data, and the list and the query of each session.
    ends
        The checkpoints.
    """
    E, visits = np.zeros((ends.size, table.R.size)), np.zeros((ends.size, table.offsets.size - 1), np.int64)
    for mark, (begin, end) in enumerate(pairwise((0, *ends.tolist()))):
        lists, asked = log.lists[begin:end], queries[begin:end]
        shown = lists >= 0
        items = np.where(shown, table.offsets[asked][:, None] + lists, 0)
        attention = clicks.attention(np.where(shown, table.R[items], 0.0), p)
        E[mark] = np.bincount(items[shown], weights=attention[shown], minlength=table.R.size)
        visits[mark] = np.bincount(asked, minlength=visits.shape[1])
    return Snapshots(np.cumsum(E, axis=0), np.cumsum(visits, axis=0), first_query=0, first_item=0, first_mark=0)


class Sums:
    """Values of one metric, added up by block and checkpoint, and the latest value of each query."""

    def __init__(self, metric: Metric, blocks: int, marks: int, queries: int) -> None:
        self.metric = metric
        shape = blocks, marks
        counted, left_out = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.arrays = SumArrays(np.zeros(shape), counted, left_out, np.full(queries, np.nan))

    def means(self) -> FloatArray:
        """Return the mean at each checkpoint: over queries, or lists over all sessions so far; nan if all were nan."""
        totals, counted, left_out = (each.sum(axis=0) for each in self.arrays[:3])
        if self.metric.per_list:
            totals, counted, left_out = np.cumsum(totals), np.cumsum(counted), np.cumsum(left_out)
        return np.where((counted == 0) & (left_out > 0), np.nan, totals / np.maximum(counted, 1))


DRIVERS: WeakKeyDictionary[AnyKernel, Fill] = WeakKeyDictionary()
"""The compiled loop of each metric's kernel: the types of its arguments are the same in every run."""


def measure(sums: Sums, run: ExposureRun | ListRun) -> None:
    """Add the values of a metric: of queries at checkpoints, or of lists."""
    metric, kernel = sums.metric, sums.metric.kernel
    fill = fill_list_values if metric.per_list else fill_query_values
    arguments = metric.theta, run, sums.arrays
    if kernel is None or INTERPRET:
        fill(metric.plain_value if kernel is None else kernel.interpreted)(*arguments)
        return
    if kernel not in DRIVERS:
        driver: AnyKernel = Kernel(fill(kernel), cached=kernel.cached, allocates=kernel.allocates, driver=True)
        try:
            DRIVERS[kernel] = compile_kernel(driver, f"metric {metric!r}", PartError, *arguments)[1]
        except PartError:
            metric.compiled(*(LIST_VALUE if metric.per_list else QUERY_VALUE))  # alone, for a clearer error
            raise
    DRIVERS[kernel](*arguments)
