"""Fair ranking while relevance is still being learnt: MCFair and the methods it is compared with.

Examples
--------
>>> import mcfair as mf
>>> data = mf.synthetic("mq2008-like", seed=0)
>>> trace = mf.simulate(data, mf.MCFair(alpha=1.0), steps=1000)
>>> trace.sessions
1000
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from . import data, estimators, metrics, policies, simulation, users  # noqa: F401  # registers the parts
from .errors import renamed

STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")

MODULES = {name: module for module, name in re.findall(r"^from \.([\w.]+) import (\w+) as", STUB, re.MULTILINE)}
"""The module of each public name, which is imported when the name is first used."""

MOVED = {
    "Draws": "random",
    "ideal_dcg": "metrics.effectiveness",
    "relevance": "data.dataset",
    "unfairness_per_query": "metrics.exposure",
    "uniform": "random",
}
"""Names that are no longer at the top, and where they are; accepted for one release."""

__all__ = sorted(MODULES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # slow to import, and seldom needed

        return version("mcfair")
    if name in MOVED:
        renamed(f"mcfair.{name}", f"mcfair.{MOVED[name]}.{name}")
        return getattr(import_module(f".{MOVED[name]}", __name__), name)
    if name in MODULES:
        value = globals()[name] = getattr(import_module(f".{MODULES[name]}", __name__), name)
        return value
    if name == "BudgetFair":
        raise AttributeError("BudgetFair is no part of mcfair any more: studies/beyond/budgetfair.py in its repository")
    raise AttributeError(f"module 'mcfair' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
