"""Checks of the core against the oracle; each raises an AssertionError that says what differs."""

from __future__ import annotations

import itertools

import naive
import naive_users
import numpy as np
from query_view import view

import mcfair as mf
from mcfair.policies.lp import mixture_length, mixture_of
from mcfair.random import CLICKS, POLICY, draws
from mcfair.testing import views

STEPS, CHECKPOINTS, SEED, PRIOR = 90, [5, 33], 3, {"prior_mean": 0.3, "prior_strength": 5.0}


def example():
    """Four queries, one of them shorter than a list and one longer than the counting sort takes."""
    rng, sizes = np.random.default_rng(5), [3, 7, 12, 30]
    groups = [f"shop {i}" for i in rng.integers(0, 3, sum(sizes))]
    return mf.Dataset(offsets=np.cumsum([0, *sizes]), y=rng.integers(0, 3, sum(sizes)), providers=groups)


DATA = example()


def differences(got, expected, what, tolerance=1e-9):
    got, expected = np.asarray(got, float), np.asarray(expected, float)
    assert got.shape == expected.shape, f"{what}: shape {got.shape} instead of {expected.shape}"
    close = np.isclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert close.all(), f"{what}: {got[~close][:3]} instead of {expected[~close][:3]}"


def check_run(policy="MCFair", mode="online", clicks="PositionBased", prior=None, metrics=()):
    """Simulate and compare everything with the oracle, what comes first in a session first."""
    policy, model, prior = mf.parse_policy(policy), mf.parse_click_model(clicks), prior or {}
    trace = mf.simulate(
        DATA,
        policy,
        mode,
        steps=STEPS,
        seed=SEED,
        checkpoints=CHECKPOINTS,
        record=True,
        clicks=model,
        estimator=mf.IPS(**prior),
        metrics=metrics,
    )
    arrivals = [int(naive.uniform(SEED, 3, 0, t, 0) * DATA.queries) for t in range(STEPS)]
    differences(trace.arrivals, arrivals, "arrivals")
    slow = naive.simulate(
        DATA,
        policy,
        arrivals,
        online=mode == "online",
        seed=SEED,
        click=naive_users.twin(model),
        users_p=naive_users.users_examination(model, naive.examination(5)),
        checkpoints=[*CHECKPOINTS, STEPS],
        **prior,
    )
    for t in range(STEPS):
        shown = [d for d in trace.lists[t].tolist() if d >= 0]
        assert shown == slow.lists[t], f"list of session {t}: {shown} instead of {slow.lists[t]}"
        hits = trace.clicks[t, : len(shown)].tolist()
        assert hits == slow.clicks[t], f"clicks of session {t}: {hits} instead of {slow.clicks[t]}"
    differences(trace.state.E, slow.E, "exposure")
    differences(trace.state.C, slow.C, "click counts")
    differences(trace.values["unfairness"], slow.unfairness_after, "unfairness at checkpoints")
    differences(list(trace.ndcg.values()), slow.ndcg, "ndcg")
    cndcg = np.array([trace.values[f"cndcg@{k}"] for k in range(1, 6)]).T
    differences(cndcg, slow.cndcg_after, "cndcg at checkpoints")
    return trace, slow


def check_metric(text, value):
    """Compare the value of each query with its definition."""
    trace, slow = check_run(metrics=[text])
    visits = np.bincount(trace.arrivals, minlength=DATA.queries)
    expected = [
        value(slow.E[a:b], DATA.R[a:b], DATA.providers[a:b].tolist(), visits[q])
        for q, (a, b) in enumerate(itertools.pairwise(DATA.offsets))
    ]
    differences(trace.query_values[text], expected, text)


def check_scores(policy):
    """Compare scores with their equation on many views."""
    for q in views():
        expected = naive.SCORES[type(policy).__name__](policy, q.R, q.E, int(q.visits), q.prior_strength)
        differences(policy.score(q, draws(0, POLICY)), expected, "score")


def check_estimates():
    rng = np.random.default_rng(0)
    F, p = rng.integers(0, 6, (20, 5)), naive.examination(5)
    C, E = rng.integers(0, 3, 20), np.array([naive.exposure(row, p) for row in F])
    R, uncertainty = mf.IPS(**PRIOR).estimates(C, E, F, p)
    differences(R, naive.estimate(C, E, 0.3, 5.0), "estimate")
    differences(uncertainty, naive.uncertainty(E, 5.0), "uncertainty")


def check_click_rates(model):
    """Compare the frequency of clicks at each rank with the formula of the model, within 5 standard deviations."""
    pi, truth, p, visits = np.array([2, 0, 3, 1]), np.array([0.9, 0.2, 0.7, 0.5]), naive.examination(4), 2000
    total = sum(model.clicks(pi, truth, model.examined(p), draws(1, CLICKS, 0, visit)) for visit in range(visits))
    expected = np.array(naive_users.rates(model, truth[pi], p))
    far = np.abs(total / visits - expected) > 5 * np.sqrt(expected * (1 - expected) / visits) + 1e-12
    assert not far.any(), f"rate of clicks at ranks {np.flatnonzero(far) + 1}"


def check_threads():
    data = mf.synthetic("mq2008-like", seed=0)
    one, two = (mf.simulate(data, "RandomK", steps=2000, threads=threads) for threads in (1, 2))
    assert np.array_equal(one.state.F, two.state.F), "lists depend on threads"
    for text, values in one.values.items():
        assert np.array_equal(values, two.values[text]), f"{text} depends on threads"


def check_continuation():
    whole, first = (mf.simulate(DATA, "MCFair", "online", steps=steps, seed=SEED, record=True) for steps in (60, 25))
    rest = mf.simulate(DATA, "MCFair", "online", steps=35, seed=SEED, state=first.state, record=True)
    assert first.state.sessions == 25, "the state to continue from was changed"
    differences(np.concatenate([first.arrivals, rest.arrivals]), whole.arrivals, "arrivals of a continued run")
    differences(np.concatenate([first.lists, rest.lists]), whole.lists, "lists of a continued run")


def check_mixture():
    R, p = np.array([0.9, 0.5, 0.2, 0.1, 0.1]), naive.examination(3)
    memory = np.zeros(mixture_length(5, 3))
    mf.LP(alpha=0.02).rank(view(R, p=p)._replace(memory=memory), draws(0, POLICY))
    mixture = mixture_of.interpreted(memory, 5, 3)
    total = mixture.weights.sum()
    assert abs(total - 1.0) < 1e-9, f"the weights of the mixture add up to {total}"
    e = np.zeros(5)
    for weight, pi in zip(mixture.weights, mixture.items.reshape(-1, 3).astype(int), strict=True):
        e[pi] += weight * p
    best = naive.lp_by_lists(R, p, 0.02)
    reached = naive.lp_objective(R, e, 0.02)
    assert abs(reached - best) < 1e-7, f"objective of the mixture: {reached} instead of {best}"


def check_dcg_bound():
    rng, p = np.random.default_rng(1), naive.examination(3)
    for _ in range(5):
        R, E = rng.random(6), rng.random(6) * 9
        pi = mf.ILP(alpha=0.05).rank(view(R, E=E, p=p, visits=8), draws(0, POLICY))
        dcg, ideal = sum(R[d] * p[j] for j, d in enumerate(pi)), sum(np.sort(R)[::-1][:3] * p)
        assert dcg >= 0.95 * ideal - 1e-6, f"DCG of {dcg / ideal:.3f} of the ideal, below the bound of 0.95"
        best = naive.ilp(0.05, "deviation", R, E, 8, p)
        assert tuple(pi) == best, f"list {pi} instead of {best}"
