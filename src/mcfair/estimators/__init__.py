"""Relevance estimators, one module each; importing this package registers them."""

from .base import Estimator, parse_estimator
from .ips import IPS

__all__ = ["IPS", "Estimator", "parse_estimator"]
