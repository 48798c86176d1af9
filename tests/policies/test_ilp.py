import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from query_view import view
from real_data import FOLDS, needs_mq2008

import mcfair as mf
from mcfair.policies.selection import FALLBACK
from mcfair.random import POLICY, draws
from mcfair.testing import views

EXAMPLE_DRAWS = draws(0, POLICY)
ALPHAS = [0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0]


def random_view(seed, n, k, visits, tied):
    """A query after some visits of which half were shown by relevance, so that the bound on DCG often binds."""
    rng = np.random.default_rng(seed)
    R = rng.choice([0.1, 0.4, 1.0], n) if tied else rng.random(n) * 1.5
    F = np.zeros((n, k), np.int32)
    for visit in range(visits):
        shown = np.argsort(-R)[:k] if visit % 2 else rng.permutation(n)[:k]
        F[shown, np.arange(shown.size)] += 1
    return view(R, F=F, k=k, visits=visits)


def cost_and_dcg(q, pi):
    p = q.p[: len(pi)]
    deficits = naive.ilp_deficits(q.R, q.E, int(q.visits), p)
    return naive.ilp_cost(pi, deficits, p), sum(q.R[d] * p[j] for j, d in enumerate(pi))


@pytest.mark.parametrize("ties", ["deviation", "index"])
@given(
    seed=st.integers(0, 10_000), n=st.integers(1, 7), k=st.integers(1, 5), visits=st.integers(0, 9), tied=st.booleans()
)
@settings(max_examples=60, deadline=None)
def test_the_list_is_the_best_of_all_lists(ties, seed, n, k, visits, tied):
    q = random_view(seed, n, min(k, n), visits, tied)
    for alpha in ALPHAS:
        pi = mf.ILP(alpha=alpha, ties=ties).rank(q, EXAMPLE_DRAWS)
        assert tuple(pi) == naive.ilp(alpha, ties, q.R, q.E, visits, q.p)


@pytest.mark.parametrize("ties", ["deviation", "index"])
@given(seed=st.integers(0, 10_000), n=st.integers(3, 6), k=st.integers(2, 4))
@settings(max_examples=80)
def test_the_cheapest_list_is_found_among_items_with_large_deficits(ties, seed, n, k):
    """A list can be cheaper and yet serve less of what is lacking, if one item lacks very much."""
    rng = np.random.default_rng(seed)
    R, E = rng.choice([0.2, 0.5, 0.6, 1.0], n), rng.choice([0.0, 3.0, 8.0, 20.0], n) + rng.random(n)
    q = view(R, E=E, k=min(k, n), visits=12)
    for alpha in ALPHAS:
        best = naive.ilp(alpha, ties, R, E, 12, q.p)
        assert tuple(mf.ILP(alpha=alpha, ties=ties).rank(q, EXAMPLE_DRAWS)) == best


@pytest.mark.parametrize("ties", ["deviation", "index"])
def test_short_lists_and_equal_relevance(ties):
    for q in (q for q in views() if q.R.size <= 7):
        for alpha in ALPHAS:
            k = min(q.p.size, q.R.size)
            best = naive.ilp(alpha, ties, q.R, q.E, int(q.visits), q.p[:k])
            assert tuple(mf.ILP(alpha=alpha, ties=ties).rank(q, EXAMPLE_DRAWS)) == best


def assert_optimal(q, alpha, pi):
    p = q.p[: len(pi)]
    cost, dcg = cost_and_dcg(q, pi)
    ideal = cost_and_dcg(q, np.argsort(-q.R, kind="stable")[: len(pi)])[1]
    assert dcg >= (1 - alpha) * ideal - 1e-9
    assert cost == pytest.approx(naive.ilp_by_solver(alpha, q.R, q.E, int(q.visits), p)[0], abs=2e-6)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_optimum_is_that_of_a_general_solver(alpha, tied):
    for seed in range(4):
        q = random_view(seed, 12 + 6 * seed, 5, 10 + 40 * seed, tied)
        for ties in ("deviation", "index"):
            assert_optimal(q, alpha, mf.ILP(alpha=alpha, ties=ties).rank(q, EXAMPLE_DRAWS))


def assert_optimal_in_a_run(data, policy, mode, steps, every):
    """Simulate a run, and compare every so-many-th of its lists with the general solver."""
    trace = mf.simulate(data, policy, mode, steps=steps, record=True)
    F, C, binding = np.zeros((data.items, 5), np.int32), np.zeros(data.items), 0
    visits = np.zeros(data.queries, np.int64)
    p = naive.examination(5)
    for t, query in enumerate(trace.arrivals):
        items = slice(data.offsets[query], data.offsets[query + 1])
        k = min(5, items.stop - items.start)
        E = np.array([naive.exposure(f, p) for f in F[items]])
        R = naive.estimate(C[items], E) if mode == "online" else data.R[items]
        if t % every == 0:
            q = view(R, E=E, F=F[items], p=p, visits=visits[query])
            pi = trace.lists[t, :k]
            assert_optimal(q, policy.alpha, pi)
            fairest = np.argsort(-naive.ilp_deficits(R, E, visits[query], p[:k]), kind="stable")[:k]
            binding += sorted(pi) != sorted(fairest)
        for j, d in enumerate(trace.lists[t, :k]):
            F[items.start + d, j] += 1
            C[items.start + d] += trace.clicks[t, j]
        visits[query] += 1
    assert binding > 0, "the bound on DCG was never active"


@pytest.mark.parametrize("mode", ["post-processing", "online"])
def test_the_lists_of_a_run_are_optimal(mode):
    data = mf.synthetic("mq2008-like", seed=3).take(range(10))
    assert_optimal_in_a_run(data, mf.ILP(alpha=0.05), mode, steps=600, every=23)


@needs_mq2008
@pytest.mark.parametrize("mode", ["post-processing", "online"])
def test_the_lists_of_a_real_run_are_optimal(mode):
    data = mf.load_letor(FOLDS / "Fold1", preset="wsdm23").test.take(range(12))
    assert_optimal_in_a_run(data, mf.ILP(alpha=0.02), mode, steps=900, every=31)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
def test_long_lists_of_many_distinct_items_are_optimal(alpha):
    """With bounds that let an item stand at several ranks, each of these takes millions of nodes."""
    solved = 0
    for seed in range(3):
        q = crowded_view(seed, 60, 10, visits=8 + 9 * seed)
        pi, gap = mf.ILP(alpha=alpha).solve(q, EXAMPLE_DRAWS)
        solved += gap == 0.0
        if gap == 0.0:
            assert_optimal(q, alpha, pi)
    assert solved > 1


def crowded_view(seed, n, k, visits):
    """A view in which relevant items had about what they deserve, so that the bound on DCG binds."""
    rng = np.random.default_rng(seed)
    R = rng.random(n)
    p = naive.examination(k)
    return view(R, E=visits * sum(p) * R / R.sum() * rng.uniform(0.5, 1.5, n), p=p, visits=visits)


@pytest.mark.parametrize("nodes", [0, 30, 1000])
def test_a_search_that_stops_has_a_list_within_its_gap(nodes):
    stopped = 0
    for seed in range(6):
        q = crowded_view(seed, 40, 8, visits=5 + 7 * seed)
        pi, gap = mf.ILP(alpha=0.1, nodes=nodes).solve(q, EXAMPLE_DRAWS)
        cost, dcg = cost_and_dcg(q, pi)
        ideal = cost_and_dcg(q, np.argsort(-q.R)[:8])[1]
        assert len(set(pi.tolist())) == 8
        assert dcg >= 0.9 * ideal - 1e-9
        least, _ = naive.ilp_by_solver(0.1, q.R, q.E, int(q.visits), q.p)
        assert cost - gap - 1e-6 <= least <= cost + 1e-6
        stopped += gap > 0.0
    assert stopped > 1 or nodes == 1000


@pytest.mark.parametrize("ties", ["deviation", "index"])
def test_no_list_takes_more_than_its_nodes(ties):
    """Twenty ranks among 100 items are more than a search can finish."""
    for seed in (0, 2):
        q = crowded_view(seed, 100, 20, visits=30)
        pi, gap = mf.ILP(alpha=0.1, ties=ties, nodes=3000).solve(q, EXAMPLE_DRAWS)
        assert len(set(pi.tolist())) == 20
        assert 0.0 < gap < 0.1
        assert cost_and_dcg(q, pi)[1] >= 0.9 * cost_and_dcg(q, np.argsort(-q.R)[:20])[1] - 1e-9


@pytest.mark.parametrize("ties", ["deviation", "index"])
def test_a_trace_counts_the_lists_that_the_kernel_hands_over_and_holds_their_largest_gap(ties):
    data = mf.synthetic("mq2008-like", seed=2).take(range(6))
    policy = mf.ILP(alpha=0.2, ties=ties, nodes=0)
    stopped = mf.simulate(data, policy, steps=40).provenance
    exact = mf.simulate(data, mf.ILP(alpha=0.2, ties=ties), steps=40).provenance
    assert stopped["fallbacks"] > 2
    assert 0.0 < stopped["largest_gap"] < 2.0
    assert (exact["fallbacks"], exact["largest_gap"]) == (0, 0.0)
    q = random_view(5, 14, 5, 30, tied=False)
    out = np.zeros(5, np.int64)
    policy.kernel(q, policy.theta, EXAMPLE_DRAWS, out)
    assert out[0] == FALLBACK
    assert policy.rank(q, EXAMPLE_DRAWS).tolist() == policy.solve(q, EXAMPLE_DRAWS).pi.tolist()


def test_fallbacks_change_no_figure_whatever_the_checkpoints_and_threads():
    """A session that the kernel hands over is counted once, whatever the checkpoints."""
    data = mf.synthetic("mq2008-like", seed=2).take(range(6))
    policy = mf.ILP(alpha=0.1, nodes=12)
    runs = [
        mf.simulate(data, policy, "online", steps=120, checkpoints=checkpoints, threads=threads, record=True)
        for checkpoints, threads in ((1, 1), (7, 1), (7, 2), (120, 1))
    ]
    assert 0 < runs[0].provenance["fallbacks"] < 120
    for run in runs[1:]:
        assert np.array_equal(run.lists, runs[0].lists)
        assert run.unfairness == runs[0].unfairness
        assert run.query_sessions.sum() == 120
        for k in range(1, 6):
            assert run.ndcg[k] == pytest.approx(runs[0].ndcg[k], rel=1e-12)
            assert run.cndcg[k] == pytest.approx(runs[0].cndcg[k], rel=1e-12)
    assert [runs[1].ndcg, runs[1].cndcg] == [runs[2].ndcg, runs[2].cndcg]
    for run in runs:
        assert run.values["unfairness"] == pytest.approx(
            [unfairness_after(run, data, c) for c in run.checkpoints], rel=1e-9
        )


def unfairness_after(run, data, sessions):
    """Mean unfairness over the queries visited in the first so many sessions, from the lists themselves."""
    E, p, visited = np.zeros(data.items), naive.examination(5), set()
    for query, pi in zip(run.arrivals[:sessions], run.lists[:sessions], strict=True):
        visited.add(query)
        for j, d in enumerate(pi[pi >= 0]):
            E[data.offsets[query] + d] += p[j]
    return np.mean([naive.unfairness(E[a:b], data.R[a:b]) for a, b in (data.offsets[q : q + 2] for q in visited)])


def test_the_rule_for_ties_decides_how_fair_a_run_is():
    data = mf.synthetic("mq2008-like", seed=0)
    unfair = {ties: mf.simulate(data, mf.ILP(ties=ties)).unfairness for ties in ("deviation", "index")}
    assert unfair["deviation"] < 0.6 * unfair["index"]


def test_bad_parameters_name_what_is_allowed():
    with pytest.raises(mf.PolicyError, match=r"alpha = 1.5.*from 0 to 1"):
        mf.ILP(alpha=1.5)
    with pytest.raises(mf.PolicyError, match=r"ties = .random.*deviation.*index"):
        mf.ILP(ties="random")
    with pytest.raises(mf.PolicyError, match=r"nodes = -1.*at least 0"):
        mf.ILP(nodes=-1)
