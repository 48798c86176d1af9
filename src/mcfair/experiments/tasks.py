"""Tasks: the single runs of experiments, each with a key that covers everything its result depends on."""

from __future__ import annotations

import dataclasses
import hashlib
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec
import numpy as np

from ..data.dataset import Dataset
from ..data.folds import open_data
from ..errors import DataError, MCFairWarning
from ..policies.base import Policy
from ..simulation.run import simulate
from ..simulation.setting import Setting
from ..simulation.trace import Trace
from .experiment import Experiment
from .identity import UnidentifiedCodeError, identify
from .origins import is_ours, source_hash
from .references import lookup

__all__ = ["Task", "fingerprint", "open_experiments", "parts_of", "tasks_of"]


@dataclasses.dataclass(frozen=True)
class Task:
    """One run to be made: a pure function of these fields and of the dataset that `data` names."""

    data: str
    policy: Policy
    setting: Setting
    seed: int
    key: str
    reusable: bool = True

    @classmethod
    def of(cls, data: str, content: str, policy: Policy, setting: Setting, seed: int, code: Sequence[str]) -> Task:
        """Build a task and the key that its result is stored under.

        Parameters
        ----------
        data, content
            Name and fingerprint of the dataset; the name is not part of the key.
        policy, setting, seed
            What is simulated.
        code
            Identities of the users' classes among the parts of the run. If one is empty, it could not be determined:
            the key is then random, so that the result is stored but never reused.
        """
        reusable = all(code)
        configuration = {
            "code": sorted(code),
            "data": content,
            "policy": repr(policy),
            "seed": seed,
            "setting": setting.for_policy(policy).to_dict(),
            "sources": source_hash(),
            "unique": "" if reusable else uuid.uuid4().hex,
        }
        key = hashlib.sha256(msgspec.json.encode(configuration, order="sorted")).hexdigest()[:32]
        return cls(data, policy, setting, seed, key, reusable)

    def run(self, data: Dataset) -> Trace:
        """Simulate it."""
        return simulate(data, self.policy, self.setting, seed=self.seed)


def parts_of(value: Any) -> Iterator[Any]:
    """Yield the objects in the fields of a policy or a setting whose class does not belong to this package."""
    if isinstance(value, tuple | list | set | frozenset):
        for each in value:
            yield from parts_of(each)
    elif isinstance(value, dict):
        yield from parts_of([*value, *value.values()])
    elif not isinstance(value, bool | int | float | complex | str | bytes | PurePath | None):
        if is_users(type(value)):
            yield value
        if dataclasses.is_dataclass(value):
            yield from parts_of([getattr(value, field.name) for field in dataclasses.fields(value)])


def is_users(cls: type) -> bool:
    """Return whether a class is not part of this package, whatever its `__module__` is."""
    return not is_ours(cls.__module__) or lookup(cls.__module__, cls.__qualname__) is not cls


def fingerprint(data: Dataset) -> str:
    """Return a hash of the content of a dataset, and for a protocol that draws from all parts of a fold of all of them.

    The arrays count besides the fingerprint that the dataset carries: that one survives `dataclasses.replace`.
    """
    pool, judged = data.pool()
    digest = hashlib.sha256(f"{pool.fingerprint} {pool.protocol!r}".encode() + judged.tobytes())
    digest.update("\0".join(pool.query_ids or ()).encode())
    for field in dataclasses.fields(Dataset):
        value = getattr(pool, field.name)
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            digest.update(f"{field.name} {value.dtype} {value.shape}".encode())
            digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()


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
    ways: dict[str, tuple[Any, ...]] = {}
    features = any(policy.needs_features for each in experiments for _, _, policy in each.played())
    for each in experiments:
        way = (each.split, each.epsilon, each.preset, each.min_items, each.max_items)
        for name in each.data:
            if data is not None and name in data:
                opened[name] = data[name]
                continue
            if ways.setdefault(name, way) != way:
                raise DataError(f"experiment {each.name} loads {name} in another way than the ones before it")
            if name not in opened:
                opened[name] = open_data(
                    name,
                    split=each.split,
                    features=features,
                    epsilon=each.epsilon,
                    preset=each.preset or None,
                    min_items=each.min_items,
                    max_items=each.max_items,
                )
    return opened


def tasks_of(experiments: Sequence[Experiment], data: Mapping[str, Dataset]) -> list[Task]:
    """Return all runs of some experiments, each once."""
    contents = {name: fingerprint(each) for name, each in data.items()}
    identities: dict[int, str] = {}
    tasks: dict[tuple[Any, ...], Task] = {}
    for each in experiments:
        for _, setting, policy in each.played():
            code = [identity_of(part, identities) for part in parts_of([policy, setting.for_policy(policy)])]
            for name in each.data:
                for seed in range(each.seeds):
                    # not by key: a random one would not show that two experiments share a run
                    same = (name, policy, setting, seed)
                    if same not in tasks:
                        tasks[same] = Task.of(name, contents[name], policy, setting, seed, code)
    return list({task.key: task for task in tasks.values()}.values())


def identity_of(part: Any, known: dict[int, str]) -> str:
    """Return the identity of the code of a part, "" with a warning if it cannot be determined; once per class.

    The parameters of a part are in its repr; any other object counts with its content.
    """
    subject = type(part) if dataclasses.is_dataclass(part) else part
    if id(subject) not in known:
        try:
            known[id(subject)] = identify(subject)
        except UnidentifiedCodeError as error:
            known[id(subject)] = ""
            warnings.warn(
                f"the code of {type(part).__name__} cannot be identified, so its runs are not reused ({error})",
                MCFairWarning,
                stacklevel=4,
            )
    return known[id(subject)]
