"""The contract every policy keeps, as one function: run it on policies of your own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .data.dataset import Dataset
from .policies.base import EXAMPLE_DRAWS, GIVEN_UP, Policy, parse_policy, policies
from .random import POLICY, draws
from .simulation.run import read_only, simulate
from .state import Query

__all__ = ["check_policy", "views"]


def views(seed: int = 0) -> Iterator[Query]:
    """Give views a policy must cope with: one item, fewer items than ranks, nothing seen yet, ties, many items."""
    rng = np.random.default_rng(seed)
    for n, k_s, visits in ((1, 1, 0), (2, 5, 3), (5, 5, 1), (7, 3, 0), (12, 5, 40), (33, 8, 9), (104, 5, 300)):
        p = 1.0 / np.log2(np.arange(2, k_s + 2))
        for relevance in (np.zeros(n), np.full(n, 0.4), rng.choice([0.1, 0.4, 1.0], n), rng.random(n) * 2.6):
            F = np.zeros((n, k_s), np.int32)
            for _ in range(visits):
                shown = rng.permutation(n)[:k_s]
                F[shown, np.arange(shown.size)] += 1
            E = np.zeros(n)
            for j in range(k_s):
                E += F[:, j] * p[j]
            yield Query(relevance, E, F, p, np.array(visits), float(rng.choice([0.0, 5.0])), np.zeros(0))


def check_policy(policy: Policy) -> None:
    """Raise AssertionError, saying what is wrong, if a policy breaks the contract.

    Its repr reads back as itself; it cannot be changed; it gives distinct items for every view, the same for the same
    view, and changes nothing in it; a kernel gives the same bits compiled and interpreted; the terms add up to the
    score; and it plays in both settings with the same result on any number of threads. A policy that needs what its
    `prepare` makes is judged by playing alone.

    Examples
    --------
    >>> from mcfair import MCFair
    >>> check_policy(MCFair(alpha=10.0))
    """
    if type(policy).__name__ in policies():
        assert parse_policy(repr(policy)) == policy, f"{policy!r} does not read back as itself"
    assert hash(policy) == hash(type(policy)(**vars(policy))), f"{policy!r}: equal policies have different hashes"
    try:
        policy.surprise = 1  # type: ignore[attr-defined]
    except AttributeError:
        pass
    else:
        raise AssertionError(f"{policy!r} can be changed")
    if type(policy).prepare is Policy.prepare:
        for visit, q in enumerate(views()):
            check_view(policy, q, visit)
    rng = np.random.default_rng(0)
    y, X = rng.integers(0, 3, 29, np.int16), rng.random((29, 4), np.float32)
    data = Dataset(offsets=np.array([0, 2, 9, 29]), y=y, X=X, name="check")
    for mode in ("post-processing", "online"):
        one, two = (simulate(data, policy, mode, steps=300, threads=threads, record=True) for threads in (1, 2))
        assert one.lists is not None
        assert two.lists is not None
        assert np.array_equal(one.lists, two.lists), f"{policy!r}: lists depend on the number of threads"
        assert one.unfairness == two.unfairness, f"{policy!r}: unfairness depends on the number of threads"


def check_view(policy: Policy, q: Query, visit: int) -> None:
    """Check what a policy makes of one view."""
    n, rng = q.R.size, draws(seed=1, purpose=POLICY, query=2, visit=visit)
    before: list[Any] = [np.copy(part) for part in q]
    pi = policy.rank(q, rng)
    where = f"{policy!r} on a view of {n} items and {q.p.size} ranks"
    assert len(pi) == min(n, q.p.size), f"{where}: a list of {len(pi)}"
    assert len(set(pi)) == len(pi), f"{where}: an item twice in {pi}"
    assert all(0 <= d < n for d in pi), f"{where}: positions outside the query in {pi}"
    assert np.array_equal(pi, policy.rank(read_only(q), rng)), f"{where}: two lists for one session"
    after: list[Any] = list(q)
    same = all(np.array_equal(old, new) for old, new in zip(before, after, strict=True))
    assert same, f"{where}: the view was changed"
    if policy.ranks:
        if policy.kernel is not None:
            out = np.empty(len(pi), np.int64)
            policy.kernel.interpreted(q, policy.theta, rng, out)
            given_up = out[0] == GIVEN_UP
            assert given_up or np.array_equal(out, pi), f"{where}: compiled and interpreted lists differ"
        return
    scores = policy.score(q)
    assert scores.shape == (n,), f"{where}: scores of shape {scores.shape}"
    if policy.kernel is not None:
        interpreted = np.empty(n)
        policy.kernel.interpreted(q, policy.theta, EXAMPLE_DRAWS, interpreted)
        assert np.array_equal(scores, interpreted), f"{where}: compiled and interpreted scores differ"
    terms = list(policy.terms(q).values())
    if terms:
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        assert np.array_equal(total, scores), f"{where}: the terms do not add up to the score"
