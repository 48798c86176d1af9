"""The policies, one module per paper; importing this package registers them."""

from .bayesfair import BayesFair
from .didrf import DIDRF
from .expohedron import Expohedron
from .fairco import FairCo
from .fara import FARA
from .ilp import ILP
from .lp import LP
from .mcfair import ExploreK, FairK, MCFair, RandomK, TopK
from .mmf import MMF
from .pbmucb import PBMUCB
from .plfair import PLFair
from .prefix_greedy import PrefixGreedy
from .thompson import Thompson
from .verfair import VerFair

__all__ = [
    "DIDRF",
    "FARA",
    "ILP",
    "LP",
    "MMF",
    "PBMUCB",
    "BayesFair",
    "ExploreK",
    "Expohedron",
    "FairCo",
    "FairK",
    "MCFair",
    "PLFair",
    "PrefixGreedy",
    "RandomK",
    "Thompson",
    "TopK",
    "VerFair",
]
