"""Fair ranking while relevance is still being learnt: MCFair and the methods it is compared with.

Examples
--------
>>> import mcfair as mf
>>> data = mf.synthetic("mq2008-like", seed=0)
>>> trace = mf.simulate(data, mf.MCFair(alpha=1.0), steps=1000)
>>> trace.sessions
1000
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import data, estimators, metrics, policies, simulation, users  # noqa: F401  # registers the parts

if TYPE_CHECKING:  # the names below, for type checkers
    from ._jit import Kernel as Kernel
    from ._jit import kernel as kernel
    from .analysis.limits import Floor as Floor
    from .analysis.limits import Frontier as Frontier
    from .analysis.limits import fairness_floor as fairness_floor
    from .analysis.limits import frontier as frontier
    from .analysis.limits import group_floor as group_floor
    from .analysis.propensities import FittedExamination as FittedExamination
    from .analysis.significance import fisher as fisher
    from .analysis.significance import holm as holm
    from .auditing.assumptions import fit_examination as fit_examination
    from .auditing.audit import Audit as Audit
    from .auditing.audit import audit as audit
    from .auditing.page import write_audit as write_audit
    from .data.catalogue import synthetic as synthetic
    from .data.dataset import Dataset as Dataset
    from .data.folds import Fold as Fold
    from .data.folds import load_fold as load_fold
    from .data.folds import load_letor as load_letor
    from .data.folds import open_data as open_data
    from .data.protocols import Protocol as Protocol
    from .errors import ConflictError as ConflictError
    from .errors import DataError as DataError
    from .errors import MCFairError as MCFairError
    from .errors import MCFairWarning as MCFairWarning
    from .errors import NotFoundError as NotFoundError
    from .errors import PartError as PartError
    from .errors import PolicyError as PolicyError
    from .errors import RequestError as RequestError
    from .errors import SettingError as SettingError
    from .errors import StoreError as StoreError
    from .errors import TraceError as TraceError
    from .errors import UnavailableError as UnavailableError
    from .estimators import IPS as IPS
    from .estimators import Beta as Beta
    from .estimators import Estimator as Estimator
    from .estimators import Mixture as Mixture
    from .estimators import parse_estimator as parse_estimator
    from .experiments.compare import compare as compare
    from .experiments.compare import run_experiments as run_experiments
    from .experiments.experiment import Experiment as Experiment
    from .experiments.experiment import Series as Series
    from .experiments.experiment import read_experiment as read_experiment
    from .experiments.experiment import shipped_experiment as shipped_experiment
    from .experiments.results import Results as Results
    from .experiments.tuning import Tuning as Tuning
    from .experiments.tuning import tune as tune
    from .metrics import CNDCG as CNDCG
    from .metrics import NDCG as NDCG
    from .metrics import Gini as Gini
    from .metrics import GroupUnfairness as GroupUnfairness
    from .metrics import LogNDCG as LogNDCG
    from .metrics import Metric as Metric
    from .metrics import RelativeUnfairness as RelativeUnfairness
    from .metrics import TrueUnfairness as TrueUnfairness
    from .metrics import Unfairness as Unfairness
    from .metrics import parse_metric as parse_metric
    from .metrics.effectiveness import cndcg as cndcg
    from .metrics.effectiveness import ndcg as ndcg
    from .metrics.exposure import unfairness as unfairness
    from .parts import Part as Part
    from .parts import register as register
    from .parts import registered as registered
    from .plugs.fair_lists import fair_lists as fair_lists
    from .plugs.reranker import FairReranker as FairReranker
    from .policies import DIDRF as DIDRF
    from .policies import FARA as FARA
    from .policies import ILP as ILP
    from .policies import LP as LP
    from .policies import MMF as MMF
    from .policies import PBMUCB as PBMUCB
    from .policies import BayesFair as BayesFair
    from .policies import ExploreK as ExploreK
    from .policies import Expohedron as Expohedron
    from .policies import FairCo as FairCo
    from .policies import FairK as FairK
    from .policies import MCFair as MCFair
    from .policies import PLFair as PLFair
    from .policies import PrefixGreedy as PrefixGreedy
    from .policies import RandomK as RandomK
    from .policies import Thompson as Thompson
    from .policies import TopK as TopK
    from .policies import VerFair as VerFair
    from .policies.base import Policy as Policy
    from .policies.base import parse_policies as parse_policies
    from .policies.base import parse_policy as parse_policy
    from .report import write_report as write_report
    from .report.comparison import Tradeoff as Tradeoff
    from .report.comparison import tradeoff as tradeoff
    from .service.client import AsyncClient as AsyncClient
    from .service.client import Client as Client
    from .service.ranker import Ranker as Ranker
    from .simulation.run import simulate as simulate
    from .simulation.setting import Setting as Setting
    from .simulation.trace import Trace as Trace
    from .state import Query as Query
    from .state import State as State
    from .users import DBN as DBN
    from .users import Cascade as Cascade
    from .users import ClickModel as ClickModel
    from .users import PositionBased as PositionBased
    from .users import TrustBias as TrustBias
    from .users import parse_click_model as parse_click_model
    from .users.examination import examination as examination

NAMES = {
    "_jit": "Kernel kernel",
    "analysis.limits": "Floor Frontier fairness_floor frontier group_floor",
    "analysis.propensities": "FittedExamination",
    "analysis.significance": "fisher holm",
    "auditing.assumptions": "fit_examination",
    "auditing.audit": "Audit audit",
    "auditing.page": "write_audit",
    "data.catalogue": "synthetic",
    "data.dataset": "Dataset",
    "data.folds": "Fold load_fold load_letor open_data",
    "data.protocols": "Protocol",
    "errors": "ConflictError DataError MCFairError MCFairWarning NotFoundError PartError PolicyError RequestError "
    "SettingError StoreError TraceError UnavailableError",
    "estimators": "IPS Beta Estimator Mixture parse_estimator",
    "experiments.compare": "compare run_experiments",
    "experiments.experiment": "Experiment Series read_experiment shipped_experiment",
    "experiments.results": "Results",
    "experiments.tuning": "Tuning tune",
    "metrics": "CNDCG NDCG Gini GroupUnfairness LogNDCG Metric RelativeUnfairness TrueUnfairness Unfairness "
    "parse_metric",
    "metrics.effectiveness": "cndcg ndcg",
    "metrics.exposure": "unfairness",
    "parts": "Part register registered",
    "plugs.fair_lists": "fair_lists",
    "plugs.reranker": "FairReranker",
    "policies": "DIDRF FARA ILP LP MMF PBMUCB BayesFair ExploreK Expohedron FairCo FairK MCFair PLFair PrefixGreedy "
    "RandomK Thompson TopK VerFair",
    "policies.base": "Policy parse_policies parse_policy",
    "report": "write_report",
    "report.comparison": "Tradeoff tradeoff",
    "service.client": "AsyncClient Client",
    "service.ranker": "Ranker",
    "simulation.run": "simulate",
    "simulation.setting": "Setting",
    "simulation.trace": "Trace",
    "state": "Query State",
    "users": "DBN Cascade ClickModel PositionBased TrustBias parse_click_model",
    "users.examination": "examination",
}
"""The public names of each module, which is imported when the first of them is used."""

MODULES = {name: module for module, names in NAMES.items() for name in names.split()}

__all__ = sorted(MODULES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # slow to import, and seldom needed

        return version("mcfair")
    if name in MODULES:
        value = globals()[name] = getattr(import_module(f".{MODULES[name]}", __name__), name)
        return value
    raise AttributeError(f"module 'mcfair' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
