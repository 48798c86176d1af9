"""Many runs in one call: policies on data with several seeds, in memory or in a folder that keeps what is finished."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Unpack

import msgspec

from ..arrays import check_memory
from ..data.dataset import Dataset
from ..data.folds import open_data
from ..errors import DataError, MCFairWarning, SettingError
from ..options import explicit_options
from ..policies.base import Policy
from ..simulation.setting import Setting, SettingOptions, make_setting
from .execute import Task, connect_cluster, execute
from .experiment import Experiment, Series
from .folder import Folder, Outcome
from .keys import NoKeyError, fingerprint, key_of
from .results import Results, collect, described

Policies = Policy | str | Sequence[Policy | str]
Progress = Callable[[str, int, int], None]

LOADING = ("split", "epsilon", "min_items", "max_items", "separator", "columns")
"""How an experiment has its data loaded, beside its preset."""


@explicit_options(Setting, SettingOptions)
def compare(
    data: Dataset | str | os.PathLike[str] | Mapping[str, Dataset | str | os.PathLike[str]],
    policies: Mapping[str, Policies] | Policies,
    setting: Setting | str = "post-processing",
    *,
    seeds: int = 5,
    jobs: int = 1,
    folder: str | Path | None = None,
    fresh: bool = False,
    cluster: str = "",
    progress: Progress | None = None,
    **options: Unpack[SettingOptions],
) -> Results:
    """Simulate policies with the same users and compare them; printed, the result is a table with tests.

    Parameters
    ----------
    data
        The queries, or what `open_data` takes; or a mapping from names to these, over which tests are pooled.
    policies
        Texts, in which a list of values is a policy for each value, such as "MCFair(alpha=[0, 1, 10])"; or policies.
        The first is what the others are tested against. Or a mapping from a label to one or several of them.
    setting, **options
        As for `simulate`.
    seeds
        How many seeds: 0, 1, ...
    jobs
        How many processes to use on this machine.
    folder
        Where finished runs are kept and found again; by default nowhere.
    fresh
        Whether to make runs again that the folder has.
    cluster
        Address of a Dask scheduler, such as tcp://HOST:8786, whose workers are used instead.
    progress
        Called with the current stage, how many of its steps are done, and how many there are.

    Returns
    -------
    Results
        `tests()` has the tests, `frame()` the table that is printed, `runs` and `queries` all figures.

    Raises
    ------
    MCFairError
        If the data, a policy or an option is not allowed, or the runs cannot be held in memory.

    Examples
    --------
    >>> import mcfair as mf
    >>> found = mf.compare("mq2008-like", ["FairCo", "MCFair", "TopK"], steps=500, seeds=2)
    >>> found
    Results(compare: 6 runs of 3 policies, 2 seed(s))
    >>> found.tests(metrics=["ndcg@5"])["verdict"].to_list()  # MCFair and TopK against FairCo
    ['higher', 'higher']
    """
    named = dict(data) if isinstance(data, Mapping) else {name_of(data): data}
    series = as_series(policies)
    features = any(policy.needs_features for each in series for policy in each.points)
    opened = {
        name: each if isinstance(each, Dataset) else open_data(each, features=features) for name, each in named.items()
    }
    conditions = make_setting(setting, options)
    experiment = Experiment(
        name="compare",
        show="tradeoff",
        data=tuple(opened),
        settings=(conditions,),
        seeds=seeds,
        series=series,
    )
    return run_experiments(
        [experiment], folder, data=opened, jobs=jobs, fresh=fresh, cluster=cluster, progress=progress, timed=False
    )


def name_of(data: Dataset | str | os.PathLike[str]) -> str:
    """Return what a dataset is called in tables."""
    return data.name or "data" if isinstance(data, Dataset) else os.fspath(data)


def as_series(policies: Mapping[str, Policies] | Policies) -> tuple[Series, ...]:
    """Return one curve per label, or one per text; those of one policy are told apart by what their points share."""
    if isinstance(policies, Mapping):
        return tuple(Series(policies=several(each), label=label) for label, each in policies.items())
    series = tuple(Series(policies=(text,)) for text in several(policies))
    names = [each.name for each in series]
    return tuple(
        msgspec.structs.replace(each, label=shared_label(each))
        if len(each.points) == 1 or names.count(each.name) > 1
        else each
        for each in series
    )


def shared_label(series: Series) -> str:
    """Return the name of a policy with the parameters that all points of a curve have in common, if there are any."""
    first, *others = series.points
    same = [name for name in first.changed_parameters if all(getattr(first, name) == getattr(p, name) for p in others)]
    return first.text(same) if same else series.name


def several(policies: Policies) -> tuple[Policy | str, ...]:
    """Return one policy as several."""
    return (policies,) if isinstance(policies, Policy | str) else tuple(policies)


# --- experiments -----------------------------------------------------------------------------------------------------


def run_experiments(
    experiments: Sequence[Experiment],
    folder: str | Path | None = None,
    *,
    data: Mapping[str, Dataset] | None = None,
    jobs: int = 1,
    fresh: bool = False,
    cluster: str = "",
    about: dict[str, str] | None = None,
    progress: Progress | None = None,
    timed: bool = True,
) -> Results:
    """Run what is missing of some experiments and return the results of all of them.

    A stored run is reused only if nothing that it depends on has changed, data, policy, setting, seed, this package,
    and the files that define users' parts, and if every byte of it is as it was written.

    Parameters
    ----------
    experiments
        What to run.
    folder
        Where runs are stored, each in a folder of its own below `runs`; by default they are kept in memory.
    data
        Datasets in memory, by the names that `Experiment.data` uses for them; they are used as they are, so that
        `split`, `epsilon`, `columns` and other ways to load of the experiment do not apply. Other names are opened with
        `open_data`.
    jobs
        How many processes to use on this machine.
    fresh
        Whether to make runs again that are stored.
    cluster
        Address of a Dask scheduler, such as tcp://HOST:8786, whose workers are used instead.
    about
        How the runs were made, for the report.
    progress
        Called with the current stage, how many of its steps are done, and how many there are.
    timed
        Whether to measure the seconds per 1,000 lists of the policies in tables, one run after the other.

    Returns
    -------
    Results

    Raises
    ------
    SettingError
        If `jobs` is below 1, the runs cannot be held in memory, the cluster cannot be used, or a process died.
    DataError
        If a dataset cannot be opened.
    TraceError
        If the folder cannot be written.

    Examples
    --------
    >>> from mcfair import synthetic
    >>> mine = Experiment(
    ...     name="mine", data=("small",), settings=({"steps": 50},), series=(Series(policies=("TopK", "MMF")),)
    ... )
    >>> run_experiments([mine], data={"small": synthetic("mq2008-like").select(max_items=8)})
    Results(mine: 10 runs of 2 policies, 5 seed(s))
    """
    report: Progress = progress or (lambda *_: None)
    if jobs < 1:
        raise SettingError(f"jobs = {jobs} is not allowed: expected a number of processes of at least 1")
    if cluster:
        with connect_cluster(cluster):
            pass  # before data are read, which may take minutes
    with Folder.open(folder) as stored:
        opened = open_experiments(experiments, data)
        check_cutoffs(experiments, opened)
        check_size(experiments, opened)
        tasks = tasks_of(experiments, opened, keyed=folder is not None)
        kept = {} if fresh else stored.load([task.key for task in tasks if task.key])
        outcomes = {task: kept[task.key] for task in tasks if task.key in kept}
        missing = [task for task in tasks if task not in outcomes]
        missing.sort(key=cost, reverse=True)  # so that no long one is left for the end
        announce(missing, opened, jobs)
        report("runs", len(outcomes), len(tasks))
        with closing(execute(missing, opened, jobs=jobs, cluster=cluster, drafts=stored.drafts)) as finished:
            for task, trace in finished:
                if task.key:
                    stored.save(task.key, trace)
                outcomes[task] = Outcome.of(trace)
                report("runs", len(outcomes), len(tasks))
        times = measure_times(experiments, opened, tasks, stored, report) if timed else []
        report("limits", 0, 1)
        return collect(experiments, opened, tasks, outcomes, times, stored, about or {})


def open_experiments(
    experiments: Sequence[Experiment], data: Mapping[str, Dataset] | None = None
) -> dict[str, Dataset]:
    """Open the datasets of experiments, by name; a name must be loaded in one way by all of them.

    Parameters
    ----------
    experiments
        Their `data` are names, paths and keys of `data`.
    data
        Datasets in memory; they are used as they are.

    Raises
    ------
    DataError
        If a dataset cannot be opened, or two experiments load it in different ways.
    """
    opened: dict[str, Dataset] = {}
    ways: dict[str, Any] = {}
    features = any(policy.needs_features for each in experiments for _, _, policy in each.played())
    for each in experiments:
        way = {name: getattr(each, name) for name in LOADING} | {"preset": each.preset or None}
        for name in each.data:
            if data is not None and name in data:
                opened[name] = data[name]
                continue
            if ways.setdefault(name, way) != way:
                raise DataError(f"experiment {each.name} loads {name} in another way than the ones before it")
            if name not in opened:
                opened[name] = open_data(name, features=features, **way)
    return opened


def check_cutoffs(experiments: Sequence[Experiment], data: Mapping[str, Dataset]) -> None:
    """Raise an error, before any work, if an experiment asks for cutoffs beyond the longest list of its data."""
    for each in experiments:
        for name in each.data if each.k_c and each.as_published else ():
            longest = int(data[name].pool()[0].sizes.max())
            if max(each.k_c or ()) > longest:
                raise SettingError(
                    f"experiment {each.name}: k_c = {each.k_c}: expected cutoffs from 1 to {longest}, the items of the "
                    f"longest query of {name}"
                )


def tasks_of(experiments: Sequence[Experiment], data: Mapping[str, Dataset], keyed: bool = True) -> list[Task]:
    """Return all runs of some experiments, each once; without keys, as for runs that are not stored, it is quicker."""
    tasks = dict.fromkeys(
        Task(name, policy, setting, seed)
        for each in experiments
        for _, setting, policy in each.played()
        for name in each.data
        for seed in range(each.seeds)
    )
    if not keyed:
        return list(tasks)
    contents = {name: fingerprint(each) for name, each in data.items()}
    keys, reasons = [], []
    for task in tasks:
        try:
            keys.append(key_of(contents[task.data], task.policy, task.setting, task.seed))
        except NoKeyError as error:
            keys.append("")
            reasons.append(str(error))
    for reason in dict.fromkeys(reasons):
        warnings.warn(reason, MCFairWarning, stacklevel=3)
    return [dataclasses.replace(task, key=key) for task, key in zip(tasks, keys, strict=True)]


# --- how long and how much -------------------------------------------------------------------------------------------

RUN_SECONDS, SESSION_SECONDS = 0.05, 0.3e-6
"""Seconds of a run besides its sessions, and of a session of cost 1 with ten items: rough, for announcements."""

WITHOUT_KERNEL = 200.0
"""Cost per session of parts in plain Python, relative to parts with kernels."""

RUN_BYTES, COPIES = 4_000, 3
"""Memory of a run besides its table of queries, and how often that table is held at the end."""

ANNOUNCED_SECONDS = 120


def cost(task: Task) -> float:
    """Estimate the relative duration of a task."""
    online = task.setting.mode == "online"  # otherwise neither clicks nor estimates are computed
    parts = [task.policy, *((task.setting.clicks, task.setting.estimator_for(task.policy)) if online else ())]
    interpreted = any(part.kernel is None for part in parts)
    return max(task.policy.cost, WITHOUT_KERNEL if interpreted else 0.0) * task.setting.steps


def announce(tasks: Sequence[Task], data: Mapping[str, Dataset], jobs: int) -> None:
    """Warn of runs that will take minutes, by a rough estimate from the cost of their policies."""
    length = {name: each.items / max(each.queries, 1) / 10.0 for name, each in data.items()}
    seconds = sum(RUN_SECONDS + SESSION_SECONDS * max(length[task.data], 1.0) * cost(task) for task in tasks) / jobs
    if seconds > ANNOUNCED_SECONDS:
        time = f"{seconds / 60:,.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.0f} hours"
        processes = f"{jobs} processes" if jobs > 1 else "one process"
        warnings.warn(f"{len(tasks):,} runs take about {time} on {processes}", MCFairWarning, stacklevel=4)


def check_size(experiments: Sequence[Experiment], data: Mapping[str, Dataset]) -> None:
    """Raise an error, before any work, if the results of experiments cannot be held in memory."""
    needed = runs = 0
    for each in experiments:
        columns = sum(8 + 2 * setting.k + len(setting.metrics) for setting in each.conditions)
        points = sum(len(series.points) for series in each.series) * each.seeds
        for name in each.data:
            runs += points * len(each.conditions)
            needed += points * (len(each.conditions) * RUN_BYTES + data[name].queries * columns * 8 * COPIES)
    check_memory(needed, f"{runs:,} runs")


# --- times -----------------------------------------------------------------------------------------------------------


def measure_times(
    experiments: Sequence[Experiment],
    data: Mapping[str, Dataset],
    tasks: Sequence[Task],
    stored: Folder,
    report: Progress,
) -> list[dict[str, Any]]:
    """Measure the seconds per 1,000 lists of every row of a table, one run at a time; stored times are reused."""
    tables = [each for each in experiments if each.show == "table"]
    rows = {(name, policy, where) for each in tables for name in each.data for _, where, policy in each.played()}
    timed = [task for task in tasks if task.seed == 0 and (task.data, task.policy, task.setting) in rows]
    found: list[dict[str, Any]] = []
    for number, task in enumerate(timed):
        report("times", number, len(timed))

        def measure(task: Task = task) -> dict[str, float]:
            traces = [task.run(data[task.data]) for _ in range(3)]
            return {"seconds": min(1000 * trace.seconds / trace.sessions for trace in traces)}

        found.append(described(task) | {"seconds": stored.recall("times", task.key, measure)["seconds"]})
    return found
