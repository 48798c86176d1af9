"""The guarantees of the service, without a network."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest
from deliberate_faults import caught_by
from observing import observed

import mcfair as mf
from mcfair.errors import ConflictError, NotFoundError, PolicyError, RequestError, UnavailableError
from mcfair.random import POLICY, draws
from mcfair.service import wire
from mcfair.service.core import ranking as ranking_module
from mcfair.service.core.engine import Engine
from mcfair.service.core.reasons import ordinal
from mcfair.service.core.rules import change_rules
from mcfair.service.core.verification import replay, verify
from mcfair.service.ranker import Ranker
from mcfair.service.stores import SQLiteStore
from mcfair.users.examination import examination

START = 1_700_000_000_000
P = examination(10)


class Clock:
    """A clock that tests advance."""

    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now

    def advance(self, seconds):
        self.now += round(seconds * 1000)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def open_ranker(clock):
    opened = []

    def make(store="memory:", **options):
        opened.append(Ranker(store, clock=clock, warm=False, **{"policy": "TopK", "prior_strength": 1.0} | options))
        return opened[-1]

    yield make
    for ranker in opened:
        ranker.close()


def ids(answer):
    return [item.id for item in answer.items]


def request(query, items=b'[{"id": "a"}]'):
    """Return a request as the HTTP interface receives it."""
    return wire.RawRankRequest(query=query, items=msgspec.Raw(items))


def click(answer, item):
    return {"impression": answer.impression, "item": item}


def known(ranker, query="q"):
    return {item.id: item for item in ranker.query_state(query).items}


def check_consistency(serving):
    """Verify and replay the store of a ranker or an engine; return the number of lists."""
    with getattr(serving, "executor", serving).store.reader() as store:
        assert verify(store) == []
        _, lists, faults = replay(store)
        assert faults == []
        return lists


# --- ranking ---------------------------------------------------------------------------------------------------------


def test_priors_order_the_first_list_and_clicks_the_next(open_ranker):
    ranker = open_ranker()
    items = [{"id": "a", "prior": 0.2}, {"id": "b", "prior": 0.9}, {"id": "c", "prior": 0.5}]
    answer = ranker.rank("q", items, k=2)
    assert ids(answer) == ["b", "c"]
    assert [item.score for item in answer.items] == [0.9, 0.5]
    ranker.feedback([click(answer, "c")])
    state = known(ranker)
    assert state["b"].relevance == pytest.approx((0 + 0.9) / (P[0] + 1))
    assert state["c"].relevance == pytest.approx((1 + 0.5) / (P[1] + 1))
    assert ids(ranker.rank("q", items, k=2)) == ["c", "b"]
    assert check_consistency(ranker) == 2


def test_numpy_scalars_are_accepted_as_priors(open_ranker):
    answer = open_ranker().rank("q", [{"id": "a", "prior": np.float32(0.25)}, {"id": "b", "prior": np.float64(0.5)}])
    assert [item.score for item in answer.items] == [0.5, 0.25]


def test_estimate_without_priors_is_that_of_the_paper(open_ranker):
    ranker = open_ranker()
    answer = ranker.rank("q", ["a", "b"], k=2)
    ranker.feedback([click(answer, "b")])
    assert known(ranker)["a"].relevance == 0.0
    assert known(ranker)["b"].relevance == 1 / P[1]


def test_prior_mean_applies_to_items_without_a_prior(open_ranker):
    ranker = open_ranker(prior_mean=0.25)
    answer = ranker.rank("q", ["a", {"id": "b", "prior": 0.75}], k=2)
    assert {item.id: item.score for item in answer.items} == {"a": 0.25, "b": 0.75}


@pytest.mark.parametrize("k", [1, 3, 50])
def test_list_length_is_at_most_the_number_of_items(open_ranker, k):
    answer = open_ranker().rank("q", ["a", "b", "c"], k=k)
    assert [item.rank for item in answer.items] == list(range(1, min(k, 3) + 1))


def test_single_candidate(open_ranker):
    ranker = open_ranker(policy="MCFair")
    assert ids(ranker.rank("q", ["a"], k=10)) == ["a"]
    assert ranker.query_state("q").unfairness == 0.0


def test_policy_of_a_single_request(open_ranker):
    ranker = open_ranker()
    first = ranker.rank("q", ["a", "b"], k=1, policy="ExploreK")
    second = ranker.rank("q", ["a", "b"], k=1, policy=mf.ExploreK())
    assert ids(first) + ids(second) == ["a", "b"]
    assert first.policy == repr(mf.ExploreK())
    assert first.version == second.version == ranker.policy().version == 1
    assert check_consistency(ranker) == 2


@pytest.mark.parametrize("policy", ["ILP", "LP", "PLFair"])
def test_policies_that_cannot_serve_are_refused(open_ranker, policy):
    with pytest.raises(RequestError, match=f"{policy} cannot serve") as refusal:
        open_ranker().rank("q", ["a"], policy=policy)
    assert refusal.value.field == "policy"


def test_an_unknown_policy_is_refused_with_a_suggestion(open_ranker):
    with pytest.raises(RequestError, match="did you mean 'MCFair'") as refusal:
        open_ranker().change_policy(policy="MCFiar")
    assert refusal.value.field == "policy"


def test_failing_custom_policy_fails_only_its_own_request(open_ranker):
    @mf.register
    class Own(mf.Policy):
        """Last first."""

        fail: float = 0.0

        def score(self, q, rng):
            if self.fail == 1.0:
                raise ZeroDivisionError("oops")
            return np.arange(q.R.size) * (np.nan if self.fail == 2.0 else 1.0)

    ranker = open_ranker(policy="Own")
    assert ids(ranker.rank("q", ["a", "b", "c"], k=2)) == ["c", "b"]
    with pytest.raises(PolicyError, match=r"Own.*failed: ZeroDivisionError: oops"):
        ranker.rank("q", ["a", "new"], policy="Own(fail=1)")
    with pytest.raises(PolicyError, match="not a number"):
        ranker.rank("other", ["a", "b"], policy="Own(fail=2)")
    assert set(known(ranker)) == {"a", "b", "c"}
    with pytest.raises(NotFoundError):
        ranker.query_state("other")
    assert check_consistency(ranker) == 1


def test_mmf_has_no_scores(open_ranker):
    answer = open_ranker(policy="MMF").rank("q", ["a", "b"], k=2, explain=True)
    assert all(item.score is None and item.terms == {} for item in answer.items)


# --- exposure --------------------------------------------------------------------------------------------------------


def test_deferred_exposure_is_credited_when_shown(open_ranker):
    ranker = open_ranker()
    answer = ranker.rank("q", ["a", "b", "c"], k=3, defer_exposure=True)
    ranker.feedback([click(answer, "b")])
    assert [(item.exposure, item.clicks) for item in known(ranker).values()] == [(0, 0)] * 3
    shown = {"impression": answer.impression, "type": "shown", "ranks": [1, 2]}
    assert [r.status for r in ranker.feedback([shown, shown])] == ["applied", "duplicate"]
    state = known(ranker)
    assert (state["a"].exposure, state["b"].exposure, state["c"].exposure) == (P[0], P[1], 0)
    assert state["b"].clicks == 1
    assert check_consistency(ranker) == 1


def test_repeated_shown_credits_nothing(open_ranker):
    ranker = open_ranker()
    answer = ranker.rank("q", ["a"], k=1)
    assert ranker.shown(answer.impression).status == "duplicate"
    assert known(ranker)["a"].exposure == 1.0


def test_retraction_is_permanent_in_any_order(open_ranker):
    ranker = open_ranker()
    answer = ranker.rank("q", ["a", "b"], k=2)
    assert ranker.retract([click(answer, "a")])[0].status == "applied"
    assert ranker.feedback([click(answer, "a"), click(answer, "b")])[1].status == "applied"
    assert [known(ranker)[item].clicks for item in "ab"] == [0, 1]
    assert ranker.retract([click(answer, "b"), click(answer, "b")])[1].status == "duplicate"
    assert known(ranker)["b"].clicks == 0
    ranker.retract([{"impression": answer.impression, "type": "shown", "ranks": [2]}])
    assert [known(ranker)[item].exposure for item in "ab"] == [1.0, 0.0]
    assert check_consistency(ranker) == 1


def test_shadow_returns_the_request_order_and_records_the_policy_list(open_ranker):
    ranker = open_ranker()
    items = [{"id": "a", "prior": 0.1}, {"id": "b", "prior": 0.9}]
    answer = ranker.rank("q", items, k=1, shadow=True)
    assert ids(answer) == ["a"]
    assert [item.exposure for item in known(ranker).values()] == [1.0, 0.0]
    why = ranker.explain(answer.impression)
    assert why.shadow
    assert [item.id for item in why.items] == ["b"]
    assert not why.items[0].shown
    assert check_consistency(ranker) == 1


def test_changed_examination_applies_to_later_impressions_only(open_ranker):
    ranker = open_ranker(examination=[0.9, 0.5])
    ranker.rank("q", ["a", "b", "c"], k=3)
    assert [item.exposure for item in known(ranker).values()] == [0.9, 0.5, 0.0]
    before = ranker.policy()
    after = ranker.change_policy(examination=0.0)
    assert after.version == before.version + 1
    ranker.rank("q", ["a", "b", "c"], k=3)
    assert [item.exposure for item in known(ranker).values()] == [1.9, 1.5, 1.0]
    ranker.change_policy(examination=[0.9, 0.5])
    ranker.rank("q", ["a", "b", "c"], k=2)
    assert [item.exposure for item in known(ranker).values()] == [2.8, 2.0, 1.0]
    assert check_consistency(ranker) == 3


def test_exposure_by_rank_over_several_examinations(open_ranker):
    ranker = open_ranker(policy="MMF", examination=[1.0, 0.5])
    for _ in range(4):
        ranker.rank("q", ["a", "b"], k=2)
    ranker.change_policy(examination=[1.0, 0.25])
    ranker.rank("q", ["a", "b"], k=2)
    ledger = ranker.executor.engine.ledger(ranker.executor.engine.find_number("q", None))
    rows = np.arange(2)
    p, F = ledger.counts.by_rank(rows, 2)
    expected = sum(block.F[rows] * block.p * block.weight for block in ledger.counts.blocks.values())
    assert len(ledger.counts.blocks) == 2
    np.testing.assert_allclose(F * p, expected, rtol=1e-8)


# --- time ------------------------------------------------------------------------------------------------------------


def test_impressions_enter_the_estimate_after_maturation(open_ranker, clock):
    ranker = open_ranker(maturation=60)
    first = ranker.rank("q", ["a"], k=1)
    ranker.feedback([click(first, "a")])
    clock.advance(59)
    ranker.rank("q", ["a"], k=1)
    state = known(ranker)["a"]
    assert (state.exposure, state.clicks, state.relevance) == (2.0, 1.0, 0.0)
    clock.advance(1)
    assert known(ranker)["a"].relevance == 1.0
    clock.advance(60)
    assert known(ranker)["a"].relevance == 0.5
    ranker.change_policy(maturation=200)
    assert known(ranker)["a"].relevance == 0.0
    ranker.change_policy(maturation=0)
    assert known(ranker)["a"].relevance == 0.5
    assert check_consistency(ranker) == 2


def test_counts_decay_and_late_clicks_decay_with_their_impression(open_ranker, clock):
    ranker = open_ranker(half_life=100)
    answer = ranker.rank("q", ["a"], k=1)
    clock.advance(100)
    assert known(ranker)["a"].exposure == 0.5
    ranker.feedback([click(answer, "a")])
    assert known(ranker)["a"].clicks == 0.5
    assert known(ranker)["a"].relevance == 1.0
    ranker.rank("q", ["a"], k=1)
    assert known(ranker)["a"].exposure == 1.5
    clock.advance(1100)
    ranker.rank("q", ["a"], k=1)
    assert known(ranker)["a"].exposure == 1.0  # counts below a thousandth are dropped
    assert check_consistency(ranker) == 3


def test_half_life_can_be_set_later(open_ranker, clock):
    ranker = open_ranker()
    for _ in range(4):
        ranker.rank("q", ["a"], k=1)
    clock.advance(1000)
    ranker.change_policy(half_life=100)
    assert known(ranker)["a"].exposure == 4.0  # counts without a time are as old as the half-life
    clock.advance(100)
    ranker.rank("q", ["a"], k=1)
    assert known(ranker)["a"].exposure == 3.0
    ranker.change_policy(half_life=None)
    assert known(ranker)["a"].exposure == 5.0
    assert check_consistency(ranker) == 5


def times_newcomer_is_first(ranker):
    """Count how often a newcomer is ranked first after ten relevant items were shown five hundred times."""
    old = [f"old{i}" for i in range(10)]
    for _ in range(500):
        answer = ranker.rank("q", old, k=3)
        ranker.feedback([click(answer, item) for item in ids(answer)])
    first = 0
    for _ in range(200):
        answer = ranker.rank("q", [*old, "new"], k=3)
        ranker.feedback([click(answer, item) for item in ids(answer)])
        first += ids(answer)[0] == "new"
    return first


def test_newcomer_exposure_fair_gives_a_newcomer_its_share(open_ranker):
    zero = open_ranker(policy="MCFair(alpha=10, beta=1)", newcomer_exposure="zero")
    fair = open_ranker(policy="MCFair(alpha=10, beta=1)", newcomer_exposure="fair")
    catching_up, sharing = times_newcomer_is_first(zero), times_newcomer_is_first(fair)
    assert catching_up > 80
    assert 5 <= sharing <= 40  # a fair share of 200 among eleven is 18
    assert check_consistency(fair) == 700


def test_clock_that_goes_back(open_ranker, clock):
    ranker = open_ranker(maturation=10)
    ranker.rank("q", ["a"], k=1)
    clock.advance(-3600)
    answer = ranker.rank("q", ["a"], k=1)
    assert ranker.feedback([click(answer, "a")])[0].status == "applied"
    assert answer.expires_at.timestamp() * 1000 == START + 7 * 86_400_000
    assert check_consistency(ranker) == 2


# --- repeats and invalid events --------------------------------------------------------------------------------------


def test_repeated_idempotency_key_returns_the_same_ranking(open_ranker):
    ranker = open_ranker(policy="MCFair")
    ranker.rank("q", ["a", "b", "c"], k=2)
    answer = ranker.rank("q", ["a", "b", "c"], k=2, key="one", explain=True)
    later = ranker.rank("q", ["c", "b", "a"], k=3)
    ranker.feedback([click(answer, ids(answer)[0]), click(later, "b")])
    before = ranker.query_state("q")
    assert ranker.rank("q", ["a", "b", "c"], k=2, key="one", explain=True) == answer
    assert ranker.query_state("q") == before
    with pytest.raises(ConflictError, match="used for another request"):
        ranker.rank("q", ["a", "b", "c"], k=1, key="one")
    assert ranker.query_state("q") == before
    assert check_consistency(ranker) == 3


def test_idempotency_keys_expire_after_a_day(open_ranker, clock):
    ranker = open_ranker()
    first = ranker.rank("q", ["a"], key="one")
    clock.advance(86_400)
    assert ranker.rank("q", ["a", "b"], key="one").impression != first.impression


def test_concurrent_requests_with_the_same_key_count_once(open_ranker):
    ranker = open_ranker()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ranker.rank("q", ["a", "b"], k=1, key="one"), range(40)))
    assert all(answer == answers[0] for answer in answers)
    assert ranker.query_state("q").visits == 1


def test_results_of_invalid_events(open_ranker, clock):
    ranker, other = open_ranker(retention=100), open_ranker()
    answer = ranker.rank("q", ["a", "b"], k=1)
    foreign = other.rank("q", ["a", "b"], k=1)
    events = [
        click(answer, "b"), click(answer, "stranger"), click(foreign, "a"),
        {"impression": "rubbish", "item": "a"}, {"impression": answer.impression},
        {"impression": answer.impression, "type": "bought", "item": "a"},
        {"impression": answer.impression, "type": "shown", "ranks": [2]},
        {"impression": answer.impression, "type": "shown", "ranks": [0]},
        {"impression": answer.impression, "type": "shown", "item": "a"},
        {"impression": answer.impression, "item": "a", "ranks": [1]},
    ]  # fmt: skip
    statuses = [result.status for result in ranker.feedback(events)]
    assert statuses == [
        "not_in_impression", "not_in_impression", "unknown_impression", "unknown_impression", "invalid", "invalid",
        "not_in_impression", "not_in_impression", "invalid", "invalid",
    ]  # fmt: skip
    clock.advance(100)
    assert ranker.feedback([click(answer, "a")])[0].status == "expired"
    assert known(ranker)["a"].clicks == 0


def test_threads_share_a_query_without_losing_visits(open_ranker):
    ranker = open_ranker(policy="MCFair")

    def session(_):
        answer = ranker.rank("q", ["a", "b", "c", "d"], k=2)
        return ranker.feedback([click(answer, ids(answer)[0])])[0].status

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(session, range(400))) == {"applied"}
    state = ranker.query_state("q")
    assert state.visits == 400
    assert sum(item.exposure for item in state.items) == pytest.approx(400 * P[:2].sum())
    assert sum(item.clicks for item in state.items) == 400
    assert check_consistency(ranker) == 400


# --- explanations ----------------------------------------------------------------------------------------------------


def test_explanation_is_exact_and_stays_the_same(open_ranker):
    ranker = open_ranker(policy="MCFair(alpha=2, beta=5)")
    rng = np.random.default_rng(0)
    answers = []
    for _ in range(30):
        answers.append(ranker.rank("q", list("abcdefg"), k=3, explain=True))
        ranker.feedback([click(answers[-1], item) for item in ids(answers[-1]) if rng.random() < 0.4])
    for answer in answers:
        why = ranker.explain(answer.impression)
        assert [(item.id, item.score, item.terms) for item in why.items] == [
            (item.id, item.score, item.terms) for item in answer.items
        ]
        for item in why.items:
            assert sum(item.terms.values()) == pytest.approx(item.score, rel=1e-12)
            assert item.inputs.relevance == item.terms["relevance"]
            assert item.sentence.startswith(f"Ranked {ordinal(item.rank)}")
    assert [why.visits for why in map(ranker.explain, (a.impression for a in answers))] == list(range(30))


def test_counterfactual_ranks_are_those_of_the_policy_without_the_term(open_ranker):
    ranker = open_ranker(policy="MCFair(alpha=2, beta=5)")
    for _ in range(5):
        answer = ranker.rank("q", list("abcdefg"), k=3)
        ranker.click(answer.impression, ids(answer)[1])
    ledger = ranker.executor.engine.ledger(ranker.executor.engine.find_number("q", None))
    candidates = next(iter(ledger.candidates.values()))
    view = ledger.view(candidates, ranker.executor.engine.version, ranker.executor.engine.now(), 7)
    why = ranker.explain(ranker.rank("q", list("abcdefg"), k=3).impression)
    for name, policy in [("fairness", mf.MCFair(alpha=0, beta=5)), ("exploration", mf.MCFair(alpha=2, beta=0))]:
        order = ["abcdefg"[i] for i in np.argsort(-policy.score(view, draws(0, POLICY)), kind="stable")]
        explained = (*why.items, *why.omitted)
        assert {item.id: item.without[name] for item in explained} == {
            item: rank for rank, item in enumerate(order, start=1)
        }


def test_the_term_of_groups_is_explained(open_ranker):
    ranker = open_ranker(policy="MCFair(alpha=0, beta=0, alpha_group=3)")
    groups = {item: "big" if item in "abcd" else "small" for item in "abcdef"}
    items = [{"id": item, "group": group, "prior": 0.6 if group == "big" else 0.5} for item, group in groups.items()]
    ranker.rank("q", items, k=6)
    why = ranker.explain(ranker.rank("q", items, k=6).impression)
    for item in why.items:
        assert sum(item.terms.values()) == pytest.approx(item.score, rel=1e-12)
        assert item.without.keys() == {"group"}  # the other parts have no weight
    assert {item.id: item.terms["group"] > 0 for item in why.items} == {item: item in "ef" for item in "abcdef"}
    assert any("because its group has had" in item.sentence for item in why.items)


def test_unknown_impressions_and_queries(open_ranker):
    with pytest.raises(NotFoundError, match="no such impression"):
        open_ranker().explain("rubbish")
    with pytest.raises(NotFoundError, match="no such query"):
        open_ranker().query_state(query_id="zz")


def test_fairness_floor_of_a_query(open_ranker):
    ranker = open_ranker(policy="MCFair(beta=1)")
    for _ in range(40):
        answer = ranker.rank("q", list("abcde"), k=3)
        ranker.feedback([click(answer, item) for item in ids(answer) if item in "ab"])
    state = ranker.query_state("q")
    R = np.array([item.relevance for item in state.items])
    scale = max(1.0, R.max())
    floor = mf.fairness_floor(mf.Dataset(offsets=[0, 5], y=[0] * 5, R=R / scale), [40], P[:3]).unfairness * scale**2
    assert state.floor == pytest.approx(floor)
    assert 0 < state.floor <= state.unfairness
    assert sum(item.exposure_share for item in state.items) == pytest.approx(1)
    assert sum(item.merit_share for item in state.items) == pytest.approx(1)


def test_fairness_by_group_over_all_queries(open_ranker):
    ranker = open_ranker(policy="MCFair(beta=1)")
    for query in ("p", "q"):
        for _ in range(20):
            items = [{"id": "a", "group": "A"}, {"id": "b", "group": "B"}, "c"]
            answer = ranker.rank(query, items, k=2)
            ranker.feedback([click(answer, item) for item in ids(answer) if item != "c"])
    fair = ranker.fairness()
    groups = {each.group: each for each in fair.groups}
    assert (fair.queries, fair.visits, set(groups)) == (2, 40, {"A", "B", None})
    assert sum(each.exposure_share for each in fair.groups) == pytest.approx(1)
    assert groups["A"].merit_share == pytest.approx(groups["B"].merit_share, rel=0.2)
    assert fair.unfairness == pytest.approx(np.mean([ranker.query_state(q).unfairness for q in "pq"]))


# --- deletion and compaction -----------------------------------------------------------------------------------------


def test_deleted_item_starts_anew(open_ranker):
    ranker = open_ranker()
    answers = [ranker.rank(query, ["a", "b"], k=2) for query in ("p", "q")]
    ranker.feedback([click(answer, "a") for answer in answers])
    assert ranker.delete_item("a") == 2
    assert ranker.delete_item("a") == 0
    assert set(known(ranker)) == {"b"}
    assert ranker.feedback([click(answers[0], "a")])[0].status == "not_in_impression"
    assert '"a"' not in json.dumps(list(ranker.export()))
    ranker.rank("q", ["b", "a"], k=1)
    assert (known(ranker)["a"].exposure, known(ranker)["a"].clicks) == (0, 0)
    assert check_consistency(ranker) == 3


def test_deleted_query_loses_all_data(open_ranker):
    ranker = open_ranker()
    answer = ranker.rank("q", ["a"], k=1)
    ranker.delete_query("q")
    with pytest.raises(NotFoundError):
        ranker.query_state("q")
    assert ranker.feedback([click(answer, "a")])[0].status == "unknown_impression"
    ranker.rank("q", ["a"], k=1)
    assert ranker.feedback([click(answer, "a")])[0].status == "unknown_impression"
    assert ranker.query_state("q").visits == 1


def test_reset_keeps_rules_and_keys(open_ranker):
    ranker = open_ranker(policy="FairK")
    key = ranker.add_key("mine", ["read"]).key
    ranker.rank("q", ["a"], k=1)
    assert ranker.reset() == 1
    assert ranker.usage().queries == ranker.usage().impressions == ranker.usage().items == 0
    assert ranker.policy().policy == repr(mf.FairK())
    assert ranker.authenticate(key) == {"read"}


def test_export_contains_everything(open_ranker):
    ranker = open_ranker()
    answer = ranker.rank("q", [{"id": "a", "group": "G"}, "b"], k=2)
    ranker.feedback([click(answer, "b")])
    rules, query, impression = ranker.export()
    assert rules["rules"]["policy"] == repr(mf.TopK())
    assert query["query"] == answer.query_id
    assert [(i["id"], i["group"], i["counts"][0]["ranks"], i["counts"][0]["clicks"]) for i in query["items"]] == [
        ("a", "G", [1, 0], 0),
        ("b", None, [0, 1], 1),
    ]
    assert impression["items"] == ["a", "b"]


def test_compaction_keeps_the_state_and_bounds_the_store(open_ranker, clock):
    ranker = open_ranker(policy="MCFair(beta=5)", retention=60)
    for _ in range(20):
        for _ in range(30):
            answer = ranker.rank("q", list("abcd"), k=2)
            ranker.feedback([click(answer, ids(answer)[0])])
        clock.advance(61)
        before = ranker.query_state("q")
        ranker.executor.submit(Engine.compact_expired).result()
        assert ranker.query_state("q") == before
        assert ranker.usage().impressions == ranker.usage().events == 0
        assert ranker.usage().snapshots == 1
    assert before.visits == 600
    assert ranker.feedback([click(answer, "a")])[0].status == "expired"
    with pytest.raises(NotFoundError, match="expired"):
        ranker.explain(answer.impression)
    ranker.rank("q", list("abcd"), k=2)
    assert check_consistency(ranker) == 1


def test_compaction_keeps_what_later_explanations_need(open_ranker, clock):
    ranker = open_ranker(maturation=50, retention=60)
    first = ranker.rank("q", ["a", "b"], k=1)
    ranker.click(first.impression, "a")
    clock.advance(40)
    second = ranker.rank("q", ["a", "b"], k=1)
    before = ranker.explain(second.impression)
    clock.advance(21)  # the first has expired, but was pending when the second was ranked
    ranker.executor.submit(Engine.compact_expired).result()
    assert ranker.explain(second.impression) == before
    assert before.items[0].inputs.relevance == 0.0
    clock.advance(100)
    ranker.executor.submit(Engine.compact_expired).result()
    assert ranker.usage().impressions == 0


@pytest.fixture
def engine(clock):
    """An engine without a writer, so that compaction runs only when called."""
    made = Engine(SQLiteStore(None), lambda stored: change_rules(stored, "TopK", {"retention": 100.0}), clock=clock)
    yield made
    made.store.close()


def stored(engine):
    """Return the numbers of log entries and of idempotency keys."""
    return engine.store.number("SELECT count(*) FROM log"), engine.store.number("SELECT count(*) FROM requests")


def statements(engine):
    """Return the SQL statements of a compaction."""
    asked = []
    engine.store.db.set_trace_callback(asked.append)
    engine.compact_expired()
    engine.store.db.set_trace_callback(None)
    return asked


def test_compaction_does_not_read_the_store_until_something_expires(engine, clock):
    engine.compact_expired()
    engine.rank(request("p"), "one")
    assert statements(engine) == []  # nothing added since can have expired
    clock.advance(40)
    answer = engine.rank(request("q"), "two")
    engine.feedback([wire.Event(impression=answer.impression, item="a")])
    clock.advance(59.999)
    assert statements(engine) == []
    clock.advance(0.001)
    assert engine.compact_expired() == 1
    assert stored(engine) == (2, 2)
    clock.advance(0.001)
    engine.compact_expired()
    assert stored(engine) == (2, 1)
    assert statements(engine) == []
    clock.advance(39.998)
    assert statements(engine) == []
    clock.advance(0.001)
    assert engine.compact_expired() == 2  # the impression and its click
    clock.advance(0.001)
    engine.compact_expired()
    assert stored(engine) == (0, 0)
    clock.advance(99)
    assert statements(engine) == []


def test_compaction_in_many_small_steps_misses_nothing(engine, clock):
    for i in range(10):
        engine.rank(request(f"q{i}"))
        clock.advance(1)
    for _ in range(4):
        engine.compact_expired(0.0)  # one step
    engine.rank(request("q0"))
    clock.advance(90)
    for _ in range(30):
        engine.compact_expired(0.0)
    assert stored(engine) == (10, 0)
    clock.advance(200)
    for _ in range(30):
        engine.compact_expired(0.0)
    assert stored(engine) == (0, 0)


def shorten(engine):
    engine.change(wire.PolicyChange(retention=10.0))
    engine.rank(request("q"))


def delete(engine):
    engine.delete_item("a")
    assert stored(engine) == (2, 0)


def fail(engine):
    engine.store.begin()
    engine.rank(request("p"))
    engine.store.rollback()
    engine.drop_cache()


@pytest.mark.parametrize(("happens", "after", "rest"), [(shorten, 10, 1), (delete, 100, 0), (fail, 100, 0)])
def test_operations_between_compactions_do_not_delay_expiry(engine, clock, happens, after, rest):
    engine.rank(request("p"))
    for _ in range(2):
        engine.compact_expired()
    happens(engine)
    engine.compact_expired()
    clock.advance(after)
    engine.compact_expired()
    assert stored(engine) == (rest, 0)


def test_deletion_after_expiry_is_compacted_at_once(engine, clock):
    engine.rank(request("p"))
    clock.advance(100)
    assert engine.compact_expired() == 1
    engine.delete_item("a")
    assert engine.compact_expired() == 1
    assert stored(engine) == (0, 0)


def test_item_changes_its_group(open_ranker):
    ranker = open_ranker()
    for group in ("G", "H", "G"):
        ranker.rank("q", [{"id": "a", "group": group}, "b"], k=1)
        assert known(ranker)["a"].group == group
    ranker.rank("q", ["a", "b"], k=1)
    assert known(ranker)["a"].group == "G"


def test_feedback_batch_for_more_queries_than_the_cache_holds(open_ranker):
    ranker = open_ranker(cache=5_000)
    answers = [ranker.rank(query, list("abcdef"), k=2) for query in "pqrpqrp"]
    results = ranker.feedback([click(answer, ids(answer)[0]) for answer in answers])
    assert [result.status for result in results] == ["applied"] * 7
    assert [sum(item.clicks for item in known(ranker, query).values()) for query in "pqr"] == [3, 2, 2]
    assert check_consistency(ranker) == 7


def test_evicted_queries_are_loaded_again(open_ranker):
    small, large = open_ranker(policy="MCFair(beta=5)", cache=20_000), open_ranker(policy="MCFair(beta=5)")
    rng = np.random.default_rng(1)
    for _ in range(400):
        query, hit = f"q{rng.integers(30)}", rng.integers(2)
        lists = []
        for ranker in (small, large):
            answer = ranker.rank(query, list("abcdef"), k=2)
            ranker.feedback([click(answer, ids(answer)[hit])])
            lists.append(ids(answer))
        assert lists[0] == lists[1]
    assert len(small.executor.engine.ledgers) < 10 < len(large.executor.engine.ledgers)


def test_snapshots_are_written_and_thinned(clock):
    engine = Engine(SQLiteStore(None), clock=clock, snapshot_interval=10, snapshot_spacing=25)
    for _ in range(100):
        engine.rank(request("q"))
    assert [seq for seq, _ in engine.store.snapshots(1)] == [20, 40, 70, 90, 100]
    before = observed(engine, "q")
    engine.drop_cache()
    assert observed(engine, "q") == before
    assert check_consistency(engine) == 100
    engine.store.close()


# --- rules, limits, failures -----------------------------------------------------------------------------------------


def test_rules_are_persistent_and_only_changes_create_versions(open_ranker, tmp_path):
    first = open_ranker(tmp_path / "s.db", policy="FairK")
    assert first.policy().version == 1
    assert first.change_policy(policy="FairK()").version == 1
    assert first.change_policy(retention=3600).version == 2
    first.close()
    again = Ranker(tmp_path / "s.db", warm=False)
    assert (again.policy().version, again.policy().policy, again.policy().retention) == (
        2,
        repr(mf.FairK()),
        3600,
    )
    again.close()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prior_mean": 1.5}, "prior_mean"), ({"prior_strength": -1}, "prior_strength"),
        ({"newcomer_exposure": "late"}, "newcomer_exposure"),
        ({"examination": [0, 0]}, "examination"), ({"examination": []}, "examination"),
        ({"examination": float("nan")}, "examination"), ({"half_life": 0}, "half_life"),
        ({"retention": 0}, "retention"),
        ({"maturation": 1e8}, "maturation"), ({"maturation": 20, "half_life": 10}, "maturation"),
        ({"colour": 1}, "colour"),
        ({"seed": -1}, "seed"), ({"prior_strength": float("inf")}, "prior_strength"),
    ],
    ids=str,
)  # fmt: skip
def test_invalid_rules_are_refused_by_name(open_ranker, change, field):
    ranker = open_ranker()
    before = ranker.policy()
    with pytest.raises(RequestError) as refusal:
        ranker.change_policy(**change)
    assert refusal.value.field == field
    assert ranker.policy() == before


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"query": ""}, "query"), ({"query": "é" * 2100}, "query"), ({"items": []}, "items"), ({"k": 0}, "k"),
        ({"items": ["a", "b", "a"]}, "items[2].id"), ({"items": [{"id": "a", "prior": 1.1}]}, "items[0].prior"),
        ({"items": ["é" * 129]}, "items[0].id"), ({"items": [str(i) for i in range(5001)]}, "items"),
        ({"items": [str(i) for i in range(5000)], "k": 201}, "k"), ({"policy": "Nobody"}, "policy"),
        ({"items": [{"id": "a", "colour": 1}]}, "items[0].colour"), ({"query": "half \ud800"}, "query"),
        ({"items": [{"id": "a", "group": "é" * 129}]}, "items[0].group"), ({"items": ["\udfff"]}, "items[0].id"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_invalid_requests_are_refused_by_field(open_ranker, arguments, field):
    ranker = open_ranker()
    with pytest.raises(RequestError) as refusal:
        ranker.rank(**{"query": "q", "items": ["a", "b"]} | arguments)
    assert refusal.value.field == field
    assert ranker.usage().queries == 0


@pytest.mark.parametrize(
    ("items", "field"),
    [
        (b"null", "items"), (b"[]", "items"), (b'{"id": "a"}', "items"), (b"[1]", "items[0]"), (b'[{}]', "items[0].id"),
        (b'[{"id": "a"}, {"id": "b", "prior": 2}]', "items[1].prior"), (b'[{"id": "a"}, {"id": "a"}]', "items[1].id"),
        (b'[{"id": "\xff"}]', None), (b'[{"id": "\\ud800"}]', None), (b"[" * 100_000, "items[0]"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_invalid_raw_items_are_refused_by_field(open_ranker, items, field):
    ranker = open_ranker()
    for _ in range(2):
        with pytest.raises(RequestError) as refusal:
            ranker.executor.submit(Engine.rank, request("q", items)).result()
        assert refusal.value.field == field
    assert ranker.usage().queries == 0


def test_repeated_items_are_not_decoded_again(open_ranker, monkeypatch):
    read = []

    def read_items(items):
        read.append(bytes(items))
        return wire.read_items(items)

    monkeypatch.setattr(ranking_module, "read_items", read_items)
    ranker = open_ranker()
    for query in ("q", "q", "other", "q"):
        assert ids(ranker.rank(query, ["a", "b"])) == ["a", "b"]
    assert len(read) == 2  # once per query
    ranker.rank("q", ["a", {"id": "b", "group": "G"}])
    ranker.rank("q", ["a", "b"])
    assert len(read) == 4  # a changed group evicts all candidate sets
    ranker.executor.submit(Engine.drop_cache).result()
    ranker.rank("q", ["a", "b"])
    assert len(read) == 5
    assert check_consistency(ranker) == 7


def test_maximum_number_of_items_of_a_query_counts_those_that_exist(open_ranker):
    ranker = open_ranker(max_items=3)
    ranker.rank("q", ["a", "b"], k=1)
    with pytest.raises(RequestError, match="has 2 items, and 2 more are too many: at most 3 are allowed; delete items"):
        ranker.rank("q", ["c", "d"], k=1)
    assert set(known(ranker)) == {"a", "b"}
    ranker.delete_item("a")
    ranker.rank("q", ["c", "d"], k=1)
    assert set(known(ranker)) == {"b", "c", "d"}


def test_unexpected_error_fails_only_its_own_operation(open_ranker):
    ranker = open_ranker()
    blocker = threading.Event()
    ranker.executor.submit(lambda engine: blocker.wait(10))

    def spoil(engine):
        engine.rank(request("spoilt"))
        raise KeyError("a bug")

    futures = [ranker.executor.submit(Engine.rank, request("q")) for _ in range(3)]
    spoilt = ranker.executor.submit(spoil)
    blocker.set()
    assert len({future.result().impression for future in futures}) == 3
    with pytest.raises(KeyError):
        spoilt.result()
    assert ranker.query_state("q").visits == 3
    with pytest.raises(NotFoundError):
        ranker.query_state("spoilt")
    assert ranker.executor.store_error is None
    assert check_consistency(ranker) == 3


def test_full_queue_refuses_operations(open_ranker):
    ranker = open_ranker(max_queued=2)
    blocker = threading.Event()
    busy = ranker.executor.submit(lambda engine: blocker.wait(10))
    while ranker.executor.queue_depth:
        pass
    waiting = [ranker.executor.submit(Engine.now) for _ in range(2)]
    with pytest.raises(UnavailableError, match="queue is full"):
        ranker.executor.submit(Engine.now)
    blocker.set()
    assert all(future.result() for future in (busy, *waiting))


def test_close_executes_queued_operations_and_refuses_later_ones(open_ranker, tmp_path):
    ranker = open_ranker(tmp_path / "s.db")
    futures = [ranker.executor.submit(Engine.rank, request("q")) for _ in range(50)]
    ranker.close()
    assert len({future.result().impression for future in futures}) == 50
    with pytest.raises(UnavailableError, match="stopping"):
        ranker.rank("q", ["a"])
    assert open_ranker(tmp_path / "s.db").query_state("q").visits == 50


# --- keys ------------------------------------------------------------------------------------------------------------


def test_keys_are_hashed_scoped_and_revocable(open_ranker, tmp_path):
    ranker = open_ranker(tmp_path / "s.db")
    assert not ranker.has_keys
    added = ranker.add_key("shop", ["feedback", "rank"])
    assert added.info.scopes == ["rank", "feedback"]
    assert ranker.has_keys
    assert ranker.authenticate(added.key) == {"rank", "feedback"}
    secret = added.key.split("_", 2)[2]
    for wrong in ("", "x", added.key[:-1], added.key + "x", added.key.upper(), f"mcfair_{'0' * 12}_{secret}", "é_é_é"):
        assert ranker.authenticate(wrong) is None
    assert secret.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    (listed,) = ranker.keys()
    assert listed == added.info
    assert ranker.revoke_key(added.info.id).revoked is not None
    assert ranker.authenticate(added.key) is None
    assert ranker.has_keys  # revoking the last key does not disable authorization
    with pytest.raises(NotFoundError):
        ranker.revoke_key("unknown")
    with pytest.raises(RequestError, match="unknown scope 'everything'"):
        ranker.add_key("x", ["everything"])


# --- tampered stores -------------------------------------------------------------------------------------------------


UNTAMPERED = "UPDATE log SET body = body"


def tampered(ranker, sql, proof):
    """Return the result of a proof on a copy of a store that was changed by SQL."""
    with getattr(ranker, "executor", ranker).store.reader() as store:
        store.db.execute(sql)
        return proof(store)


@pytest.fixture
def engine_with_lists(clock):
    made = Engine(
        SQLiteStore(None), lambda stored: change_rules(stored, "MCFair(beta=5)", {}), clock=clock,
        snapshot_interval=10, snapshot_spacing=10,
    )  # fmt: skip
    items = msgspec.json.encode([{"id": item} for item in "abcde"])
    for _ in range(60):
        answer = made.rank(wire.RawRankRequest(query="q", items=msgspec.Raw(items), k=3))
        made.feedback([wire.Event(impression=answer.impression, item=ids(answer)[0])])
    assert check_consistency(made) == 60
    yield made
    made.store.close()


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("UPDATE log SET bits = x'010101' WHERE seq = 1", "does not follow from its feedback entries"),
        ("DELETE FROM log WHERE seq = 7", "gap"),
        (
            "UPDATE log SET body = (SELECT body FROM log WHERE seq = 4) WHERE seq = 2",
            "twice|does not follow from its feedback",
        ),
        (
            "UPDATE snapshots SET body = (SELECT body FROM snapshots ORDER BY seq LIMIT 1)",
            "do not reproduce the snapshot",
        ),
        ("DELETE FROM candidates", "candidate set 1 is missing"),
        ("DELETE FROM items WHERE row = 2", "row 2 has an item in the log"),
        ("DELETE FROM items WHERE row = 4", "a candidate has row 4, but there are 4 rows"),
    ],
    ids=["bits", "gap", "feedback", "counters", "candidates", "items", "last item"],
)
def test_verify_reports_tampering(engine_with_lists, sql, message):
    def check(faulty):
        faults = tampered(engine_with_lists, sql if faulty else UNTAMPERED, verify)
        assert not faults, "\n".join(faults)

    caught_by(check, message)


def test_replay_reports_a_changed_list(engine_with_lists):
    first = "(SELECT body FROM log WHERE kind = 0 ORDER BY seq LIMIT 1)"
    sql = f"UPDATE log SET body = {first} WHERE kind = 0 AND seq = 39"

    def check(faulty):
        *_, faults = tampered(engine_with_lists, sql if faulty else UNTAMPERED, replay)
        assert not faults, "\n".join(faults)

    caught_by(check, "the replayed list 39 differs")


def test_reading_a_closed_ranker_is_refused_as_any_operation(tmp_path, caplog):
    """An export once raised an error of SQLite."""
    for store in ("memory:", tmp_path / "store.db"):
        ranker = Ranker(store, warm=False)
        ranker.close()
        for read in (ranker.usage, ranker.fairness, lambda each=ranker: list(each.export())):
            with pytest.raises(UnavailableError, match="the service is stopping"):
                read()
    assert caplog.records == []
