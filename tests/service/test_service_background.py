"""Background work: reads beside the engine, what may be installed, and the steps that are repeated."""

import threading
import time

import msgspec
import pytest

from mcfair.errors import ConflictError, NotFoundError, PolicyError, RequestError, StoreError, UnavailableError
from mcfair.service.background import worker as worker_module
from mcfair.service.background.frames import Failure, failure_of
from mcfair.service.background.worker import Intervals
from mcfair.service.core.engine import Engine
from mcfair.service.core.installing import MAX_INSTALL, FittedPrior, StoppedArm, Turn, encode_install
from mcfair.service.ranker import Ranker
from mcfair.service.web.forwarding import READS


@pytest.fixture
def ranker(tmp_path):
    with Ranker(tmp_path / "s.db", warm=False, summary_interval=0, fit_interval=0, guard_interval=0) as ranker:
        yield ranker


def test_reads_do_not_wait_for_the_engine(ranker):
    answer = ranker.rank("q", ["a", "b"])
    busy, release = threading.Event(), threading.Event()
    waiting = ranker.executor.submit(lambda engine: busy.set() or release.wait(30))
    assert busy.wait(10)
    try:
        assert ranker.explain(answer.impression).visits == 0
        assert ranker.query_state("q").visits == ranker.query_state(query_id=answer.query_id).visits == 1
        assert ranker.fairness().visits == ranker.history().points[0].lists == ranker.usage().impressions == 1
        assert ranker.compare(["TopK"]).lists == 1
        assert len(list(ranker.export())) == 3
        assert not waiting.done()
    finally:
        release.set()
    assert waiting.result()


def test_reads_write_nothing(ranker):
    answers = [ranker.rank(f"q{i}", ["a", "b"]) for i in range(5)]
    changes = ranker.executor.store.changes
    for answer in answers:
        ranker.explain(answer.impression)
        ranker.query_state(query_id=answer.query_id)
    for read in (ranker.fairness, ranker.history, ranker.unfair_queries, ranker.exposed_items, ranker.usage):
        read()
    list(ranker.export())
    assert ranker.executor.store.changes == changes


def test_what_is_too_large_is_not_installed(ranker):
    for work in (Engine.install, Engine.install_rules):
        with pytest.raises(RequestError, match="1,048,577 bytes cannot be installed at a time"):
            ranker.executor.submit(work, bytes(MAX_INSTALL + 1)).result()


def test_rules_are_installed_only_if_they_are_those_that_it_was_computed_from(ranker):
    ranker.change_policy(policy="BayesFair")
    version = ranker.policy().version

    def install(what):
        return ranker.executor.submit(Engine.install_rules, encode_install(what)).result()

    fitted = "Mixture(weights=(1.0,), means=(0.5,), variances=(0.1,), components=1)"
    assert not install(FittedPrior("Mixture()", fitted, 9)), "another prior was in force"
    assert not install(FittedPrior(None, fitted, 9)), "it is of another estimator"
    assert not install(StoppedArm(0, "other", "is worse"))
    assert ranker.policy().version == version


def test_a_step_that_fails_is_logged_and_the_others_go_on(tmp_path, caplog, monkeypatch):
    def fail(*_):
        raise RuntimeError("a secret")

    monkeypatch.setattr(worker_module, "harmful_arms", fail)
    with Ranker(tmp_path / "s.db", warm=False, summary_interval=0.01, guard_interval=0.01) as ranker:
        ranker.rank("q", ["a", "b"])
        end = time.monotonic() + 20
        while not (caplog.records and ranker.worker.figures and ranker.worker.figures.visits == 1):
            assert time.monotonic() < end
            time.sleep(0.01)
    assert {each.getMessage() for each in caplog.records} == {
        "the guard of the experiment cannot stop an arm: RuntimeError"
    }


def test_a_walk_that_rests_does_not_keep_other_steps_waiting(ranker, monkeypatch):
    guarded = threading.Event()
    monkeypatch.setattr(ranker.worker, "guard", guarded.set)
    monkeypatch.setattr(
        ranker.worker.summaries, "step", lambda store, turn: [ranker.worker.rest(0.02) for _ in range(99)]
    )
    begun = time.monotonic()
    ranker.worker.start(Intervals(0.01, 0.0, 0.1))
    assert guarded.wait(20)
    assert time.monotonic() - begun < 1.9


def test_turns_of_a_store_that_is_not_shared_show_whether_anything_was_written(ranker):
    first = ranker.worker.writer.turn()
    assert first == Turn(leads=True, now=first.now, changes=ranker.executor.store.changes)
    ranker.rank("q", ["a"])
    assert ranker.worker.writer.turn().changes > first.changes


def test_a_ranker_that_is_closed_reads_nothing(tmp_path):
    with Ranker(tmp_path / "s.db", warm=False) as ranker:
        pass
    with pytest.raises(UnavailableError, match="stopping"):
        ranker.fairness()


@pytest.mark.parametrize(
    "error",
    [
        RequestError("k: too large", "k"),
        UnavailableError("later", 5.0),
        NotFoundError("no such query"),
        ConflictError("unknown policy"),
        PolicyError("it failed"),
        StoreError("damaged"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_the_border_of_a_process(error):
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(failure_of(error)), type=Failure).error()
    assert (type(sent), str(sent), vars(sent)) == (type(error), str(error), vars(error))


def test_an_unexpected_error_crosses_it_without_its_message():
    sent = failure_of(KeyError("a secret")).error()
    assert (type(sent), str(sent)) == (RuntimeError, "KeyError")


def test_every_read_can_be_sent_as_plain_data():
    assert {"explain", "query", "lookup", "fairness", "export", "page overview", "page find_query"} <= READS.keys()
    options = READS["history"].convert({"options": {"resolution": "day"}})["options"]
    assert (type(options).__name__, options.resolution) == ("HistoryOptions", "day")
    page = READS["page query"].convert({"page": {"base": "../", "query_id": "00", "query_string": b"a=1"}})["page"]
    assert (page.query_id, page.query_string) == ("00", b"a=1")
