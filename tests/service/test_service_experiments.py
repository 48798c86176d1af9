"""Experiments: the arm of a session, totals that count once, results by arm, and the guard that stops a bad arm."""

import logging
import math

import msgspec
import numpy as np
import pytest
from observing import explained
from postgres_server import missing, shared_server
from simulated_shop import Shop, experiment

import mcfair as mf
from mcfair.errors import NotFoundError, RequestError
from mcfair.service.core.arm_guards import harmful_arms
from mcfair.service.core.arm_reports import (
    LEAST_LISTS,
    RatioOfBuckets,
    anytime_p,
    bucket_totals,
    experiment_report,
    guard_p_values,
)
from mcfair.service.core.experiments import BUCKETS, UNIT, assign, counted, figures_of
from mcfair.service.core.records import decode_impression
from mcfair.service.stores import ArmCounter
from mcfair.service.wire import ArmGuard, Event, PolicyChange, convert

FAIR, UNFAIR = "MCFair(alpha=1, beta=1)", "TopK"


def naive_figures(R, E, p, pi):
    """NDCG, and the distance from the fair line that a list adds, from the pairs of Eq. 8."""
    n = len(R)
    ideal = sum(a * b for a, b in zip(sorted(R, reverse=True), sorted(p, reverse=True), strict=False))
    e = [0.0] * n
    for j, d in enumerate(pi):
        e[d] = p[j]

    def distance(E):
        U = sum((E[x] * R[y] - E[y] * R[x]) ** 2 for x in range(n) for y in range(n)) / (n * (n - 1))
        return math.sqrt(U * n * (n - 1) / 2 / sum(r * r for r in R))

    length = math.sqrt(sum(x * x for x in e))
    gain = sum(p[j] * R[d] for j, d in enumerate(pi))
    return gain / ideal, (distance([a + b for a, b in zip(E, e, strict=True)]) - distance(E)) / length


def recounted(shop):
    """Add up the totals of all arms from the log, each list and each click on its own."""
    totals = {}
    for number in shop.store.numbers(0, 1_000):
        for entry in shop.store.log(number, 0):
            if entry.kind == 0 and (made := decode_impression(entry.body)).assignment is not None:
                arm = made.assignment
                amounts = counted(arm, bytes(made.bits(entry.bits)))
                before = totals.get((arm.arm, arm.bucket), ArmCounter(0, 0, 0, 0))
                totals[arm.arm, arm.bucket] = before.plus(amounts)
    return {key: amounts for key, amounts in totals.items() if any(amounts)}


def stored(shop):
    rows = shop.store.arm_totals(shop.engine.version.experiment)
    return {(arm, bucket): totals for arm, bucket, totals in rows if any(totals)}


# --- assignment ------------------------------------------------------------------------------------------------------


def stop_harmful_arms(engine):
    """Do what the background guard does in one step; return the names of the arms that it stops."""
    harmful = harmful_arms(engine.store, engine.version)
    return [name for name, reason in harmful.items() if engine.stop_arm(engine.version.experiment, name, reason)]


def test_shares_of_arms_hold_and_sessions_spread_over_buckets():
    arms = [{"name": "b", "policy": UNFAIR, "share": 0.1}, {"name": "c", "policy": UNFAIR, "share": 0.25}]
    shop = Shop(0, experiment={"name": "test", "arms": arms})
    sessions = 20_000
    found = [assign(shop.engine.ids, shop.engine.version.rules, f"session {i}") for i in range(sessions)]
    for arm, share in enumerate((0.65, 0.1, 0.25)):
        own = [bucket for number, bucket in found if number == arm]
        assert abs(len(own) - share * sessions) < 4 * math.sqrt(share * (1 - share) * sessions)
        expected = len(own) / BUCKETS
        spread = ((np.bincount(own, minlength=BUCKETS) - expected) ** 2 / expected).sum()  # chi-squared
        assert abs(spread - (BUCKETS - 1)) < 5 * math.sqrt(2 * (BUCKETS - 1))


def test_another_name_assigns_sessions_anew():
    shop = Shop(0, experiment=experiment(UNFAIR))
    rules = [
        msgspec.structs.replace(shop.engine.version.rules, experiment=msgspec.structs.replace(each, name=name))
        for each in [shop.engine.version.rules.experiment]
        for name in ("one", "two")
    ]
    arms = [[assign(shop.engine.ids, each, f"session {i}")[0] for i in range(2_000)] for each in rules]
    assert abs(np.mean(np.equal(*arms)) - 0.5) < 0.06


def test_session_keeps_its_arm_after_a_restart(tmp_path):
    arms = []
    for _ in range(2):
        with mf.Ranker(tmp_path / "s.db", warm=False, experiment=experiment(UNFAIR)) as ranker:
            arms.append([ranker.rank("q", ["a", "b"], session=f"session {i}").arm for i in range(30)])
            lists = sum(arm.lists for arm in ranker.experiment().arms)
    assert arms[0] == arms[1]
    assert set(arms[0]) == {"control", "other"}
    assert lists == 60


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_two_instances_over_postgresql_agree_on_arms_and_totals():
    url = shared_server().new_database()
    rules = {"policy": FAIR, "experiment": experiment(UNFAIR), "warm": False, "guard_interval": 0.0}
    with mf.Ranker(url, **rules) as one, mf.Ranker(url, **rules) as two:
        for i in range(12):
            answers = [each.rank("q", ["a", "b", "c"], session=f"s{i}", key=f"k{i}") for each in (one, two, one)]
            assert len({answer.impression for answer in answers}) == 1
            assert len({answer.arm for answer in answers}) == 1
            assert {each.click(answers[0].impression, "a").status for each in (one, two)} == {"applied", "duplicate"}
        report = two.experiment()
        assert sum(arm.lists for arm in report.arms) == sum(arm.clicks for arm in report.arms) == 12
        assert report == msgspec.structs.replace(one.experiment(), as_of=report.as_of)
        assert one.executor.submit(lambda engine: engine.stop_arm(engine.version.experiment, "other", "why")).result()
        assert not two.executor.submit(
            lambda engine: engine.stop_arm(engine.version.experiment, "other", "no")
        ).result()
        assert [arm.stopped for arm in two.policy().experiment.arms] == ["why"]
        assert {two.rank("q", ["a", "b"], session=f"s{i}").arm for i in range(12)} == {"control", None}


def test_arm_ranks_with_its_policy_and_is_explained():
    shop = Shop(0, policy=FAIR, experiment=experiment(UNFAIR))
    shop.sessions(20)
    for i in range(20):
        answer = shop.visit(f"session {i}")
        assert answer.policy.startswith("TopK" if answer.arm == "other" else "MCFair")
        assert explained(shop.engine, answer.impression).arm == answer.arm


def test_requests_without_a_session_or_with_a_policy_of_their_own_have_no_arm():
    shop = Shop(0, policy=FAIR, experiment=experiment(UNFAIR))
    assert [shop.rank(0).arm, shop.rank(0, "s", policy="MMF").arm, shop.rank(0, "s", shadow=True).arm] == [None] * 3
    assert stored(shop) == {}


def test_repeated_request_has_the_same_arm_and_counts_once():
    shop = Shop(0, policy=FAIR, experiment=experiment(UNFAIR))
    first = [shop.rank(0, f"session {i}", key=str(i)) for i in range(8)]
    shop.engine.change(convert(PolicyChange, {"experiment": None}))
    assert [shop.rank(0, f"session {i}", key=str(i)) for i in range(8)] == first
    assert sum(totals.lists for totals in stored(shop).values()) == 8


# --- totals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_figures_of_a_list_equal_the_naive_ones(seed):
    rng = np.random.default_rng(seed)
    for _ in range(50):
        n = int(rng.integers(2, 9))
        k = int(rng.integers(1, n + 1))
        R, E, p = rng.random(n), rng.random(n) * rng.integers(0, 50), np.sort(rng.random(k))[::-1].copy()
        pi = rng.permutation(n)[:k]
        assert figures_of(R, E, p, pi) == pytest.approx(naive_figures(R, E, p, pi), rel=1e-9, abs=1e-9)


def test_figures_of_items_without_relevance_are_neutral():
    assert figures_of(np.zeros(3), np.ones(3), np.ones(2), np.array([0, 1])) == (1.0, 0.0)
    assert figures_of(np.array([0.5]), np.ones(1), np.ones(1), np.array([0])) == (1.0, 0.0)


def test_unfairness_added_by_all_lists_is_the_distance_at_the_end():
    rng, R = np.random.default_rng(0), np.array([0.9, 0.5, 0.2, 0.1])
    E, p, total = np.zeros(4), np.array([1.0, 0.6]), 0.0
    for _ in range(30):
        pi = rng.permutation(4)[:2]
        total += figures_of(R, E, p, pi).unfairness * np.linalg.norm(p)
        E[pi] += p
    assert total == pytest.approx(math.sqrt(mf.unfairness(E, R) * 4 * 3 / 2 / (R @ R)), rel=1e-9)


def test_totals_follow_from_the_log_whatever_the_feedback():
    shop = Shop(1, policy=FAIR, experiment=experiment(UNFAIR))
    answers = [shop.rank(i % 4, f"session {i % 30}", defer_exposure=i % 3 == 0) for i in range(60)]
    assert sum(totals.lists for totals in stored(shop).values()) == 40  # the others were not shown yet
    for _ in range(200):
        answer = answers[shop.rng.integers(60)]
        event = {"item": answer.items[shop.rng.integers(3)].id} if shop.rng.random() < 0.6 else {"type": "shown"}
        shop.engine.feedback([Event(impression=answer.impression, **event)] * 2, retract=shop.rng.random() < 0.2)
    assert stored(shop) == recounted(shop)
    first = next(totals for totals in stored(shop).values() if totals.lists)
    assert abs(first.ndcg) <= first.lists * UNIT


def test_arms_are_judged_by_one_estimator():
    """The arm brings an estimator of its own; its figures are by that of the rules."""
    shop = Shop(2, queries=1, policy=FAIR, experiment=experiment("BayesFair"))
    for i in range(30):
        shop.visit(f"session {i}")
    for i in range(30, 60):
        ledger = shop.engine.ledger(shop.engine.find_number("q0", None))
        made = shop.rank(0, f"session {i}")
        entry = shop.store.entry(ledger.number, ledger.seq)
        assignment = decode_impression(entry.body).assignment
        if made.arm == "other":
            before = shop.engine.repository.ledger(ledger.number, entry)
            view = before.view(shop.engine.repository.candidates(before, entry), shop.engine.version, entry.time, 3)
            pi = [int(item.id[1:]) for item in made.items]
            expected = naive_figures(view.R.tolist(), view.E.tolist(), shop.p.tolist(), pi)
            assert (assignment.ndcg / UNIT, assignment.unfairness / UNIT) == pytest.approx(expected, abs=1e-8)
            return
    raise AssertionError("no session has the arm")


def test_new_experiment_starts_at_zero_and_an_ended_one_keeps_its_results():
    shop = Shop(0, policy=FAIR, experiment=experiment(UNFAIR))
    late = [shop.visit(f"session {i}") for i in range(20)]
    begun = shop.engine.version.experiment
    shop.engine.change(PolicyChange(half_life=1e6))  # no change of the experiment
    assert shop.engine.version.experiment == begun
    shop.engine.change(convert(PolicyChange, {"experiment": None}))
    report = experiment_report(shop.store, shop.clock)
    assert (report.running, sum(arm.lists for arm in report.arms)) == (False, 20)
    shop.engine.change(convert(PolicyChange, {"experiment": experiment(UNFAIR, share=0.2)}))
    assert shop.store.arm_totals(begun) == []
    shop.engine.feedback([Event(impression=each.impression, item=item.id) for each in late for item in each.items])
    assert shop.store.arm_totals(begun) == []
    assert stored(shop) == {}
    shop.engine.change(convert(PolicyChange, {"policy": "MMF"}))  # another control: another experiment
    assert shop.engine.version.experiment == shop.engine.version.number
    shop.visit("session 1")
    shop.engine.reset()
    assert stored(shop) == {}


def test_report_of_a_service_without_an_experiment():
    with mf.Ranker("memory:", warm=False) as ranker, pytest.raises(NotFoundError, match="there is no experiment"):
        ranker.experiment()


def arm(name, share=0.5, policy="TopK"):
    return {"name": name, "policy": policy, "share": share}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"arms": []}, "length >= 1"),
        ({"arms": [arm("b"), arm("b", 0.1)]}, "is taken"),
        ({"arms": [arm("control")]}, "'control' is taken"),
        ({"arms": [arm("b"), arm("c")]}, "have 1 of"),
        ({"arms": [arm("b", policy="TopL")]}, r"arms\[0\].policy: unknown policy 'TopL'"),
        ({"arms": [arm("b", policy="LP")]}, "LP cannot serve"),
        ({"name": "a\nb"}, "printable"),
        ({"guard": {"level": 0.9}}, "<= 0.5"),
    ],
)
def test_experiments_that_are_not_allowed_are_refused(wrong, message):
    with mf.Ranker("memory:", warm=False) as ranker:
        with pytest.raises(RequestError, match=message):
            ranker.change_policy(experiment=experiment("TopK") | wrong)
        assert ranker.policy().experiment is None


def test_session_id_is_not_stored(tmp_path):
    path = tmp_path / "s.db"
    with mf.Ranker(path, warm=False, experiment=experiment(UNFAIR)) as ranker:
        answer = ranker.rank("q", ["a", "b"], session="session-of-alice", key="k")
        assert answer.arm is not None
        assert "session-of-alice" not in repr(list(ranker.export()))
    assert all(b"session-of-alice" not in each.read_bytes() for each in tmp_path.iterdir())


# --- results and guard -----------------------------------------------------------------------------------------------


def test_experiment_finds_the_difference_between_two_policies_and_stops_the_unfair_one():
    shop = Shop(0, policy=FAIR, experiment=experiment(UNFAIR, share=0.4, guard={"clicks": None}))
    shop.sessions(600)
    control, other = experiment_report(shop.store, shop.clock).arms
    assert [control.lists + other.lists, control.clicks + other.clicks] == [
        sum(totals.lists for totals in recounted(shop).values()),
        sum(totals.clicks for totals in recounted(shop).values()),
    ]
    for name in ("ndcg", "unfairness"):
        low, high = other.differences[name].interval
        assert 0 < low < other.differences[name].value < high
        assert other.differences[name].p < 0.001
        assert getattr(other, name).value == pytest.approx(
            getattr(control, name).value + other.differences[name].value, abs=1e-12
        )
    assert stop_harmful_arms(shop.engine) == ["other"]
    assert stop_harmful_arms(shop.engine) == []
    stopped = experiment_report(shop.store, shop.clock).arms[1]
    assert stopped.stopped.startswith("adds more unfairness than the control by more than 0.02 (p = ")
    assert stopped.lists == other.lists
    again = {shop.visit(f"session {i}").arm for i in range(30)}
    assert again == {"control", None}
    assert [version.rules.experiment.arms[0].stopped for version in shop.engine.repository.versions.values()] == [
        None,
        stopped.stopped,
    ]


def test_guard_stops_an_arm_that_loses_clicks():
    shop = Shop(0, policy="TopK", experiment=experiment("RandomK", guard={"unfairness": None}))
    shop.sessions(500)
    assert stop_harmful_arms(shop.engine) == ["other"]
    assert "has fewer clicks per list than the control" in shop.engine.version.rules.experiment.arms[0].stopped


def add_harmful_totals(ranker):
    """Count 20 lists in each bucket of both arms; those of the second arm add far more unfairness."""
    for arm, lists, unfairness in ((0, 20, 0), (1, 20, 8 * UNIT)):
        for bucket in range(BUCKETS):
            amounts = ArmCounter(lists, 10 + bucket % 3, 0, unfairness + bucket % 5 * UNIT // 10)
            key = (ranker.executor.engine.version.experiment, arm, bucket)
            ranker.executor.submit(lambda engine, key=key, amounts=amounts: engine.store.add_to_arm(1, key, amounts))


def test_caller_may_run_the_guard():
    with mf.Ranker("memory:", warm=False, guard_interval=0.0, experiment=experiment("TopK")) as ranker:
        assert ranker.guard_experiment() == {}
        add_harmful_totals(ranker)
        assert ranker.guard_experiment() == {"other": ranker.experiment().arms[1].stopped}
        assert ranker.experiment().arms[1].stopped.startswith("adds more unfairness")
        assert ranker.guard_experiment() == {}


def test_background_guard_stops_and_logs_once(caplog):
    with mf.Ranker("memory:", warm=False, guard_interval=0.0, experiment=experiment("TopK")) as ranker:
        add_harmful_totals(ranker)
        with caplog.at_level(logging.WARNING, "mcfair.service"):
            ranker.worker.guard()
            ranker.worker.guard()
        (record,) = caplog.records
        assert "the experiment 'test' stops its arm 'other': it adds more unfairness" in record.getMessage()
        assert ranker.policy().version == 2


def test_two_arms_with_one_policy_do_not_differ():
    """A/A: the intervals hold 0, and the guard, looked at after every few sessions, stops nothing."""
    for seed, share in ((0, 0.5), (1, 0.3)):
        shop = Shop(seed, policy=FAIR, experiment=experiment(FAIR, share=share))
        for i in range(600):
            for _ in range(2):
                shop.visit(f"session {i}")
            if i % 20 == 0:
                assert stop_harmful_arms(shop.engine) == []
        for name, difference in experiment_report(shop.store, shop.clock).arms[1].differences.items():
            assert difference.p > 0.001, f"{name} of seed {seed}"


def test_guard_that_looks_all_the_time_keeps_its_level():
    """False stops of arms exactly at the margin, with sessions of several dependent lists, over a hundred looks."""
    rng, runs, level, guard = np.random.default_rng(0), 60, 0.2, ArmGuard(unfairness=0.02, clicks=0.05, level=0.2)
    stopped = 0
    for _ in range(runs):
        totals = np.zeros((2, BUCKETS, 4))
        for _ in range(40):
            for arm, (unfairness, clicks) in enumerate(((0.0, 0.5), (0.02, 0.475))):
                bucket, lists = rng.integers(BUCKETS, size=30), rng.integers(1, 6, 30)
                taste = rng.normal(0.0, 0.2, 30)  # shared by the lists of a session
                rate = clicks * (1 + rng.uniform(-0.5, 0.5, 30))
                values = (lists, rng.poisson(rate * lists), lists, lists * (unfairness + taste))
                for column, value in enumerate(values):
                    np.add.at(totals[arm, :, column], bucket, value)
            if min(guard_p_values(guard, totals)[1].values()) <= level:
                stopped += 1
                break
    assert totals[0, :, 0].sum() > 2 * LEAST_LISTS
    assert stopped / runs <= level


def test_guard_waits_for_enough_lists():
    totals = np.zeros((2, BUCKETS, 4))
    totals[:, :, 0] = 7
    totals[1, :, 3] = 7 + np.arange(BUCKETS) % 3
    assert guard_p_values(ArmGuard(), totals) == [{}, {"unfairness": 1.0, "clicks": 1.0}]
    totals[:, :, 0] = 8
    assert guard_p_values(ArmGuard(), totals)[1]["unfairness"] < 1e-6


def test_anytime_p_is_the_mixture_of_likelihood_ratios():
    """With very many degrees of freedom 1/p is the ratio of densities, averaged over the true excess numerically."""
    excess, variance, effect = 0.5, 0.02, 0.3
    grid = np.linspace(-3, 3, 200_001)
    prior = np.exp(-(grid**2) / (2 * effect**2))
    ratio = np.exp((excess * grid - grid**2 / 2) / variance)
    expected = (prior * ratio).sum() / prior.sum()
    assert 1 / anytime_p(excess, variance, 1e9, effect) == pytest.approx(expected, rel=1e-6)


def test_variance_between_buckets_is_that_of_the_ratio():
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(2_000):
        below = rng.integers(5, 15, BUCKETS).astype(float)
        drawn.append(RatioOfBuckets.of(below * 0.3 + rng.normal(0, 2, BUCKETS), below))
    assert np.mean([each.variance for each in drawn]) == pytest.approx(np.var([each.value for each in drawn]), rel=0.1)
    assert bucket_totals([], 2).shape == (2, BUCKETS, 4)
