"""Rehearsals against a naive one: late and lost clicks, newcomers and drift, under a policy that anybody can follow."""

import math

import naive
import numpy as np
import pytest

import mcfair as mf
from mcfair.random import ARRIVALS, CLICKS, DATA
from mcfair.service.core.rules import Rules
from mcfair.service.rehearsal import Rehearsal, drifted

R = [0.9, 0.1, 0.6, 0.3, 0.8, 0.2, 0.5, 0.7]
PRIORS = [0.5, 0.6, 0.4, 0.7, 0.3, 0.8, 0.45, 0.55]
K, STRENGTH, SESSIONS, MINUTE = 3, 2.0, 150, 60.0

CONDITIONS = [
    {},
    {"click_delay": 20 * MINUTE},
    {"lost_clicks": 0.4},
    {"newcomers": 0.5},
    {"drift": 0.5},
    {"click_delay": 5 * MINUTE, "lost_clicks": 0.2, "newcomers": 0.3, "drift": 1.0, "seed": 3},
]


def rehearsal(**condition):
    data = mf.Dataset(offsets=[0, len(R)], y=np.ones(len(R)), R=R, scores=PRIORS)
    users = mf.PositionBased()
    return Rehearsal(data=data, weights=np.ones(1), clicks=users, sessions=SESSIONS, k=K, **condition)


def naive_end(share, seed):
    """The relevance at the end: the items with the lowest draws pass theirs on to the next of them, in a circle."""
    lots = [naive.uniform(seed, DATA, 0, 1, d) for d in range(len(R))]
    moving = sorted(range(len(R)), key=lots.__getitem__)[: round(share * len(R))]
    end = list(R)
    for giver, taker in zip(moving, moving[1:] + moving[:1], strict=True):
        end[taker] = R[giver]
    return end


def naive_rehearsal(click_delay=0.0, lost_clicks=0.0, newcomers=0.0, drift=0.0, seed=0):
    """Play `TopK` by (C + s·prior)/(E + s), session by session; return NDCG, exposure, merit and arrival times."""
    n, p, end = len(R), naive.examination(K), naive_end(drift, seed)
    E, merit, values, arrived = [0.0] * n, [0.0] * n, [], []
    for t in range(SESSIONS):
        now = MINUTE * t
        m = n - int(newcomers * n) if t < SESSIONS // 2 else n
        C = [sum(d == item and due <= now for due, _, item in arrived) for d in range(n)]
        estimate = [(C[d] + STRENGTH * PRIORS[d]) / (E[d] + STRENGTH) for d in range(m)]
        pi = sorted(range(m), key=lambda d: -estimate[d])[:K]
        truth = [R[d] + (end[d] - R[d]) * t / (SESSIONS - 1) for d in range(m)]
        for j, d in enumerate(pi):
            clicked = naive.uniform(seed, CLICKS, 0, t, d) < p[j] * truth[d]
            reported = naive.uniform(seed, ARRIVALS, 0, t + 1, d) >= lost_clicks
            if clicked and reported:
                delay = -click_delay * math.log(1.0 - naive.uniform(seed, ARRIVALS, 0, t + 1, n + d))
                arrived.append((round(1000 * (now + delay)) / 1000, t, d))
            E[d] += p[j]
        for d in range(m):
            merit[d] += truth[d] / SESSIONS
        values.append(naive.dcg(pi, truth, p) / naive.dcg(sorted(range(m), key=lambda d: -truth[d])[:K], truth, p))
    return values, E, merit, arrived


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda each: " ".join(each) or "plain")
def test_a_rehearsal_is_what_a_naive_one_is(condition):
    values, E, merit, arrived = naive_rehearsal(**condition)
    found = rehearsal(**condition).play(Rules(policy="TopK", prior_strength=STRENGTH))
    assert found.ndcg == pytest.approx(np.mean(values), rel=1e-12)
    assert (found.worst_ndcg, found.worst_list) == (pytest.approx(min(values), rel=1e-12), np.argmin(values) + 1)
    assert found.unfairness == pytest.approx(naive.unfairness(np.array(E), np.array(merit)), rel=1e-9)
    assert found.clicks == sum(due <= MINUTE * (SESSIONS - 1) for due, _, _ in arrived)
    assert found.shown == np.mean(np.array(E) > 0)


def test_late_clicks_arrive_after_later_rankings_in_another_order_and_on_average_after_the_given_time():
    *_, arrived = naive_rehearsal(click_delay=20 * MINUTE)
    delays = [due - MINUTE * t for due, t, _ in arrived]
    assert sum(delay > MINUTE for delay in delays) > len(delays) / 2
    assert sorted(arrived) != arrived
    assert np.mean(delays) == pytest.approx(20 * MINUTE, abs=4 * 20 * MINUTE / math.sqrt(len(delays)))


def test_of_lost_clicks_nothing_is_seen():
    found = rehearsal(lost_clicks=1.0).play(Rules(policy="TopK", prior_strength=STRENGTH))
    assert found.clicks == 0


def test_drift_moves_a_share_of_the_relevances_of_each_query_and_keeps_their_sum():
    data = mf.synthetic("mq2008-like", seed=0)
    moved = drifted(data, 0.3, seed=1)
    for q in range(20):
        rows = slice(*data.offsets[q : q + 2])
        assert sorted(moved[rows]) == sorted(data.R[rows])
        assert (moved[rows] != data.R[rows]).sum() <= round(0.3 * data.sizes[q])
    assert (moved != data.R).any()
    assert (moved != drifted(data, 0.3, seed=2)).any()
    assert (drifted(data, 0.0, seed=1) == data.R).all()


def test_a_newcomer_merits_exposure_only_since_it_is_a_candidate():
    """A policy is not unfair to items that it could not show: they joined after half of the sessions."""
    *_, merit, _ = naive_rehearsal(newcomers=0.5)
    assert merit == pytest.approx([*R[:4], *(each / 2 for each in R[4:])])
