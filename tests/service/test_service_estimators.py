"""Estimators with a posterior in the service: what they see of a ledger, fits of the prior, repeated decisions."""

import itertools
from statistics import NormalDist

import numpy as np
import pytest
from observing import explained as explained_by
from observing import observed

import mcfair as mf
from mcfair.errors import RequestError
from mcfair.service.core import fits as fits_module
from mcfair.service.core.engine import Engine
from mcfair.service.core.fits import PriorFits
from mcfair.service.core.installing import FittedPrior, encode_install
from mcfair.service.core.records import Candidates
from mcfair.service.core.rules import Rules, change_rules
from mcfair.service.core.verification import replay, verify
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import Event, Item, RankRequest, with_raw_items

DAY = 86_400_000


class Service:
    """An engine over a store, and shoppers who click each item with a probability of its own."""

    def __init__(self, path=None, **rules):
        self.now, self.path, self.rules = 10 * DAY, path, {"policy": "BayesFair(alpha=5)", **rules}
        self.rng, self.numbers, self.fits = np.random.default_rng(0), itertools.count(), PriorFits()
        self.open()

    def open(self):
        self.store = SQLiteStore(self.path)
        self.store.begin(exclusive=True)
        self.engine = Engine(self.store, lambda stored: change_rules(stored, None, self.rules), clock=lambda: self.now)
        self.store.commit()

    def do(self, work, *args):
        self.store.begin(exclusive=True)
        try:
            return work(self.engine, *args)
        finally:
            self.store.commit()

    def due(self, engine):
        return self.fits.due(engine.store, self.now)

    def fit(self):
        self.do(lambda engine: self.fits.step(engine.store, self.now, lambda prior: self.put(engine, prior)))

    def put(self, engine, prior):
        return engine.install_rules(encode_install(prior))

    def visit(self, query, n=6, prior=None):
        items = [Item(f"{query}-{i}", prior=prior) for i in range(n)]
        answer = self.do(Engine.rank, with_raw_items(RankRequest(query=query, items=items, k=3)))
        self.now += 1_000
        clicked = [each.id for each in answer.items if self.rng.random() < (0.9 if each.id.endswith("0") else 0.1)]
        if clicked:
            self.do(Engine.feedback, [Event(impression=answer.impression, item=item) for item in clicked])
        return answer

    def play(self, visits, queries=5):
        return [self.visit(f"q{t % queries}") for t in range(visits)]

    def ledger(self, query="q0"):
        return self.engine.ledger(self.engine.find_number(query, None))


def test_a_ledger_without_decay_is_estimated_as_a_state_is():
    service = Service(estimator="Mixture(components=3)")
    service.play(60)
    ledger = service.ledger()
    rows = np.arange(6)
    view = ledger.view(Candidates.of(rows, np.full(6, np.nan)), service.engine.version, service.now, 3)
    (block,) = ledger.counts.blocks.values()
    estimator = mf.Mixture(components=3)
    counts = block.C[:6], ledger.counts.E[:6], block.F[:6], block.p
    R, uncertainty = estimator.estimates(*counts)
    np.testing.assert_allclose(view.R, R, rtol=1e-12)
    np.testing.assert_allclose(view.uncertainty, uncertainty, rtol=1e-12)
    np.testing.assert_allclose(view.posterior, estimator.posteriors(*counts), rtol=1e-12)


def normal_interval(mean, variance):
    normal = NormalDist(mean, variance**0.5)
    return pytest.approx([max(normal.inv_cdf(0.025), 0.0), min(normal.inv_cdf(0.975), 1.0)], rel=1e-12)


def test_queries_and_explanations_show_estimates_with_their_intervals():
    service = Service()
    service.play(30, queries=1)
    nobody = Candidates.of(np.arange(6), np.full(6, np.nan))
    view = service.ledger().view(nobody, service.engine.version, service.now, 3)
    state = service.do(observed, "q0")
    for each, R, variance in zip(state.items, view.R.tolist(), view.uncertainty.tolist(), strict=True):
        assert each.interval == normal_interval(R, variance)
    service = Service(policy="MCFair")  # by the bound of the variance, 1/E
    answer = service.play(30, queries=1)[-1]
    explained = service.do(explained_by, answer.impression).items
    for each in [*service.do(observed, "q0").items, *(item.inputs for item in explained)]:
        assert each.interval == normal_interval(each.relevance, 1 / each.exposure)


def test_a_prior_of_an_item_counts_as_views_at_the_first_rank():
    service = Service(prior_strength=4.0)
    service.visit("q", prior=0.75)
    shown = service.engine.ledger(service.engine.find_number("q", None))
    never = [row for row in range(6) if shown.counts.E[row] == 0.0][:1]
    view = shown.view(Candidates.of(np.array(never), np.array([0.75])), service.engine.version, service.now, 3)
    expected = mf.Mixture().estimate(3, 4.0, np.array([4], np.int32), np.ones(1))
    np.testing.assert_allclose((view.R[0], view.uncertainty[0]), expected, rtol=1e-12)


def test_only_matured_views_are_evidence():
    service = Service(maturation=100.0)
    service.play(20, queries=1)
    view = service.ledger().view(
        Candidates.of(np.arange(6), np.full(6, np.nan)), service.engine.version, service.now, 3
    )
    assert np.ptp(view.R) == 0.0, "nothing has matured: every item has the prior"
    service.now += 200_000
    view = service.ledger().view(
        Candidates.of(np.arange(6), np.full(6, np.nan)), service.engine.version, service.now, 3
    )
    assert np.ptp(view.R) > 0.0


@pytest.mark.parametrize("rules", [{}, {"half_life": 3_600.0, "maturation": 10.0}])
def test_a_fit_is_a_version_and_earlier_lists_are_repeated_with_the_prior_they_had(tmp_path, rules):
    service = Service(tmp_path / "store.db", **rules)
    early = service.play(40)
    before = service.do(Engine.active_policy)
    explained = [service.do(explained_by, each.impression) for each in early]
    service.fit()
    after = service.do(Engine.active_policy)
    assert (before.fitted, before.version + 1) == (None, after.version)
    fitted = mf.parse_estimator(after.fitted)
    assert fitted.same_but_fitted(mf.Mixture())
    assert fitted.weights
    late = service.play(10)
    assert {each.version for each in late} == {after.version}
    assert [service.do(explained_by, each.impression) for each in early] == explained
    service.store.close()
    service.open()
    assert service.do(Engine.active_policy).fitted == after.fitted
    assert [service.do(explained_by, each.impression) for each in early] == explained
    with service.store.read_transaction():
        assert (verify(service.store), replay(service.store)) == ([], (5, 50, []))
    service.store.close()


def test_a_fit_is_due_when_visits_have_grown_by_a_share_and_by_one_per_query():
    service = Service()
    versions = []
    for t in range(80):
        service.visit(f"q{t % 3}")
        service.fit()
        versions.append(service.engine.version.fitted_visits)
    fits = sorted(set(versions))
    assert fits[0] == 0
    assert fits[1] > 5, "there were too few clicks"
    assert all(b >= max(1.3 * a, a + 3) for a, b in itertools.pairwise(fits[1:]))
    assert 5 < len(fits) < 20


def test_the_prior_that_was_fitted_is_that_of_the_counts():
    service = Service()
    service.play(100)
    counts = service.do(service.due)
    assert sum(counts.visits.values()) == 100
    assert counts.C.sum() == sum(service.ledger(f"q{i}").counts.C.sum() for i in range(5))
    service.fit()
    assert mf.parse_estimator(service.engine.version.fitted) == mf.Mixture().fit(*counts[1:5])
    assert service.do(service.due) is None


def test_a_policy_without_a_pooled_estimator_is_never_fitted():
    service = Service(policy="MCFair(alpha=1)")
    service.play(50)
    assert service.do(service.due) is None


def test_a_fitted_prior_survives_changes_of_other_rules_but_not_of_the_estimator():
    service = Service()
    service.play(50)
    service.fit()
    fitted = service.engine.version.estimator
    service.do(lambda engine: engine.change(change(policy="BayesFair(alpha=9)")))
    assert service.engine.version.estimator == fitted
    service.do(lambda engine: engine.change(change(estimator="Mixture(components=2)")))
    assert service.engine.version.estimator == mf.Mixture(components=2)


def test_a_prior_that_was_fitted_for_another_estimator_is_not_put_in_force():
    service = Service()
    service.play(50)
    counts = service.do(service.due)
    service.do(lambda engine: engine.change(change(estimator="Mixture(components=2)")))
    before = service.engine.version.number
    service.do(service.put, FittedPrior(counts.before, repr(counts.fit()), 50))
    assert service.engine.version.number == before


def test_a_fit_is_due_although_traffic_has_moved_to_other_queries(monkeypatch):
    """Growth is that of the same queries: those used last have fewer visits than others had at the last fit."""
    monkeypatch.setattr(fits_module, "POOLED_QUERIES", 2)
    service = Service()
    for t in range(200):
        service.visit(f"q{t % 2}")
    service.fit()
    fitted = service.engine.version.fitted
    assert fitted is not None
    for t in range(50):
        service.visit(f"r{t % 2}")
    assert service.do(service.due) is None, "they have grown by less than the share"
    for t in range(50):
        service.visit(f"r{t % 2}")
    service.fit()
    assert service.engine.version.fitted not in (None, fitted)
    assert service.do(service.due) is None
    for t in range(100):  # back again: the first queries were seen by the first fit
        service.visit(f"q{t % 2}")
        if t < 50:
            assert service.do(service.due) is None
    assert service.do(service.due) is not None


def test_a_new_process_fits_no_later_than_one_that_went_on():
    service = Service()
    service.play(100)
    service.fit()
    service.fits = PriorFits()
    service.play(15)
    assert service.do(service.due) is None
    service.fits = PriorFits()
    service.play(15)
    assert service.do(service.due) is not None


def change(**fields):
    from mcfair.service.wire import PolicyChange

    return PolicyChange(**fields)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Mixtur", "did you mean 'Mixture'"),
        ("Mixture(components=0)", "a whole number from 1 to 16"),
        ("IPS(prior_strength=2)", "set prior_mean and prior_strength instead"),
    ],
)
def test_an_estimator_that_cannot_serve_is_refused(text, reason):
    with pytest.raises(RequestError, match=reason.replace("(", r"\(")):
        Rules().changed(change(estimator=text))


def test_an_estimator_without_a_kernel_is_refused():
    @mf.register
    class PlainShare(mf.Estimator):
        def estimate(self, C, E, F, p):
            return 0.5, 0.25

    with pytest.raises(RequestError, match="PlainShare cannot serve: it has no kernel"):
        Rules().changed(change(estimator="PlainShare"))


def test_fits_happen_in_the_background(caplog):
    with mf.Ranker("memory:", policy="BayesFair", fit_interval=0.01) as ranker:
        for t in range(2_000):
            answer = ranker.rank(f"q{t % 3}", ["a", "b", "c"], k=2)
            ranker.feedback([{"impression": answer.impression, "item": answer.items[0].id}])
            if ranker.policy().fitted is not None and ranker.policy().version > 3:
                break
        fitted = mf.parse_estimator(ranker.policy().fitted)
    assert fitted.weights
    assert not caplog.records


def test_a_fit_that_fails_is_logged_once_and_stops_nothing(caplog):
    @mf.register
    class CannotLearn(mf.Mixture):
        def fit(self, C, E, F, p):
            raise ValueError("no idea")

    with mf.Ranker("memory:", policy="BayesFair", estimator="CannotLearn", fit_interval=0.001) as ranker:
        for _ in range(10):
            answer = ranker.rank("q", ["a", "b"])
            ranker.feedback([{"impression": answer.impression, "item": "a"}])
        for _ in range(500):
            if caplog.records:
                break
            ranker.policy()
        for _ in range(50):
            ranker.policy()
        logged = [record.message for record in caplog.records]
        ranker.rank("q", ["a", "b"])
        assert ranker.policy().fitted is None
    assert logged == [
        "the prior of the estimator cannot be fitted: CannotLearn(components=4, weights=(), means=(), variances=()) "
        "failed: ValueError: no idea"
    ]


def test_a_rehearsal_with_fits_can_be_repeated():
    from mcfair.service.rehearsal import Rehearsal

    data = mf.Dataset(offsets=[0, 4, 8, 12, 16], y=[4, 2, 1, 0] * 4)
    users = mf.PositionBased()
    rehearsal = Rehearsal(data=data, weights=np.ones(4), clicks=users, sessions=60, priors=False)
    rules = Rules(policy="BayesFair(alpha=1)")
    assert rehearsal.play(rules) == rehearsal.play(rules)


def test_the_estimator_is_part_of_the_rules_over_http_and_in_the_export():
    with mf.Ranker("memory:", policy="BayesFair", estimator="Mixture(components=3)") as ranker:
        assert ranker.policy().estimator.startswith("Mixture(components=3")
        ranker.rank("q", ["a", "b"])
        first = next(iter(ranker.export()))
    assert first["rules"]["estimator"].startswith("Mixture(components=3")
