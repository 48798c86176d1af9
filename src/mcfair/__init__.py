"""Fair ranking while relevance is still being learnt: MCFair and the methods it is compared with.

Examples
--------
>>> import mcfair as mf
>>> data = mf.synthetic("mq2008-like", seed=0)
>>> trace = mf.simulate(data, mf.MCFair(alpha=1.0, beta=0.0), steps=1000)
>>> trace.sessions
1000
"""

from typing import TYPE_CHECKING, Any

from ._jit import Kernel, kernel
from .data import Dataset
from .datasets import Fold, load_letor, open_data, synthetic
from .errors import (
    ConflictError,
    DataError,
    MCFairError,
    MCFairWarning,
    NotFoundError,
    PolicyError,
    RequestError,
    SettingError,
    StoreError,
    TraceError,
    UnavailableError,
)
from .limits import Floor, Frontier, fairness_floor, frontier
from .metrics import cndcg, ideal_dcg, ndcg, unfairness, unfairness_per_query
from .policies import ILP, LP, MMF, ExploreK, FairCo, FairK, MCFair, PLFair, RandomK, TopK
from .policy import Policy, parse_policies, parse_policy, policies, register
from .random import Draws, uniform
from .simulate import Setting, simulate
from .state import Query, State
from .trace import Trace
from .users import examination, relevance

if TYPE_CHECKING:
    from .execute import run_experiments
    from .experiment import Experiment, Series, read_experiment, shipped_experiment
    from .report import write_report
    from .results import Results
    from .service.client import AsyncClient, Client
    from .service.ranker import Ranker
    from .significance import fisher, holm
    from .tuning import Tuning, tune

__all__ = [
    "ILP",
    "LP",
    "MMF",
    "AsyncClient",
    "Client",
    "ConflictError",
    "DataError",
    "Dataset",
    "Draws",
    "Experiment",
    "ExploreK",
    "FairCo",
    "FairK",
    "Floor",
    "Fold",
    "Frontier",
    "Kernel",
    "MCFair",
    "MCFairError",
    "MCFairWarning",
    "NotFoundError",
    "PLFair",
    "Policy",
    "PolicyError",
    "Query",
    "RandomK",
    "Ranker",
    "RequestError",
    "Results",
    "Series",
    "Setting",
    "SettingError",
    "State",
    "StoreError",
    "TopK",
    "Trace",
    "TraceError",
    "Tuning",
    "UnavailableError",
    "cndcg",
    "examination",
    "fairness_floor",
    "fisher",
    "frontier",
    "holm",
    "ideal_dcg",
    "kernel",
    "load_letor",
    "ndcg",
    "open_data",
    "parse_policies",
    "parse_policy",
    "policies",
    "read_experiment",
    "register",
    "relevance",
    "run_experiments",
    "shipped_experiment",
    "simulate",
    "synthetic",
    "tune",
    "unfairness",
    "unfairness_per_query",
    "uniform",
    "write_report",
]


LATER = {
    "Experiment": "experiment", "Series": "experiment", "read_experiment": "experiment",
    "shipped_experiment": "experiment", "run_experiments": "execute", "Results": "results", "write_report": "report",
    "fisher": "significance", "holm": "significance", "Tuning": "tuning", "tune": "tuning",
    "Ranker": "service.ranker", "Client": "service.client", "AsyncClient": "service.client",
}  # fmt: skip
"""Names that are imported when first asked for: who ranks or simulates does not wait for what reports."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # slow to import, and seldom asked for

        return version("mcfair")
    if name in LATER:
        from importlib import import_module

        return getattr(import_module(f".{LATER[name]}", __name__), name)
    raise AttributeError(f"module 'mcfair' has no attribute {name!r}")
