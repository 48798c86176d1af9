import naive
import naive_limits
import naive_rivals
import numpy as np
import pytest

import mcfair as mf
from mcfair.metrics.reachable import fairest_plan


def past(rng, n, p, visits):
    E = np.zeros(n)
    for _ in range(visits):
        E[rng.permutation(n)[: p.size]] += p[:n]
    return E


def plan(R, E, w, gain=0.0):
    out = np.empty(R.size)
    fairest_plan(R, E, w, gain, out)
    return out


def instances(sizes):
    rng = np.random.default_rng(0)
    for n in sizes:
        p = naive.examination(min(n, 3))
        w = np.append(10 * p, np.zeros(n - p.size))
        for R in (rng.choice([0.1, 0.4, 1.0], n), rng.random(n) * 2.0, rng.choice([0.0, 0.7], n)):
            for visits in (0, 4, 40):
                yield R, past(rng, n, p, visits), w


def test_a_plan_can_be_reached_and_keeps_its_gain():
    for R, E, w in instances((1, 2, 6, 15, 60)):
        ideal = w @ np.sort(R)[::-1]
        for kept in (0.0, 0.5, 0.95, 1.0):
            x = plan(R, E, w, kept * ideal) - E
            assert naive_limits.is_reachable(x, w)
            assert R @ x >= kept * ideal - 1e-9 * max(ideal, 1.0)


def test_a_plan_is_the_fairest_that_a_general_solver_finds():
    for R, E, w in instances((2, 4)):
        ideal = w @ np.sort(R)[::-1]
        for kept in (0.0, 0.9):
            ours = naive.unfairness(plan(R, E, w, kept * ideal), R)
            theirs = naive_rivals.fairest_plan(R, E, w, kept * ideal)
            assert ours == pytest.approx(theirs, abs=1e-5, rel=1e-5)


def test_without_a_gain_no_list_lowers_unfairness_in_the_long_run():
    """Unfairness is convex: at the fairest plan no direction that lists can take goes down."""
    for R, E, w in instances((6, 15, 60)):
        total = plan(R, E, w)
        slope = -naive.gradient(total, R)
        assert slope @ (total - E) - np.sort(slope) @ w <= 1e-8 * max(1.0, naive.unfairness(total, R))


def test_without_a_past_the_plan_is_the_fairness_floor():
    data = mf.synthetic("mq2008-like", seed=1).take(range(8))
    p = mf.examination(5)
    floor = mf.fairness_floor(data, np.full(8, 50), p)
    for q in range(8):
        items = slice(data.offsets[q], data.offsets[q + 1])
        R = data.R[items].copy()
        w = np.append(50 * p, np.zeros(R.size - 5))
        assert np.allclose(plan(R, np.zeros(R.size), w), floor.E[items], atol=1e-8)
