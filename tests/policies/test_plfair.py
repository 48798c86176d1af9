import itertools

import naive
import naive_plfair
import numpy as np
import pytest
from query_view import view
from real_data import FOLDS, needs_mq2008

import mcfair as mf
from mcfair import _jit
from mcfair.policies.plfair import (
    PLFair,
    ascend,
    fill_exposure,
    fill_weights,
    forward,
    initial_network,
    pl_rank_3,
    sample_list,
    scale_features,
)
from mcfair.policies.terms import RAW, write_gradient
from mcfair.random import POLICY, PREPARE, draws
from mcfair.state import State

CASES = [(1, 1), (2, 1), (2, 2), (4, 1), (4, 3), (5, 1), (5, 2), (5, 5)]


def example(n, k, seed=0):
    rng = np.random.default_rng([seed, n, k])
    return 2 * rng.normal(size=n), rng.normal(size=n), naive.examination(k)


def estimated(lists, s, labels, p):
    w, g = np.empty(s.size), np.empty(s.size)
    fill_weights(s, w)
    pl_rank_3(np.array(lists, np.int64), w, labels, p, g)
    return g


# --- the Plackett–Luce model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "k"), CASES)
def test_enumerated_gradient_is_the_slope_of_the_expected_value(n, k):
    s, labels, p = example(n, k)
    expected = lambda s: naive_plfair.exposure(s, p, k) @ labels  # noqa: E731
    numeric = [(expected(s + h) - expected(s - h)) / 2e-5 for h in 1e-5 * np.eye(n)]
    assert naive_plfair.gradient(s, labels, p, k) == pytest.approx(numeric, abs=1e-8)


@pytest.mark.parametrize(("n", "k"), CASES)
def test_pl_rank_3_over_all_lists_is_the_exact_gradient(n, k):
    s, labels, p = example(n, k)
    total = sum(naive_plfair.probability(pi, s) * estimated([pi], s, labels, p) for pi in naive_plfair.all_lists(n, k))
    assert total == pytest.approx(naive_plfair.gradient(s, labels, p, k), abs=1e-8)


@pytest.mark.parametrize(("n", "k"), [*CASES, (12, 5), (40, 5), (9, 9)])
def test_pl_rank_3_is_pl_rank_2(n, k):
    s, labels, p = example(n, k)
    lists = np.random.default_rng(1).permuted(np.tile(np.arange(n), (50, 1)), axis=1)[:, :k]
    expected = naive_plfair.pl_rank_2(lists, s, labels, p)
    assert estimated(lists, s, labels, p) == pytest.approx(expected, abs=1e-12)


def test_the_gradient_stays_finite_for_scores_far_apart():
    """One item is chosen for certain, whatever the others' scores: nothing is left to gain."""
    s, p = np.array([0.0, 3000.0, -3000.0, 1.0]), naive.examination(4)
    assert estimated([[1, 3, 0, 2]], s, np.zeros(4), p) == pytest.approx(0.0)
    assert np.isfinite(estimated([[2, 0, 3, 1], [1, 3, 0, 2]], s, np.arange(4.0), p)).all()


@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_lists_have_the_probabilities_of_plackett_and_luce(beta):
    policy, E = PLFair(beta=beta, mc_floor=0.5), np.array([0.0, 1.0, 2.0, 1.5, 0.9])
    s = np.array([-0.5, 0.3, 0.8, 0.0, -0.2])
    q = view(np.full(5, 0.5), E=E, k=2, memory=[*s, 99.0, 99.0])  # what comes after the fifth belongs to longer queries
    s = s + beta * naive.certainty(E, 0.0, policy.mc_floor)
    counts = dict.fromkeys(naive_plfair.all_lists(5, 2), 0)
    for visit in range(20_000):
        counts[tuple(policy.rank(q, draws(0, POLICY, 3, visit)).tolist())] += 1
    expected = {pi: 20_000 * naive_plfair.probability(pi, s) for pi in counts}
    assert min(expected.values()) > 5
    assert sum((counts[pi] - expected[pi]) ** 2 / expected[pi] for pi in counts) < 43.8  # 99.9 %, 19 degrees of freedom


def test_a_list_is_the_highest_scores_after_gumbel_noise():
    for n, k_s, visit in itertools.product((1, 3, 30), (1, 5), range(20)):
        s = np.random.default_rng(visit).normal(size=n)
        pi = PLFair().rank(view(np.full(n, 0.5), k=k_s, memory=s), draws(8, POLICY, 2, visit))
        draw = lambda d: naive.uniform(8, POLICY, 2, visit, d)  # noqa: B023, E731
        assert pi.tolist() == naive_plfair.sampled_list(s, min(k_s, n), draw)


def test_scores_of_any_magnitude_are_ranked():
    q = view(np.full(4, 0.5), memory=[1e300, -1e300, 0.0, 1e300])
    for policy in (PLFair(), PLFair(beta=1e300), PLFair(beta=1.0, mc_floor=0.0)):
        assert sorted(policy.rank(q, draws(0, POLICY)).tolist()) == [0, 1, 2, 3]


def test_expected_exposure_and_what_it_is_worth():
    s, _, p = example(5, 3)
    w, e, labels, lists = np.empty(5), np.empty(5), np.empty(5), np.empty((20_000, 3), np.int64)
    for i in range(len(lists)):
        sample_list(s, draws(0, PREPARE), 5 * i, np.empty(5), np.empty(5, np.int64), lists[i])
    fill_weights(s, w)
    fill_exposure(lists, w, p, e)
    assert e.sum() == pytest.approx(p.sum())
    assert e == pytest.approx(naive_plfair.exposure(s, p, 3), abs=0.02)
    R = np.array([0.1, 0.4, 1.0, 0.1, 0.4])
    write_gradient(e, R, 0, 0.7, 0.3, RAW, labels)
    assert labels == pytest.approx(0.7 * R + 0.3 * naive.gradient(e, R))
    write_gradient(e[:1], R[:1], 0, 0.0, 1.0, RAW, labels[:1])
    assert labels[0] == 0.0


# --- the network -----------------------------------------------------------------------------------------------------


def test_a_step_follows_the_gradient():
    rng = np.random.default_rng(0)
    X, g = rng.random((7, 46)), rng.normal(size=7)
    net = initial_network(46, draws(3, PREPARE))
    net = net._replace(b1=rng.normal(size=32), b2=rng.normal(size=32))
    before = [theta.copy() for theta in net]
    H1, H2, s = np.empty((7, 32)), np.empty((7, 32)), np.empty(7)
    assert forward(net, X, H1, H2, s)
    assert s == pytest.approx(naive_plfair.forward(before, X), abs=1e-12)
    ascend(net, X, H1, H2, g, 0.5)
    for which, (new, old) in enumerate(zip(net, before, strict=True)):
        for place in [rng.integers(old.shape) for _ in range(20)]:
            h = np.zeros(old.shape)
            h[tuple(place)] = 1e-5
            up, down = ([*before[:which], old + sign * h, *before[which + 1 :]] for sign in (1, -1))
            slope = g @ (naive_plfair.forward(up, X) - naive_plfair.forward(down, X)) / 2e-5
            assert (new - old)[tuple(place)] == pytest.approx(0.5 * slope, abs=1e-9)


def test_features_are_scaled_by_query():
    X = np.array([[1.0, 5.0], [3.0, 5.0], [2.0, 5.0], [-4.0, 0.0], [-8.0, 1.0]])
    expected = np.vstack([naive_plfair.scaled(X[:3]), naive_plfair.scaled(X[3:])])
    scale_features(X, np.array([0, 3, 5]))
    assert X.tolist() == expected.tolist() == [[0, 0], [1, 0], [0.5, 0], [1, 0], [0, 1]]


# --- training --------------------------------------------------------------------------------------------------------


def small(seed=0, sizes=(6, 1, 3, 9), features=4):
    rng, n = np.random.default_rng(seed), sum(sizes)
    return mf.Dataset(
        offsets=np.cumsum([0, *sizes]), y=rng.integers(0, 3, n), X=rng.normal(size=(n, features)), places=[7, 2, 11, 3]
    )


def learnt(policy, data, seed=0, fit=0, k=5, R=None, clicks=1):
    state = State.empty(data, naive.examination(k))
    state.C[:] = clicks
    return policy.prepare(data.hiding_truth(data.R if R is None else R), state, draws(seed, PREPARE, visit=fit))


@pytest.mark.parametrize(("alpha", "k_s", "fit"), [(1.0, 5, 0), (0.4, 1, 2), (0.0, 9, 1)])
def test_training_equals_the_oracle(alpha, k_s, fit):
    data, options = small(), {"alpha": alpha, "epochs": 3, "lr": 2.0, "samples": 6}
    scores = learnt(PLFair(**options), data, seed=2**40 + 5, fit=fit, k=k_s)
    p = naive.examination(k_s)
    expected = naive_plfair.trained_scores(data, data.R, p, seed=2**40 + 5, fit=fit, **options)
    assert scores.shape == (4, 9)
    for row, s in zip(scores, expected, strict=True):
        assert row[: s.size] == pytest.approx(s, abs=1e-9)
        assert not row[s.size :].any()


def test_training_depends_on_data_and_seed_alone():
    data, policy = mf.synthetic("mq2008-like", seed=0), PLFair(epochs=3)
    scores = learnt(policy, data)
    assert np.array_equal(scores, learnt(policy, data))
    assert not np.array_equal(scores, learnt(policy, data, seed=1))
    assert not np.array_equal(scores, learnt(policy, data, fit=1))
    order = np.random.default_rng(0).permutation(data.queries)
    assert np.array_equal(scores[order], learnt(policy, data.take(order)))


def test_compiled_and_interpreted_training_agree_to_the_bit(monkeypatch):
    data, policy = small(), PLFair(epochs=2, samples=5, lr=1.0)
    compiled = learnt(policy, data)
    monkeypatch.setattr(_jit, "INTERPRET", True)
    assert np.array_equal(learnt(policy, data), compiled)


def test_without_differences_in_relevance_the_initial_weights_are_kept():
    data = small()
    start = learnt(PLFair(epochs=0), data)
    assert np.isfinite(start).all()
    assert start.any()
    assert np.array_equal(learnt(PLFair(), data, R=np.full(data.items, 0.3)), start)
    assert not np.array_equal(learnt(PLFair(epochs=1), data), start)


def test_a_later_fit_without_clicks_keeps_the_first():
    data = small()
    assert learnt(PLFair(), data, fit=1, clicks=0) is None
    assert learnt(PLFair(), data, fit=0, clicks=0) is not None


def test_steps_too_long_are_reported():
    with pytest.raises(mf.PolicyError, match="no longer finite; a lower lr may help"):
        learnt(PLFair(lr=1e308), small())


# --- the policy ------------------------------------------------------------------------------------------------------


def test_without_features_the_error_says_how_to_load_them():
    data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0], name="plain")
    with pytest.raises(mf.PolicyError, match=r"plain.* features=True"):
        learnt(PLFair(), data)


@pytest.mark.parametrize(
    ("parameter", "allowed"),
    [({"alpha": 1.1}, "from 0 to 1"), ({"epochs": -1}, "from 0 to"), ({"epochs": 2.5}, "whole number"),
     ({"lr": 0}, "above 0"), ({"lr": np.inf}, "finite"), ({"samples": 0}, "from 1 to"), ({"beta": -1}, "at least 0"),
     ({"mc_floor": np.nan}, "finite")],
)  # fmt: skip
def test_bad_parameters_name_the_range(parameter, allowed):
    with pytest.raises(mf.PolicyError, match=f"PLFair: {next(iter(parameter))} = .*{allowed}"):
        PLFair(**parameter)


def test_its_repr_parses_back():
    assert mf.parse_policy(repr(PLFair(lr=1.0, epochs=3))) == PLFair(lr=1.0, epochs=3)
    assert mf.parse_policy("PLFair(lr=1)").label == "PLFair(lr=1.0)"


@pytest.fixture(scope="module")
def synthetic():
    return mf.synthetic("mq2008-like", seed=0)


@pytest.mark.parametrize("mode", ["post-processing", "online"])
@pytest.mark.parametrize("k_s", [1, 5, 40])
def test_it_runs_with_any_number_of_ranks(synthetic, mode, k_s):
    assert k_s < synthetic.sizes.min() or k_s == 5 or k_s > synthetic.sizes.max()
    one, two = (
        mf.simulate(synthetic, PLFair(epochs=2, samples=10), mode, steps=600, k=k_s, threads=threads, record=True)
        for threads in (1, 2)
    )
    assert np.array_equal(one.lists, two.lists)
    assert 0 < one.unfairness < np.inf


def test_longer_steps_are_fairer(synthetic):
    """The published learning rate leaves the network under-trained."""
    short, long = (mf.simulate(synthetic, PLFair(lr=lr), steps=10_000).unfairness for lr in (0.1, 1.0))
    assert long < 0.9 * short


@pytest.mark.parametrize("mode", ["post-processing", "online"])
def test_it_learns_relevance(synthetic, mode):
    ours, random = (mf.simulate(synthetic, policy, mode, steps=10_000) for policy in (PLFair(alpha=0.0), "RandomK"))
    assert ours.ndcg[5] > random.ndcg[5] + 0.1


# --- the paper -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fold():
    return mf.load_letor(FOLDS / "Fold1", features=True, preset="wsdm23")


def mean(fold, policy, figure):
    traces = [mf.simulate(fold, policy, steps=10_000, seed=seed) for seed in range(5)]
    return np.mean([figure(trace) for trace in traces])


@needs_mq2008
def test_table_1(fold):
    """The paper has 256.4; the mean of five seeds has a standard deviation of 3."""
    assert 248 < mean(fold, PLFair(), lambda trace: trace.unfairness) < 266


@needs_mq2008
def test_relevance_alone(fold):
    assert mean(fold, PLFair(alpha=0.0), lambda trace: trace.cndcg[5]) > 146
    assert mean(fold, PLFair(alpha=0.0), lambda trace: trace.unfairness) == pytest.approx(328, rel=0.05)


@needs_mq2008
def test_much_of_its_unfairness_is_lack_of_training(fold):
    assert mean(fold, PLFair(lr=1.0), lambda trace: trace.unfairness) == pytest.approx(205, rel=0.05)
