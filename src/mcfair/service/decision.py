"""One decision: which items a policy shows at which ranks, and why, in numbers and in words."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray, IntArray
from ..policies.base import Policy
from ..policies.selection import TopKScratch, choose
from ..random import Draws
from ..state import Query

__all__ = ["Decision", "counterfactual", "decide", "sentence"]

WEIGHTS = {"fairness": "alpha", "exploration": "beta"}
"""The parameter that is the weight of each term."""


class Decision(NamedTuple):
    """A list of positions among the candidates, best first; the scores behind it, if the policy has any; the view."""

    pi: IntArray
    scores: FloatArray | None
    view: Query


def decide(policy: Policy, q: Query, rng: Draws, theta: FloatArray, scratch: TopKScratch) -> Decision:
    """Return the list that a policy shows for one request."""
    pi, scores = choose(policy, q, rng, theta=theta, scratch=scratch)
    return Decision(pi, scores, q)


def counterfactual(policy: Policy, q: Query, rng: Draws, term: str) -> IntArray | None:
    """Return the rank of every candidate, from 1, with the weight of one term set to 0; None without such a weight."""
    name = WEIGHTS[term]
    if name not in {field.name for field in dataclasses.fields(policy)}:
        return None
    without = dataclasses.replace(policy, **{name: 0.0})
    n = q.R.size
    wide = np.zeros((n, n - q.p.size), np.int32)
    whole = q._replace(p=np.append(q.p, np.zeros(n - q.p.size)), F=np.hstack([q.F, wide]))
    ranks = np.empty(n, np.int64)
    ranks[choose(without, whole, rng).pi] = np.arange(1, n + 1)
    return ranks


def sentence(rank: int, n: int, terms: dict[str, float], without: dict[str, int]) -> str:
    """Return one sentence in plain words on why an item has its rank."""
    words = {
        "relevance": "its estimated relevance",
        "fairness": "the exposure it is due",
        "exploration": "how little is known of it",
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
    others = [
        f"without {'the share for fairness' if name == 'fairness' else name} it would stand at rank {other}"
        for name, other in without.items()
        if other != rank
    ]
    return text + ("; " + ", ".join(others) if others else "") + "."
