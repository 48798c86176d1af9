"""The default rules: what a shop sees that sends candidates with good priors, and why an item stands where it does."""

import naive
import numpy as np
import pytest

import mcfair as mf
from mcfair.random import CLICKS, draws
from mcfair.service.core.rules import Rules
from mcfair.service.ranker import Ranker

N, K = 200, 10
P = naive.examination(K)


def relevance(profile, seed):
    rng = np.random.default_rng(seed)
    if profile == "uniform":
        return rng.random(N)
    if profile == "few relevant":
        R = np.zeros(N)
        R[rng.permutation(N)[: N // 20]] = 1.0
        return R
    return rng.choice([0.0, 0.1, 0.4, 1.0], N, p=[0.4, 0.3, 0.2, 0.1])


def serve(R, seed, lists, **rules):
    """Serve users who click by R; return the NDCG of every list, and after how many lists each item was first shown."""
    items = [{"id": str(d), "prior": float(R[d])} for d in range(N)]
    ndcg, first = [], {}
    best = naive.dcg(np.argsort(-R), R, P)
    with Ranker("memory:", **rules) as ranker:
        for t in range(lists):
            answer = ranker.rank("q", items, k=K)
            pi = np.array([int(item.id) for item in answer.items])
            ndcg.append(naive.dcg(pi, R, P) / best)
            for d in pi.tolist():
                first.setdefault(d, t + 1)
            hits = mf.PositionBased().clicks(pi, R, P, draws(seed, CLICKS, 1, t))
            ranker.feedback([{"impression": answer.impression, "item": str(d)} for d in pi[hits].tolist()])
            if t >= 200 and len(first) == N:
                break
    return ndcg, first


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("profile", ["uniform", "few relevant", "graded"])
def test_exact_priors_keep_every_early_list_good_and_every_candidate_is_shown(profile, seed):
    ndcg, first = serve(relevance(profile, seed), seed, 2_000)
    assert min(ndcg[:200]) >= 0.9
    assert len(first) == N


def test_without_the_guard_the_same_priors_lead_to_lists_of_irrelevant_items():
    """The control: with the paper's weight of exploration and no guard, early lists hold nothing of relevance."""
    ndcg, _ = serve(relevance("few relevant", 0), 0, 30, policy="MCFair", prior_strength=1, prior_certainty=1)
    assert min(ndcg[:20]) < 0.1


def test_the_default_policy_has_a_guard_and_priors_count():
    rules = Rules()
    assert 0.9 <= mf.parse_policy(rules.policy).guard < 1
    assert rules.prior_strength >= 10


# --- explanations ----------------------------------------------------------------------------------------------------

CANDIDATES = [{"id": name, "prior": prior} for name, prior in [("a", 1.0), ("b", 0.9), ("c", 0.0), ("d", 0.0)]]


def explained(policy, lists=12, **rules):
    with Ranker("memory:", policy=policy, warm=False, **rules) as ranker:
        for _ in range(lists):
            answer = ranker.rank("q", CANDIDATES, k=3, explain=True)
        return answer, ranker.explain(answer.impression)


def test_terms_with_the_guard_sum_to_the_score_and_the_sentence_names_it():
    answer, why = explained("MCFair(beta=100, guard=0.95)")
    assert all("guard" in item.terms for item in answer.items)
    for item in (*answer.items, *why.items):
        total = 0.0
        for value in item.terms.values():
            total += value
        assert item.score == total
    changes = [{part: abs(rank - item.rank) for part, rank in item.without.items()} for item in why.items]
    moved = [item for item, change in zip(why.items, changes, strict=True) if max(change, key=change.get) == "guard"]
    assert moved
    assert all("the guard, which keeps at least 95 % of the relevance" in item.sentence for item in moved)
    assert [item.terms for item in why.items] == [item.terms for item in answer.items]


def test_a_guard_that_changed_nothing_is_not_named():
    _, why = explained("TopK(guard=0.95)")
    for item in why.items:
        assert "guard" not in item.terms
        assert "guard" not in item.without
        assert "guard" not in item.sentence


def test_with_decay_the_guard_weighs_ranks_by_examination_and_not_by_units_of_counts():
    """Under a half-life a view counts exposure in units of equal weight; then any order of a list had the same DCG."""
    clock, p = iter(range(0, 10**9, 60_000)), naive.examination(3)
    rules = {"policy": "ExploreK(guard=0.9)", "half_life": 3_600, "prior_strength": 1e6}  # estimates are the priors
    priors = {item["id"]: item["prior"] for item in CANDIDATES}
    with Ranker("memory:", warm=False, clock=lambda: next(clock), **rules) as ranker:
        for _ in range(20):
            R = [priors[item.id] for item in ranker.rank("q", CANDIDATES, k=3).items]
            assert naive.dcg(range(3), R, p) >= 0.899 * naive.dcg(range(3), [1.0, 0.9, 0.0], p)
