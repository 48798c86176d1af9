"""The group term: fairness of exposure among the groups (providers) of a query's items."""

import dataclasses

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from query_view import view

import mcfair as mf
from mcfair.errors import PolicyError
from mcfair.policies.selection import choose, score_terms
from mcfair.policies.terms import group_term
from mcfair.random import POLICY, draws
from mcfair.testing import check_part, views

DRAWS = draws(0, POLICY)
FAMILY = [
    "MCFair", "MCFair(alpha=10, beta=0, scale=mean)", "MCFair(scale=raw, explore=ucb)", "FairK(scale=mean)", "TopK",
    "FairCo", "BayesFair", "DIDRF",
]  # fmt: skip


def with_groups(policy, alpha):
    return dataclasses.replace(mf.parse_policy(policy), alpha_group=alpha)


def grouped_data(seed=0, queries=6):
    data = mf.synthetic("mq2008-like", seed=seed).take(range(queries))
    labels = np.random.default_rng(seed).choice(["a", "b", "c", ""], data.items)
    return dataclasses.replace(data, providers=labels.tolist(), fingerprint="")


class Plain(mf.Policy):
    """MCFair without exploration, in plain Python."""

    alpha: float = 1.0

    def score(self, q, rng):
        return naive.mcfair(mf.MCFair(alpha=self.alpha, beta=0), q.R, q.E, int(q.visits), 0.0)

    def terms(self, q):
        return {"all": self.score(q, DRAWS)}


# --- one session -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", FAMILY)
def test_the_score_has_the_gradient_among_groups(text):
    for q in views():
        own, policy = mf.parse_policy(text), with_groups(text, 3.0)
        expected = own.score(q, DRAWS) + naive.group_term(policy, q.R, q.E, q.providers.tolist(), int(q.visits))
        np.testing.assert_allclose(policy.score(q, DRAWS), expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 4), st.sampled_from(["max", "raw", "mean"]))
def test_the_term_is_minus_the_derivative_of_group_unfairness(seed, n, m, scale):
    rng = np.random.default_rng(seed)
    R, E, groups = rng.random(n), 9 * rng.random(n), np.sort(rng.integers(0, m, n))
    groups = np.unique(groups, return_inverse=True)[1]
    visits = int(rng.integers(0, 20))
    got = group_term(mf.MCFair(alpha_group=1.0, scale=scale), view(R, E=E, visits=visits, providers=groups))
    if groups.max() == 0:
        assert not got.any()
        return
    h = 1e-5
    unfair = lambda E: naive.group_unfairness(E, R, groups.tolist())  # noqa: E731
    slope = np.array([(unfair(E + h * step) - unfair(E - h * step)) / (2 * h) for step in np.eye(n)])
    divisor = {"raw": 1.0, "max": np.abs(slope).max(), "mean": max(visits, 1)}[scale]
    np.testing.assert_allclose(got, -slope / divisor, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(got).max()))


def test_without_groups_the_term_is_that_of_items():
    for q in (q._replace(providers=np.arange(q.R.size)) for q in views()):
        by_group, by_item = mf.MCFair(alpha=0, beta=0, alpha_group=2.0), mf.MCFair(alpha=2, beta=0)
        np.testing.assert_allclose(by_group.score(q, DRAWS), by_item.score(q, DRAWS), rtol=1e-12, atol=1e-12)


def test_the_term_of_one_group_is_0():
    for q in (q._replace(providers=np.zeros(q.R.size, np.int64)) for q in views()):
        assert mf.MCFair(alpha_group=5.0).score(q, DRAWS).tolist() == mf.MCFair().score(q, DRAWS).tolist()
        assert not mf.MCFair(alpha_group=5.0).terms(q)["group"].any()


def test_permuting_the_items_permutes_the_term():
    rng = np.random.default_rng(1)
    for q in views():
        order, policy = rng.permutation(q.R.size), mf.FairK(alpha_group=4.0)
        other = q._replace(R=q.R[order], E=q.E[order], providers=q.providers[order])
        np.testing.assert_allclose(group_term(policy, other), group_term(policy, q)[order], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("policy", [*(with_groups(text, 3.0) for text in FAMILY), Plain(alpha_group=3.0)], ids=repr)
@pytest.mark.parametrize("guard", [0.0, 0.9, 1.0])
def test_the_terms_add_up_to_the_score_behind_the_list(policy, guard):
    moved = 0
    for q in views():
        policy = dataclasses.replace(policy, guard=guard)
        pi, scores, weight, _ = choose(policy, q, DRAWS)
        terms = score_terms(policy, q, weight)
        assert "group" in terms
        assert sum(list(terms.values())[1:], next(iter(terms.values()))).tolist() == scores.tolist()
        ideal = np.sort(q.R)[::-1][: len(pi)] @ q.p[: len(pi)]
        assert naive.dcg(pi, q.R, q.p) >= guard * ideal - 1e-12
        moved += pi.tolist() != choose(dataclasses.replace(policy, alpha_group=0.0), q, DRAWS).pi.tolist()
    assert moved > 0 or guard == 1.0


def test_the_text_states_the_weight_only_if_there_is_one():
    plain = "MCFair(alpha=1.0, beta='auto', scale='max', mc_floor=0.1, ties='index', explore='mc')"
    assert repr(mf.MCFair()) == repr(mf.MCFair(alpha_group=0)) == plain
    policy = mf.parse_policy("MCFair(guard=0.9, alpha_group=2)")
    assert repr(policy) == plain[:-1] + ", alpha_group=2.0, guard=0.9)"
    assert policy == mf.parse_policy(repr(policy)) != mf.MCFair(guard=0.9)
    assert policy.label == "MCFair(alpha_group=2.0, guard=0.9)"
    assert policy.theta.tolist() == mf.MCFair().theta.tolist()


@pytest.mark.parametrize("name", ["RandomK", "MMF", "ILP", "LP", "PLFair"])
def test_a_policy_without_a_score_refuses_a_group_term(name):
    with pytest.raises(
        PolicyError, match=rf"^{name}: alpha_group = 1 is not allowed: expected 0.0, because {name} does"
    ):
        mf.parse_policy(f"{name}(alpha_group=1)")


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "much"])
def test_a_weight_is_a_finite_number_of_at_least_0(value):
    with pytest.raises(PolicyError, match=r"MCFair: alpha_group = .* is not allowed: expected a finite number"):
        mf.MCFair(alpha_group=value)


def test_a_parameter_of_ones_own_that_is_called_scale_is_no_scale_of_the_gradient():
    class Scaled(mf.Policy):
        scale: float = 7.0

        def score(self, q, rng):
            return self.scale * q.R

    q = view([0.9, 0.5, 0.4], E=[3.0, 0.0, 1.0], visits=3, providers=[0, 1, 1])
    assert group_term(Scaled(alpha_group=2.0), q).tolist() == group_term(mf.TopK(alpha_group=2.0), q).tolist()


# --- in runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["post-processing", "online"])
@pytest.mark.parametrize("text", ["MCFair(alpha_group=2)", "FairK(alpha_group=0.5, scale=mean)"])
def test_a_run_is_that_of_the_equations(text, mode):
    data, policy = grouped_data(), mf.parse_policy(text)
    trace = mf.simulate(data, policy, mode, steps=200, record=True)
    lists = [pi[pi >= 0].tolist() for pi in trace.lists]
    result = naive.simulate(data, policy, trace.arrivals, online=mode == "online", shown=lists)
    np.testing.assert_allclose(trace.state.E, result.E, rtol=1e-12)
    other = mf.simulate(data, dataclasses.replace(policy, alpha_group=0.0), mode, steps=200, record=True)
    assert other.lists.tolist() != trace.lists.tolist()


@pytest.mark.parametrize("mode", ["post-processing", "online"])
def test_a_weight_of_0_changes_no_bit(mode):
    data = grouped_data(seed=3)
    for guard in (0.0, 0.9):
        zero, without = (
            mf.simulate(data, mf.MCFair(guard=guard, **given), mode, steps=400, record=True)
            for given in ({"alpha_group": 0}, {})
        )
        assert zero.lists.tolist() == without.lists.tolist()
        assert {k: v.tolist() for k, v in zero.values.items()} == {k: v.tolist() for k, v in without.values.items()}
        assert zero.provenance["policy"] == without.provenance["policy"]


@pytest.mark.parametrize("mode", ["post-processing", "online"])
def test_compiled_and_plain_policies_have_the_same_term(mode):
    data = grouped_data(seed=2)
    options = {"steps": 200, "record": True}
    plain = mf.simulate(data, Plain(alpha_group=2.0, guard=0.8), mode, **options)
    compiled = mf.simulate(data, mf.MCFair(beta=0, alpha_group=2.0, guard=0.8), mode, **options)
    assert plain.lists.tolist() == compiled.lists.tolist()


def test_contract():
    check_part(mf.MCFair(alpha_group=3.0))


def test_providers_of_equal_merit_and_unequal_history_come_to_equal_exposure():
    """In every query they end within a list of each other; without the term they stay far apart."""
    data = mf.synthetic("marketplace").take(range(10))
    newcomer = data.providers == data.provider_names.index("newcomer")
    biased = dataclasses.replace(data, scores=data.R * np.where(newcomer, 0.1, 1.0), fingerprint="")
    history = mf.simulate(biased, "TopK", steps=500).state
    assert history.E[newcomer].sum() < 0.1 * history.E.sum()
    traces = {
        weight: mf.simulate(data, mf.TopK(alpha_group=weight), steps=2500, state=history, metrics=["group_unfairness"])
        for weight in (0.0, 0.1)
    }
    floor = mf.group_floor(data, traces[0.1].state.visits, traces[0.1].state.p)
    assert floor.reachable.all()
    apart = {
        weight: np.abs(np.add.reduceat(np.where(newcomer, 1, -1) * trace.state.E, data.offsets[:-1]))
        for weight, trace in traces.items()
    }
    assert apart[0.1].max() < history.p.sum() < 0.1 * apart[0.0].mean()
    assert traces[0.1].figures["group_unfairness"] < 1e-3 * traces[0.0].figures["group_unfairness"]
    assert traces[0.1].ndcg[5] == pytest.approx(1.0)
    assert traces[0.1].unfairness < traces[0.0].unfairness
