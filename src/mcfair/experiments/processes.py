"""Runs on processes of this machine."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from ..data.dataset import Dataset
from ..errors import MCFairWarning, SettingError
from ..simulation.trace import Trace
from .pickling import dump_tasks, load_task
from .tasks import Task

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["Finished", "run_on_processes"]

Finished = Iterator[tuple[Task, Trace]]

DATA: dict[str, Dataset] = {}
"""In a worker process: the datasets, which are sent once per worker and not with every task."""

WORKER_ENVIRONMENT = {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e15"}
"""Datasets and compiled code make a worker grow, which loky would take for a leak and restart the worker."""


def run_on_processes(tasks: Sequence[Task], data: Mapping[str, Dataset], jobs: int) -> Finished:
    """Run tasks and yield their results as they become ready.

    Workers do not import the caller's main module, so this works in scripts without a main guard, in scripts read from
    standard input, at a prompt and in notebooks.

    Parameters
    ----------
    tasks
        What to run.
    data
        Datasets by the names that the tasks use.
    jobs
        How many processes; with 1 the tasks run in the calling process.

    Raises
    ------
    SettingError
        If a worker process dies.
    """
    if jobs == 1 or len(tasks) <= 1:
        for task in tasks:
            yield task, task.run(data[task.data])
        return
    from joblib.externals.loky import ProcessPoolExecutor

    needed = {name: data[name] for name in {task.data for task in tasks}}
    pool = ProcessPoolExecutor(
        min(jobs, len(tasks)), initializer=start_worker, initargs=(needed,), env=WORKER_ENVIRONMENT
    )
    pending: dict[Future[Trace], Task] = {}
    try:
        with interrupts_blocked():
            for content, task in zip(dump_tasks(tasks), tasks, strict=True):
                pending[pool.submit(run_in_worker, content)] = task
        for future in as_completed(pending):
            yield pending.pop(future), result_of(future)
    finally:
        pool.shutdown(wait=True, kill_workers=bool(pending))  # some are left after an interrupt or a failed run


def result_of(future: Future[Trace]) -> Trace:
    """Return the result of a task, or raise an error if its worker process died."""
    try:
        return future.result()
    except BrokenProcessPool:
        raise SettingError(
            "a worker process died, perhaps for want of memory; finished runs are kept: start again, with fewer --jobs"
        ) from None


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block; processes started in it never receive it, not even before `start_worker`.

    The mask is that of this thread, which the processes inherit. It is not enough for the delay: another thread of this
    process, such as those of libraries, may accept the signal, and Python calls the handler here all the same.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # before: in Python 3.11 its start ends with the signal unblocked
    handler = signal.getsignal(signal.SIGINT) if current_thread() is main_thread() else None  # only there it is called
    arrived: list[int] = []
    if handler is not None:
        signal.signal(signal.SIGINT, lambda number, _: arrived.append(number))
    before: Any = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if arrived:
            signal.raise_signal(signal.SIGINT)


def start_worker(data: dict[str, Dataset]) -> None:
    """Initialise a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the calling process handles Ctrl-C and ends this one
    DATA.update(data)
    warnings.simplefilter("ignore", MCFairWarning)  # the calling process has issued the same ones


def run_in_worker(content: bytes) -> Trace:
    """Run a task in a worker process."""
    task = load_task(content)
    return task.run(DATA[task.data])
