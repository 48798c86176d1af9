"""Fitted priors on two instances over one database: who fits, which prior is in force, and what can be repeated."""

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest
from postgres_server import missing, shared_server

import mcfair as mf
from mcfair.errors import UnavailableError
from mcfair.service.core.fits import PriorFits
from mcfair.service.core.installing import FittedPrior
from mcfair.service.core.repository import LedgerRepository
from mcfair.service.core.verification import replay, verify
from mcfair.service.ranker import Ranker
from mcfair.service.stores import open_reader

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

RULES = {"policy": "BayesFair(alpha=5)", "warm": False}


@pytest.fixture
def url():
    return shared_server().new_database()


@pytest.fixture
def pair(url):
    """Two instances that fit only when they are asked to."""
    with Ranker(url, fit_interval=0.0, **RULES) as first, Ranker(url, fit_interval=0.0, **RULES) as second:
        yield first, second


def shop(ranker, rng, visits, queries=3):
    """Rank some queries, click the items whose name ends in 0, and a few others; return the lists."""
    answers = []
    for t in range(visits):
        query = f"q{t % queries}"
        answers.append(ranker.rank(query, [f"{query}-{i}" for i in range(6)], k=3))
        clicked = [each.id for each in answers[-1].items if rng.random() < (0.9 if each.id.endswith("0") else 0.1)]
        ranker.feedback([{"impression": answers[-1].impression, "item": item} for item in clicked])
    return answers


def do(ranker, work, *args):
    return ranker.executor.submit(work, *args).result()


def due(ranker):
    """Return the counts of a fit that is due."""
    with ranker.worker.open_reader() as store:
        return PriorFits().due(store, ranker.executor.now())


def install(ranker, counts):
    """Fit a prior, and install it."""
    prior = FittedPrior(counts.before, repr(counts.fit()), sum(counts.visits.values()))
    return ranker.worker.writer.install_rules(prior)


def fits_in(url):
    """The visits that each fit of the store was made of, in order, after the check that everything can be repeated."""
    with open_reader(url) as reader:
        assert (verify(reader), replay(reader)[2]) == ([], [])
        versions = [each for _, each in sorted(LedgerRepository(reader).versions.items())]
    return [new.fitted_visits for old, new in itertools.pairwise(versions) if new.fitted != old.fitted]


def test_one_instance_fits_and_both_rank_by_the_fitted_prior(pair, url):
    rng = np.random.default_rng(0)
    early = [shop(each, rng, 40) for each in pair]
    explained = [pair[0].explain(each.impression) for each in early[1]]
    (leader,) = [each for each in pair if each.worker.writer.turn().leads]
    counts = due(leader)
    for each in pair:
        each.worker.fit()
    first, second = (each.policy() for each in pair)
    assert (first.version, first.fitted) == (second.version, second.fitted)
    assert mf.parse_estimator(first.fitted) == counts.fit()
    late = [shop(each, rng, 10) for each in pair]
    assert {each.version for each in late[0] + late[1]} == {first.version}
    for each in pair:  # the estimates of an instance are those of the other
        states = [{item.id: item.relevance for item in one.query_state("q0").items} for one in pair]
        assert states[0] == states[1]
        assert [each.explain(one.impression) for one in early[1]] == explained
    assert fits_in(url) == [sum(counts.visits.values())]


def test_instances_that_fit_in_the_background_have_one_prior_in_force_at_a_time(url):
    settings = {"fit_interval": 0.005, **RULES}
    with Ranker(url, **settings) as first, Ranker(url, **settings) as second:

        def traffic(number):
            return shop((first, second)[number % 2], np.random.default_rng(number), 60)

        with ThreadPoolExecutor(4) as pool:
            answers = [each for found in pool.map(traffic, range(4)) for each in found]
        end = time.monotonic() + 30.0
        while first.policy().fitted is None:
            assert time.monotonic() < end, "nothing was fitted"
    fits = fits_in(url)
    assert fits, "nothing was fitted"
    assert all(b >= 1.3 * a for a, b in itertools.pairwise(fits)), "two instances have fitted at the same time"
    assert len(answers) == 240


def test_a_fit_of_an_instance_that_leads_no_longer_does_not_replace_a_newer_one(pair, url):
    """It was computed while the connection was lost; the other instance took over and has fitted to more visits."""
    rng = np.random.default_rng(1)
    for each in pair:
        shop(each, rng, 40)
    (old,) = [each for each in pair if each.worker.writer.turn().leads]
    counts = due(old)
    new = pair[1 - pair.index(old)]
    take_over(url, old, new)
    shop(new, rng, 100)
    new.worker.fit()
    newer = new.policy()
    assert newer.fitted is not None
    connect_again(old)
    assert not install(old, counts)
    assert old.policy() == new.policy() == newer
    assert fits_in(url)[0] > sum(counts.visits.values())


def take_over(url, old, new):
    """Cut the connection of the leader until the other instance leads: it may connect again before."""
    end = time.monotonic() + 30.0
    with psycopg.connect(url, autocommit=True) as db:
        while not do(new, lambda engine: engine.store.leads()):
            assert time.monotonic() < end, "nobody takes over"
            connect_again(old)
            db.execute(
                "SELECT pg_terminate_backend(%s, 5000)", [do(old, lambda engine: engine.store.db.info.backend_pid)]
            )


def connect_again(ranker):
    end = time.monotonic() + 30.0
    while True:
        try:
            return ranker.rank("q0", ["q0-0", "q0-1"])
        except UnavailableError:
            assert time.monotonic() < end, "the instance does not connect again"
            time.sleep(0.01)
