"""Metrics: effectiveness for users, fairness of exposure for providers; importing this package registers them."""

from .base import Metric, parse_metric
from .effectiveness import CNDCG, NDCG
from .exposure import Gini, RelativeUnfairness, Unfairness
from .groups import GroupUnfairness

__all__ = ["CNDCG", "NDCG", "Gini", "GroupUnfairness", "Metric", "RelativeUnfairness", "Unfairness", "parse_metric"]
