"""The policies, one module per paper; importing this package registers them."""

from .didrf import DIDRF
from .fairco import FairCo
from .gradient import ExploreK, FairK, MCFair, RandomK, TopK
from .ilp import ILP
from .lp import LP
from .mmf import MMF
from .pbmucb import PBMUCB
from .plfair import PLFair
from .prefix_greedy import PrefixGreedy
from .thompson import Thompson

__all__ = [
    "DIDRF",
    "ILP",
    "LP",
    "MMF",
    "PBMUCB",
    "ExploreK",
    "FairCo",
    "FairK",
    "MCFair",
    "PLFair",
    "PrefixGreedy",
    "RandomK",
    "Thompson",
    "TopK",
]
