"""One decision: which items a policy shows at which ranks, and why, in numbers and in words."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray, IntArray
from ...parts import parameter_types
from ...policies.base import Policy
from ...policies.ordering import TopKScratch
from ...policies.selection import choose, score_terms
from ...random import Draws
from ...state import Query

__all__ = ["Decision", "counterfactual", "decide", "sentence"]

WEIGHTS = {"fairness": "alpha", "exploration": "beta", "group": "alpha_group", "guard": "guard"}
"""The parameter that is the weight of each term."""


class Decision(NamedTuple):
    """A list of positions among the candidates, best first, and what it was made from.

    The scores are None if the policy has none. `weight` is the guard's λ, and `p` the examination probabilities by
    which the guard measures DCG: those of the view may be units of decayed counts instead.
    """

    pi: IntArray
    scores: FloatArray | None
    view: Query
    weight: float
    p: FloatArray

    def terms(self, policy: Policy) -> dict[str, FloatArray]:
        """Return the terms that sum to the scores, that of the guard included if it changed the list."""
        return score_terms(policy, self.view, self.weight)


def decide(policy: Policy, q: Query, rng: Draws, theta: FloatArray, scratch: TopKScratch, p: FloatArray) -> Decision:
    """Return the list that a policy shows for one request, given the examination probabilities of its ranks."""
    pi, scores, weight = choose(policy, q, rng, p=p, theta=theta, scratch=scratch)
    return Decision(pi, scores, q, weight, p)


def counterfactual(policy: Policy, decision: Decision, rng: Draws, term: str) -> IntArray | None:
    """Return the rank of every candidate, from 1, with the weight of one term set to 0.

    None if the policy has no such weight, or if the term is common to all policies and off: a group term with a weight
    of 0, or a guard that did not change the list.
    """
    name, q = WEIGHTS[term], decision.view
    if name not in parameter_types(type(policy)) or (term == "guard" and decision.weight == 0.0):
        return None
    if term == "group" and policy.alpha_group == 0.0:
        return None
    without = dataclasses.replace(policy, **{name: 0.0})
    n = q.R.size
    beyond = np.zeros(n - q.p.size)
    whole = q._replace(p=np.append(q.p, beyond), F=np.hstack([q.F, np.zeros((n, beyond.size), np.int32)]))
    ranks = np.empty(n, np.int64)
    ranks[choose(without, whole, rng, p=np.append(decision.p, beyond)).pi] = np.arange(1, n + 1)
    return ranks


def sentence(rank: int, n: int, terms: dict[str, float], without: dict[str, int]) -> str:
    """Return one sentence in plain words on why an item has its rank."""
    words = {
        "relevance": "its estimated relevance",
        "fairness": "the exposure it is due",
        "exploration": "how little is known of it",
        "group": "the exposure its group is due",
        "guard": "the guard, which holds items of high estimated relevance in the list",
    }
    parts = sorted(((abs(value), name, value) for name, value in terms.items() if value != 0.0), reverse=True)
    if parts:
        _, name, value = parts[0]
        cause = words.get(name, name)
        reason = f"mostly because of {cause}" if value > 0 else f"although {cause} counts against it"
    else:
        reason = (
            "by the rule of the policy, which gives no score" if not terms else "with nothing known that sets it apart"
        )
    text = f"Rank {rank} of {n}, {reason}"
    called = {
        "fairness": "the share for fairness",
        "group": "the share of its group",
        "guard": "the guard, which moved it,",
    }
    others = [
        f"without {called.get(name, name)} it would stand at rank {other}"
        for name, other in without.items()
        if other != rank
    ]
    return text + ("; " + ", ".join(others) if others else "") + "."
