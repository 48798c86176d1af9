"""Admission by class and by key: who waits for whom."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from serving import held, serving

from mcfair.service.ranker import Ranker
from mcfair.service.web.lifecycle import MAX_BYTES, PLACES, SHARES, WAITING_SECONDS, AdmissionError, Lifecycle

RANK = {"query": "red shoes", "items": [{"id": "a"}, {"id": "b"}], "k": 1}


def test_viewers_never_shut_out_rankings():
    """140 readers of pages and queries come first, and 60 rankings after them."""
    limits = httpx.Limits(max_connections=250)
    with Ranker("memory:", warm=False) as ranker, serving(ranker) as client, ThreadPoolExecutor(200) as pool:
        query = client.post("/v1/rank", json=RANK).json()["query_id"]
        with httpx.Client(base_url=client.base_url, limits=limits, timeout=60) as http:
            with held(ranker):
                pages = [pool.submit(http.get, path) for path in ("/", f"/v1/queries/{query}") for _ in range(70)]
                while sum(each.done() for each in pages) < 140 - sum(places_of("read", "page")):
                    pass  # all but those that have a place are refused by now
                rankings = [pool.submit(http.post, "/v1/rank", json=RANK) for _ in range(60)]
                while client.server.app.lifecycle.places["rank"].taken < 60:
                    assert not any(each.done() for each in rankings)
            assert {each.result().status_code for each in rankings} == {200}
            assert {each.result().status_code for each in pages} == {200, 503}


def places_of(*names):
    return [round(SHARES[name] * PLACES) for name in names]


def test_key_that_holds_all_places_lets_others_in():
    with Ranker("memory:", warm=False) as ranker, ThreadPoolExecutor(8) as pool:
        first, second = (
            {"Authorization": f"Bearer {ranker.add_key(name, ['rank']).key}"} for name in ("first", "second")
        )
        with serving(ranker, max_in_flight=4) as client:
            send = lambda key: client.post("/v1/rank", json=RANK, headers=key)  # noqa: E731
            with held(ranker):
                waiting = [pool.submit(send, first) for _ in range(4)]
                places = client.server.app.lifecycle.places["rank"]
                while places.taken < 4:
                    pass
                assert send(second).status_code == 503  # the second key waits from now on
            assert {each.result().status_code for each in waiting} == {200}
            with held(ranker):
                waiting = [pool.submit(send, first) for _ in range(2)]
                while places.taken < 2:
                    pass
                refused = send(first)
                assert (refused.status_code, "half of the places" in refused.json()["detail"]) == (503, True)
                waiting += [pool.submit(send, second) for _ in range(2)]
                while places.taken < 4:
                    assert not any(each.done() for each in waiting)
            assert {each.result().status_code for each in waiting} == {200}


def test_places_are_those_of_the_documentation():
    assert places_of("rank", "feedback", "read", "page", "admin") == [96, 24, 8, 4, 2]
    lifecycle = Lifecycle(max_in_flight=1)
    for name in SHARES:  # at least one each
        lifecycle.admit(name, None, 0)
        with pytest.raises(AdmissionError, match=f"too many {name} requests are in flight; nothing was changed"):
            lifecycle.admit(name, None, 0)
        lifecycle.leave(name, None, 0)
    assert lifecycle.in_flight == 0


def test_bodies_in_flight_are_bounded():
    lifecycle = Lifecycle()
    lifecycle.admit("rank", None, MAX_BYTES - 10)
    with pytest.raises(AdmissionError, match="bytes of other requests are in flight"):
        lifecycle.admit("feedback", None, 11)
    lifecycle.admit("feedback", None, 10)
    lifecycle.leave("rank", None, MAX_BYTES - 10)
    lifecycle.admit("rank", None, MAX_BYTES - 10)
    assert lifecycle.bytes == MAX_BYTES


def test_caller_waits_for_a_limited_time(monkeypatch):
    lifecycle, now = Lifecycle(max_in_flight=2), [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for _ in range(2):
        lifecycle.admit("rank", "first", 0)
    with pytest.raises(AdmissionError, match="too many"):
        lifecycle.admit("rank", "second", 0)
    lifecycle.leave("rank", "first", 0)
    with pytest.raises(AdmissionError, match="half of the places"):
        lifecycle.admit("rank", "first", 0)
    now[0] += WAITING_SECONDS + 0.001
    lifecycle.admit("rank", "first", 0)
    assert lifecycle.places["rank"].held == {"first": 2}
