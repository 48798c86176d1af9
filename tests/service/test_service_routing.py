"""Rendezvous routing: the requests of a query go to one instance, and to the next one while that instance fails."""

import socket
from collections import Counter
from contextlib import ExitStack

import pytest
from misbehaving_server import (
    CERTIFICATES,
    RANKING,
    answer,
    ask_async,
    ask_blocking,
    drop,
    problem,
    results_of_events,
    server,
)
from serving import serving

from mcfair.errors import MCFairError, RequestError, UnavailableError
from mcfair.service.client import Client
from mcfair.service.client.routing import Instances, route
from mcfair.service.ranker import Ranker

ADDRESSES = [f"http://10.0.0.{i}:8000" for i in range(1, 6)]
QUERIES = [f"query {i}" for i in range(2_000)]


@pytest.fixture(params=[ask_blocking, ask_async], ids=["Client", "AsyncClient"])
def ask(request):
    return request.param


def chosen(addresses):
    instances = Instances(addresses, 1.0)
    return {query: instances.order(route(query))[0] for query in QUERIES}


def test_queries_are_spread_evenly():
    counts = Counter(chosen(ADDRESSES).values())
    expected = len(QUERIES) / len(ADDRESSES)
    assert all(abs(count - expected) < 5 * expected**0.5 for count in counts.values())
    assert len(counts) == len(ADDRESSES)


def test_choice_does_not_depend_on_the_order_of_the_addresses():
    assert chosen(ADDRESSES) == chosen(ADDRESSES[::-1])


def test_removing_an_instance_moves_only_its_queries():
    before, after = chosen(ADDRESSES), chosen(ADDRESSES[:-1])
    moved = {query for query in QUERIES if before[query] != after[query]}
    assert moved == {query for query in QUERIES if before[query] == ADDRESSES[-1]}


def test_failed_instance_is_tried_last_for_the_cooldown():
    clock = [0.0]
    instances = Instances(ADDRESSES, 5.0, clock=lambda: clock[0])
    first, *rest = instances.order(b"x")
    instances.mark(first, failed=True)
    assert instances.order(b"x") == [*rest, first]
    clock[0] = 5.1
    assert instances.order(b"x") == [first, *rest]
    instances.mark(first, failed=True)
    instances.mark(first, failed=False)
    assert instances.order(b"x") == [first, *rest]


def test_number_of_remembered_routes_is_bounded():
    instances = Instances(ADDRESSES, 1.0, max_hints=10)
    for i in range(1_000):
        instances.remember(f"impression {i}", route("q"))
    assert instances.recall("impression 999") == route("q") != instances.recall("impression 0")
    assert len(instances.recent) + len(instances.older) <= 10


# --- where requests go -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two():
    """Two services, each with a store of its own, so that it shows where a request went."""
    with ExitStack() as stack:
        rankers = [stack.enter_context(Ranker("memory:", warm=False)) for _ in range(2)]
        addresses = [str(stack.enter_context(serving(ranker)).base_url).rstrip("/") for ranker in rankers]
        yield dict(zip(addresses, rankers, strict=True))


def test_all_requests_of_a_query_go_to_one_service(two):
    for ranker in two.values():
        ranker.reset()
    with Client(list(two), rank_deadline=30.0, verify=CERTIFICATES) as client:
        rankings = {query: [client.rank(query, ["a", "b"]) for _ in range(3)] for query in QUERIES[:20]}
        for query, made in rankings.items():
            for ranking in made:  # the other service would not know the impression
                assert client.click(ranking.impression, ranking.items[0].id).status == "applied"
                assert client.explain(ranking.impression).query_id == ranking.query_id
            assert client.query_state(query) == client.query_state(query_id=made[0].query_id)
            assert client.query_state(query).visits == 3
            expected = Instances(list(two), 1.0).order(route(query))[0]
            assert two[expected].query_state(query).visits == 3
    assert all(0 < ranker.usage().queries < 20 for ranker in two.values())
    assert sum(ranker.usage().queries for ranker in two.values()) == 20


def test_another_client_routes_queries_alike(two, ask):
    for ranker in two.values():
        ranker.reset()
    for addresses in (list(two), list(two)[::-1]):
        for query in QUERIES[:10]:
            ask(addresses, "rank", query, ["a"])
    for query in QUERIES[:10]:
        assert ask(list(two), "query_state", query).visits == 2
    for query in QUERIES[:10]:
        assert ask(list(two), "delete_query", query) is None
    assert all(ranker.usage().queries == 0 for ranker in two.values())


def test_batch_of_feedback_is_sent_whole_to_one_service(ask):
    with server(results_of_events) as one, server(results_of_events) as other:
        events = [{"impression": f"i{i}", "item": "a"} for i in range(50)]
        assert len(ask([one.address, other.address], "feedback", events)) == 50
    assert sorted(len(each.requests) for each in (one, other)) == [0, 1]


def never_answer(connection, request):
    connection.settimeout(60.0)
    connection.recv(1)


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("failure", [drop, never_answer, problem(503, Retry_After="60"), answer(b"<html>", 502), None])
def test_next_service_is_used_within_the_deadline(ask, failure):
    """Every query is answered, also those routed to the service that fails; a wait there would miss the deadline."""
    with ExitStack() as stack:
        good = stack.enter_context(server(answer(RANKING)))
        bad = closed_port() if failure is None else stack.enter_context(server(failure)).address
        order = Instances([bad, good.address], 1.0).order
        query = next(query for query in QUERIES if order(route(query))[0] == bad)
        settings = {"rank_deadline": 3.0, "backoff": 60.0}
        assert ask([bad, good.address], "rank", query, ["a"], settings=settings) == RANKING
        assert len(good.requests) == 1


def test_failed_service_is_skipped_for_a_time():
    with server(problem(503)) as bad, server(answer(RANKING)) as good:
        addresses = [bad.address, good.address]
        with Client(addresses, cooldown=60.0, rank_deadline=30.0, verify=CERTIFICATES) as client:
            for query in QUERIES[:40]:
                client.rank(query, ["a"])
    assert len(good.requests) == 40
    assert len(bad.requests) == 1


def test_all_services_fail(ask):
    with server(problem(503, "busy")) as one, server(drop) as other:
        addresses = [one.address, other.address]
        with pytest.raises(UnavailableError, match="failed after") as caught:
            ask(addresses, "rank", "q", ["a"], deadline=0.4)
        assert all(address in str(caught.value) for address in addresses)
        assert ask(addresses, "rank", "q", ["a"], deadline=0.4, fallback=True).fallback
    assert min(len(one.requests), len(other.requests)) >= 2


def test_errors_of_a_request_are_not_tried_elsewhere(ask):
    with server(problem(400)) as one, server(problem(400)) as other:
        with pytest.raises(RequestError):
            ask([one.address, other.address], "rank", "q", ["a"])
        assert len(one.requests) + len(other.requests) == 1


def test_uncertain_request_that_is_not_idempotent_is_not_tried_elsewhere(ask):
    with server(drop) as one, server(drop) as other:
        with pytest.raises(MCFairError, match="not known whether it was executed"):
            ask([one.address, other.address], "reset")
        assert len(one.requests) + len(other.requests) == 1


def test_ready_if_one_service_is(ask):
    with server(answer({})) as good:
        assert ask([closed_port(), good.address], "ready") is True
        assert ask([closed_port(), closed_port() + "/other"], "ready") is False
