"""Simulated users: when they arrive, which ranks they examine, what they click. Click models, one module each."""

from .base import ClickModel, parse_click_model
from .cascade import DBN, Cascade
from .position_based import PositionBased
from .trust_bias import TrustBias

__all__ = ["DBN", "Cascade", "ClickModel", "PositionBased", "TrustBias", "parse_click_model"]
