"""The policies, one module per paper; importing this package registers them."""

from .fairco import FairCo
from .gradient import ExploreK, FairK, MCFair, RandomK, TopK
from .mmf import MMF

__all__ = ["MMF", "ExploreK", "FairCo", "FairK", "MCFair", "RandomK", "TopK"]
