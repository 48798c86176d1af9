import dataclasses

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from same_runs import same

import mcfair as mf
from mcfair.data.protocols import NO_PROTOCOL, PROTOCOLS
from mcfair.simulation.run import discounts
from mcfair.users.arrivals import arrivals

MODES = ("post-processing", "online")


@pytest.fixture(scope="module")
def data():
    return mf.synthetic("mq2008-like", seed=0)


# --- against the oracle ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "text",
    ["TopK", "ExploreK", "FairK", "MCFair", "MCFair(alpha=10, scale=raw)", "MCFair(alpha=10, scale=mean)",
     "FairCo(alpha=1, beta=10)", "TopK(ties=random)", "MCFair(ties=least-exposed)"],
)  # fmt: skip
def test_a_run_is_the_paper_simulated_step_by_step(data, text, mode):
    few, policy, steps = data.take([3, 10, 20, 21, 40]), mf.parse_policy(text), 400
    trace = mf.simulate(few, policy, mode, steps=steps, seed=3, record=True)
    slow = naive.simulate(few, policy, arrivals("uniform", steps, few.queries, 3), online=mode == "online", seed=3)
    assert [row.tolist() for row in trace.lists] == slow.lists
    assert trace.state.C.tolist() == slow.C.tolist()
    assert trace.unfairness == pytest.approx(slow.unfairness, rel=1e-9)
    assert list(trace.cndcg.values()) == pytest.approx(slow.cndcg)
    assert list(trace.ndcg.values()) == pytest.approx(slow.ndcg)
    assert [row.tolist() for row in trace.clicks] == slow.clicks


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 12), st.floats(0, 5), st.floats(0, 1))
def test_any_k_s_and_prior(seed, k_s, strength, mean):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 40, 3)
    data = mf.Dataset(offsets=np.concatenate(([0], np.cumsum(sizes))), y=rng.integers(0, 5, sizes.sum()))
    estimator = mf.IPS(prior_mean=mean, prior_strength=strength)
    options = {"k": k_s, "gamma": 0.9}
    trace = mf.simulate(data, "MCFair", "online", steps=60, seed=seed, record=True, estimator=estimator, **options)
    lists = [[d for d in row if d >= 0] for row in trace.lists.tolist()]
    prior = {"prior_mean": mean, "prior_strength": strength}
    slow = naive.simulate(data, mf.MCFair(), trace.arrivals, online=True, seed=seed, shown=lists, **options, **prior)
    assert trace.state.C.tolist() == slow.C.tolist()
    width = len(trace.cndcg)
    assert width == min(k_s, sizes.max())
    assert list(trace.cndcg.values()) == pytest.approx(slow.cndcg[:width])
    assert trace.unfairness == pytest.approx(slow.unfairness, rel=1e-9, abs=1e-12)


def test_the_policy_sees_given_scores_and_the_figures_use_r(data):
    upside_down = dataclasses.replace(data, scores=-data.R, fingerprint="")
    best, worst = (mf.simulate(each, "TopK", steps=2000) for each in (data, upside_down))
    assert best.ndcg[5] == pytest.approx(1.0)
    assert worst.ndcg[5] < 0.5
    online = [mf.simulate(each, "MCFair", "online", steps=500) for each in (data, upside_down)]
    assert same(*online)


# --- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", ["MCFair", "FairCo", "RandomK", "TopK(ties=random)"])
def test_threads_change_no_bit(data, text, mode):
    one = mf.simulate(data, text, mode, steps=20_000, threads=1, seed=5)
    for threads in (2, 3, 7):
        assert same(one, mf.simulate(data, text, mode, steps=20_000, threads=threads, seed=5))


@pytest.mark.parametrize("mode", MODES)
def test_counts_of_lists_clicks_and_visits_are_consistent(data, mode):
    trace = mf.simulate(data, "MCFair", mode, steps=5000, record=True)
    state = trace.state
    shown = np.minimum(data.sizes, 5)
    assert state.sessions == trace.sessions == 5000
    assert np.array_equal(np.add.reduceat(state.F.sum(axis=1), data.offsets[:-1]), state.visits * shown)
    total = np.add.reduceat(state.E, data.offsets[:-1])
    assert total == pytest.approx(state.visits * naive.examination(5).sum())
    assert np.all(state.F.sum(axis=1) >= state.C)
    assert np.array_equal(np.bincount(trace.arrivals, minlength=data.queries), state.visits)
    assert trace.clicks.sum() == state.C.sum()
    assert (state.C.sum() > 0) == (mode == "online")
    assert all(len(set(row)) == 5 for row in trace.lists.tolist())
    assert trace.unfairness == pytest.approx(mf.unfairness(state.E, data.R, data.offsets, visits=state.visits))
    of_queries = trace.query_values["unfairness"]
    assert of_queries.mean() == pytest.approx(trace.unfairness)
    assert trace.relative_unfairness == pytest.approx((of_queries / state.visits**2).mean())
    for k, value in trace.ndcg.items():
        assert trace.query_values[f"ndcg@{k}"] @ trace.query_sessions / 5000 == pytest.approx(value)


@pytest.mark.parametrize("text", ["RandomK", "ExploreK"])
def test_the_estimate_is_unbiased_for_lists_that_do_not_depend_on_clicks(text):
    data = mf.synthetic("mq2008-like", seed=2).take(range(20))
    errors = np.array([
        mf.simulate(data, text, "online", steps=2400, seed=seed).state.estimate() - data.R for seed in range(60)
    ])  # fmt: skip
    mean = errors.mean(axis=1)  # one independent number per seed
    assert abs(mean.mean()) < 4 * mean.std(ddof=1) / np.sqrt(mean.size)
    assert mean.std() < 0.05


def test_users_click_the_same_items_whatever_the_policy_shows():
    data = mf.Dataset(offsets=[0, 5], y=[0, 1, 2, 1, 0])
    clicks = {}
    for text in ("TopK", "RandomK", "ExploreK"):
        trace = mf.simulate(data, text, "online", steps=400, record=True, examination=0.0)
        rows = np.zeros((400, 5), bool)
        np.put_along_axis(rows, trace.lists, trace.clicks, axis=1)
        clicks[text] = rows
    assert np.array_equal(clicks["TopK"], clicks["RandomK"])
    assert np.array_equal(clicks["TopK"], clicks["ExploreK"])


def test_the_draws_of_a_query_do_not_depend_on_the_other_queries(data):
    alone = mf.simulate(data.take([7]), "MCFair", "online", steps=50, seed=4)
    among = mf.simulate(data, "MCFair", "online", steps=50 * data.queries * 2, seed=4, record=True)
    mine = among.lists[among.arrivals == 7][:50]
    again = mf.simulate(data.take([7]), "MCFair", "online", steps=50, seed=4, record=True)
    assert np.array_equal(again.lists, mine)
    assert same(alone, again)


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("protocol", [NO_PROTOCOL, PROTOCOLS["wsdm23"]], ids=["no protocol", "wsdm23"])
def test_a_run_continues_where_it_stopped(data, mode, protocol):
    data = dataclasses.replace(data, protocol=protocol)
    whole = mf.simulate(data, "MCFair", mode, steps=3001, seed=2, record=True)
    first = mf.simulate(data, "MCFair", mode, steps=1201, seed=2, record=True)
    rest = whole.sessions - first.sessions + (protocol.name == "wsdm23")
    second = mf.simulate(data, "MCFair", mode, steps=rest, seed=2, state=first.state, record=True)
    assert np.array_equal(second.state.F, whole.state.F)
    assert np.array_equal(second.state.C, whole.state.C)
    assert np.array_equal(np.concatenate([first.lists, second.lists]), whole.lists)
    assert second.unfairness == pytest.approx(whole.unfairness)
    assert second.provenance["sessions_before"] == first.sessions
    assert first.state.sessions == first.sessions  # not touched by the second run


def test_a_checkpoint_is_the_state_after_so_many_sessions(data):
    trace = mf.simulate(data, "FairCo", "online", steps=2000, checkpoints=[1, 17, 500, 1999])
    assert trace.checkpoints.tolist() == [1, 17, 500, 1999, 2000]
    for m, c in enumerate(trace.checkpoints):
        short = mf.simulate(data, "FairCo", "online", steps=int(c))
        assert {text: values[m] for text, values in trace.values.items()} == pytest.approx(short.figures)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.995, 1.0])
def test_cndcg_for_any_gamma(data, gamma):
    trace = mf.simulate(data, "RandomK", steps=3000, gamma=gamma, record=True)
    p = naive.examination(5)
    values = [
        naive.ndcg(pi, data.R[data.offsets[q] : data.offsets[q + 1]], p)
        for pi, q in zip(trace.lists, trace.arrivals, strict=True)
    ]
    cumulative = mf.cndcg(values, gamma)[trace.checkpoints - 1]
    for k in range(1, 6):
        assert trace.values[f"cndcg@{k}"] == pytest.approx(cumulative[:, k - 1])


def test_powers_of_gamma():
    assert discounts(0.5, 3).tolist() == [1.0, 0.5, 0.25, 0.125]
    assert discounts(1.0, 2).tolist() == [1.0, 1.0, 1.0]
    assert discounts(0.0, 2).tolist() == [1.0, 0.0, 0.0]
    assert discounts(0.995, 10**9).size < 200_000
