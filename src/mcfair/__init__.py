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
from .analysis.limits import Floor, Frontier, fairness_floor, frontier
from .data.dataset import Dataset
from .data.folds import Fold, load_letor, open_data, synthetic
from .data.grades import relevance
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
from .metrics.exposure import cndcg, ideal_dcg, ndcg, unfairness, unfairness_per_query
from .policies import ILP, LP, MMF, ExploreK, FairCo, FairK, MCFair, PLFair, RandomK, TopK
from .policies.base import Policy, parse_policies, parse_policy, policies, register
from .random import Draws, uniform
from .simulation.run import Setting, simulate
from .simulation.trace import Trace
from .state import Query, State
from .users.examination import examination

if TYPE_CHECKING:
    from .analysis.significance import fisher, holm
    from .analysis.tuning import Tuning, tune
    from .experiments.execute import run_experiments
    from .experiments.experiment import Experiment, Series, read_experiment, shipped_experiment
    from .experiments.results import Results
    from .report import write_report
    from .service.client import AsyncClient, Client
    from .service.ranker import Ranker

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
    "Experiment": "experiments.experiment",
    "Series": "experiments.experiment",
    "read_experiment": "experiments.experiment",
    "shipped_experiment": "experiments.experiment",
    "run_experiments": "experiments.execute",
    "Results": "experiments.results",
    "write_report": "report",
    "fisher": "analysis.significance",
    "holm": "analysis.significance",
    "Tuning": "analysis.tuning",
    "tune": "analysis.tuning",
    "Ranker": "service.ranker",
    "Client": "service.client",
    "AsyncClient": "service.client",
}
"""Names that are imported when first asked for: who ranks or simulates does not wait for what reports."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # slow to import, and seldom asked for

        return version("mcfair")
    if name in LATER:
        from importlib import import_module

        return getattr(import_module(f".{LATER[name]}", __name__), name)
    raise AttributeError(f"module 'mcfair' has no attribute {name!r}")
