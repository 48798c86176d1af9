"""Fair ranking while relevance is still being learnt: MCFair and the methods it is compared with.

Examples
--------
>>> import mcfair as mf
>>> data = mf.synthetic("mq2008-like", seed=0)
>>> trace = mf.simulate(data, mf.MCFair(alpha=1.0, beta=0.0), steps=1000)
>>> trace.sessions
1000
"""

from ._jit import Kernel, kernel
from .data import Dataset
from .datasets import Fold, load_letor, open_data, synthetic
from .errors import DataError, MCFairError, MCFairWarning, PolicyError, SettingError, TraceError
from .limits import Floor, Frontier, fairness_floor, frontier
from .metrics import cndcg, ideal_dcg, ndcg, unfairness, unfairness_per_query
from .policies import ILP, LP, MMF, ExploreK, FairCo, FairK, MCFair, PLFair, RandomK, TopK
from .policy import Policy, parse_policy, policies, register
from .random import Draws, uniform
from .simulate import Setting, simulate
from .state import Query, State
from .trace import Trace
from .users import examination, relevance

__all__ = [
    "ILP",
    "LP",
    "MMF",
    "DataError",
    "Dataset",
    "Draws",
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
    "PLFair",
    "Policy",
    "PolicyError",
    "Query",
    "RandomK",
    "Setting",
    "SettingError",
    "State",
    "TopK",
    "Trace",
    "TraceError",
    "cndcg",
    "examination",
    "fairness_floor",
    "frontier",
    "ideal_dcg",
    "kernel",
    "load_letor",
    "ndcg",
    "open_data",
    "parse_policy",
    "policies",
    "register",
    "relevance",
    "simulate",
    "synthetic",
    "unfairness",
    "unfairness_per_query",
    "uniform",
]


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version  # slow to import, and seldom asked for

        return version("mcfair")
    raise AttributeError(f"module 'mcfair' has no attribute {name!r}")
