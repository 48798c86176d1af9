"""Execution of experiments: what is not stored yet is run, on processes or on a cluster, and stored as it is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ..data.dataset import Dataset
from ..errors import SettingError
from ..simulation.setting import Setting
from .archive import Archive
from .cluster import check_cluster, run_on_cluster
from .experiment import Experiment
from .processes import run_on_processes
from .results import Results, collect
from .tasks import Task, open_experiments, tasks_of

__all__ = ["expected_seconds", "run_experiments"]

Progress = Callable[[str, int, int], None]

RUN_SECONDS, SESSION_SECONDS = 0.05, 0.3e-6
"""Seconds of a run besides its sessions, and of a session of cost 1 with ten items: rough, for announcements."""

WITHOUT_KERNEL = 200.0
"""Cost per session of parts in plain Python, relative to parts with kernels."""


def run_experiments(
    experiments: Sequence[Experiment],
    folder: str | Path,
    *,
    data: Mapping[str, Dataset] | None = None,
    jobs: int = 1,
    cluster: str = "",
    about: dict[str, str] | None = None,
    progress: Progress | None = None,
) -> Results:
    """Run what is missing of some experiments, store it, and return the results of all of them.

    A run is reused only if nothing that it depends on has changed: data, policy, setting, seed, this package, and the
    code of users' classes with all that it refers to. Code that cannot be identified, such as a policy that reads an
    open file, is run again every time, with a warning.

    Parameters
    ----------
    experiments
        What to run.
    folder
        Where runs are stored, each in a folder of its own below `runs`.
    data
        Datasets in memory, by the names that `Experiment.data` uses for them; they are used as they are, so that
        `split`, `epsilon`, `min_items` and `max_items` of the experiment do not apply. Other names are opened with
        `open_data`.
    jobs
        How many processes to use on this machine.
    cluster
        Address of a Dask scheduler, such as tcp://HOST:8786, whose workers are used instead.
    about
        How the runs were made, for the report.
    progress
        Called with the current stage, how many of its steps are done, and how many there are.

    Returns
    -------
    Results

    Raises
    ------
    SettingError
        If `jobs` is below 1, the cluster cannot be used, or a worker process died. Finished runs are kept.
    DataError
        If a dataset cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> from mcfair import synthetic
    >>> from mcfair.experiments.experiment import Series
    >>> mine = Experiment(
    ...     name="mine", data=("small",), settings=({"steps": 50},), series=(Series(policies=("TopK", "MMF")),)
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run_experiments([mine], folder, data={"small": synthetic("mq2008-like").select(max_items=8)})
    Results(mine: 10 runs of 2 policies, 5 seed(s))
    """
    report: Progress = progress or (lambda *_: None)
    if jobs < 1:
        raise SettingError(f"jobs = {jobs} is not allowed: expected a number of processes of at least 1")
    archive = Archive(Path(folder) / "runs")
    if cluster:
        check_cluster(cluster)  # before data are read, which may take minutes
    opened = open_experiments(experiments, data)
    tasks = tasks_of(experiments, opened)
    missing = sorted(archive.missing(tasks), key=cost, reverse=True)
    done = len(tasks) - len(missing)
    report("runs", done, len(tasks))
    for task, trace in run_on_cluster(missing, opened, cluster) if cluster else run_on_processes(missing, opened, jobs):
        archive.save(task, trace)
        done += 1
        report("runs", done, len(tasks))
    times = time_tables(experiments, opened, tasks, Path(folder) / "times.json", report)
    report("limits", 0, 1)
    return collect(experiments, opened, tasks, archive, times, about or {})


def cost(task: Task) -> float:
    """Estimate the relative duration of a task; long ones are started first, so that none is left for the end."""
    online = task.setting.mode == "online"  # otherwise neither clicks nor estimates are computed
    parts = [task.policy, *((task.setting.clicks, task.setting.estimator_for(task.policy)) if online else ())]
    interpreted = any(part.kernel is None for part in parts)
    return max(task.policy.cost, WITHOUT_KERNEL if interpreted else 0.0) * task.setting.steps


def expected_seconds(tasks: Sequence[Task], data: Mapping[str, Dataset]) -> float:
    """Estimate how long runs take one after another, roughly and without compilation, from the cost of their policies.

    Parameters
    ----------
    tasks
        The runs.
    data
        Datasets by the names that the tasks use.

    Returns
    -------
    float
        Seconds on a present-day processor.
    """
    length = {name: each.items / each.queries / 10.0 for name, each in data.items()}
    return sum(RUN_SECONDS + SESSION_SECONDS * max(length[task.data], 1.0) * cost(task) for task in tasks)


def timed_rows(experiment: Experiment) -> Iterator[tuple[str, str, Setting]]:
    """Yield data, policy and setting of what is timed: every row of a table."""
    if experiment.show == "table":
        for name in experiment.data:
            for _, setting, policy in experiment.played():
                yield name, repr(policy), setting


def time_tables(
    experiments: Sequence[Experiment],
    data: Mapping[str, Dataset],
    tasks: Sequence[Task],
    file: Path,
    report: Progress,
) -> dict[str, float]:
    """Measure the seconds per 1,000 lists of what experiments show, one run at a time; stored times are reused."""
    rows = {row for each in experiments for row in timed_rows(each)}
    timed = [task for task in tasks if task.seed == 0 and (task.data, repr(task.policy), task.setting) in rows]
    times: dict[str, float] = msgspec.json.decode(file.read_bytes()) if file.exists() else {}
    unique = {task.key for task in timed if not task.reusable}
    for number, task in enumerate(timed):
        report("times", number, len(timed))
        if task.key not in times:
            traces = [task.run(data[task.data]) for _ in range(3)]
            times[task.key] = min(1000 * trace.seconds / trace.sessions for trace in traces)
            draft = file.with_suffix(".draft")
            draft.write_bytes(msgspec.json.encode({key: each for key, each in times.items() if key not in unique}))
            draft.replace(file)
    return {task.key: times[task.key] for task in timed}
