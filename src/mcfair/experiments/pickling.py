"""Tasks as bytes that can be read in another process or on another machine, with the code of users' parts."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence

import cloudpickle

from .identity import user_modules
from .tasks import Task, parts_of

__all__ = ["dump_tasks", "load_task"]


def dump_tasks(tasks: Sequence[Task]) -> list[bytes]:
    """Pickle tasks together with the code of users' classes and of the modules they use: workers lack those files."""
    classes = {type(part) for task in tasks for part in parts_of([task.policy, task.setting])}
    modules = [sys.modules[name] for name in sorted(user_modules(classes)) if name != "__main__"]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return [cloudpickle.dumps(task) for task in tasks]
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def load_task(content: bytes) -> Task:
    """Rebuild a pickled task."""
    task: Task = pickle.loads(content)
    return task
