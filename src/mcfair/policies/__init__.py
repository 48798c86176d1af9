"""The policies, one module per paper; importing this package registers them."""

from .bayesfair import BayesFair
from .fairco import FairCo
from .gradient import ExploreK, FairK, MCFair, RandomK, TopK
from .ilp import ILP
from .lp import LP
from .mmf import MMF
from .plfair import PLFair

__all__ = ["ILP", "LP", "MMF", "BayesFair", "ExploreK", "FairCo", "FairK", "MCFair", "PLFair", "RandomK", "TopK"]
