"""One decision: which items a policy shows at which ranks, and where they would stand without parts of the policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray, IntArray
from ...policies.base import Policy
from ...policies.selection import Choice, TopKScratch, choose, order_by, score_terms
from ...random import Draws
from ...state import Query

RELEVANCE, GROUP, GUARD = "relevance", "group", "guard"
"""Parts of a policy that every policy may have; the others are named by the policy."""


class Decision(NamedTuple):
    """A list of positions among the candidates, best first, and what it was made from.

    The scores are None if the policy has none. `weight` is the guard's λ, and `p` the examination probabilities by
    which the guard measures DCG: those of the view may be units of decayed counts instead. The gap is that of `Choice`.
    """

    pi: IntArray
    scores: FloatArray | None
    view: Query
    weight: float
    p: FloatArray
    gap: float = 0.0

    def terms(self, policy: Policy) -> dict[str, FloatArray]:
        """Return the terms that sum to the scores, that of the guard included if it changed the list."""
        return score_terms(policy, self.view, self.weight)


def decide(policy: Policy, q: Query, rng: Draws, theta: FloatArray, scratch: TopKScratch, p: FloatArray) -> Decision:
    """Return the list that a policy shows for one request, given the examination probabilities of its ranks."""
    pi, scores, weight, gap = choose(policy, q, rng, p=p, theta=theta, scratch=scratch)
    return Decision(pi, scores, q, weight, p, gap)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Standings:
    """The ranks of all candidates, from 1, and those that they would have without each part of the policy.

    A policy that fills ranks one by one ranks no other candidates: their rank is then 0.

    Attributes
    ----------
    ranks, by_relevance : (n,) int arrays
        Ranks by the policy, and by the estimated relevance alone.
    without : dict of (n,) int arrays
        Ranks by the policy without a part, for every part that has a weight; the guard only if it changed the list.
    even : frozenset of str
        Parts that are equal for all candidates.
    """

    ranks: IntArray
    by_relevance: IntArray
    without: dict[str, IntArray]
    even: frozenset[str]


def standings(policy: Policy, decision: Decision, rng: Draws) -> Standings:
    """Compute where the candidates of a decision stand, and where they would without each part of the policy.

    Every other part stays as it is, the draws of the session and the guard included.
    """
    q, p = decision.view, decision.p
    present = choose(policy, q, rng, p=p)
    terms = {name: term for name, term in policy.terms(q).items() if name != GROUP}  # which `choose` adds by itself

    def ranks(choice: Choice) -> IntArray:
        """Return the rank of each candidate; below the list the order is that of the scores."""
        pi = choice.pi if choice.scores is None else order_by(policy, choice.scores, q.E, rng)
        return ranks_in(pi, q.R.size)

    without, even = {}, set()
    for part, choice in choices_without(policy, q, rng, p, terms):
        without[part] = ranks(choice)
        if is_even(part, terms, present, choice):
            even.add(part)
    if policy.alpha_group != 0.0:
        choice = choose(dataclasses.replace(policy, alpha_group=0.0), q, rng, p=p)
        without[GROUP] = ranks(choice)
        if is_even(GROUP, terms, present, choice):
            even.add(GROUP)
    if present.weight != 0.0:
        without[GUARD] = ranks(choose(dataclasses.replace(policy, guard=0.0), q, rng, p=p))
    return Standings(
        ranks=ranks(present),
        by_relevance=ranks_in(order_by(policy, q.R, q.E, rng), q.R.size),
        without=without,
        even=frozenset(even),
    )


def choices_without(
    policy: Policy, q: Query, rng: Draws, p: FloatArray, terms: dict[str, FloatArray]
) -> Iterator[tuple[str, Choice]]:
    """Yield each part of a policy that has a weight, and the choice without it.

    The kernel leaves out a part whose weight is 0. A policy without a kernel may name terms that sum to its score.
    """
    if policy.kernel is None:
        for part in () if policy.ranks else terms:
            yield part, choose(policy, q, rng, p=p, call=sum_without(part, terms))
        return
    for part, place in policy.part_weights.items():
        theta = policy.theta
        if theta[place] != 0.0:
            theta[place] = 0.0
            yield part, choose(policy, q, rng, p=p, theta=theta)


def sum_without(part: str, terms: dict[str, FloatArray]) -> Callable[..., None]:
    """Return a function that writes the sum of all terms but one, as a policy writes its scores."""

    def write(q: Query, theta: FloatArray, rng: Draws, out: FloatArray) -> None:
        out[:] = 0.0
        for name, values in terms.items():
            if name != part:
                out += values

    return write


def is_even(part: str, terms: dict[str, FloatArray], present: Choice, without: Choice) -> bool:
    """Return whether a part is equal for all candidates: its term is, or what the score has more with it."""
    if part in terms:
        values = terms[part]
    elif present.scores is not None and without.scores is not None and present.weight == without.weight == 0.0:
        with np.errstate(invalid="ignore"):  # infinite scores
            values = present.scores - without.scores
    else:
        return False
    return bool((values == values[0]).all())


def ranks_in(pi: IntArray, n: int) -> IntArray:
    """Return the rank of each of n candidates in a list, 0 if it is not in it."""
    ranks = np.zeros(n, np.int64)
    ranks[pi] = np.arange(1, pi.size + 1)
    return ranks
