"""The policies, one module per paper or family of methods; importing this package registers them."""

from .bayesfair import BayesFair as BayesFair
from .didrf import DIDRF as DIDRF
from .expohedron import Expohedron as Expohedron
from .fairco import FairCo as FairCo
from .fara import FARA as FARA
from .fara import VerFair as VerFair
from .ilp import ILP as ILP
from .lp import LP as LP
from .mcfair import ExploreK as ExploreK
from .mcfair import FairK as FairK
from .mcfair import MCFair as MCFair
from .mcfair import RandomK as RandomK
from .mcfair import TopK as TopK
from .mmf import MMF as MMF
from .pbmucb import PBMUCB as PBMUCB
from .plfair import PLFair as PLFair
from .prefix_greedy import PrefixGreedy as PrefixGreedy
from .thompson import Thompson as Thompson
