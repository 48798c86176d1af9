"""Execution of runs: in this process, on processes of this machine (joblib's loky), or on a cluster (Dask).

Wherever it is, one function runs a task, `work`, and it refuses a task that was made by other sources than its own.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import importlib.metadata
import logging
import os
import pickle
import platform
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from ..data.dataset import Dataset
from ..errors import MCFairError, MCFairWarning, SettingError
from ..policies.base import Policy
from ..simulation.run import simulate
from ..simulation.setting import Setting
from ..simulation.trace import Trace
from .folder import scratch_folder
from .keys import local_modules, parts_of, source_hash


@dataclasses.dataclass(frozen=True)
class Task:
    """One run to be made: a pure function of these fields and of the dataset that `data` names.

    `key` is what its result is stored under; without one it is not stored.
    """

    data: str
    policy: Policy
    setting: Setting
    seed: int
    key: str = ""

    def run(self, data: Dataset, **options: Any) -> Trace:
        """Simulate it."""
        return simulate(data, self.policy, self.setting, seed=self.seed, **options)


Finished = Generator[tuple[Task, Trace], None, None]


def execute(
    tasks: Sequence[Task],
    data: Mapping[str, Dataset],
    *,
    jobs: int = 1,
    cluster: str = "",
    drafts: Path | None = None,
    **options: Any,
) -> Finished:
    """Run tasks and yield their results as they become ready.

    Parameters
    ----------
    tasks
        What to run.
    data
        Datasets by the names that the tasks use.
    jobs
        How many processes; with 1 the tasks run in the calling process.
    cluster
        Address of a Dask scheduler, such as tcp://HOST:8786, whose workers are used instead.
    drafts
        A folder on a disk with room for results on their way from processes; by default that of temporary files.
    **options
        As for `simulate`: checkpoints, threads and the like.

    Raises
    ------
    SettingError
        If `jobs` is below 1, the cluster cannot be used, or a process or worker died.
    """
    if jobs < 1:
        raise SettingError(f"jobs = {jobs} is not allowed: expected a number of processes of at least 1")
    if not tasks:
        return
    if not cluster and (jobs == 1 or len(tasks) == 1):
        for task in tasks:
            yield task, task.run(data[task.data], **options)
        return
    contents = dump_tasks(tasks, options)
    needed = {task.data: data[task.data] for task in tasks}
    for i, trace in on_cluster(contents, needed, cluster) if cluster else on_processes(contents, needed, jobs, drafts):
        task = tasks[i]  # whose parts are of this process; those that came back may have classes of their own
        yield task, dataclasses.replace(trace, estimator=task.setting.estimator_for(task.policy))


# --- what runs elsewhere ---------------------------------------------------------------------------------------------


def version() -> str:
    """Return what code and tables that travel depend on: the sources of this package, Python and Polars."""
    return f"{source_hash()} {'.'.join(platform.python_version_tuple()[:2])} {importlib.metadata.version('polars')}"


def dump_tasks(tasks: Sequence[Task], options: Mapping[str, Any]) -> list[tuple[str, bytes]]:
    """Pickle tasks, each with the name of its data and the code of users' classes: workers lack those files."""
    import cloudpickle

    of_users = any(True for task in tasks for _ in parts_of([task.policy, task.setting]))
    modules = local_modules() if of_users else []
    for name in modules:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    try:
        return [(task.data, cloudpickle.dumps((task, dict(options)))) for task in tasks]
    finally:
        for name in modules:
            cloudpickle.unregister_pickle_by_value(sys.modules[name])


def reduce_meta(meta: msgspec.Meta) -> tuple[Any, ...]:
    """Return what the bounds of a parameter are rebuilt by and from."""
    return functools.partial(msgspec.Meta, **dict(meta.__rich_repr__())), ()


copyreg.pickle(msgspec.Meta, reduce_meta)  # msgspec cannot pickle them, and a user's policy travels with its bounds


def work(content: bytes, data: Dataset, wanted: str) -> Trace:
    """Run a pickled task, on a process or a worker of a cluster, if the sources there are the wanted ones."""
    check_version(wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCFairWarning)  # the calling process has issued the same ones
        task, options = pickle.loads(content)
        trace: Trace = task.run(data, **options)
        return dataclasses.replace(trace, estimator=None)


def check_version(wanted: str) -> None:
    """Raise an error if the sources of this process are not the wanted ones."""
    if version() != wanted:
        raise SettingError(
            f"the worker on {platform.node()} (process {os.getpid()}) has another version of mcfair, Python or Polars "
            "than the machine that sent the work; install the same ones there"
        )


# --- processes -------------------------------------------------------------------------------------------------------

ENVIRONMENT = {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e15"}
"""Datasets and compiled code make a worker grow, which loky would take for a leak and restart the worker."""

WATCH_SECONDS = 0.2

DATA: dict[str, Dataset] = {}
"""In a worker process: the datasets, which are read once per worker and not with every task."""


def on_processes(
    contents: Sequence[tuple[str, bytes]], data: Mapping[str, Dataset], jobs: int, drafts: Path | None
) -> Iterator[tuple[int, Trace]]:
    """Run pickled tasks on processes, which do not import the caller's main module, and yield them by their place.

    Tasks and results travel in files: a process that is killed with half a message in one of loky's pipes would leave
    the others waiting for the rest for ever.
    """
    import cloudpickle
    from joblib.externals.loky import ProcessPoolExecutor
    from joblib.externals.loky.process_executor import BrokenProcessPool

    with scratch_folder(Path(tempfile.gettempdir()) if drafts is None else drafts) as folder:
        try:
            (folder / "data").write_bytes(cloudpickle.dumps(dict(data)))
            for i, each in enumerate(contents):
                (folder / f"{i}.task").write_bytes(pickle.dumps((*each, version())))
        except OSError as error:
            raise SettingError(f"cannot write to {folder}: {error.strerror}") from None
        pool = ProcessPoolExecutor(
            min(jobs, len(contents)), initializer=start_worker, initargs=(os.getpid(), folder), env=ENVIRONMENT
        )
        pending: dict[Future[None], int] = {}
        try:
            with ThreadPoolExecutor(1, initializer=block_interrupts) as starter:  # Ctrl-C interrupts no start there
                places = range(len(contents))
                starter.submit(
                    lambda: pending.update((pool.submit(work_in_file, folder, i), i) for i in places)
                ).result()
            finished = SimpleQueue[Future[None]]()
            for future in list(pending):
                future.add_done_callback(finished.put)
            while pending:
                try:  # Ctrl-C ends no wait without a limit: Polars has system calls restarted after signals
                    future = finished.get(timeout=WATCH_SECONDS)
                except Empty:
                    continue
                i = pending.pop(future)
                future.result()
                result = folder / f"{i}.result"
                trace = pickle.loads(result.read_bytes())
                result.unlink()
                yield i, trace
        except BrokenProcessPool:
            raise SettingError(
                "a worker process died, perhaps for want of memory; runs in a folder are kept: start again, with fewer "
                "--jobs"
            ) from None
        finally:
            with suppress(Empty):  # else loky, while it shuts down, looks for waiting tasks that it has dropped
                while pending:
                    pool._work_ids.get_nowait()
            pool.shutdown(wait=True, kill_workers=bool(pending))  # some are left after an interrupt or a failed run


def block_interrupts() -> None:
    """Block Ctrl-C in this thread and in the processes that it starts, which the calling process ends if need be."""
    from multiprocessing import resource_tracker as tracker

    from joblib.externals.loky.backend import resource_tracker

    tracker.ensure_running()  # before: their start ends with the signal unblocked
    resource_tracker.ensure_running()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def start_worker(parent: int, folder: Path) -> None:
    """Initialise a worker process, which ends when the process that started it does."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    DATA.update(pickle.loads((folder / "data").read_bytes()))


def work_in_file(folder: Path, i: int) -> None:
    """Run the task in the i-th file, and leave its result in a file of its own."""
    name, content, wanted = pickle.loads((folder / f"{i}.task").read_bytes())
    trace = work(content, DATA[name], wanted)
    try:
        (folder / f"{i}.result").write_bytes(pickle.dumps(trace, protocol=5))
    except OSError as error:
        raise SettingError(f"cannot write to {folder}: {error.strerror}") from None


# --- clusters --------------------------------------------------------------------------------------------------------

TIMEOUT = 10
"""Seconds within which a scheduler must answer."""


def on_cluster(
    contents: Sequence[tuple[str, bytes]], data: Mapping[str, Dataset], address: str
) -> Iterator[tuple[int, Trace]]:
    """Run pickled tasks on a cluster, to which each dataset is sent once, and yield them by their place."""
    from distributed import as_completed as as_finished

    with connect_cluster(address) as client:
        wanted = version()
        shared = {name: client.scatter(each, broadcast=True, hash=False) for name, each in data.items()}
        places = {
            client.submit(work, content, shared[name], wanted, pure=False): i
            for i, (name, content) in enumerate(contents)
        }
        for future in as_finished(list(places), loop=client.loop):  # a run on a worker that dies is made on another
            yield places.pop(future), future.result()


@contextmanager
def connect_cluster(address: str) -> Iterator[Any]:
    """Connect to a Dask cluster whose workers have the same sources as this process, and yield its client.

    What Dask raises meanwhile, when it loses a worker or the scheduler, becomes an error of one line.

    Parameters
    ----------
    address
        Address of the scheduler, such as tcp://HOST:8786.

    Raises
    ------
    SettingError
        If no scheduler answers in time, it has no workers, some would not compute the same results, or work is lost.
    """
    try:
        from distributed import Client
    except ImportError:
        raise SettingError("--cluster needs Dask: pip install 'mcfair[cluster]'") from None
    try:
        with ThreadPoolExecutor(1) as thread:  # in a notebook, this thread runs an event loop already
            thread.submit(check_scheduler, address).result()
    except Exception as error:  # what listens there may be no scheduler, and answer anything
        raise SettingError(
            f"no Dask scheduler answers at {address} within {TIMEOUT} s{f' ({error})' if str(error) else ''}; "
            "start one with 'dask scheduler' and workers with 'dask worker ADDRESS'"
        ) from None
    with dask_silenced():
        client = Client(address, timeout=TIMEOUT, set_as_default=False)
        try:
            check_workers(client, address)
            yield client
        except MCFairError:
            raise
        except (Exception, CancelledError) as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise SettingError(
                f"the cluster at {address} lost its work ({reason}); start again: what is in a folder is kept"
            ) from error
        finally:
            with suppress(Exception):  # the scheduler may be gone
                client.close(timeout=TIMEOUT)


def check_workers(client: Any, address: str) -> None:
    """Raise an error if there are no workers, or some would not compute the same results."""
    found = client.run(version, on_error="return")  # an error is what a worker without mcfair returns
    if not found:
        raise SettingError(f"the scheduler at {address} has no workers; start some with 'dask worker {address}'")
    wrong = sorted(worker for worker, theirs in found.items() if theirs != version())
    if wrong:
        raise SettingError(
            f"{len(wrong)} of {len(found)} workers ({', '.join(wrong[:3])}) have no mcfair, or another version of "
            "it or of Python than this machine; install the same ones there"
        )


@contextmanager
def dask_silenced() -> Iterator[None]:
    """Keep Dask from writing tracebacks to stderr: what is wrong is raised, in one line."""
    loggers = [logging.getLogger(name) for name in ("distributed", "tornado.application", "asyncio")]
    loggers += [logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if "distributed." in name]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


def check_scheduler(address: str) -> None:
    """Request the identity of a scheduler; Dask's client waits without limit for one that accepts but never answers."""
    import asyncio

    from distributed import rpc

    async def request_identity() -> None:
        async with rpc(address) as scheduler:
            await scheduler.identity()

    asyncio.run(asyncio.wait_for(request_identity(), TIMEOUT))
