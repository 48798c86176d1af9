"""Runs on the workers of a Dask cluster."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from ..data.dataset import Dataset
from ..errors import SettingError
from ..simulation.trace import Trace
from .origins import source_hash
from .pickling import dump_tasks, load_task
from .processes import Finished
from .tasks import Task

__all__ = ["check_cluster", "run_on_cluster"]

TIMEOUT = 10
"""Seconds within which a scheduler must answer."""


def run_on_cluster(tasks: Sequence[Task], data: Mapping[str, Dataset], address: str) -> Finished:
    """Run tasks on a Dask cluster and yield their results as they become ready.

    Tasks of a worker that dies are run again by the others.

    Parameters
    ----------
    tasks
        What to run.
    data
        Datasets by the names that the tasks use; each is sent once to every worker.
    address
        Address of the scheduler, such as tcp://HOST:8786.

    Raises
    ------
    SettingError
        If there is no such cluster, or it loses the tasks.
    """
    if not tasks:
        return
    from distributed import KilledWorker
    from distributed import as_completed as as_finished
    from distributed.client import FutureCancelledError

    with connected(address) as client:
        check_workers(client, address)
        names = {task.data for task in tasks}
        sent = {name: client.scatter(data[name], broadcast=True, hash=False) for name in names}
        pending = {
            client.submit(run_on_worker, content, sent[task.data], key=f"mcfair-{task.key}", pure=False): task
            for content, task in zip(dump_tasks(tasks), tasks, strict=True)
        }
        for future in as_finished(list(pending), loop=client.loop):
            try:
                yield pending.pop(future), future.result()
            except (KilledWorker, FutureCancelledError) as error:
                raise SettingError(
                    f"the cluster at {address} lost its work ({error}); finished runs are kept: start again to go on"
                ) from None


def check_cluster(address: str) -> None:
    """Raise an error unless a cluster answers and its workers can run tasks of this process."""
    with connected(address) as client:
        check_workers(client, address)


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a scheduler; raise an error if none answers in time."""
    try:
        from distributed import Client
    except ImportError:
        raise SettingError("--cluster needs Dask: pip install 'mcfair[cluster]'") from None
    try:
        with ThreadPoolExecutor(1) as thread:  # in a notebook, this thread runs an event loop already
            thread.submit(check_scheduler, address).result()
    except (OSError, ValueError, TimeoutError) as error:
        raise SettingError(
            f"no Dask scheduler answers at {address} within {TIMEOUT} s{f' ({error})' if str(error) else ''}; start "
            "one with 'dask scheduler' and workers with 'dask worker ADDRESS'"
        ) from None
    client = Client(address, timeout=TIMEOUT, set_as_default=False)
    try:
        yield client
    finally:
        with suppress(OSError, TimeoutError):
            client.close(timeout=TIMEOUT)


def check_scheduler(address: str) -> None:
    """Request the identity of a scheduler; Dask's client waits without limit for one that accepts but never answers."""
    import asyncio

    from distributed import rpc

    async def request_identity() -> None:
        async with rpc(address) as scheduler:
            await scheduler.identity()

    asyncio.run(asyncio.wait_for(request_identity(), TIMEOUT))


def check_workers(client: Any, address: str) -> None:
    """Raise an error if a cluster has no workers, or some would not compute the same results."""
    found = client.run(worker_version, on_error="return")  # an error is what a worker without mcfair returns
    if not found:
        raise SettingError(f"the scheduler at {address} has no workers; start some with 'dask worker {address}'")
    wrong = sorted(worker for worker, version in found.items() if version != worker_version())
    if wrong:
        raise SettingError(
            f"{len(wrong)} of {len(found)} workers ({', '.join(wrong[:3])}) have no mcfair, or another version of it "
            "or of Python than this machine; install the same ones there"
        )


def worker_version() -> str:
    """Return the hash of the sources of this package and the version of Python, which bytecode depends on."""
    return f"{source_hash()} {'.'.join(platform.python_version_tuple()[:2])}"


def run_on_worker(content: bytes, data: Dataset) -> Trace:
    """Run a task on a worker."""
    task: Task = load_task(content)
    return task.run(data)
