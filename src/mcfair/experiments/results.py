"""What experiments gave: each run in a folder named after the hash of all it depends on, and tables over them."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..analysis.limits import fairness_floor, frontier
from ..data.dataset import Dataset
from ..data.folds import Fold
from ..data.sources import open_data
from ..errors import DataError, TraceError
from ..policies.base import Policy
from ..simulation.run import Setting, played, simulate
from ..simulation.trace import Trace
from .experiment import Experiment

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Archive", "Data", "Results", "Task", "open_experiments", "source_hash", "tasks_of"]

Data = Dataset | Fold

PACKAGE = Path(__file__).parent.parent

NOT_IN_A_RUN = {"__init__.py", "__main__.py", "analysis", "cli", "experiments", "report", "service", "testing.py"}
"""Parts of the package that no run depends on: a change there leaves finished work valid."""


@cache
def source_hash() -> str:
    """Hash of every source file of this package that a run depends on."""
    digest = hashlib.sha256()
    for source in sorted(PACKAGE.rglob("*.py")):
        name = source.relative_to(PACKAGE)
        if name.parts[0] not in NOT_IN_A_RUN:
            digest.update(name.as_posix().encode() + source.read_bytes())
    return digest.hexdigest()


def policy_source(policy: Policy) -> str:
    """Source of the file that a user's policy was written in; nothing for the policies of this package."""
    module = type(policy).__module__
    if module.split(".")[0] == PACKAGE.name:
        return ""
    try:
        return inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        try:
            return inspect.getsource(type(policy))
        except (OSError, TypeError):
            return f"{module}.{type(policy).__qualname__}"  # typed at a prompt: only its name is known


@dataclasses.dataclass(frozen=True)
class Task:
    """One run to be made: a pure function of these fields and of the data they name."""

    data: str
    policy: Policy
    setting: Setting
    seed: int
    preset: str
    key: str

    @classmethod
    def of(cls, name: str, data: Data, policy: Policy, setting: Setting, seed: int, preset: str) -> Task:
        """Make a task and the key that its result is kept under."""
        configuration = {
            "data": fingerprint(data),
            "policy": repr(policy),
            "policy_source": policy_source(policy),
            "preset": preset,
            "seed": seed,
            "setting": dataclasses.asdict(setting),
            "sources": source_hash(),
        }
        key = hashlib.sha256(msgspec.json.encode(configuration, order="sorted")).hexdigest()
        return cls(name, policy, setting, seed, preset, key[:32])

    def run(self, data: Data) -> Trace:
        """Play it."""
        return simulate(data, self.policy, self.setting, seed=self.seed, preset=self.preset or None)


def fingerprint(data: Data) -> str:
    """Hash of the content of a dataset, or of all three parts of a fold."""
    parts = (data.train, data.validation, data.test) if isinstance(data, Fold) else (data,)
    return "+".join(part.fingerprint for part in parts)


def open_experiments(experiments: Sequence[Experiment]) -> dict[str, Data]:
    """Open the data of some experiments, by name; they must load what has one name in one way."""
    opened: dict[str, Data] = {}
    ways: dict[str, tuple[Any, ...]] = {}
    features = any(policy.needs_features for each in experiments for _, _, policy in each.played())
    for each in experiments:
        way = (each.split, each.epsilon, each.preset, each.min_items, each.max_items)
        for name in each.data:
            if ways.setdefault(name, way) != way:
                raise DataError(f"experiment {each.name} loads {name} in another way than the ones before it")
            if name not in opened:
                opened[name] = open_data(
                    name, split=each.split, features=features, epsilon=each.epsilon, preset=each.preset or None,
                    min_items=each.min_items, max_items=each.max_items,
                )  # fmt: skip
    return opened


def tasks_of(experiments: Sequence[Experiment], data: dict[str, Data]) -> list[Task]:
    """All runs of some experiments, each once."""
    tasks = {}
    for each in experiments:
        for name in each.data:
            for _, setting, policy in each.played():
                for seed in range(each.seeds):
                    task = Task.of(name, data[name], policy, setting, seed, each.preset)
                    tasks[task.key] = task
    return list(tasks.values())


# --- the archive -----------------------------------------------------------------------------------------------------


ABANDONED = 3600
"""Seconds after which a run that is still half-written was left by a process that died; none takes so long to write."""


class Archive:
    """Finished runs on disk. A run is written under another name and then renamed: it is there whole or not at all."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for draft in self.folder.glob(".*-*"):
                if time.time() - draft.stat().st_mtime > ABANDONED:
                    shutil.rmtree(draft, ignore_errors=True)
            probe = self.folder / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise TraceError(f"cannot write to {self.folder}: {error.strerror or error}") from None

    def __contains__(self, key: str) -> bool:
        return (self.folder / key / "run.json").exists()

    def save(self, task: Task, trace: Trace) -> None:
        """Keep a run; if it is there already, that one stays."""
        try:
            trace.save(self.folder / task.key)
        except TraceError:
            if task.key not in self:
                raise

    def load(self, key: str) -> Trace:
        """Read a run."""
        return Trace.load(self.folder / key)

    def missing(self, tasks: Iterable[Task]) -> list[Task]:
        """Those of some tasks whose runs are not there."""
        return [task for task in tasks if task.key not in self]


# --- tables over runs ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Results:
    """Runs of some experiments as tidy tables; `setting` columns hold a setting as canonical JSON.

    Attributes
    ----------
    experiments
        What was run.
    runs
        One row per run: key, data, mode, setting, policy, seed, sessions, unfairness, relative_unfairness,
        cndcg@1..k and ndcg@1..k.
    queries
        One row per run and judged query: key, query, visits, unfairness, ndcg@1..k.
    limits
        One row per data, setting and seed: data, mode, setting, seed, floor, gap, queries, unreachable.
    frontier
        The Pareto frontier of each of these: data, mode, setting, seed, point, unfairness, ndcg.
    times
        Seconds per 1,000 lists from a serial pass: data, mode, setting, policy, seconds.
    about
        How the runs came about: versions, machine, command.
    """

    experiments: tuple[Experiment, ...]
    runs: pl.DataFrame
    queries: pl.DataFrame
    limits: pl.DataFrame
    frontier: pl.DataFrame
    times: pl.DataFrame
    about: dict[str, str]

    def of(self, data: str, setting: Setting, policy: Policy) -> pl.DataFrame:
        """Select the runs of one policy on one dataset in one setting, a row per seed."""
        import polars as pl

        here = (pl.col("data") == data) & (pl.col("setting") == setting_key(setting))
        return self.runs.filter(here & (pl.col("policy") == repr(policy))).sort("seed")

    def floors(self, data: str, setting: Setting) -> list[float]:
        """Give the fairness floor of each seed."""
        return self.limits.filter(data=data, setting=setting_key(setting)).sort("seed")["floor"].to_list()

    def seconds(self, data: str, setting: Setting, policy: Policy) -> float | None:
        """Give the seconds per 1,000 lists of a policy, if they were measured."""
        rows = self.times.filter(data=data, setting=setting_key(setting), policy=repr(policy))
        return float(rows["seconds"][0]) if rows.height else None


def setting_key(setting: Setting) -> str:
    """Write a setting as canonical JSON."""
    return msgspec.json.encode(dataclasses.asdict(setting), order="sorted").decode()


def collect(
    experiments: Sequence[Experiment],
    data: dict[str, Data],
    tasks: Sequence[Task],
    archive: Archive,
    times: dict[str, float],
    about: dict[str, str],
) -> Results:
    """Read the runs of some tasks and find the limits that hold for them."""
    import polars as pl

    by_key = {task.key: task for task in tasks}
    runs, queries = read_runs(by_key, archive)
    limits, frontiers, seen = [], [], set()
    for task in tasks:
        where = {"data": task.data, "mode": task.setting.mode, "setting": setting_key(task.setting), "seed": task.seed}
        if tuple(where.values()) not in seen:  # visits are the same whatever the policy
            seen.add(tuple(where.values()))
            floor, curve = limits_of(data[task.data], task, archive.load(task.key))
            limits.append(where | floor)
            frontiers += [where | point for point in curve]
    serial = [
        {
            "data": by_key[key].data,
            "mode": by_key[key].setting.mode,
            "setting": setting_key(by_key[key].setting),
            "policy": repr(by_key[key].policy),
            "seconds": seconds,
        }
        for key, seconds in times.items()
    ]
    names = {"data": pl.String, "mode": pl.String, "setting": pl.String, "policy": pl.String, "seconds": pl.Float64}
    return Results(
        experiments=tuple(experiments), runs=runs, queries=queries, limits=pl.DataFrame(limits),
        frontier=pl.DataFrame(frontiers), times=pl.DataFrame(serial, schema=names), about=about,
    )  # fmt: skip


def limits_of(data: Data, task: Task, trace: Trace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Floor and frontier for the visits of a run, relevance known."""
    whole, judged = played(data, task.preset or None)
    visits, p = trace.state.visits * judged, trace.state.p
    floor, curve = fairness_floor(whole, visits, p), frontier(whole, visits, p)
    counted = visits > 0
    return (
        {
            "floor": floor.unfairness,
            "gap": floor.gap,
            "queries": int(counted.sum()),
            "unreachable": int((counted & ~floor.reachable).sum()),
        },
        [
            {"point": i, "unfairness": float(curve.unfairness[i]), "ndcg": float(curve.ndcg[i])}
            for i in range(curve.lambdas.size)
        ],
    )


def read_runs(tasks: dict[str, Task], archive: Archive) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read the figures at the end of each run, and those of its queries."""
    import polars as pl

    def read(name: str) -> pl.LazyFrame:
        paths = [archive.folder / key / f"{name}.parquet" for key in tasks]
        key = pl.col("path").str.extract(r"([0-9a-f]{32})[/\\\\][^/\\\\]+$").alias("key")
        return pl.scan_parquet(paths, include_file_paths="path").with_columns(key).drop("path")

    metric = pl.when(pl.col("k").is_null()).then("metric").otherwise(pl.format("{}@{}", "metric", "k"))
    figures = (
        read("metrics")
        .filter(pl.col("sessions") == pl.col("sessions").max().over("key"))
        .select("key", "sessions", metric.alias("metric"), "value")
        .collect()
        .pivot("metric", index=["key", "sessions"], values="value")
    )
    about = pl.DataFrame(
        {
            "key": list(tasks),
            "data": [task.data for task in tasks.values()],
            "mode": [task.setting.mode for task in tasks.values()],
            "setting": [setting_key(task.setting) for task in tasks.values()],
            "policy": [repr(task.policy) for task in tasks.values()],
            "seed": [task.seed for task in tasks.values()],
        }
    )
    queries = read("queries").filter(pl.col("judged")).drop("items", "sessions", "judged").collect()
    return about.join(figures, on="key", maintain_order="left"), queries
