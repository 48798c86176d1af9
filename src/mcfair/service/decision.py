"""One decision: which items a policy puts at which ranks, and why, in numbers and in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .._jit import INTERPRET, AnyKernel
from ..arrays import FloatArray, IntArray
from ..errors import PolicyError
from ..policies.base import BY_INDEX, EXAMPLE_DRAWS, OK, RANK, SCORE, Policy, Room, is_list, room_for, top_k
from ..random import TIES, Draws
from ..state import Query

__all__ = ["Decision", "counterfactual", "decide", "sentence"]

WEIGHTS = {"fairness": "alpha", "exploration": "beta"}
"""Which parameter gives a term its weight."""


class Decision(NamedTuple):
    """A list of positions among the candidates, best first; the scores behind it, if the policy has any; the view."""

    pi: IntArray
    scores: FloatArray | None
    view: Query


def decide(policy: Policy, q: Query, rng: Draws, k: int, theta: FloatArray, room: Room) -> Decision:
    """Let a policy rank candidates: the k best, by its kernel if it has one."""
    n = q.R.size
    if policy.ranks:
        if policy.kernel is not None:
            pi = np.empty(k, np.int64)
            lister(policy.kernel)(q, theta, rng, pi)
        else:
            pi = np.ascontiguousarray(attempt(policy, policy.rank, q, rng), dtype=np.int64)
        if pi.shape != (k,) or not is_list(pi, n):
            raise PolicyError(f"{policy!r} did not give {k} distinct positions below {n}")
        return Decision(pi, None, q)
    if policy.kernel is not None:
        scores = np.empty(n)
        scorer(policy.kernel)(q, theta, rng, scores)
    else:
        scores = np.ascontiguousarray(attempt(policy, policy.score, q), dtype=np.float64)
        if scores.shape != (n,):
            raise PolicyError(f"{policy!r} gave scores of shape {scores.shape} for {n} items")
    pi = np.empty(k, np.int64)
    rule = policy.tie_rule
    luck = rng if rule == BY_INDEX else rng._replace(purpose=np.uint64(TIES))
    if sorter()(scores, q.E, rule, luck, *room, pi) != OK:
        raise PolicyError(f"{policy!r} gave a score that is no number")
    return Decision(pi, scores, q)


# Numba's dispatcher looks at the type of every argument at every call, which takes longer than to score many items.


def direct(kernel: AnyKernel, *examples: Any) -> Callable[..., Any]:
    """Give a kernel as it can be called past the dispatcher, with arguments of the types of these examples only."""
    return kernel.interpreted if INTERPRET else kernel.compile(*examples)[1]


@cache
def scorer(kernel: AnyKernel) -> Callable[..., Any]:
    """Give the kernel of a policy that scores."""
    return direct(kernel, *SCORE)


@cache
def lister(kernel: AnyKernel) -> Callable[..., Any]:
    """Give the kernel of a policy that makes lists."""
    return direct(kernel, *RANK)


@cache
def sorter() -> Callable[..., Any]:
    """Give `top_k`."""
    return direct(top_k, np.zeros(1), np.zeros(1), BY_INDEX, EXAMPLE_DRAWS, *room_for(1), np.zeros(1, np.int64))


def attempt(policy: Policy, method: Callable[..., Any], *args: Any) -> Any:
    """Call a user's own code, which may fail in any way."""
    try:
        return method(*args)
    except Exception as error:
        raise PolicyError(f"{policy!r} failed: {type(error).__name__}: {error}") from error


def counterfactual(policy: Policy, q: Query, rng: Draws, term: str) -> IntArray | None:
    """Rank of every candidate, from 1, if one term had had no weight; None if the policy has no weight for it."""
    name = WEIGHTS[term]
    if name not in {field.name for field in dataclasses.fields(policy)}:  # type: ignore[arg-type]
        return None
    without = dataclasses.replace(policy, **{name: 0.0})  # type: ignore[type-var]
    n = q.R.size
    wide = np.zeros((n, n - q.p.size), np.int32)
    whole = q._replace(p=np.append(q.p, np.zeros(n - q.p.size)), F=np.hstack([q.F, wide]))
    ranks = np.empty(n, np.int64)
    ranks[decide(without, whole, rng, n, without.theta, room_for(n)).pi] = np.arange(1, n + 1)
    return ranks


def sentence(rank: int, n: int, terms: dict[str, float], without: dict[str, int]) -> str:
    """Say in plain words why an item stands at its rank."""
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
