import numpy as np
import pytest
from query_view import view

import mcfair as mf
from mcfair.errors import PolicyError
from mcfair.random import POLICY, draws
from mcfair.testing import views


def test_a_method_of_a_subclass_replaces_the_kernel():
    class Backwards(mf.MCFair):
        def score(self, q, rng):
            return -q.R

    q = next(q for q in views() if q.R.size == 12 and len(set(q.R)) > 1)
    assert Backwards.kernel is None
    assert Backwards().rank(q, draws(0, POLICY))[0] == np.argmin(q.R)


def test_a_policy_without_a_score_says_so():
    for policy in (mf.RandomK(), mf.ILP()):
        with pytest.raises(PolicyError, match=f"{type(policy).__name__} does not rank by a score"):
            policy.score(view([0.1, 0.2]), draws(0, POLICY))


def test_auto_stands_for_the_papers_value_in_each_mode():
    policy = mf.MCFair(alpha=3)
    assert policy.beta == "auto"
    assert policy.in_mode("post-processing") == mf.MCFair(alpha=3, beta=0)
    assert policy.in_mode("online") == mf.MCFair(alpha=3, beta=100)
    assert mf.MCFair(beta=7).in_mode("online") == mf.MCFair(beta=7)
    data = mf.synthetic("mq2008-like", seed=0).take(range(6))
    for mode, beta in (("post-processing", 0), ("online", 100)):
        open_, fixed = (
            mf.simulate(data, each, mode, steps=300, record=True) for each in ("MCFair", f"MCFair(beta={beta})")
        )
        assert np.array_equal(open_.lists, fixed.lists)
        assert open_.provenance["policy"] == repr(mf.MCFair())


def test_auto_outside_of_a_run_counts_as_online():
    for q in views():
        assert (
            mf.MCFair().score(q, draws(0, POLICY)).tolist() == mf.MCFair(beta=100).score(q, draws(0, POLICY)).tolist()
        )


@pytest.mark.parametrize(
    ("text", "count"), [("MCFair(alpha=[0, 1, 10], beta=100)", 3), ("FairK(beta=[0, 5], scale=[max, mean])", 4)]
)
def test_a_list_of_values_stands_for_one_policy_each(text, count):
    family = mf.parse_policies(text)
    assert len(set(family)) == count
    assert [mf.parse_policy(repr(policy)) for policy in family] == family


def test_a_family_is_not_one_policy():
    with pytest.raises(PolicyError, match=r"MCFair: alpha = \[0, 1\] is not allowed: expected a finite number"):
        mf.parse_policy("MCFair(alpha=[0, 1])")


@pytest.mark.parametrize("policy", [mf.BayesFair(alpha_group=2.0), mf.MCFair(explore="tail"), mf.PrefixGreedy()])
def test_views_of_other_types_or_with_gaps_in_memory_are_ranked_alike(policy):
    """Compiled kernels read arrays as they lie in memory: whole numbers for floats, and every second number."""
    F = np.array([[9, 0], [0, 3], [2, 8], [0, 0]])
    components = np.tile([[0.2, 0.9, 0.01], [0.8, 0.1, 0.02]], (4, 1, 1))
    right = view([1, 0, 1, 1], F=F, k=2, visits=11, providers=[0, 1, 1, 0], posterior=components)
    other = right._replace(
        R=np.array([1, 0, 1, 1]),
        E=np.repeat(right.E, 2)[::2],
        F=F,
        p=np.repeat(right.p, 2)[::2],
        visits=11,
        providers=right.providers.astype(np.int32),
        posterior=np.concatenate((components, components))[::2],
    )
    rng = draws(seed=0, purpose=POLICY)
    assert policy.rank(other, rng).tolist() == policy.rank(right, rng).tolist()
    if not policy.ranks:
        assert policy.score(other, rng).tolist() == policy.score(right, rng).tolist()
        for name, term in policy.terms(right).items():
            assert policy.terms(other)[name].tolist() == term.tolist(), name
