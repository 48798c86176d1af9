"""Deadlines and fallbacks: `rank` returns in time whatever the server does. No bound here is tight."""

import asyncio
import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from misbehaving_server import CERTIFICATES, RANKING, Server, answer, ask_async, ask_blocking, drop, problem, server
from serving import serving

from mcfair.errors import ConflictError, MCFairError, RequestError, UnavailableError
from mcfair.service.client import AsyncClient, Client
from mcfair.service.ranker import Ranker

AGES = 60.0
"""How long the servers below would keep a client waiting, in seconds; a deadline holds if a call is much faster."""


@pytest.fixture(params=[ask_blocking, ask_async], ids=["Client", "AsyncClient"])
def ask(request):
    return request.param


def never_answer(connection, request):
    connection.settimeout(AGES)
    connection.recv(1)


def answer_byte_by_byte(connection, request):
    """Send something every 50 ms, so that no single read takes long."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
    end = time.monotonic() + AGES
    while time.monotonic() < end:
        connection.sendall(b" ")
        time.sleep(0.05)


def send_the_head_byte_by_byte(connection, request):
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    end = time.monotonic() + AGES
    while time.monotonic() < end:
        connection.sendall(b"x")
        time.sleep(0.05)


@contextmanager
def hanging_connect():
    """Listen with a full backlog: the kernel does not answer further attempts to connect."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        name = listening.getsockname()
        held = [socket.socket() for _ in range(4)]
        try:
            for each in held:
                each.setblocking(False)
                each.connect_ex(name)
            time.sleep(0.1)
            yield f"http://127.0.0.1:{name[1]}"
        finally:
            for each in held:
                each.close()


@contextmanager
def misbehaving(behaviour):
    if behaviour == "hanging connect":
        with hanging_connect() as address:
            yield address
    else:
        with server(behaviour) as there:
            yield there.address


HOLDING = [never_answer, answer_byte_by_byte, send_the_head_byte_by_byte, "hanging connect"]


@pytest.mark.parametrize("behaviour", HOLDING, ids=lambda each: getattr(each, "__name__", each))
@pytest.mark.parametrize("given", ["client", "call"])
def test_deadline_holds(ask, behaviour, given):
    settings, options = ({"rank_deadline": 0.3}, {}) if given == "client" else ({}, {"deadline": 0.3})
    with misbehaving(behaviour) as address:
        begun = time.monotonic()
        with pytest.raises(UnavailableError, match=r"POST /v1/rank of http.* counts once"):
            ask(address, "rank", "shoes", ["a"], settings=settings, **options)
        assert 0.2 < time.monotonic() - begun < AGES / 6


@pytest.mark.parametrize("behaviour", HOLDING, ids=lambda each: getattr(each, "__name__", each))
def test_timeout_of_other_calls_holds_for_a_whole_attempt(ask, behaviour):
    with misbehaving(behaviour) as address:
        begun = time.monotonic()
        with pytest.raises(UnavailableError, match="GET /v1/usage"):
            ask(address, "usage", settings={"timeout": 0.2, "retry_timeout": 0.3})
        assert time.monotonic() - begun < AGES / 6


def test_default_deadline_is_fit_for_a_web_page():
    with server(never_answer) as there, Client(there.address, verify=CERTIFICATES) as client:
        begun = time.monotonic()
        assert client.rank("shoes", ["a"], fallback=True).fallback
        assert 0.25 < time.monotonic() - begun < AGES / 6


def test_retries_and_waits_count_towards_the_deadline(ask):
    with server(problem(503)) as there:
        begun = time.monotonic()
        with pytest.raises(UnavailableError, match="attempts in 0"):
            ask(there.address, "rank", "shoes", ["a"], deadline=0.5, settings={"backoff": 0.05})
        assert time.monotonic() - begun < AGES / 6
    assert len(there.requests) > 1


def test_connection_is_usable_after_a_deadline_has_passed(ask):
    """An abandoned response must not be taken for that of the next request."""
    slow_answers = [never_answer, answer(RANKING)]
    with server(*slow_answers) as there, Client(there.address, verify=CERTIFICATES) as client:
        assert client.rank("shoes", ["b", "a"], deadline=0.2, fallback=True).fallback
        for _ in range(3):
            assert client.rank("shoes", ["a"], deadline=10) == RANKING


# --- fallback --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "behaviour",
    [*HOLDING, drop, problem(503), problem(429), problem(500), answer(b"<html>", 502), answer(b"<html>", 500)],
    ids=[*[getattr(each, "__name__", each) for each in HOLDING], "drop", "503", "429", "500", "502 HTML", "500 HTML"],
)
def test_fallback_is_the_given_order(ask, behaviour):
    with misbehaving(behaviour) as address:
        ranking = ask(address, "rank", "shoes", ["b", {"id": "a", "prior": 1}, "c"], 2, deadline=0.3, fallback=True)
    assert [(item.id, item.rank, item.score) for item in ranking.items] == [("b", 1, None), ("a", 2, None)]
    assert (ranking.fallback, ranking.impression, ranking.query_id) == (True, None, None)
    assert json.dumps(ranking.to_dict())


def test_fallback_when_nothing_listens(ask):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert ask(f"http://127.0.0.1:{port}", "rank", "shoes", ["a"], fallback=True, deadline=0.3).fallback
    assert ask("http://name.invalid", "rank", "shoes", ["a"], fallback=True, deadline=0.3).fallback


def test_fallback_does_not_hide_errors_of_the_request(ask):
    for status, error in ((400, RequestError), (401, RequestError), (409, ConflictError), (404, MCFairError)):
        with server(problem(status)) as there, pytest.raises(error):
            ask(there.address, "rank", "shoes", ["a"], fallback=True)
    with server(drop) as there, pytest.raises(RequestError):
        ask(there.address, "rank", "shoes", ["a"], k=0, fallback=True)


def test_ranking_in_time_is_not_a_fallback(ask):
    with server(answer(RANKING)) as there:
        ranking = ask(there.address, "rank", "shoes", ["a"], fallback=True)
    assert ranking == RANKING
    assert not ranking.fallback


def test_feedback_on_a_fallback_is_reported_and_not_sent(ask):
    applied = answer({"results": [{"status": "applied"}]})
    with server(applied) as there:
        assert ask(there.address, "click", None, "a").status == "no_impression"
        assert ask(there.address, "shown", None).status == "no_impression"
        assert there.requests == []
        events = [
            {"impression": None, "item": "a"},
            {"impression": "i", "item": "a"},
            {"impression": None, "item": "b"},
        ]
        results = ask(there.address, "feedback", events)
        assert [each.status for each in results] == ["no_impression", "applied", "no_impression"]
        assert len(there.requests) == 1


def test_ranker_has_deadline_and_fallback_too():
    blocker = threading.Event()
    with Ranker("memory:", warm=False) as ranker:
        ranker.executor.submit(lambda engine: blocker.wait(AGES))
        with pytest.raises(UnavailableError, match=r"not durable within 0\.05 s"):
            ranker.rank("q", ["b", "a"], deadline=0.05)
        ranking = ranker.rank("q", ["b", "a"], k=1, deadline=0.05, fallback=True)
        assert (ranking.fallback, [item.id for item in ranking.items]) == (True, ["b"])
        assert ranker.click(ranking.impression, "b").status == "no_impression"
        blocker.set()
        assert not ranker.rank("q", ["b", "a"], deadline=AGES, fallback=True).fallback
        assert ranker.ready()
    with pytest.raises(UnavailableError, match="stopping"):
        ranker.rank("q", ["a"])
    assert ranker.rank("q", ["a"], fallback=True).fallback
    assert not ranker.ready()


# --- sharing a client ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address():
    with Ranker("memory:") as ranker, serving(ranker) as there:
        yield str(there.base_url)


def test_threads_share_one_client(address):
    def use(i):
        query = f"query {i % 20}"
        ranking = client.rank(query, [f"{query}, item {j}" for j in range(5)], k=3)
        assert all(item.id.startswith(query) for item in ranking.items), "a response of another request"
        return query, client.click(ranking.impression, ranking.items[0].id).status

    with Client(address, rank_deadline=AGES, verify=CERTIFICATES) as client, ThreadPoolExecutor(16) as pool:
        used = list(pool.map(use, range(200)))
        assert {status for _, status in used} == {"applied"}
        for query in {query for query, _ in used}:
            assert client.query_state(query).visits == 10


def test_tasks_share_one_client(address):
    async def use():
        async with AsyncClient(address, rank_deadline=AGES, verify=CERTIFICATES) as client:

            async def rank(i):
                return (await client.rank(f"task {i}", [f"{i}"])).items[0].id

            return await asyncio.gather(*(rank(i) for i in range(50)))

    assert asyncio.run(use()) == [str(i) for i in range(50)]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_client_used_before_a_fork_works_in_the_new_process(address):
    with Client(address, rank_deadline=AGES, verify=CERTIFICATES) as client:
        client.rank("forked", ["a"])
        pid = os.fork()
        if pid == 0:
            os._exit(0 if client.rank("forked", ["a"]).impression else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert client.query_state("forked").visits == 2


def test_export_can_be_left_early(address):
    with Client(address, verify=CERTIFICATES) as client:
        client.rank("q", ["a"])
        lines = client.export()
        assert "rules" in next(lines)
        lines.close()
        assert client.query_state("q").visits == 1


def test_a_slow_server_is_used_again_once_it_is_fast(ask):
    there = Server(never_answer, answer(RANKING))
    try:
        assert ask(there.address, "rank", "shoes", ["a"], deadline=0.2, fallback=True).fallback
        assert ask(there.address, "rank", "shoes", ["a"]) == RANKING
    finally:
        there.close()


# --- names that are not resolved -------------------------------------------------------------------------------------


@pytest.fixture
def silent_names(monkeypatch):
    """Delay the system's resolver for names in .silent until the event that is yielded is set."""
    answered, resolve = threading.Event(), socket.getaddrinfo

    def getaddrinfo(host, *arguments, **options):
        if str(host).endswith(".silent"):
            answered.wait(AGES)
            raise socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution")
        return resolve(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield answered
    answered.set()


def test_deadline_holds_if_a_name_is_not_resolved(silent_names):
    with Client("http://shop.silent", rank_deadline=0.3) as client:
        begun = time.monotonic()
        assert client.rank("shoes", ["a"], fallback=True).fallback
        assert time.monotonic() - begun < AGES / 6


def test_deadline_of_an_async_client_holds_if_a_name_is_not_resolved(silent_names):
    async def rank():
        async with AsyncClient("http://shop.silent", rank_deadline=0.3) as client:
            begun = time.monotonic()
            assert (await client.rank("shoes", ["a"], fallback=True)).fallback
            assert time.monotonic() - begun < AGES / 6
        silent_names.set()  # the end of an event loop waits for the threads of the resolver

    asyncio.run(rank())


def test_an_instance_whose_name_is_not_resolved_is_replaced_by_the_next_one(silent_names):
    settings = {"verify": CERTIFICATES, "rank_deadline": AGES / 6}
    with server(answer(RANKING)) as there, Client(["http://shop.silent", there.address], **settings) as client:
        for query in range(8):  # some are routed to the first instance
            assert not client.rank(str(query), ["a"], fallback=True).fallback


def test_names_that_are_not_resolved_do_not_use_up_threads(silent_names):
    def resolvers():
        return sum(thread.name == "mcfair-resolver" for thread in threading.enumerate())

    with Client("http://shop.silent", rank_deadline=0.02) as client:
        for _ in range(10):
            assert client.rank("shoes", ["a"], fallback=True).fallback
        assert resolvers() == 1
        silent_names.set()
        with pytest.raises(UnavailableError, match="name resolution"):
            client.rank("shoes", ["a"], deadline=AGES / 6)
    assert resolvers() == 0
