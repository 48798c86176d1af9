import itertools

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcfair as mf
from mcfair.random import POLICY, draws
from mcfair.testing import check_part, views

EXAMPLE_DRAWS = draws(0, POLICY)

VARIANTS = [
    "TopK", "TopK(ties=random)", "TopK(ties=least-exposed)", "RandomK", "ExploreK", "ExploreK(mc_floor=0)",
    "FairK", "FairK(beta=3, scale=raw)", "FairK(beta=100, scale=mean, ties=random)",
    "MCFair", "MCFair(alpha=0, beta=0)", "MCFair(alpha=1000, beta=0)", "MCFair(scale=raw, ties=least-exposed)",
    "MMF", "MMF(alpha=0)", "MMF(alpha=0.4)", "MMF(alpha=0.6, beta=10)", "TopK(beta=2, ties=random)",
    "ILP", "ILP(alpha=0)", "ILP(alpha=0.1)", "ILP(alpha=0.1, ties=index)",
    "LP", "LP(alpha=0.01)", "LP(alpha=0, delivery=balanced)", "LP(delivery=balanced, refresh=20)",
    "PLFair(epochs=2)", "PLFair(epochs=2, alpha=0.5, beta=3)",
    "MCFair(scale=mean, alpha=100)", "MCFair(mc_floor=0, beta=0)", "FairCo", "FairCo(alpha=1000, beta=10)",
    "BayesFair", "BayesFair(early=20, tail=0.5)", "BayesFair(tail=1, beta=2, scale=max, gain=dcg, ties=random)",
    "PrefixGreedy", "PrefixGreedy(alpha=100, scale=mean)", "DIDRF", "DIDRF(beta=100)", "PBMUCB", "PBMUCB(ties=random)",
    "Thompson", "Thompson(alpha=1, mix=0.5)", "FARA", "FARA(alpha=0.05, horizon=7, allocation=relevance)",
    "VerFair(alpha=0.5)", "Expohedron", "Expohedron(alpha=0, delivery=iid)",
]  # fmt: skip


@pytest.mark.parametrize("text", VARIANTS)
def test_contract(text):
    check_part(mf.parse_policy(text))


def test_every_registered_policy_is_tested():
    assert {text.split("(")[0] for text in VARIANTS} == set(mf.registered(mf.Policy))


def test_every_policy_with_a_score_can_explore():
    """ExploreK is exploration itself, as are draws; those that plan or solve have no score to add certainty to."""
    without = {name for name, cls in mf.registered(mf.Policy).items() if not hasattr(cls, "beta")}
    assert without == {"ExploreK", "RandomK", "Thompson", "ILP", "LP", "FARA", "VerFair", "Expohedron"}
    data = mf.synthetic("mq2008-like", seed=1)
    for name in set(mf.registered(mf.Policy)) - without:
        least = {}  # how often the item shown least of its query was shown, averaged over queries
        for beta in (0, 1e6):
            trace = mf.simulate(data, mf.parse_policy(f"{name}(beta={beta})"), "online", steps=4000)
            least[beta] = np.minimum.reduceat(trace.state.F.sum(axis=1), data.offsets[:-1]).mean()
        assert least[1e6] > 1.2 * least[0], name


BY_SCORE = [text for text in VARIANTS if not mf.parse_policy(text).ranks and not text.startswith("Thompson")]
"""Policies with a score that does not depend on draws."""


# The others have a test file of their own.
@pytest.mark.parametrize("text", [text for text in BY_SCORE if text.split("(")[0] in naive.SCORES])
def test_scores_are_the_equations(text):
    policy = mf.parse_policy(text)
    for q in views():
        with np.errstate(divide="ignore"):
            expected = naive.SCORES[type(policy).__name__](policy, q.R, q.E, int(q.visits), q.prior_strength)
        assert np.allclose(policy.score(q, EXAMPLE_DRAWS), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("text", BY_SCORE)
def test_permuting_the_items_permutes_the_scores(text):
    policy, rng = mf.parse_policy(text), np.random.default_rng(1)
    for q in views():
        order = rng.permutation(q.R.size)
        other = q._replace(R=q.R[order], E=q.E[order], F=q.F[order], posterior=q.posterior[order])
        assert np.allclose(
            policy.score(other, EXAMPLE_DRAWS), policy.score(q, EXAMPLE_DRAWS)[order], rtol=1e-9, atol=1e-9
        )


def test_b_is_minus_the_derivative_of_unfairness():
    for q in views():
        n = q.R.size
        step = 1e-4 * np.eye(n)
        numeric = [
            -(naive.unfairness(q.E + h, q.R) - naive.unfairness(q.E - h, q.R)) / 2e-4 for h in step[: min(n, 12)]
        ]
        B = mf.FairK(scale="raw").score(q, EXAMPLE_DRAWS)[: min(n, 12)]
        assert np.allclose(B, numeric, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(B).max()))


def test_mc_is_minus_the_derivative_of_the_variance_bound():
    E, h = np.linspace(1, 9, 9), 1e-5
    numeric = -(1 / (E + h) - 1 / (E - h)) / (2 * h)
    q = next(views())._replace(R=np.zeros(9), E=E, F=np.zeros((9, 1), np.int32), prior_strength=0.0)
    assert np.allclose(mf.ExploreK(mc_floor=0.1).score(q, EXAMPLE_DRAWS), numeric, rtol=1e-6)


def test_the_list_maximises_the_marginal_objective():
    """Eq. 18: ranking by the gradient g maximises its inner product with the exposure a list gives."""
    for q in (q for q in views() if 2 <= q.R.size <= 7):
        policy = mf.MCFair(alpha=3.0, beta=0.5)
        g, k = policy.score(q, EXAMPLE_DRAWS), min(q.p.size, q.R.size)
        gain = lambda pi: sum(g[d] * q.p[j] for j, d in enumerate(pi))  # noqa: B023, E731
        best = max(gain(pi) for pi in itertools.permutations(range(q.R.size), k))
        assert gain(policy.rank(q, draws(0, POLICY))) == pytest.approx(best)


def order(scores):
    return np.argsort(-np.asarray(scores), kind="stable")


def refines(fine, coarse, tolerance):
    """Whether an order never puts an item before one that is clearly higher by the coarse score."""
    return all(coarse[a] >= coarse[b] - tolerance for a, b in itertools.pairwise(order(fine)))


@given(st.integers(0, 10_000))
def test_for_large_weights_mcfair_refines_fairk_and_explorek(seed):
    for q in itertools.islice(views(seed), 8, 24):
        q = q._replace(R=np.minimum(q.R, 1.0))
        B = mf.FairK().score(q, EXAMPLE_DRAWS)
        assert refines(mf.MCFair(alpha=1e9, beta=0).score(q, EXAMPLE_DRAWS), B, 1e-8)
        MC = mf.ExploreK().score(q, EXAMPLE_DRAWS)
        assert refines(mf.MCFair(alpha=0, beta=1e9).score(q, EXAMPLE_DRAWS), MC, 1e-8)


@pytest.mark.parametrize("mode", ["post-processing", "online"])
@pytest.mark.parametrize("ties", ["index", "random", "least-exposed"])
def test_without_fairness_and_exploration_mcfair_is_topk(mode, ties):
    data = mf.synthetic("mq2008-like", seed=1)
    lists = [
        mf.simulate(data, policy, mode, steps=3000, record=True).lists
        for policy in (mf.MCFair(alpha=0, beta=0, ties=ties), mf.TopK(ties=ties))
    ]
    assert np.array_equal(*lists)


def test_nothing_infinite_reaches_a_score():
    for q in views():
        for policy in (mf.MCFair(mc_floor=0, beta=0), mf.FairK(mc_floor=0, beta=0), mf.FairCo(mc_floor=0)):
            assert np.isfinite(policy.score(q, EXAMPLE_DRAWS)).all()


def test_randomk_shows_every_list_equally_often():
    q = next(q for q in views() if q.R.size == 5)._replace(p=naive.examination(2))
    counts = {}
    for visit in range(12_000):
        pi = tuple(mf.RandomK().rank(q, draws(0, POLICY, 0, visit)))
        counts[pi] = counts.get(pi, 0) + 1
    assert len(counts) == 20
    chi2 = sum((count - 600) ** 2 / 600 for count in counts.values())
    assert chi2 < 43.8  # 99.9 % point of chi-squared with 19 degrees of freedom


@pytest.mark.parametrize("beta", [0.0, 0.2])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_mmf_fills_rank_after_rank(alpha, beta):
    for visit, q in enumerate(views()):
        k = min(q.p.size, q.R.size)
        for seed in range(5):
            draw = lambda slot: naive.uniform(seed, POLICY, 7, visit, slot)  # noqa: B023, E731
            bonus = beta * naive.certainty(q.E, q.prior_strength, 0.1)
            pi = mf.MMF(alpha=alpha, beta=beta).rank(q, draws(seed, POLICY, 7, visit))
            assert pi.tolist() == naive.mmf(alpha, q.R, q.F, q.p, k, draw, bonus)


def test_mmf_without_fairness_is_topk():
    data = mf.synthetic("mq2008-like", seed=1)
    lists = [mf.simulate(data, text, steps=1000, record=True).lists for text in ("MMF(alpha=0)", "TopK")]
    assert np.array_equal(*lists)


def test_ties_matter():
    """Grades tie massively; all three orders are equally good for users and far from equally fair."""
    data = mf.synthetic("mq2008-like", seed=0)
    unfair = {}
    for ties in ("index", "random", "least-exposed"):
        trace = mf.simulate(data, mf.TopK(ties=ties), steps=10_000)
        assert trace.ndcg[5] == pytest.approx(1.0)
        unfair[ties] = trace.unfairness
    assert unfair["least-exposed"] < unfair["random"] < 0.6 * unfair["index"]
