import dataclasses

import naive
import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcfair as mf
from mcfair.errors import DataError, MCFairWarning, PolicyError, SettingError
from mcfair.random import uniforms
from mcfair.simulation.run import checkpoint_ends, discounts
from mcfair.users.arrivals import arrivals

MODES = ("post-processing", "online")


@pytest.fixture(scope="module")
def data():
    return mf.synthetic("mq2008-like", seed=0)


def same(a, b):
    return all(
        np.array_equal(x, y, equal_nan=True)
        for x, y in [
            (a.state.F, b.state.F), (a.state.C, b.state.C), (a.state.visits, b.state.visits), (a.cndcg_at, b.cndcg_at),
            (a.unfairness_at, b.unfairness_at), (a.ndcg_at, b.ndcg_at), (a.query_ndcg, b.query_ndcg),
            (a.query_unfairness, b.query_unfairness), (a.relative_unfairness_at, b.relative_unfairness_at),
        ]
    )  # fmt: skip


# --- against the oracle ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "text",
    ["TopK", "ExploreK", "FairK", "MCFair", "MCFair(alpha=10, scale=raw)", "MCFair(alpha=10, scale=mean)",
     "FairCo(alpha=1, beta=10)", "TopK(ties=random)", "MCFair(ties=least-exposed)"],
)  # fmt: skip
def test_a_run_is_the_paper_played_step_by_step(data, text, mode):
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
    options = {"k_s": k_s, "prior_strength": strength, "prior_mean": mean, "gamma": 0.9}
    trace = mf.simulate(data, "MCFair", "online", steps=60, seed=seed, record=True, **options)
    lists = [[d for d in row if d >= 0] for row in trace.lists.tolist()]
    slow = naive.simulate(data, mf.MCFair(), trace.arrivals, online=True, seed=seed, shown=lists, **options)
    assert trace.state.C.tolist() == slow.C.tolist()
    width = trace.cndcg_at.shape[1]
    assert width == min(k_s, sizes.max())
    assert list(trace.cndcg.values()) == pytest.approx(slow.cndcg[:width])
    assert trace.unfairness == pytest.approx(slow.unfairness, rel=1e-9, abs=1e-12)


def test_given_scores_are_what_the_policy_sees_and_r_is_what_is_judged(data):
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
def test_counts_add_up(data, mode):
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
    assert trace.query_unfairness.mean() == pytest.approx(trace.unfairness)
    assert trace.relative_unfairness == pytest.approx((trace.query_unfairness / state.visits**2).mean())
    by_query = trace.query_ndcg * trace.query_sessions[:, None]
    assert by_query.sum(axis=0) / 5000 == pytest.approx(list(trace.ndcg.values()))


@pytest.mark.parametrize("text", ["RandomK", "ExploreK"])
def test_the_estimate_is_unbiased_for_lists_that_do_not_depend_on_clicks(text):
    data = mf.synthetic("mq2008-like", seed=2).take(range(20))
    errors = np.array([
        mf.simulate(data, text, "online", steps=2400, seed=seed).state.estimate() - data.R for seed in range(60)
    ])  # fmt: skip
    mean = errors.mean(axis=1)  # one independent number per seed
    assert abs(mean.mean()) < 4 * mean.std(ddof=1) / np.sqrt(mean.size)
    assert mean.std() < 0.05


def test_users_have_the_same_taste_whatever_they_are_shown():
    data = mf.Dataset(offsets=[0, 5], y=[0, 1, 2, 1, 0])
    clicks = {}
    for text in ("TopK", "RandomK", "ExploreK"):
        trace = mf.simulate(data, text, "online", steps=400, record=True, severity=0.0)
        rows = np.zeros((400, 5), bool)
        np.put_along_axis(rows, trace.lists, trace.clicks, axis=1)
        clicks[text] = rows
    assert np.array_equal(clicks["TopK"], clicks["RandomK"])
    assert np.array_equal(clicks["TopK"], clicks["ExploreK"])


def test_a_selection_leaves_the_draws_of_a_query_alone(data):
    alone = mf.simulate(data.take([7]), "MCFair", "online", steps=50, seed=4)
    among = mf.simulate(data, "MCFair", "online", steps=50 * data.queries * 2, seed=4, record=True)
    mine = among.lists[among.arrivals == 7][:50]
    again = mf.simulate(data.take([7]), "MCFair", "online", steps=50, seed=4, record=True)
    assert np.array_equal(again.lists, mine)
    assert same(alone, again)


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["uniform", "wsdm23"])
def test_a_run_goes_on_where_it_stopped(data, mode, kind):
    whole = mf.simulate(data, "MCFair", mode, steps=3001, seed=2, arrivals=kind, record=True)
    first = mf.simulate(data, "MCFair", mode, steps=1201, seed=2, arrivals=kind, record=True)
    rest = whole.sessions - first.sessions + (kind == "wsdm23")
    second = mf.simulate(data, "MCFair", mode, steps=rest, seed=2, arrivals=kind, state=first.state, record=True)
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
        assert trace.unfairness_at[m] == pytest.approx(short.unfairness)
        assert trace.cndcg_at[m] == pytest.approx(list(short.cndcg.values()))
        assert trace.ndcg_at[m] == pytest.approx(list(short.ndcg.values()))


def test_checkpoints_are_evenly_spaced_and_end_with_the_run():
    assert checkpoint_ends(20, 9_999).tolist()[-2:] == [9_499, 9_999]
    assert len(checkpoint_ends(20, 9_999)) == 20
    assert checkpoint_ends(20, 3).tolist() == [1, 2, 3]
    for wrong in (0, [5, 5], [0, 3], [3, 2], [11]):
        with pytest.raises(SettingError, match="checkpoints"):
            checkpoint_ends(wrong, 10)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.995, 1.0])
def test_cndcg_for_any_gamma(data, gamma):
    trace = mf.simulate(data, "RandomK", steps=3000, gamma=gamma, record=True)
    p = naive.examination(5)
    values = [
        naive.ndcg(pi, data.R[data.offsets[q] : data.offsets[q + 1]], p)
        for pi, q in zip(trace.lists, trace.arrivals, strict=True)
    ]
    assert mf.cndcg(values, gamma)[trace.checkpoints - 1] == pytest.approx(trace.cndcg_at)


def test_powers_of_gamma():
    assert discounts(0.5, 3).tolist() == [1.0, 0.5, 0.25, 0.125]
    assert discounts(1.0, 2).tolist() == [1.0, 1.0, 1.0]
    assert discounts(0.0, 2).tolist() == [1.0, 0.0, 0.0]
    assert discounts(0.995, 10**9).size < 200_000


# --- a user's own policies -------------------------------------------------------------------------------------------


@mf.kernel
def least_seen(q, theta, rng, out):
    for d in range(out.shape[0]):
        out[d] = theta[0] * q.R[d] - q.E[d]


class Compiled(mf.Policy):
    weight: float = 2.0

    kernel = least_seen


class Plain(mf.Policy):
    weight: float = 2.0

    def score(self, q):
        return self.weight * q.R - q.E


class Listed(mf.Policy):
    def rank(self, q, rng):
        return np.argsort(uniforms(rng, q.R.size))[: q.p.size]


@pytest.mark.parametrize("mode", MODES)
def test_a_policy_in_plain_python_equals_its_kernel_to_the_bit(data, mode):
    assert same(*(mf.simulate(data, each, mode, steps=2000, threads=2) for each in (Compiled(), Plain())))


def test_a_function_compiled_by_numba_is_a_kernel(data):
    class Numbas(mf.Policy):
        weight: float = 2.0

        kernel = numba.njit(least_seen.interpreted)

    assert same(*(mf.simulate(data, each, steps=500) for each in (Compiled(), Numbas())))


@pytest.mark.parametrize("mode", MODES)
def test_a_policy_may_give_lists(data, mode):
    trace = mf.simulate(data, Listed(), mode, steps=500)
    assert 0.4 < trace.ndcg[5] < 0.75


def test_a_policy_remembers_what_it_prepared(data):
    class Remembering(mf.Policy):
        fits = 4

        def prepare(self, data, state, rng):
            calls.append((state.sessions, data.scores.copy(), data.R.max(), data.y.max(), int(rng.visit)))
            return [{"query": q} for q in range(data.queries)]

        def score(self, q):
            assert list(q.memory) == ["query"]
            return q.R

    calls = []
    trace = mf.simulate(data, Remembering(), "online", steps=1000)
    assert [c[0] for c in calls] == [0, 250, 500, 750]
    assert [c[4] for c in calls] == [0, 1, 2, 3]
    assert all(truth == 0 and grades == 0 for _, _, truth, grades, _ in calls)
    assert calls[0][1].max() == 0.0  # nothing is known before the first click
    assert calls[3][1].max() > 0.0
    assert same(trace, mf.simulate(data, "TopK", "online", steps=1000))
    mf.simulate(data, Remembering(), steps=100)
    assert np.array_equal(calls[-1][1], data.R)


@pytest.mark.parametrize("threads", [1, 2])
def test_figures_do_not_depend_on_when_a_policy_is_fitted(data, threads):
    class Refitted(mf.MCFair):
        fits = 7

        kernel = mf.MCFair.kernel

    options = {"steps": 1000, "checkpoints": [33, 400, 650], "threads": threads}
    refitted, once = (mf.simulate(data, each, "online", **options) for each in (Refitted(), mf.MCFair()))
    assert np.array_equal(refitted.state.F, once.state.F)
    for name in ("cndcg_at", "ndcg_at", "unfairness_at", "relative_unfairness_at", "query_ndcg"):
        assert getattr(refitted, name) == pytest.approx(getattr(once, name), nan_ok=True), name


def test_a_kernel_sees_its_memory_as_numbers(data):
    @mf.kernel
    def remembered(q, theta, rng, out):
        for d in range(out.shape[0]):
            out[d] = q.memory[d]

    class Fixed(mf.Policy):
        kernel = remembered

        def prepare(self, data, state, rng):
            rows = np.zeros((data.queries, data.sizes.max()))
            for q in range(data.queries):
                rows[q, : data.sizes[q]] = data.scores[data.offsets[q] : data.offsets[q + 1]]
            return rows

    assert same(mf.simulate(data, Fixed(), steps=500), mf.simulate(data, "TopK", steps=500))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"score": lambda self, q: q.R[:-1]}, r"Wrong\(\) gave scores of shape \(\d+,\) for \d+ items"),
        ({"score": lambda self, q: q.R * np.nan}, r"Wrong\(\) gave a score that is no number for query \d+"),
        ({"rank": lambda self, q, rng: [0, 0, 1, 2, 3]}, "a list whose entries are not distinct items for query"),
        ({"rank": lambda self, q, rng: [0, 1, 2, 3, 999]}, "a list whose entries are not distinct items"),
        ({"rank": lambda self, q, rng: [0]}, "expected a list of 5 positions"),
        ({"rank": lambda self, q, rng: q.R[:5]}, "expected a list of 5 positions"),
        ({"score": lambda self, q: q.R, "prepare": lambda self, d, s, r: [1]}, "prepared 1 entries for 83 queries"),
    ],
)
def test_what_is_not_a_ranking_is_refused(data, method, message):
    with pytest.raises(PolicyError, match=message):
        mf.simulate(data, type("Wrong", (mf.Policy,), method)(), steps=50)


def test_a_policy_cannot_change_what_it_sees(data):
    class Greedy(mf.Policy):
        def score(self, q):
            q.E[:] = 0
            return q.R

    with pytest.raises(ValueError, match="read-only"):
        mf.simulate(data, Greedy(), steps=10)


def test_a_kernel_that_gives_nonsense_is_refused(data):
    @mf.kernel
    def broken(q, theta, rng, out):
        out[:] = 10**6

    class Broken(mf.Policy):
        kernel = broken
        ranks = True

    with pytest.raises(PolicyError, match="a list whose entries are not distinct items"):
        mf.simulate(data, Broken(), steps=10)


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps = 0 is not allowed: expected a whole number of at least 1"),
        ({"steps": -5}, "steps = -5"),
        ({"steps": 2**31}, "below 2\\*\\*31"),
        ({"k_s": 0}, "k_s = 0 is not allowed"),
        ({"gamma": 1.1}, "gamma = 1.1 is not allowed: expected a number from 0 to 1"),
        ({"severity": -1.0}, "severity = -1.0"),
        ({"prior_strength": -1.0}, "prior_strength = -1.0 is not allowed: expected a finite number of at least 0"),
        ({"prior_mean": 2.0}, "prior_mean = 2.0"),
        ({"setting": "offline"}, r"unknown mode = 'offline'; did you mean 'online'\?"),
        ({"step": 10}, r"unknown argument of simulate 'step'; did you mean 'steps'\?"),
        ({"seed": -1}, "seed = -1 is not allowed"),
        ({"seed": 2**64}, "expected a whole number from 0 to 2\\*\\*64 - 1"),
        ({"threads": 0}, "threads = 0 is not allowed"),
        ({"preset": "wsdm22"}, r"unknown preset 'wsdm22'; did you mean 'wsdm23'\?"),
        ({"preset": "wsdm23"}, "load it with preset='wsdm23'; got Dataset"),
        ({"arrivals": "wsdm23", "steps": 1}, "steps = 1 leaves nothing to play"),
        ({"arrivals": "poisson"}, "unknown arrivals = 'poisson'"),
    ],
)
def test_a_wrong_setting_is_refused(data, options, message):
    with pytest.raises(SettingError, match=message):
        mf.simulate(data, "TopK", **options)


def test_a_wrong_policy_is_refused(data):
    with pytest.raises(PolicyError, match="expected a policy or its text, got 3"):
        mf.simulate(data, 3)


def test_queries_of_one_item_are_left_out_with_one_note():
    data = mf.Dataset(offsets=[0, 1, 4, 4, 6], y=[1, 0, 1, 2, 0, 1], name="short")
    with pytest.warns(MCFairWarning, match="short: left out 2 of 4 queries, which have fewer than two items") as caught:
        trace = mf.simulate(data, "MCFair", steps=50)
    assert len(caught) == 1
    assert trace.query_ids == ["1", "3"]
    with pytest.warns(MCFairWarning), pytest.raises(DataError, match="none of 1 queries is left"):
        mf.simulate(data.take([0]), "MCFair", steps=50)


def test_more_ranks_than_items_is_fine():
    data = mf.Dataset(offsets=[0, 2, 5], y=[1, 0, 1, 2, 0])
    trace = mf.simulate(data, "MCFair", "online", steps=100, k_s=1000)
    assert list(trace.cndcg) == [1, 2, 3]
    assert trace.state.F.shape == (5, 3)


def test_queries_without_relevance_count_for_nothing():
    data = mf.Dataset(offsets=[0, 3, 6], y=[0, 0, 0, 0, 1, 2], R=[0, 0, 0, 0.0, 0.5, 1.0])
    trace = mf.simulate(data, "TopK", steps=200)
    assert trace.unfairness == pytest.approx(trace.query_unfairness[1])
    assert trace.query_ndcg[0].tolist() == [0.0, 0.0, 0.0]


# --- presets ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def fold(tmp_path):
    rng = np.random.default_rng(0)

    def text(queries, first):
        rows = []
        for q in range(queries):
            rows += [f"{rng.integers(0, 3)} qid:{first + q} 1:0.5" for _ in range(rng.integers(2, 12))]
            rows[-1] = f"2 qid:{first + q} 1:0.5"
        return "\n".join(rows) + "\n"

    for name, queries, first in (("train", 12, 0), ("vali", 5, 100), ("test", 9, 200)):
        (tmp_path / f"{name}.txt").write_text(text(queries, first))
    return tmp_path


def test_preset_paper_plays_all_splits_and_judges_the_test_split(fold):
    loaded = mf.load_letor(fold, preset="paper")
    trace = mf.simulate(loaded, "MCFair", "online", preset="paper", steps=2000, record=True)
    assert trace.sessions == 2000
    assert len(trace.query_ids) == 26
    assert trace.query_judged.tolist() == [False] * 17 + [True] * 9
    judged = trace.arrivals >= 17
    data = [loaded.train, loaded.validation, loaded.test]
    R = np.concatenate([each.R for each in data])
    offsets = trace.state.offsets
    values = [
        naive.ndcg([d for d in pi if d >= 0], R[offsets[q] : offsets[q + 1]], naive.examination(5))
        for pi, q in zip(trace.lists[judged], trace.arrivals[judged], strict=True)
    ]
    seen = np.cumsum(judged)[trace.checkpoints - 1]
    assert mf.cndcg(values)[seen - 1] == pytest.approx(trace.cndcg_at)
    assert trace.unfairness == pytest.approx(trace.query_unfairness[17:].mean())
    assert np.isnan(trace.query_ndcg[:17]).all()
    assert not np.isnan(trace.query_ndcg[17:]).any()
    single = mf.simulate(loaded.test, "MCFair", preset="paper", steps=100)
    assert single.query_judged.all()


def test_preset_wsdm23_plays_all_but_the_last_step_in_the_released_order(fold):
    loaded = mf.load_letor(fold, preset="wsdm23")
    trace = mf.simulate(loaded, "TopK", preset="wsdm23", steps=500, seed=1, record=True)
    assert trace.sessions == 499
    assert trace.arrivals.tolist() == naive.released_arrivals(1, loaded.test.queries, 499)


def test_progress_is_told(data):
    told = []
    mf.simulate(data, "TopK", steps=5000, threads=2, progress=told.append)
    assert sum(told) == 5000
    assert len(told) > 2
