"""Relevance estimators, one module each; importing this package registers them."""

from .base import Estimator, parse_estimator
from .beta import Beta
from .ips import IPS
from .mixture import Mixture

__all__ = ["IPS", "Beta", "Estimator", "Mixture", "parse_estimator"]
