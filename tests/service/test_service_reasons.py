"""Reasons in words: every claim of every sentence is true of the numbers of the decision."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_reasons import Facts, check_sentence
from query_view import view

import mcfair as mf
from mcfair.policies.selection import top_k_scratch
from mcfair.random import POLICY, draws
from mcfair.service.core.decision import decide
from mcfair.service.core.reasons import Reasons, ordinal
from mcfair.service.ranker import Ranker

POLICIES = [
    "TopK",
    "TopK(beta=2, ties=least-exposed)",
    "FairK",
    "FairK(beta=1, scale=raw)",
    "ExploreK",
    "MCFair(alpha=2, beta=0)",
    "MCFair(alpha=1, beta=1)",
    "MCFair(alpha=0, beta=5, ties=random)",
    "MCFair(alpha=3, beta=3, guard=0.9)",
    "MCFair(alpha=50, beta=0, guard=0.75)",
    "MCFair(alpha=0.5, beta=1, explore=ucb)",
    "MCFair(alpha=1, beta=2, explore=thompson)",
    "FairCo(alpha=0.5)",
    "FairCo(alpha=0.1, beta=1, guard=0.8)",
    "BayesFair(alpha=2)",
    "DIDRF(beta=1)",
    "MMF",
    "MMF(alpha=0.5, beta=1)",
    "PrefixGreedy(alpha=3, beta=1)",
    "Thompson(alpha=1)",
    "PBMUCB",
    "RandomK",
]


@st.composite
def queries(draw):
    """A view of a query, with exposure by counts, and what was clicked."""
    n = draw(st.integers(1, 8))
    k = draw(st.integers(1, n))
    F = np.array(draw(st.lists(st.lists(st.integers(0, 4), min_size=k, max_size=k), min_size=n, max_size=n)), np.int32)
    R = np.array(draw(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.5, 0.9]), min_size=n, max_size=n)))
    return view(R, F=F, k=k, visits=int(F[:, 0].sum())), draw(st.integers(0, 99))


def reasons_of(policy, q, visit):
    rng, p = draws(seed=visit, purpose=POLICY), q.p
    decision = decide(policy, q, rng, policy.theta, top_k_scratch(q.R.size), p)
    return Reasons(policy, decision, rng, by_clicks=True, credited=False), Facts(policy, q, p, rng)


@pytest.mark.parametrize("text", POLICIES)
@given(query=queries())
def test_every_claim_is_true(text, query):
    q, visit = query
    policy = mf.parse_policy(text).in_mode("online")
    reasons, facts = reasons_of(policy, q, visit)
    for i in range(q.R.size):
        check_sentence(reasons.sentence(i), facts, i)
        others = {part: rank if rank is not None else facts.k + 1 for part, rank in reasons.without(i).items()}
        assert others == {part: ranks[i] for part, ranks in facts.without.items()}


def test_the_oracle_notices_every_kind_of_false_claim():
    """A control: sentences that are true of one candidate are not of another, and numbers matter."""
    q = view([0.9, 0.5, 0.25, 0.2], E=[9.0, 3.0, 1.0, 0.1], k=2, visits=9)
    reasons, facts = reasons_of(mf.MCFair(alpha=2, beta=0), q, 0)
    for i in range(4):
        true = reasons.sentence(i)
        check_sentence(true, facts, i)
        for old, new in (("1st", "2nd"), ("2nd", "3rd"), ("3rd", "3th"), ("up", "down"), ("%", "%%"), ("7 %", "8 %")):
            if old in true:
                with pytest.raises(AssertionError):
                    check_sentence(true.replace(old, new, 1), facts, i)
        with pytest.raises(AssertionError):
            check_sentence(true, facts, (i + 1) % 4)


# --- what the sentences say ------------------------------------------------------------------------------------------


def test_an_item_below_its_share_is_moved_up_for_fairness():
    R = np.array([0.8, 0.7, 0.6, 0.5, 0.45, 0.42, 0.34])
    E = np.array([22.0, 20.0, 18.0, 14.0, 12.0, 10.0, 5.0])
    reasons, _ = reasons_of(mf.MCFair(alpha=10, beta=0), view(R, E=E, k=3, visits=30), 0)
    assert reasons.sentence(6) == (
        "Ranked 1st. By clicks alone it would be 7th; it was moved up because it has had 5 % of the views where its "
        "relevance earns 9 %."
    )
    assert reasons.sentence(0) == (
        "Not shown: it was ranked 4th, and the list has 3 places. By clicks alone it would be 1st; it was moved down "
        "because it has had 22 % of the views where its relevance earns 21 %."
    )


def test_an_item_above_its_share_may_stand_before_those_with_even_more():
    q = view([0.5, 0.4, 0.05, 0.9], E=[8.0, 5.2, 3.0, 0.0], k=3, visits=9)
    reasons, facts = reasons_of(mf.FairCo(alpha=5), q, 0)
    sentence = reasons.sentence(1)
    check_sentence(sentence, facts, 1)
    assert sentence == (
        "Ranked 2nd. By clicks alone it would be 3rd; it was moved up although it has had 32 % of the views where its "
        "relevance earns 22 %: the candidate that it overtook has had even more for its relevance."
    )


def test_a_new_item_is_being_tried():
    q = view([0.5, 0.4, 0.0], E=[5.0, 4.0, 0.0], k=2, visits=9)
    reasons, _ = reasons_of(mf.MCFair(alpha=0, beta=1), q, 0)
    assert reasons.sentence(2) == (
        "Ranked 1st. New: too little is known to rank it by clicks, so it is being tried; by clicks alone it would be "
        "3rd."
    )


@pytest.mark.parametrize("mc_floor", [0.1, 0.0])
def test_a_term_that_is_equal_for_all_candidates_is_no_reason(mc_floor):
    """Before anything was shown, exploration is the same for all, even where it is infinite and hides relevance."""
    q = view([0.2, 0.5, 0.5], k=3)
    reasons, facts = reasons_of(mf.TopK(beta=3, mc_floor=mc_floor), q, 0)
    for i in range(3):
        check_sentence(reasons.sentence(i), facts, i)
        assert "exploration" not in reasons.sentence(i)


def test_one_candidate_and_one_place():
    only, _ = reasons_of(mf.MCFair(), view([0.3], k=1), 0)
    assert only.sentence(0) == "Ranked 1st: it is the only candidate."
    one, _ = reasons_of(mf.TopK(), view([0.3, 0.1], k=1), 0)
    assert one.sentence(1) == (
        "Not shown: it was ranked 2nd, and the list has 1 place. Its estimated relevance is the 2nd highest of 2."
    )


def test_a_long_list_has_the_right_ordinals():
    reasons, _ = reasons_of(mf.TopK(), view(np.linspace(1, 0, 112), k=112), 0)
    found = [reasons.sentence(i).split()[1].rstrip(":") for i in (0, 1, 2, 3, 10, 11, 12, 20, 21, 22, 110)]
    assert found == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd", "111th"]
    assert [ordinal(number) for number in (113, 121, 1001, 1011)] == ["113th", "121st", "1001st", "1011th"]


def test_small_shares_are_not_rounded_to_nothing_and_close_ones_are_told_apart():
    q = view([0.5, 0.5, 0.5, 0.4999], E=[9.0, 9.0, 9.0, 0.01], k=2, visits=9)
    reasons, _ = reasons_of(mf.MCFair(alpha=10, beta=0), q, 0)
    assert "it has had 0.04 % of the views where its relevance earns 25.00 %" in reasons.sentence(3)


# --- parts of one's own ----------------------------------------------------------------------------------------------


class Popularity(mf.Policy):
    """A policy without a kernel whose score is a sum."""

    weight: float = 1.0

    def terms(self, q):
        return {"relevance": q.R.copy(), "popularity": self.weight * np.arange(q.R.size, dtype=float)}

    def score(self, q, rng):
        return sum(self.terms(q).values())


class Reversed(mf.Policy):
    """A policy that explains nothing."""

    def score(self, q, rng):
        return np.arange(q.R.size, dtype=float)


def test_terms_of_an_own_policy_are_named_and_one_without_terms_is_honest():
    q = view([0.9, 0.5, 0.1], k=2)
    reasons, _ = reasons_of(Popularity(), q, 0)
    assert reasons.sentence(2) == "Ranked 1st. By clicks alone it would be 3rd; the term 'popularity' moved it up."
    assert reasons.without(2) == {"popularity": 3}
    reasons, _ = reasons_of(Reversed(), q, 0)
    assert reasons.sentence(2) == "Ranked 1st. Reversed has no terms to take apart; by clicks alone it would be 3rd."


# --- the service -----------------------------------------------------------------------------------------------------

RULES = [
    {},
    {"prior_mean": 0.2, "prior_strength": 5},
    {"half_life": 3600, "newcomer_exposure": "fair"},
    {"maturation": 120, "examination": 0.5},
]


@pytest.mark.parametrize("rules", RULES, ids=str)
@given(data=st.data())
def test_explanations_of_the_service_are_true_of_its_ledgers(rules, data):
    clock = iter(range(10**12, 10**13, 61_000))
    text = data.draw(st.sampled_from(POLICIES))
    with Ranker("memory:", policy=text, warm=False, clock=lambda: next(clock), fit_interval=0, **rules) as ranker:
        for _ in range(data.draw(st.integers(1, 6))):
            items = data.draw(st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True))
            answer = ranker.rank("q", items, k=data.draw(st.integers(1, 4)))
            for item in data.draw(st.lists(st.sampled_from(answer.items), unique_by=lambda each: each.id)):
                ranker.click(answer.impression, item.id)
        why = ranker.explain(answer.impression)
        engine = ranker.executor.engine
        position = engine.ids.position(answer.impression)
        entry = engine.store.entry(position.number, position.seq)
        ledger = engine.repository.ledger(position.number, entry)
        decision, candidates, version = engine.repository.repeat_decision(ledger, entry)
        facts = Facts(version.policy, decision.view, decision.p, ledger.draws(version.rules.seed))
        ids = [ledger.ids[row] for row in candidates.rows]
        basis = "clicks" if version.compiled_estimator is None and "prior_mean" not in rules else "estimated relevance"
        credited = ledger.newcomers.exposure.any()
        assert sorted(each.id for each in (*why.items, *why.omitted)) == sorted(ids)
        for each in (*why.items, *why.omitted):
            sentence = each.sentence
            if credited:
                sentence = sentence.replace("has been credited with", "has had")
                sentence = sentence.replace("have been credited with", "have had")
            check_sentence(sentence, facts, ids.index(each.id), basis)


def test_oracle_of_rank_is_the_sum_of_the_papers_terms():
    """The ranks without a part, against the equations."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        R, E = rng.random(9), 5 * rng.random(9)
        reasons, _ = reasons_of(mf.MCFair(alpha=2, beta=3), view(R, E=E, k=4, visits=8), 0)
        B, MC = naive.scaled(naive.gradient(E, R), "max", 8), naive.certainty(E, 0.0, 0.1)
        for part, score in (("fairness", R + 3 * MC), ("exploration", R + 2 * B)):
            order = naive.ranking(score, 9, np.zeros(9))
            assert [reasons.without(i)[part] for i in range(9)] == [order.index(i) + 1 for i in range(9)]
