"""The paper's own family: rank by relevance, by the gradient of fairness, by marginal certainty, or by their sum.

All of them are one kernel, `w_R R + w_B B + w_MC MC`, with weights that are fixed or parameters. A second kernel has
another term of exploration in place of MC.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from .._jit import AnyKernel, kernel
from ..arrays import FloatArray, IntArray
from ..parts import NonNegative, register
from ..random import Draws, uniform
from ..state import Query
from .base import Mode, Policy
from .selection import EXAMPLE_DRAWS, Ties, policy_call
from .terms import Explore, Scale, add_certainty, add_exploration, group_term, write_gradient

# --- the family ------------------------------------------------------------------------------------------------------

RELEVANCE, FAIRNESS, EXPLORATION, SCALE, MC_FLOOR, EXPLORE = range(6)  # of theta


@kernel
def gradient_score(q: Query, theta: FloatArray, rng: Draws, out: FloatArray) -> None:
    """Write `w_R R + w_B B + w_MC MC` (Eq. 24)."""
    write_gradient(q.E, q.R, q.visits[()], theta[RELEVANCE], theta[FAIRNESS], theta[SCALE], out)
    add_certainty(q.E, q.prior_strength, theta[EXPLORATION], theta[MC_FLOOR], out)


@kernel
def exploring_score(q: Query, theta: FloatArray, rng: Draws, out: FloatArray) -> None:
    """Write `w_R R + w_B B + w_X X`, with a term of exploration other than marginal certainty."""
    write_gradient(q.E, q.R, q.visits[()], theta[RELEVANCE], theta[FAIRNESS], theta[SCALE], out)
    add_exploration(q, theta[EXPLORE], theta[EXPLORATION], theta[MC_FLOOR], rng, out)


class WeightedSum(Policy):
    """Base of policies whose score is a sum of weighted terms: relevance, fairness and exploration.

    The first entries of `theta` are the weights. A term is the score with every other weight set to 0, so that the
    terms add up to the score by construction.

    Attributes
    ----------
    weights
        Weight of each term: a number, or the name of the parameter that holds it.
    exploring
        For a kernel that explores by marginal certainty, the one that explores by other terms. They are two, because
        the paper's is inlined in the loop of the simulator, which a choice at every item would slow down.
    """

    TERMS: ClassVar[tuple[str, ...]] = ("relevance", "fairness", "exploration")
    weights: ClassVar[tuple[float | str, float | str, float | str]] = (0.0, 0.0, 0.0)
    exploring: ClassVar[dict[AnyKernel, AnyKernel]] = {gradient_score: exploring_score}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel is not None and self.explores_by not in ("mc", "none"):
            object.__setattr__(self, "kernel", self.exploring.get(self.kernel, self.kernel))

    @property
    def explores_by(self) -> Explore:
        """The parameter `explore`; marginal certainty if there is none."""
        return getattr(self, "explore", "mc")

    def in_mode(self, mode: Mode) -> Self:
        """Return the policy with "auto" replaced; without marginal certainty the weight of exploration is then 1."""
        if getattr(self, "beta", None) == "auto" and self.explores_by != "mc":
            weight: dict[str, Any] = {"beta": 1.0}  # a parameter of the subclass
            return dataclasses.replace(self, **weight)
        return super().in_mode(mode)

    @property
    def theta(self) -> FloatArray:
        """The weights, then what the terms depend on; "auto" counts as online, where relevance may not be given."""
        known = self.in_mode("online")
        weights = [getattr(known, each) if isinstance(each, str) else each for each in self.weights]
        if self.explores_by == "none":
            weights[EXPLORATION] = 0.0
        scale, explore = get_args(Scale).index(getattr(self, "scale", "max")), get_args(Explore).index(self.explores_by)
        return np.array([*weights, scale, getattr(self, "mc_floor", 0.0), explore])

    @property
    def part_weights(self) -> dict[str, int]:
        """Where in `theta` the weight of each term is."""
        return {name: i for i, name in enumerate(self.TERMS)}

    def terms(self, q: Query) -> dict[str, FloatArray]:
        """Return the weighted terms of the score, those without weight included; none if the score is drawn."""
        terms: dict[str, FloatArray] = {}
        if self.explores_by == "thompson":
            return terms
        q = q.for_kernels()
        for i, name in enumerate(self.TERMS):
            theta = self.theta
            weight = theta[i]
            theta[: len(self.TERMS)] = 0.0
            theta[i] = weight
            terms[name] = np.empty(q.R.size)
            policy_call(self)(q, theta, EXAMPLE_DRAWS, terms[name])
        return terms if self.alpha_group == 0.0 else terms | {"group": group_term(self, q)}


@register
class TopK(WeightedSum):
    """Rank by relevance alone; with β > 0 also by marginal certainty.

    Parameters
    ----------
    beta
        Weight of exploration.
    mc_floor
        Smallest squared exposure in MC = 1/E², so that MC is at most 1/mc_floor.
    ties
        Order of items of equal score.
    explore
        Term of exploration: marginal certainty as published, or another one, see `mcfair.policies.terms.Explore`.

    Examples
    --------
    Four lists for one query, whose first item is the most relevant:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, TopK(), steps=4, k=2, record=True).lists.tolist()
    [[0, 1], [0, 1], [0, 1], [0, 1]]
    """

    beta: NonNegative = 0.0
    mc_floor: NonNegative = 0.1
    ties: Ties = "index"
    explore: Explore = "mc"

    kernel = gradient_score
    weights = (1.0, 0.0, "beta")
    style = ("#000000", "s")


@register
class FairK(WeightedSum):
    """Rank by the gradient of fairness B (Eq. 16); with β > 0 also by marginal certainty.

    Parameters
    ----------
    beta
        Weight of exploration.
    scale
        What B is divided by, see `MCFair`.
    mc_floor
        Smallest squared exposure in MC = 1/E², so that MC is at most 1/mc_floor.
    ties
        Order of items of equal score.
    explore
        Term of exploration: marginal certainty as published, or another one, see `mcfair.policies.terms.Explore`.

    Examples
    --------
    The third item is shown as soon as its exposure lags behind its relevance:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, FairK(), steps=4, k=2, record=True).lists.tolist()
    [[0, 1], [2, 0], [0, 1], [0, 1]]
    """

    beta: NonNegative = 0.0
    scale: Scale = "max"
    mc_floor: NonNegative = 0.1
    ties: Ties = "index"
    explore: Explore = "mc"

    kernel = gradient_score
    weights = (0.0, 1.0, "beta")
    style = ("#56B4E9", "D")


@register
class ExploreK(WeightedSum):
    """Rank by marginal certainty (Eq. 29): the least exposed first.

    Parameters
    ----------
    mc_floor
        Smallest squared exposure in MC = 1/E², so that MC is at most 1/mc_floor.
    ties
        Order of items of equal score.

    Examples
    --------
    Relevance does not matter; every list begins with the item that has the least exposure:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, ExploreK(), steps=4, k=2, record=True).lists.tolist()
    [[0, 1], [2, 1], [0, 2], [1, 2]]
    """

    mc_floor: NonNegative = 0.1
    ties: Ties = "index"

    kernel = gradient_score
    weights = (0.0, 0.0, 1.0)
    style = ("#F0E442", "^")


@register
class MCFair(WeightedSum):
    """Rank by the gradient of the uncertainty-aware objective (Eq. 24): relevance + α fairness + β certainty.

    Parameters
    ----------
    alpha
        Weight of fairness.
    beta
        Weight of exploration. "auto" is what the paper uses: 0 when relevance is given, 100 online; it is 1 if
        `explore` is not marginal certainty.
    scale
        "max" divides B by its largest entry, which is what the paper's α from 0 to 1000 means; "raw" is Eq. 16 as
        printed, in which B grows with time; "mean" divides by the visits, so that α keeps one point of the trade-off.
    mc_floor
        Smallest squared exposure in MC = 1/E², so that MC is at most 1/mc_floor.
    ties
        Order of items of equal score.
    explore
        Term of exploration: marginal certainty as published, or another one, see `mcfair.policies.terms.Explore`.

    Examples
    --------
    >>> MCFair(alpha=10)
    MCFair(alpha=10.0, beta='auto', scale='max', mc_floor=0.1, ties='index', explore='mc')
    >>> MCFair().in_mode("post-processing").beta, MCFair().in_mode("online").beta
    (0.0, 100.0)
    """

    alpha: NonNegative = 1.0
    beta: NonNegative | Literal["auto"] = "auto"
    scale: Scale = "max"
    mc_floor: NonNegative = 0.1
    ties: Ties = "index"
    explore: Explore = "mc"

    kernel = gradient_score
    weights = (1.0, "alpha", "beta")
    style = ("#0072B2", "o")
    auto: ClassVar[dict[str, dict[Mode, float]]] = {"beta": {"post-processing": 0.0, "online": 100.0}}


# --- at random -------------------------------------------------------------------------------------------------------


@kernel(allocates=True)
def randomk_rank(q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> None:
    """Draw, for each rank, one of the items that are left."""
    n, k = q.R.shape[0], out.shape[0]
    taken = np.empty(k, np.int64)  # in ascending order
    for j in range(k):
        d = int(uniform(rng, j) * (n - j))  # the d-th item that is left
        i = 0
        while i < j and taken[i] <= d:
            d += 1
            i += 1
        for above in range(j, i, -1):
            taken[above] = taken[above - 1]
        taken[i] = d
        out[j] = d


@register
class RandomK(Policy):
    """Rank at random, every list equally likely.

    Examples
    --------
    The lists are a function of the seed:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, RandomK(), steps=4, k=2, record=True).lists.tolist()
    [[0, 2], [0, 1], [0, 2], [1, 2]]
    """

    kernel = randomk_rank
    style = ("#000000", "*")
    ranks = True
