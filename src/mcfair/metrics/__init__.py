"""Metrics: effectiveness for users, fairness of exposure for providers; importing this package registers them."""

from .base import Metric, parse_metric
from .effectiveness import CNDCG, NDCG, LogNDCG
from .exposure import Gini, GroupUnfairness, RelativeUnfairness, TrueUnfairness, Unfairness

__all__ = [
    "CNDCG",
    "NDCG",
    "Gini",
    "GroupUnfairness",
    "LogNDCG",
    "Metric",
    "RelativeUnfairness",
    "TrueUnfairness",
    "Unfairness",
    "parse_metric",
]
