"""Fair ranking while relevance is still being learnt: MCFair and the methods it is compared with.

Examples
--------
>>> import mcfair as mf
>>> data = mf.synthetic("mq2008-like", seed=0)
>>> trace = mf.simulate(data, mf.MCFair(alpha=1.0), steps=1000)
>>> trace.sessions
1000
"""

from typing import TYPE_CHECKING, Any

from ._jit import Kernel, kernel
from .data.catalogue import synthetic
from .data.dataset import Dataset
from .data.folds import Fold, load_fold, load_letor, open_data
from .data.protocols import Protocol
from .errors import (
    ConflictError,
    DataError,
    MCFairError,
    MCFairWarning,
    NotFoundError,
    PartError,
    PolicyError,
    RequestError,
    SettingError,
    StoreError,
    TraceError,
    UnavailableError,
    renamed,
)
from .estimators import IPS, Beta, Estimator, Mixture, parse_estimator
from .metrics import (
    CNDCG,
    NDCG,
    Gini,
    GroupUnfairness,
    LogNDCG,
    Metric,
    RelativeUnfairness,
    TrueUnfairness,
    Unfairness,
    parse_metric,
)
from .metrics.effectiveness import cndcg, ndcg
from .metrics.exposure import unfairness
from .parts import Part, register, registered
from .policies import (
    DIDRF,
    FARA,
    ILP,
    LP,
    MMF,
    PBMUCB,
    BayesFair,
    ExploreK,
    Expohedron,
    FairCo,
    FairK,
    MCFair,
    PLFair,
    PrefixGreedy,
    RandomK,
    Thompson,
    TopK,
    VerFair,
)
from .policies.base import Policy, parse_policies, parse_policy
from .simulation.run import simulate
from .simulation.setting import Setting
from .simulation.trace import Trace
from .state import Query, State
from .users import DBN, Cascade, ClickModel, PositionBased, TrustBias, parse_click_model
from .users.examination import examination

if TYPE_CHECKING:
    from .analysis.limits import Floor, Frontier, fairness_floor, frontier, group_floor
    from .analysis.propensities import FittedExamination
    from .analysis.significance import fisher, holm
    from .auditing.assumptions import fit_examination
    from .auditing.audit import Audit, audit
    from .auditing.page import write_audit
    from .experiments.compare import compare, run_experiments
    from .experiments.experiment import Experiment, Series, read_experiment, shipped_experiment
    from .experiments.results import Results
    from .experiments.tuning import Tuning, tune
    from .plugs.fair_lists import fair_lists
    from .plugs.reranker import FairReranker
    from .report import write_report
    from .report.comparison import Tradeoff, tradeoff
    from .service.client import AsyncClient, Client
    from .service.ranker import Ranker

LATER = {
    "AsyncClient": "service.client",
    "Audit": "auditing.audit",
    "Client": "service.client",
    "Experiment": "experiments.experiment",
    "FairReranker": "plugs.reranker",
    "FittedExamination": "analysis.propensities",
    "Floor": "analysis.limits",
    "Frontier": "analysis.limits",
    "Ranker": "service.ranker",
    "Results": "experiments.results",
    "Series": "experiments.experiment",
    "Tradeoff": "report.comparison",
    "Tuning": "experiments.tuning",
    "audit": "auditing.audit",
    "compare": "experiments.compare",
    "fair_lists": "plugs.fair_lists",
    "fairness_floor": "analysis.limits",
    "group_floor": "analysis.limits",
    "fisher": "analysis.significance",
    "fit_examination": "auditing.assumptions",
    "frontier": "analysis.limits",
    "holm": "analysis.significance",
    "read_experiment": "experiments.experiment",
    "run_experiments": "experiments.compare",
    "shipped_experiment": "experiments.experiment",
    "tradeoff": "report.comparison",
    "tune": "experiments.tuning",
    "write_audit": "auditing.page",
    "write_report": "report",
}
"""Names that are imported on first use, so that ranking and simulating need not load what reports and serves."""

MOVED = {
    "Draws": "random",
    "ideal_dcg": "metrics.effectiveness",
    "relevance": "data.dataset",
    "unfairness_per_query": "metrics.exposure",
    "uniform": "random",
}
"""Names that are no longer at the top, and where they are; accepted for one release."""

__all__ = [
    "CNDCG",
    "DBN",
    "DIDRF",
    "FARA",
    "ILP",
    "IPS",
    "LP",
    "MMF",
    "NDCG",
    "PBMUCB",
    "AsyncClient",
    "Audit",
    "BayesFair",
    "Beta",
    "Cascade",
    "ClickModel",
    "Client",
    "ConflictError",
    "DataError",
    "Dataset",
    "Estimator",
    "Experiment",
    "ExploreK",
    "Expohedron",
    "FairCo",
    "FairK",
    "FairReranker",
    "FittedExamination",
    "Floor",
    "Fold",
    "Frontier",
    "Gini",
    "GroupUnfairness",
    "Kernel",
    "LogNDCG",
    "MCFair",
    "MCFairError",
    "MCFairWarning",
    "Metric",
    "Mixture",
    "NotFoundError",
    "PLFair",
    "Part",
    "PartError",
    "Policy",
    "PolicyError",
    "PositionBased",
    "PrefixGreedy",
    "Protocol",
    "Query",
    "RandomK",
    "Ranker",
    "RelativeUnfairness",
    "RequestError",
    "Results",
    "Series",
    "Setting",
    "SettingError",
    "State",
    "StoreError",
    "Thompson",
    "TopK",
    "Trace",
    "TraceError",
    "Tradeoff",
    "TrueUnfairness",
    "TrustBias",
    "Tuning",
    "UnavailableError",
    "Unfairness",
    "VerFair",
    "audit",
    "cndcg",
    "compare",
    "examination",
    "fair_lists",
    "fairness_floor",
    "fisher",
    "fit_examination",
    "frontier",
    "group_floor",
    "holm",
    "kernel",
    "load_fold",
    "load_letor",
    "ndcg",
    "open_data",
    "parse_click_model",
    "parse_estimator",
    "parse_metric",
    "parse_policies",
    "parse_policy",
    "read_experiment",
    "register",
    "registered",
    "run_experiments",
    "shipped_experiment",
    "simulate",
    "synthetic",
    "tradeoff",
    "tune",
    "unfairness",
    "write_audit",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # slow to import, and seldom needed

        return version("mcfair")
    if name in MOVED:
        renamed(f"mcfair.{name}", f"mcfair.{MOVED[name]}.{name}")
    if module := LATER.get(name) or MOVED.get(name):
        from importlib import import_module

        return getattr(import_module(f".{module}", __name__), name)
    if name == "BudgetFair":
        raise AttributeError("BudgetFair is no part of mcfair any more: studies/beyond/budgetfair.py in its repository")
    raise AttributeError(f"module 'mcfair' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
