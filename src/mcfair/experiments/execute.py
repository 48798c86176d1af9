"""Run tasks on local processes or on a Dask cluster; results come back as they are ready and are kept by the caller."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from ..errors import MCFairWarning, SettingError
from ..simulation.trace import Trace
from .experiment import Experiment
from .results import Archive, Data, Results, Task, collect, open_experiments, source_hash, tasks_of

__all__ = ["Finished", "on_cluster", "on_processes", "run_experiments"]

Finished = Iterator[tuple[Task, Trace]]

DATA: dict[str, Data] = {}
"""In a worker process: the datasets, sent once."""

PATIENCE = 10
"""Seconds in which a scheduler must answer."""


def by_value(tasks: Sequence[Task]) -> list[bytes]:
    """Write tasks such that the policies of users travel with their source code: other machines do not have it."""
    import cloudpickle

    modules = {type(task.policy).__module__ for task in tasks}
    users = [sys.modules[name] for name in modules if name.split(".")[0] not in ("mcfair", "__main__")]
    for module in users:
        cloudpickle.register_pickle_by_value(module)
    try:
        return [cloudpickle.dumps(task) for task in tasks]
    finally:
        for module in users:
            cloudpickle.unregister_pickle_by_value(module)


# --- experiments -----------------------------------------------------------------------------------------------------


def run_experiments(
    experiments: Sequence[Experiment],
    folder: str | Path,
    *,
    jobs: int = 1,
    cluster: str = "",
    about: dict[str, str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Results:
    """Run what is missing of some experiments, keep it under a folder, and give all their results.

    Parameters
    ----------
    experiments
        What to run.
    folder
        Where runs are kept, each in a folder of its own below `runs`; what is there already is not run again.
    jobs
        Processes to use on this machine.
    cluster
        Address of a Dask scheduler, such as tcp://HOST:8786, to use its workers instead.
    about
        What to say of how it was run.
    progress
        Called with what is going on, how many of its parts are done and how many there are.
    """
    say = progress or (lambda *_: None)
    archive = Archive(Path(folder) / "runs")
    if cluster:
        with connected(cluster) as client:
            check_workers(client, cluster)
    data = open_experiments(experiments)
    tasks = tasks_of(experiments, data)
    missing = sorted(archive.missing(tasks), key=cost, reverse=True)
    done = len(tasks) - len(missing)
    say("runs", done, len(tasks))
    for task, trace in on_cluster(missing, data, cluster) if cluster else on_processes(missing, data, jobs):
        archive.save(task, trace)
        done += 1
        say("runs", done, len(tasks))
    times = time_tables(experiments, data, tasks, Path(folder) / "times.json", say)
    say("limits", 0, 1)
    return collect(experiments, data, tasks, archive, times, about or {})


def cost(task: Task) -> float:
    """Guess how long a task takes against others: long ones go first, so that none is left for the end."""
    heavy = {"LP": 200.0, "PLFair": 80.0, "ILP": 5.0}
    per_session = heavy.get(type(task.policy).__name__, 1.0 if task.policy.kernel is not None else 200.0)
    return per_session * task.setting.sessions


def time_tables(
    experiments: Sequence[Experiment],
    data: dict[str, Data],
    tasks: Sequence[Task],
    file: Path,
    say: Callable[[str, int, int], None],
) -> dict[str, float]:
    """Measure seconds per 1,000 lists of every row of every table, one run after the other with nothing beside them."""
    rows = {
        (name, repr(policy), setting)
        for each in experiments
        if each.show == "table"
        for name in each.data
        for _, setting, policy in each.played()
    }
    wanted = [task for task in tasks if task.seed == 0 and (task.data, repr(task.policy), task.setting) in rows]
    times: dict[str, float] = msgspec.json.decode(file.read_bytes()) if file.exists() else {}
    for number, task in enumerate(wanted):
        say("times", number, len(wanted))
        if task.key not in times:
            traces = [task.run(data[task.data]) for _ in range(3)]
            times[task.key] = min(1000 * trace.seconds / trace.sessions for trace in traces)
            draft = file.with_suffix(".draft")
            draft.write_bytes(msgspec.json.encode(times))
            draft.replace(file)
    return {task.key: times[task.key] for task in wanted}


# --- local processes -------------------------------------------------------------------------------------------------


def on_processes(tasks: Sequence[Task], data: dict[str, Data], jobs: int) -> Finished:
    """Run tasks on so many processes; one is this process itself."""
    if jobs == 1 or len(tasks) <= 1:
        for task in tasks:
            yield task, task.run(data[task.data])
        return
    spawn = multiprocessing.get_context("spawn")  # a forked child would inherit locks of threads it does not have
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(min(jobs, len(tasks)), spawn, receive, (data,)) as pool:
        waiting = {pool.submit(run_here, text): task for text, task in zip(by_value(tasks), tasks, strict=True)}
        try:
            for future in as_completed(waiting):
                yield waiting.pop(future), result_of(future)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if waiting:  # interrupted, or a run failed: nobody waits for the others
                for worker in set(multiprocessing.active_children()) - others:
                    worker.terminate()


def result_of(future: Future[Trace]) -> Trace:
    """Give the trace, or say that a process died."""
    try:
        return future.result()
    except BrokenProcessPool:
        raise SettingError(
            "a worker process died, perhaps for want of memory; finished runs are kept: start again, with fewer --jobs"
        ) from None


def receive(data: dict[str, Data]) -> None:
    """Begin a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked hears it and ends this one
    DATA.update(data)
    warnings.simplefilter("ignore", MCFairWarning)  # the process that asked has said it


def run_here(text: bytes) -> Trace:
    """Run a task in a worker process."""
    import cloudpickle

    task: Task = cloudpickle.loads(text)
    return task.run(DATA[task.data])


# --- a Dask cluster --------------------------------------------------------------------------------------------------


def on_cluster(tasks: Sequence[Task], data: dict[str, Data], address: str) -> Finished:
    """Run tasks on the workers of a Dask scheduler; those of a worker that dies are run again by the others."""
    from distributed import KilledWorker
    from distributed import as_completed as as_finished
    from distributed.client import FutureCancelledError

    with connected(address) as client:
        check_workers(client, address)
        names = {task.data for task in tasks}
        sent = {name: client.scatter(data[name], broadcast=True, hash=False) for name in names}
        waiting = {
            client.submit(run_there, text, sent[task.data], key=f"mcfair-{task.key}", pure=False): task
            for text, task in zip(by_value(tasks), tasks, strict=True)
        }
        for future in as_finished(list(waiting), loop=client.loop):
            try:
                yield waiting.pop(future), future.result()
            except (KilledWorker, FutureCancelledError) as error:
                raise SettingError(
                    f"the cluster at {address} lost its work ({error}); finished runs are kept: start again to go on"
                ) from None


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a scheduler, or say within some seconds that there is none."""
    try:
        from distributed import Client
    except ImportError:
        raise SettingError("--cluster needs Dask: pip install 'mcfair[cluster]'") from None
    try:
        with ThreadPoolExecutor(1) as thread:  # where a notebook runs, this thread has a loop already
            thread.submit(knock, address).result()
    except (OSError, ValueError, TimeoutError) as error:
        raise SettingError(
            f"no Dask scheduler answers at {address} within {PATIENCE} s{f' ({error})' if str(error) else ''}; start "
            "one with 'dask scheduler' and workers with 'dask worker ADDRESS'"
        ) from None
    client = Client(address, timeout=PATIENCE, set_as_default=False)
    try:
        yield client
    finally:
        with suppress(OSError, TimeoutError):
            client.close(timeout=PATIENCE)


def knock(address: str) -> None:
    """Ask a scheduler who it is; a client of Dask would wait for ever for one that listens but says nothing."""
    import asyncio

    from distributed import rpc

    async def ask() -> None:
        async with rpc(address) as scheduler:
            await scheduler.identity()

    asyncio.run(asyncio.wait_for(ask(), PATIENCE))


def check_workers(client: Any, address: str) -> None:
    """Refuse a cluster without workers, or whose workers would compute something else."""
    there = client.run(source_hash_there)
    if not there:
        raise SettingError(f"the scheduler at {address} has no workers; start some with 'dask worker {address}'")
    wrong = sorted(worker for worker, found in there.items() if found != source_hash())
    if wrong:
        raise SettingError(
            f"{len(wrong)} of {len(there)} workers ({', '.join(wrong[:3])}) have no mcfair or another version of it "
            f"than this machine; install the same one there"
        )


def source_hash_there() -> str:
    """Hash of the sources on a worker; nothing if there are none."""
    try:
        from mcfair.experiments.results import source_hash
    except ImportError:
        return ""
    return source_hash()


def run_there(text: bytes, data: Data) -> Trace:
    """Run a task on a worker."""
    import cloudpickle

    task: Task = cloudpickle.loads(text)
    return task.run(data)
