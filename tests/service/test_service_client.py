import asyncio
import inspect
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import numpy as np
import pytest
from misbehaving_server import (
    HTML,
    NOW,
    RANKING,
    answer,
    ask_async,
    ask_blocking,
    cut,
    drop,
    problem,
    results_of_events,
    server,
    stall,
)
from serving import serving

from mcfair.errors import ConflictError, MCFairError, NotFoundError, RequestError, SettingError, UnavailableError
from mcfair.service import wire
from mcfair.service.calls import Call
from mcfair.service.client import AsyncClient, Client
from mcfair.service.client.exchange import Exchange, ServerError, TransportError
from mcfair.service.client.routing import Instances
from mcfair.service.ranker import Ranker


@pytest.fixture(params=[ask_blocking, ask_async], ids=["Client", "AsyncClient"])
def ask(request):
    return request.param


@pytest.fixture
def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


# --- retries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [drop, cut, problem(503), problem(429), problem(408), answer(HTML, 502), answer(b"", 504), answer(b"gone", 503)],
    ids=["dropped", "cut", "503", "429", "408", "502 HTML", "504 empty", "503 of a proxy"],
)
def test_rank_is_sent_again_with_the_same_key_and_body(ask, failure):
    with server(failure, failure, answer(RANKING)) as there:
        assert ask(there.address, "rank", "shoes", ["a", "b"]) == RANKING
    assert len(there.requests) == 3
    assert len({each["idempotency-key"] for each in there.requests}) == 1
    assert len({each["body"] for each in there.requests}) == 1


def test_request_is_retried_after_a_timeout(ask):
    with server(stall, answer(RANKING)) as there:
        begun = time.monotonic()
        assert ask(there.address, "rank", "shoes", ["a"], settings={"timeout": 0.1}) == RANKING
    assert time.monotonic() - begun < 0.5
    assert len({each["idempotency-key"] for each in there.requests}) == 1


def test_every_rank_generates_its_own_key_unless_given():
    with server(answer(RANKING)) as there, Client(there.address) as client:
        for key in (None, None, "mine"):
            client.rank("shoes", ["a"], key=key)
    first, second, third = (each["idempotency-key"] for each in there.requests)
    assert first != second
    assert min(len(first), len(second)) == 32
    assert third == "mine"


def test_retry_after_is_respected(ask):
    with server(problem(503, Retry_After="0.3"), answer(RANKING)) as there:
        begun = time.monotonic()
        ask(there.address, "rank", "shoes", ["a"])
    assert 0.3 <= time.monotonic() - begun < 1


def test_retry_after_beyond_the_retry_timeout_fails_at_once(ask):
    with server(problem(503, "the disk is full", Retry_After="60")) as there:
        begun = time.monotonic()
        with pytest.raises(UnavailableError, match=r"at the first attempt: 503, the disk is full") as caught:
            ask(there.address, "usage", settings={"retry_timeout": 5})
    assert time.monotonic() - begun < 4
    assert 60 <= caught.value.retry_after <= 61


def test_retries_end_with_the_retry_timeout(ask):
    with server(problem(503, "too busy")) as there:
        begun = time.monotonic()
        with pytest.raises(
            UnavailableError, match=r"POST /v1/rank of http.* failed after \d+ attempts in 0\..* too busy"
        ):
            ask(there.address, "rank", "shoes", ["a"], settings={"rank_deadline": 0.3})
    assert time.monotonic() - begun < 5
    assert len(there.requests) > 2


def test_error_of_rank_contains_the_idempotency_key():
    # Retry-After decides that there is no retry: the backoff is drawn, and could be short.
    with server(problem(503, Retry_After="60")) as there, Client(there.address) as client:
        with pytest.raises(UnavailableError, match="counts once") as caught:
            client.rank("shoes", ["a"])
        assert repr(there.requests[0]["idempotency-key"]) in str(caught.value)
        assert len(there.requests) == 1


def test_connection_refused(ask, closed_port):
    with pytest.raises(UnavailableError, match="ConnectError"):
        ask(f"http://127.0.0.1:{closed_port}", "fairness", settings={"retry_timeout": 0.1})


class NoConnection:
    """A transport over which no request is answered, with a clock that advances by the waits."""

    def __init__(self):
        self.now, self.waits = 0.0, []

    async def send(self, request):
        return TransportError("gone", sent=True)

    async def sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds


def test_backoff_grows_until_the_retry_timeout():
    transport = NoConnection()
    exchange = Exchange(
        transport, Instances(["there"], 1.0), timeout=5.0, retry_timeout=30.0, rank_deadline=0.3, backoff=0.1,
        clock=lambda: transport.now, uniform=lambda low, high: high,
    )  # fmt: skip
    with pytest.raises(UnavailableError, match=r"after 11 attempts in 26\.3 s: gone"):
        asyncio.run(exchange.run(Call("usage")))
    assert transport.waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5])


@pytest.mark.parametrize("failure", [drop, answer(HTML, 502), answer(HTML, 503)], ids=["dropped", "502", "503"])
@pytest.mark.parametrize(("method", "args"), [("add_key", ["shop", ["rank"]]), ("reset", [])])
def test_uncertain_requests_that_are_not_idempotent_are_not_retried(ask, method, args, failure):
    with (
        server(failure, answer({})) as there,
        pytest.raises(MCFairError, match="not known whether it was executed") as caught,
    ):
        ask(there.address, method, *args)
    assert type(caught.value) is MCFairError  # an UnavailableError would invite a retry
    assert len(there.requests) == 1


def test_requests_that_were_certainly_not_executed_are_retried(ask):
    added = wire.CreatedKey(
        key="secret", info=wire.KeyInfo(id="1", name="shop", scopes=["rank"], created=NOW, revoked=None)
    )
    with server(problem(503), problem(429), answer(added)) as there:
        assert ask(there.address, "add_key", "shop", ["rank"]) == added
    assert len(there.requests) == 3


def test_404_after_an_uncertain_delete_is_a_success(ask):
    with server(drop, problem(404)) as there:
        assert ask(there.address, "delete_query", query_id="x") is None
    with server(problem(503), problem(404)) as there, pytest.raises(NotFoundError):
        ask(there.address, "delete_query", query_id="x")


# --- responses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [
        *((RequestError, status) for status in (400, 401, 403, 413, 422)),
        (NotFoundError, 404),
        (ConflictError, 409),
        (MCFairError, 500),
    ],
)
def test_error_responses_become_exceptions(ask, error, status):
    with server(problem(status, "k must be at least 1", "k")) as there:
        with pytest.raises(error, match="k must be at least 1") as caught:
            ask(there.address, "rank", "shoes", ["a"], k=1)
        assert type(caught.value) is (ServerError if status == 500 else error)
        assert len(there.requests) == 1
    if error is RequestError:
        assert caught.value.field == "k"


@pytest.mark.parametrize(
    "foreign",
    [answer(HTML, 500), answer(HTML, 404), answer(HTML), answer(b"\xff\xfe"), answer({}), answer(b"", 301)],
    ids=["500", "404", "200", "not text", "another type", "redirect"],
)
def test_responses_that_do_not_come_from_the_service(ask, foreign):
    with (
        server(foreign) as there,
        pytest.raises(MCFairError, match=r"GET /v1/usage of http.*not a response of the service") as caught,
    ):
        ask(there.address, "usage")
    assert type(caught.value) is ServerError
    assert "\n" not in str(caught.value)
    with server(foreign) as there:  # whatever responds in place of the service, a page gets its list
        assert ask(there.address, "rank", "q", ["b", "a"], fallback=True).fallback


def test_feedback_is_sent_in_batches_with_results_in_order(ask):
    count = 2 * wire.MAX_EVENTS + 1
    events = [wire.Event(impression="i", item=f"{i}") for i in range(count)]
    first = answer({"results": [{"status": "duplicate"}, *[{"status": "expired"}] * (wire.MAX_EVENTS - 1)]})
    with server(first, drop, results_of_events) as there:
        results = ask(there.address, "feedback", [*events[:5], *map(msgspec.to_builtins, events[5:])])
    late = [each.status for each in results]
    assert late == ["duplicate"] + ["expired"] * (wire.MAX_EVENTS - 1) + ["applied"] * (wire.MAX_EVENTS + 1)
    batches = [[event["item"] for event in msgspec.json.decode(each["body"])["events"]] for each in there.requests]
    assert [(batch[0], len(batch)) for batch in batches] == [("0", 1000), ("1000", 1000), ("1000", 1000), ("2000", 1)]


def test_batches_respect_the_maximum_body_size():
    ranks = list(range(1, wire.MAX_ITEMS + 1))
    events = [wire.Event(impression="i", type="shown", ranks=ranks) for _ in range(300)]
    with server(results_of_events) as there, Client(there.address) as client:
        assert len(client.retract(events)) == 300
    assert len(there.requests) == 2
    assert max(len(each["body"]) for each in there.requests) <= wire.MAX_BODY
    assert {each["path"] for each in there.requests} == {"/v1/retract"}


def test_empty_feedback_sends_no_request():
    with server(results_of_events) as there, Client(there.address) as client:
        assert client.feedback([]) == []
        assert there.requests == []


def test_missing_results_are_an_error():
    with (
        server(answer({"results": []})) as there,
        Client(there.address) as client,
        pytest.raises(MCFairError, match="0 results for 1 events"),
    ):
        client.click("i", "a")


@pytest.mark.parametrize("end", [b"\n", b""], ids=["line feed", "no line feed"])
def test_export_is_read_line_by_line(ask, end):
    lines = [{"text": "a\u2028b\x85c"}, {"n": 1}]  # both characters end a line for str.splitlines
    content = b"\n".join(map(msgspec.json.encode, lines)) + end
    with server(problem(503), answer(content)) as there:
        assert ask(there.address, "export") == lines


def test_interrupted_export_is_an_error(ask):
    with server(cut) as there, pytest.raises(UnavailableError, match="interrupted"):
        ask(there.address, "export")
    with server(answer(HTML)) as there, pytest.raises(MCFairError, match="not JSON"):
        ask(there.address, "export")


def test_ready_does_not_retry(ask, closed_port):
    for behaviour, ready in ((answer({}), True), (problem(503), False)):
        with server(behaviour) as there:
            assert ask(there.address, "ready") is ready
    assert ask(f"http://127.0.0.1:{closed_port}", "ready") is False


# --- requests --------------------------------------------------------------------------------------------------------


def test_request_of_rank(ask):
    with server(answer(RANKING)) as there:
        items = ["a", wire.Item("b", prior=np.float64(0.5)), {"id": "c", "group": "shop"}]
        ask(there.address + "/below/", "rank", "shoes", items, 2, explain=True, settings={"key": "secret"})
    (request,) = there.requests
    assert (request["method"], request["path"]) == ("POST", "/below/v1/rank")
    assert request["authorization"] == "Bearer secret"
    assert request["content-type"] == "application/json"
    assert msgspec.json.decode(request["body"], type=wire.RankRequest) == wire.RankRequest(
        query="shoes", items=[wire.Item("a"), wire.Item("b", 0.5), wire.Item("c", group="shop")], k=2, explain=True
    )


@pytest.mark.parametrize(
    ("method", "args", "options", "sent"),
    [
        ("explain", ["i/1 ?"], {}, ("GET", "/v1/impressions/i%2F1%20%3F/explain", b"")),
        ("query_state", [], {"query_id": "q"}, ("GET", "/v1/queries/q", b"")),
        ("query_state", ["shoes"], {}, ("POST", "/v1/queries/lookup", b'{"query":"shoes"}')),
        ("fairness", [], {}, ("GET", "/v1/fairness", b"")),
        ("policy", [], {}, ("GET", "/v1/policy", b"")),
        ("change_policy", [], {"half_life": None, "newcomer_exposure": "fair"},
         ("PUT", "/v1/policy", b'{"half_life":null,"newcomer_exposure":"fair"}')),
        ("delete_query", [], {"query_id": "q"}, ("DELETE", "/v1/queries/q", b"")),
        ("delete_query", ["shoes"], {}, ("POST", "/v1/queries/lookup", b'{"query":"shoes"}')),
        ("delete_item", ["a/b"], {}, ("POST", "/v1/items/delete", b'{"item":"a/b"}')),
        ("reset", [], {}, ("POST", "/v1/reset", b'{"confirm":"reset"}')),
        ("keys", [], {}, ("GET", "/v1/keys", b"")),
        ("revoke_key", ["1"], {}, ("DELETE", "/v1/keys/1", b"")),
        ("click", ["i", "a"], {}, ("POST", "/v1/feedback", b'{"events":[{"impression":"i","item":"a"}]}')),
        ("shown", ["i"], {}, ("POST", "/v1/feedback", b'{"events":[{"impression":"i","type":"shown"}]}')),
        ("shown", ["i", range(1, 3)], {},
         ("POST", "/v1/feedback", b'{"events":[{"impression":"i","type":"shown","ranks":[1,2]}]}')),
    ],
)  # fmt: skip
def test_request_of_each_method(method, args, options, sent):
    with server(problem(404)) as there, Client(there.address) as client:
        with pytest.raises(NotFoundError):
            getattr(client, method)(*args, **options)
        (request,) = there.requests
    assert (request["method"], request["path"], request["body"]) == sent


@pytest.mark.parametrize(
    ("method", "args", "options", "message"),
    [
        ("rank", ["q", ["a"]], {"key": "ключ"}, "key = 'ключ' is not allowed"),
        ("rank", ["q", ["a"]], {"key": "a b"}, "expected 1 to 256 visible ASCII"),
        ("rank", ["q", ["a"]], {"key": "a" * 257}, "expected 1 to 256 visible ASCII"),
        ("rank", ["q", ["a"]], {"key": ""}, "expected 1 to 256 visible ASCII"),
        ("rank", ["q", ["a", wire.Item("b", float("nan"))]], {}, r"items\[1\].prior = nan is not allowed"),
        ("rank", ["\ud800", ["a"]], {}, "not valid Unicode"),
        ("rank", ["q", ["\ud800"]], {}, r"items\[0\].id is not valid Unicode"),
        ("rank", ["q", ["a"]], {"k": 0}, "k: Expected `int` >= 1"),
        ("rank", ["q", []], {}, "items: Expected `array` of length >= 1"),
        ("rank", ["q", ["a"]], {"deadline": 0}, "deadline = 0 is not allowed: expected a positive"),
        ("rank", ["q", ["a"]], {"deadline": float("nan")}, "deadline = nan is not allowed"),
        ("rank", ["q", [wire.Item(object())]], {}, "cannot be sent"),
        ("query_state", [], {}, "one of the two"),
        ("query_state", ["q"], {"query_id": "q"}, "one of the two"),
        ("delete_query", [], {}, "one of the two"),
        ("explain", [None], {}, "the ranking was a fallback"),
        ("change_policy", [], {"half_lief": 1}, "half_lief"),
        ("add_key", ["x", ["everything"]], {}, "unknown scope 'everything'; available: rank, feedback, read, admin"),
    ],
)
def test_invalid_arguments_are_refused_before_sending(ask, method, args, options, message):
    with server(drop) as there, pytest.raises(RequestError, match=message):
        ask(there.address, method, *args, **options)
    assert there.requests == []


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8000", "ftp://x", "", "http://", "http://a:b", "http://a b", "http://a/?b", "http://ä"]
)
def test_invalid_addresses_are_refused(address):
    for kind in (Client, AsyncClient):
        with pytest.raises(SettingError, match=r"address = .* is not allowed"):
            kind(address)


def test_password_in_an_address_is_refused_and_not_repeated():
    for kind, address in (
        (Client, "http://user:hunter2@127.0.0.1:1"),
        (AsyncClient, ["http://a", "http://:hunter2@b"]),
    ):
        with pytest.raises(SettingError, match="pass an API key as `key`") as caught:
            kind(address)
        assert "hunter2" not in str(caught.value)


def test_closed_client_refuses_calls(ask):
    client = Client("http://127.0.0.1:1")
    client.close()
    assert client.ready() is False
    for call in (client.policy, client.export().__next__, lambda: client.click("a", "b")):
        with pytest.raises(UnavailableError, match="the client is closed"):
            call()
    assert client.rank("q", ["a"], fallback=True).fallback

    async def run():
        client = AsyncClient("http://127.0.0.1:1")
        await client.close()
        with pytest.raises(UnavailableError, match="the client is closed"):
            await client.policy()

    asyncio.run(run())


def test_invalid_settings_are_refused():
    for name in ("timeout", "retry_timeout", "backoff", "cooldown"):
        for value in (-1, float("nan"), "1", None):
            with pytest.raises(SettingError, match=f"{name} = .* is not allowed: expected a"):
                Client("http://x", **{name: value})
    with pytest.raises(SettingError, match="address = None is not allowed"):
        Client(None)
    for key in ("a\nb", ""):
        with pytest.raises(SettingError, match="key is not allowed: expected visible ASCII"):
            Client("http://x", key=key)
    for deadline in (0, -1, float("inf"), float("nan")):
        with pytest.raises(SettingError, match=r"rank_deadline = .* is not allowed: expected a positive number"):
            Client("http://x", rank_deadline=deadline)
    for addresses in ([], ["http://x", "http://x"]):
        with pytest.raises(SettingError, match="expected one URL or several distinct ones"):
            Client(addresses)


def test_without_httpcore(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpcore", None)
    for kind in (Client, AsyncClient):
        with pytest.raises(SettingError, match=r"pip install 'mcfair\[client\]'"):
            kind("http://x")


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def test_clients_and_ranker_have_the_same_names():
    local = {"has_keys", "authenticate", "scopes_of", "sign", "guard_experiment"}
    assert public(Client) == public(AsyncClient) == public(Ranker) - local
    assert len(public(Ranker)) <= 32


@pytest.mark.parametrize("name", sorted(public(Client) - {"close"}))
def test_method_is_the_same_in_clients_and_ranker(name):
    blocking, asynchronous, direct = (getattr(kind, name) for kind in (Client, AsyncClient, Ranker))
    assert inspect.getdoc(blocking) == inspect.getdoc(asynchronous) == inspect.getdoc(direct)
    assert "Returns\n-------" in inspect.getdoc(blocking) or name in ("delete_query", "export")
    signature = inspect.signature(blocking)
    assert signature == inspect.signature(direct)
    assert list(signature.parameters.values()) == list(inspect.signature(asynchronous).parameters.values())
    returned = inspect.signature(asynchronous).return_annotation
    expected = signature.return_annotation
    assert returned == (f"Async{expected}" if name == "export" else f"Coroutine[Any, Any, {expected}]")
    assert "Call" not in expected


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    made += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    return folder


def test_certificates_are_verified(ask, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    trusting = ssl.create_default_context(cafile=certificate / "cert.pem")
    with server(answer(RANKING), tls=context) as there:
        for name in ("localhost", "127.0.0.1"):
            address = there.address.replace("127.0.0.1", name)
            assert ask(address, "rank", "shoes", ["a"], settings={"verify": trusting}) == RANKING
        assert ask(there.address, "rank", "shoes", ["a"], settings={"verify": False}) == RANKING
        with pytest.raises(UnavailableError, match="certificate verify failed"):
            ask(there.address, "usage", settings={"verify": True, "retry_timeout": 0})


# --- the real service ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranker():
    with Ranker("memory:", policy="MCFair") as ranker:
        yield ranker


@pytest.fixture
def address(ranker):
    ranker.reset()
    with serving(ranker) as there:
        yield str(there.base_url)


def forward(address, then=None):
    """Forward a request to the real service; pass its response on, or behave otherwise instead."""

    def behave(connection, request):
        with httpx.Client(base_url=address) as real:
            headers = {name: request[name] for name in ("idempotency-key", "content-type") if name in request}
            got = real.request(request["method"], request["path"], content=request["body"], headers=headers)
        (then or answer(got.content, got.status_code))(connection, request)

    return behave


def test_all_methods_against_the_real_service(ask, address):
    ranking = ask(address, "rank", "red shoes", ["a", {"id": "b", "prior": 0.5, "group": "shop"}, "c"], 2)
    assert [item.rank for item in ranking.items] == [1, 2]
    first, second = (item.id for item in ranking.items)
    assert ask(address, "click", ranking.impression, first).status == "applied"
    assert ask(address, "shown", ranking.impression).status == "duplicate"
    explanation = ask(address, "explain", ranking.impression)
    assert [(item.id, item.clicked) for item in explanation.items] == [(first, True), (second, False)]
    state = ask(address, "query_state", "red shoes")
    assert state == ask(address, "query_state", query_id=ranking.query_id)
    assert (state.visits, sum(item.clicks for item in state.items)) == (1, 1)
    assert ask(address, "usage").queries == 1
    assert ask(address, "fairness").visits >= 0
    assert [line["query"] for line in ask(address, "export") if "impression" in line] == [ranking.query_id]
    assert ask(address, "retract", [wire.Event(impression=ranking.impression, item=first)])[0].status == "applied"
    assert sum(item.clicks for item in ask(address, "query_state", "red shoes").items) == 0
    assert ask(address, "delete_item", second) == 1
    assert ask(address, "delete_query", "red shoes") is None
    with pytest.raises(NotFoundError):
        ask(address, "delete_query", query_id=ranking.query_id)
    assert ask(address, "reset") == 0
    assert ask(address, "ready") is True


def test_rules_and_keys_against_the_real_service(ask):
    with Ranker("memory:", warm=False) as ranker, serving(ranker) as there:
        address = str(there.base_url)
        changed = ask(address, "change_policy", policy="TopK", half_life=None)
        assert ask(address, "policy") == changed
        assert changed.policy.startswith("TopK")
        added = ask(address, "add_key", "mine", ["admin"])
        with pytest.raises(RequestError, match="a key is required"):
            ask(address, "keys")
        mine = {"key": added.key}
        assert ask(address, "keys", settings=mine) == [added.info]
        reader = ask(address, "add_key", "reader", ["read"], settings=mine)
        with pytest.raises(RequestError, match="lacks the scope 'rank'"):
            ask(address, "rank", "q", ["a"], settings={"key": reader.key})
        assert ask(address, "revoke_key", reader.info.id, settings=mine).revoked is not None
        with pytest.raises(RequestError, match="unknown or revoked"):
            ask(address, "usage", settings={"key": reader.key})


def test_retry_of_an_executed_request_counts_once(ask, address):
    with server(forward(address, drop), forward(address, answer(HTML, 502)), forward(address)) as between:
        ranking = ask(between.address, "rank", "red shoes", ["a", "b"], 1)
    assert ask(address, "query_state", "red shoes").visits == 1
    with server(forward(address, drop), forward(address)) as between:
        assert ask(between.address, "click", ranking.impression, ranking.items[0].id).status == "duplicate"
    assert sum(item.clicks for item in ask(address, "query_state", "red shoes").items) == 1
    with server(forward(address, drop), forward(address)) as between:
        assert ask(between.address, "delete_query", query_id=ranking.query_id) is None
    with pytest.raises(NotFoundError):
        ask(address, "query_state", "red shoes")


def test_errors_of_the_real_service(ask, address):
    with pytest.raises(RequestError) as caught:
        ask(address, "rank", "q", ["a", "a"])
    assert caught.value.field == "items[1].id"
    with pytest.raises(RequestError) as caught:
        ask(address, "rank", "q", ["a", wire.Item("b", prior=2.0)])
    assert caught.value.field == "items[1].prior"
    with pytest.raises(RequestError, match="did you mean 'MCFair'"):
        ask(address, "rank", "q", ["a"], policy="MCFiar")
    with pytest.raises(NotFoundError):
        ask(address, "explain", "nothing")
    ask(address, "rank", "q", ["a"], key="once")
    with pytest.raises(ConflictError):
        ask(address, "rank", "q", ["b"], key="once")


def test_requests_refused_by_admission_control_succeed_later(ranker):
    ranker.reset()
    with (
        serving(ranker, max_in_flight=1) as there,
        Client(str(there.base_url), rank_deadline=60.0) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        rankings = list(pool.map(lambda _: client.rank("busy", ["a", "b"]), range(20)))
        assert client.query_state("busy").visits == len({each.impression for each in rankings}) == 20
        assert not re.search(r"^mcfair_http_requests_rejected_total 0", there.get("/metrics").text, re.MULTILINE)
