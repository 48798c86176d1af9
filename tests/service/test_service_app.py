import asyncio
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import msgspec
import pytest
from serving import held, serving

from mcfair.errors import PolicyError, SettingError
from mcfair.service import create_app, wire
from mcfair.service.background.worker import Read
from mcfair.service.client import Client
from mcfair.service.ranker import Ranker
from mcfair.service.stores import SQLiteStore
from mcfair.service.web.auth import is_loopback
from mcfair.service.web.forwarding import READS
from mcfair.service.web.operations import OPERATIONS
from mcfair.service.web.server import bind, check_bind, serve, url_of

ITEMS = [{"id": "a", "prior": 0.9, "group": "one"}, {"id": "b", "prior": 0.5}, {"id": "c"}]
RANK = {"query": "red shoes", "items": ITEMS, "k": 2}
SECRET = "a query that must not be logged"


@pytest.fixture(scope="module")
def client():
    """A client of a service without keys."""
    with Ranker("memory:") as ranker, serving(ranker) as client:
        yield client


@pytest.fixture(scope="module")
def keyed():
    """A service with a key for each scope, in `keys`."""
    with Ranker("memory:") as ranker:
        keys = {scope: ranker.add_key(scope, [scope]).key for scope in wire.SCOPES}
        revoked = ranker.add_key("revoked", ["admin"])
        ranker.revoke_key(revoked.info.id)
        with serving(ranker, admin_token="token") as client:
            client.keys = keys | {"revoked": revoked.key, "token": "token"}
            yield client


def problem(response, status, field=None):
    """Check that a response is a problem; return it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found = msgspec.json.decode(response.content, type=wire.Problem)
    assert (found.status, found.field) == (status, field), found
    return found


# --- operations ------------------------------------------------------------------------------------------------------


def test_rank_feedback_and_explain(client):
    ranking = client.post("/v1/rank", json=RANK | {"query": "whole story", "explain": True}).json()
    assert [item["rank"] for item in ranking["items"]] == [1, 2]
    assert ranking["items"][0]["terms"].keys() == {"relevance", "fairness", "exploration"}
    first = ranking["items"][0]["id"]

    click = {"events": [{"impression": ranking["impression"], "item": first}]}
    for call, status in [("feedback", "applied"), ("feedback", "duplicate"), ("retract", "applied")]:
        assert client.post(f"/v1/{call}", json=click).json() == {"results": [{"status": status}]}

    why = client.get(f"/v1/impressions/{ranking['impression']}/explain").json()
    assert [item["id"] for item in why["items"]] == [item["id"] for item in ranking["items"]]

    state = client.post("/v1/queries/lookup", json={"query": "whole story"}).json()
    assert state["query_id"] == ranking["query_id"]
    assert state["visits"] == 1
    assert client.get(f"/v1/queries/{ranking['query_id']}").json() == state


def test_stored_data_is_reported_and_deleted(client):
    for query in ("first", "second"):
        client.post("/v1/rank", json=RANK | {"query": query})
    before = client.get("/v1/usage").json()
    assert before["queries"] >= 2
    fairness = client.get("/v1/fairness").json()
    assert fairness["queries"] >= 1
    lines = client.get("/v1/export").text.splitlines()
    assert all(json.loads(line) for line in lines)

    query_id = client.post("/v1/queries/lookup", json={"query": "first"}).json()["query_id"]
    assert client.post("/v1/items/delete", json={"item": "a"}).json()["queries"] >= 2
    gone = client.delete(f"/v1/queries/{query_id}")
    assert (gone.status_code, gone.content, "content-length" in gone.headers) == (204, b"", False)
    problem(client.get(f"/v1/queries/{query_id}"), 404)
    problem(client.delete(f"/v1/queries/{query_id}"), 404)
    assert client.post("/v1/reset", json={"confirm": "reset"}).json()["queries"] == before["queries"] - 1
    assert client.get("/v1/usage").json()["queries"] == 0
    problem(client.post("/v1/reset", json={"confirm": "yes"}), 400, "confirm")


def test_policy_is_changed_and_validated(client):
    assert client.get("/v1/policy").json()["policy"].startswith("MCFair(")
    changed = client.put("/v1/policy", json={"policy": "TopK", "prior_strength": 2})
    assert changed.json() == client.get("/v1/policy").json()
    assert (changed.json()["policy"][:4], changed.json()["prior_strength"]) == ("TopK", 2.0)
    assert "did you mean 'MCFair'" in problem(client.put("/v1/policy", json={"policy": "MCFiar"}), 400, "policy").detail
    problem(client.post("/v1/rank", json=RANK | {"policy": "MCFiar"}), 400, "policy")
    problem(client.put("/v1/policy", json={"half_life": 0}), 400, "half_life")
    problem(client.put("/v1/policy", json={"examination": [2.0]}), 400, "examination[0]")
    client.put("/v1/policy", json={"policy": "MCFair"})


def test_keys_are_created_listed_and_revoked(keyed):
    auth = {"Authorization": f"Bearer {keyed.keys['admin']}"}
    made = keyed.post("/v1/keys", json={"name": "shop", "scopes": ["rank"]}, headers=auth)
    assert made.status_code == 201
    secret, info = made.json()["key"], made.json()["info"]
    assert info in keyed.get("/v1/keys", headers=auth).json()
    assert secret not in keyed.get("/v1/keys", headers=auth).text
    as_shop = {"Authorization": f"bearer {secret}"}
    assert keyed.post("/v1/rank", json=RANK, headers=as_shop).status_code == 200
    assert keyed.delete(f"/v1/keys/{info['id']}", headers=auth).json()["revoked"] is not None
    problem(keyed.post("/v1/rank", json=RANK, headers=as_shop), 401)
    problem(keyed.delete("/v1/keys/none", headers=auth), 404)
    problem(keyed.post("/v1/keys", json={"name": "shop", "scopes": ["all"]}, headers=auth), 400, "scopes[0]")


def test_health_probes(client):
    assert client.get("/livez").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}


def test_openapi_document_has_every_operation(client):
    document = client.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    described = {(method.upper(), path) for path, each in document["paths"].items() for method in each}
    assert described == {(operation.method, operation.path) for operation in OPERATIONS}
    rank = document["paths"]["/v1/rank"]["post"]
    assert rank["security"] == [{"key": ["rank"]}]
    assert rank["responses"].keys() == {"200", "400", "401", "403", "408", "409", "413", "415", "500", "503"}
    item = document["components"]["schemas"]["Item"]
    assert item["additionalProperties"] is False
    about = "id of the item, unique within the request"
    assert item["properties"]["id"] == {"type": "string", "minLength": 1, "maxLength": 256, "description": about}
    for operation in OPERATIONS:
        if operation.example is not None:
            msgspec.convert(operation.example, operation.request)


def test_every_parameter_is_described(client):
    document = client.get("/openapi.json").json()
    described = [each for methods in document["paths"].values() for each in methods.values()]
    parameters = [given for each in described for given in each.get("parameters", [])]
    assert len(parameters) >= 5
    assert [given["name"] for given in parameters if not given.get("description")] == []


def test_documentation_page_is_self_contained(client):
    answer = client.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    names = {"http://127.0.0.1", "http://www.w3.org"}  # of the examples, and the name of SVG, which nothing fetches
    assert set(re.findall(r"\w+://[^/\s:<\"]+", answer.text)) == names
    assert not re.search(r"<script|<link(?! rel=\"icon\" href=\"data:)|<img|@import|url\(", answer.text)
    for operation in OPERATIONS:
        assert f'id="{operation.name}"' in answer.text
    links = set(re.findall(r'href="#([^"]+)"', answer.text))
    assert links <= set(re.findall(r'id="([^"]+)"', answer.text))


def test_metrics(client):
    ranking = client.post("/v1/rank", json=RANK).json()
    client.post("/v1/feedback", json={"events": [{"impression": ranking["impression"], "item": "nothing"}]})
    client.get(f"/v1/queries/{SECRET}")
    client.get(f"/{SECRET}")
    client.request("BREW", "/v1/rank")
    text = client.get("/metrics").text
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(figures['mcfair_http_requests_total{method="POST",route="/v1/rank",status="200"}']) >= 1
    assert float(figures['mcfair_http_requests_total{method="GET",route="/v1/queries/{query_id}",status="404"}']) >= 1
    assert float(figures['mcfair_http_requests_total{method="GET",route="none",status="404"}']) >= 1
    assert float(figures['mcfair_http_request_duration_seconds_count{route="/v1/rank"}']) >= 1
    assert float(figures['mcfair_feedback_events_total{operation="feedback",status="not_in_impression"}']) == 1
    assert float(figures["mcfair_commit_duration_seconds_count"]) >= 2
    assert float(figures["mcfair_commit_batch_size_sum"]) >= 2
    assert float(figures["mcfair_http_requests_in_flight"]) == 0  # probes hold no place
    assert float(figures["mcfair_store_writable"]) == 1
    for name in ("mcfair_queue_depth", "mcfair_http_requests_rejected_total"):
        assert float(figures[name]) == 0
    assert SECRET not in text
    assert "BREW" not in text


# --- validation ------------------------------------------------------------------------------------------------------

MANY = [{"id": str(i)} for i in range(wire.MAX_ITEMS + 1)]
EVENT = {"impression": "x", "item": "a"}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        pytest.param(path, body, field, id=name)
        for name, path, body, field in [
            ("no query", "rank", {"items": ITEMS}, "query"),
            ("empty query", "rank", RANK | {"query": ""}, "query"),
            ("long query", "rank", RANK | {"query": "q" * 4097}, "query"),
            ("query of many bytes", "rank", RANK | {"query": "é" * 2049}, "query"),
            ("query as a number", "rank", RANK | {"query": 1}, "query"),
            ("no items", "rank", {"query": "q"}, "items"),
            ("empty items", "rank", RANK | {"items": []}, "items"),
            ("many items", "rank", RANK | {"items": MANY}, "items"),
            ("empty id", "rank", RANK | {"items": [{"id": ""}]}, "items[0].id"),
            ("long id", "rank", RANK | {"items": [{"id": "i" * 257}]}, "items[0].id"),
            ("id of many bytes", "rank", RANK | {"items": [{"id": "a"}, {"id": "€" * 86}]}, "items[1].id"),
            ("group of many bytes", "rank", RANK | {"items": [{"id": "a", "group": "😀" * 65}]}, "items[0].group"),
            ("an id twice", "rank", RANK | {"items": [{"id": "a"}, {"id": "b"}, {"id": "a"}]}, "items[2].id"),
            ("large prior", "rank", RANK | {"items": [{"id": "a", "prior": 1.0001}]}, "items[0].prior"),
            ("small prior", "rank", RANK | {"items": [*ITEMS, {"id": "d", "prior": -1e-9}]}, "items[3].prior"),
            ("prior as text", "rank", RANK | {"items": [{"id": "a", "prior": "0.5"}]}, "items[0].prior"),
            ("k of 0", "rank", RANK | {"k": 0}, "k"),
            ("k of a half", "rank", RANK | {"k": 1.5}, "k"),
            ("huge k", "rank", RANK | {"k": 10**40}, "k"),
            ("too many ranks", "rank", RANK | {"items": MANY[:5000], "k": 201}, "k"),
            ("unknown field", "rank", RANK | {"kk": 1}, "kk"),
            ("unknown field of an item", "rank", RANK | {"items": [{"id": "a", "x": 1}]}, "items[0].x"),
            ("no events", "feedback", {"events": []}, "events"),
            ("many events", "feedback", {"events": [EVENT] * 1001}, "events"),
            ("many events to retract", "retract", {"events": [EVENT] * 1001}, "events"),
            ("long lookup", "queries/lookup", {"query": "é" * 2049}, "query"),
            ("lookup without query", "queries/lookup", {}, "query"),
            ("delete without item", "items/delete", {}, "item"),
            ("long item to delete", "items/delete", {"item": "i" * 257}, "item"),
            ("key without scope", "keys", {"name": "a", "scopes": []}, "scopes"),
            ("key without name", "keys", {"name": "", "scopes": ["rank"]}, "name"),
        ]
    ],
)
def test_violated_limits_name_the_field(client, path, body, field):
    found = problem(client.post(f"/v1/{path}", json=body), 400, field)
    assert found.title == "Bad Request"


@pytest.mark.parametrize("call", ["feedback", "retract"])
def test_an_event_that_is_wrong_keeps_no_other_from_being_applied(client, call):
    ranking = client.post("/v1/rank", json=RANK | {"query": f"a wrong {call}"}).json()
    click = {"impression": ranking["impression"], "item": ranking["items"][0]["id"]}
    events = [click, {"item": "a"}, click | {"item": "i" * 257}, 7, click | {"ranks": ["1"]}, click | {"typ": "x"}]
    answer = client.post(f"/v1/{call}", json={"events": [*events, click]})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [each["status"] for each in results] == ["applied", *["invalid"] * 5, "duplicate"]
    assert [each["detail"].partition(",")[0] for each in results[1:-1]] == [
        "impression: Object missing required field `impression`",
        "item: Expected `str` of length <= 256",
        "Expected `object`",
        "ranks[0]: Expected `int`",
        "typ: unknown field 'typ'; did you mean 'type'? available: impression",
    ]
    assert problem(client.post(f"/v1/{call}", json={"events": [7] * 1001}), 400, "events")
    assert problem(client.post(f"/v1/{call}", json={"events": [7], "more": 1}), 400, "more")
    not_json = client.post(f"/v1/{call}", content=b'{"events":[7,]}', headers={"content-type": "application/json"})
    assert problem(not_json, 400)


def test_the_items_of_a_query_are_read_in_pages():
    with Ranker("memory:", warm=False) as ranker, serving(ranker) as client:
        for first in range(0, 12_000, 4_000):
            answer = ranker.rank("large", [str(i) for i in range(first, first + 4_000)], k=3)
        path, pages = f"/v1/queries/{answer.query_id}", []
        while not pages or pages[-1].get("next"):
            found = client.get(path, params={"after": pages[-1]["next"]} if pages else {}).json()
            body = {"query": "large", "after": pages[-1]["next"] if pages else 0}
            assert client.post("/v1/queries/lookup", json=body).json() == found
            pages.append(found)
        assert [len(page["items"]) for page in pages] == [5_000, 5_000, 2_000]
        whole = ranker.query_state("large")
        assert [item["id"] for page in pages for item in page["items"]] == [item.id for item in whole.items]
        assert whole == ranker.query_state(query_id=answer.query_id)
        assert len({str(page["unfairness"]) for page in pages}) == 1
        assert sum(item.exposure_share for item in whole.items) == pytest.approx(1.0)
        assert problem(client.get(f"{path}?after=-1"), 400, "after")
        with Client(str(client.base_url)) as other:
            assert other.query_state("large") == whole
            other.delete_query("large")
        assert ranker.usage().queries == 0


def test_unknown_fields_are_refused_with_those_that_there_are(client):
    found = problem(client.post("/v1/rank", json={"query": "q", "candidates": ITEMS}), 400, "candidates")
    assert found.detail.startswith("candidates: unknown field 'candidates'; available: query, items, k, ")
    found = problem(client.post("/v1/rank", json=RANK | {"items": [{"id": "a", "pior": 1}]}), 400, "items[0].pior")
    assert "did you mean 'prior'? available: id, " in found.detail
    found = problem(client.get("/v1/queries?ordre=visits"), 400, "ordre")
    assert "did you mean 'order'?" in found.detail


def test_values_at_the_limits_are_accepted(client):
    items = [{"id": str(i)} for i in range(wire.MAX_ITEMS - 1)] + [{"id": "€" * 85, "prior": 1, "group": "😀" * 64}]
    answer = client.post("/v1/rank", json={"query": "é" * 2048, "items": items, "k": 200})
    assert len(answer.json()["items"]) == 200
    answer = client.post("/v1/feedback", json={"events": [EVENT] * 1000})
    assert answer.json()["results"] == [{"status": "unknown_impression"}] * 1000
    assert len(client.post("/v1/rank", json=RANK | {"k": 2**31 - 1}).json()["items"]) == 3


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body, id=name)
        for name, body in {
            "nothing": b"",
            "not JSON": b"query=red",
            "half of it": b'{"query": "red", "items": [',
            "a list": b"[]",
            "null": b"null",
            "NaN": b'{"query": "q", "items": [{"id": "a", "prior": NaN}]}',
            "Infinity": b'{"query": "q", "items": [{"id": "a", "prior": Infinity}]}',
            "beyond floats": b'{"query": "q", "items": [{"id": "a", "prior": 1e400}]}',
            "many digits": b'{"query": "q", "items": [{"id": "a"}], "k": 1' + b"0" * 10_000 + b"}",
            "lone surrogate": b'{"query": "\\ud800", "items": [{"id": "a"}]}',
            "lone surrogate in an id": b'{"query": "q", "items": [{"id": "\\udfff"}]}',
            "not UTF-8": b'{"query": "\xff\xfe", "items": [{"id": "a"}]}',
            "byte order mark": b'\xef\xbb\xbf{"query": "q", "items": [{"id": "a"}]}',
            "UTF-16": '{"query": "q", "items": [{"id": "a"}]}'.encode("utf-16"),
            "deep lists": b"[" * 100_000,
            "deep unknown field": b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            "deep objects": b'{"query": ' * 50_000,
        }.items()
    ],
)
def test_malformed_bodies_are_refused(client, body):
    for path in ("rank", "feedback", "queries/lookup", "keys"):
        answer = client.post(f"/v1/{path}", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400, answer.text
        assert answer.headers["content-type"] == "application/problem+json"


def test_any_text_is_accepted_as_query_and_id(client):
    for text in ("\0", "\x7f\x80", "\N{ZERO WIDTH JOINER}", "\U0010ffff", "'; DROP TABLE queries; --", "a\nb", " "):
        answer = client.post("/v1/rank", json={"query": text, "items": [{"id": text, "group": text}]})
        assert answer.json()["items"][0]["id"] == text
        assert client.post("/v1/queries/lookup", json={"query": text}).json()["items"][0]["group"] == text


def test_last_of_duplicate_fields_is_used(client):
    body = b'{"query": "a", "query": "twice", "items": [{"id": "a", "id": "b"}]}'
    answer = client.post("/v1/rank", content=body, headers={"content-type": "application/json"})
    assert answer.json()["items"][0]["id"] == "b"


def test_idempotency_key(client):
    headers = {"Idempotency-Key": "k" * wire.MAX_KEY}
    first = client.post("/v1/rank", json=RANK, headers=headers)
    assert client.post("/v1/rank", json=RANK, headers=headers).json() == first.json()
    problem(client.post("/v1/rank", json=RANK | {"k": 1}, headers=headers), 409)


@pytest.mark.parametrize(
    "key", ["", "k" * 257, "two words", "tab\tbed", "é"], ids=["empty", "long", "space", "tab", "é"]
)
def test_malformed_idempotency_keys_are_refused(client, key):
    headers = {"Idempotency-Key": key.encode()}
    problem(client.post("/v1/rank", json=RANK, headers=headers), 400, "Idempotency-Key")


def test_too_large_body_is_refused(client):
    large = b" " * (wire.MAX_BODY + 1)
    headers = {"content-type": "application/json"}
    problem(client.post("/v1/rank", content=large, headers=headers), 413)
    pieces = (b" " * 65_536 for _ in range(80))
    problem(client.post("/v1/rank", content=pieces, headers=headers), 413)
    fitting = json.dumps(RANK).encode().ljust(wire.MAX_BODY)
    assert client.post("/v1/rank", content=fitting, headers=headers).status_code == 200
    pieces = (fitting[i : i + 65_536] for i in range(0, len(fitting), 65_536))
    assert client.post("/v1/rank", content=pieces, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/jsonp"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
    ids=["none", "text", "form", "alike", "gzip"],
)
def test_body_of_another_media_type_is_refused(client, headers):
    found = problem(client.post("/v1/rank", content=json.dumps(RANK), headers=headers), 415)
    media = headers.get("content-type")
    if media != "application/json":
        assert found.detail.endswith(f"must be application/json, got {repr(media) if media else 'none'}")


@pytest.mark.parametrize("media", ["application/json; charset=utf-8", "Application/JSON"])
def test_variants_of_the_json_media_type_are_accepted(client, media):
    assert client.post("/v1/rank", content=json.dumps(RANK), headers={"content-type": media}).status_code == 200


def test_unknown_paths_and_methods(client):
    for path in (
        "/v1",
        "/v1/ranks",
        "/v1/impressions/x",
        "/v1/impressions/x/y/explain",
        "/%00",
        "/v2/rank",
    ):
        problem(client.get(path), 404)
    for method, path, allowed in [
        ("GET", "/v1/rank", {"POST"}),
        ("HEAD", "/v1/rank", {"POST"}),
        ("POST", "/v1/queries/x", {"GET", "HEAD", "DELETE"}),
        ("PATCH", "/v1/policy", {"GET", "HEAD", "PUT"}),
    ]:
        answer = client.request(method, path)
        assert answer.status_code == 405
        assert set(answer.headers["allow"].split(", ")) == allowed | {"OPTIONS"}
    assert client.request("BREW", "/livez").status_code == 400  # unknown to the parser of the server
    answer = client.options("/v1/policy")
    assert (answer.status_code, answer.headers["allow"]) == (204, "GET, HEAD, PUT, OPTIONS")
    for path in ("/v1/impressions/nothing/explain", "/v1/queries/nothing", "/v1/queries/%F0%9F%98%80%00"):
        problem(client.get(path), 404)


# --- authorization ---------------------------------------------------------------------------------------------------

PROTECTED = [operation for operation in OPERATIONS if operation.scope is not None]
OPEN = [operation for operation in OPERATIONS if operation.scope is None]


def send(client, operation, key=None, **headers):
    """Send the example request of an operation."""
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    body = {} if operation.example is None else {"json": operation.example}
    return client.request(operation.method, re.sub(r"{\w+}", "nothing", operation.path), headers=headers, **body)


@pytest.mark.parametrize("operation", PROTECTED, ids=lambda operation: f"{operation.method} {operation.path}")
def test_every_operation_requires_a_key_with_its_scope(keyed, operation):
    for key in (None, "wrong", "mcfair_x_y", keyed.keys["admin"][:-1], keyed.keys["revoked"], "tokens", "é"):
        headers = {} if key is None else {"authorization": f"Bearer {key}".encode()}
        answer = send(keyed, operation, **headers)
        problem(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
    for header in (f"Basic {keyed.keys['admin']}", keyed.keys["admin"], "Bearer"):
        problem(send(keyed, operation, authorization=header), 401)
    for scope in wire.SCOPES:
        answer = send(keyed, operation, keyed.keys[scope])
        if scope in (operation.scope, "admin"):
            assert answer.status_code in (operation.status, 404), answer.text
        else:
            assert repr(operation.scope) in problem(answer, 403).detail
    assert send(keyed, operation, "token").status_code in (operation.status, 404)


@pytest.mark.parametrize("operation", OPEN, ids=lambda operation: operation.path)
def test_open_operations_require_no_key(keyed, operation):
    assert send(keyed, operation).status_code == 200


def test_authorization_precedes_decoding(keyed):
    problem(keyed.post("/v1/rank", content=b"nonsense"), 401)


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "10.0.0.1", "[::2]:80"])
def test_without_keys_the_host_header_must_be_loopback(client, host):
    for operation in PROTECTED:
        problem(send(client, operation, host=host), 403, "Host")
    for operation in OPEN:
        assert send(client, operation, host=host).status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:8000", "app.localhost:1", "127.0.0.1", "127.9.9.9:80", "[::1]:80"]
)
def test_loopback_host_headers_are_accepted(client, host):
    assert client.get("/v1/usage", headers={"host": host}).status_code == 200


def test_without_keys_requests_from_other_machines_are_refused():
    async def run(ranker):
        app = create_app(ranker, admin_token="token")
        stranger = httpx.ASGITransport(app, client=("203.0.113.7", 1234))
        async with httpx.AsyncClient(transport=stranger, base_url="http://localhost") as client:
            for operation in PROTECTED:
                problem(await client.request(operation.method, operation.path), 401)
            bearer = {"authorization": "Bearer token"}
            made = await client.post("/v1/keys", json={"name": "a", "scopes": ["read"]}, headers=bearer)
            key = {"authorization": f"Bearer {made.json()['key']}"}
            assert (await client.get("/v1/usage", headers=key)).status_code == 200

    with Ranker("memory:") as ranker:
        asyncio.run(run(ranker))


FORWARDED = ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Proto", "x-forwarded-prefix", "X-Real-IP"]
FORWARDED += ["X-Client-IP", "True-Client-IP", "CF-Connecting-IP", "X-Original-URL", "X-Envoy-External-Address"]


@pytest.mark.parametrize("header", FORWARDED)
def test_without_keys_forwarded_requests_are_refused(client, keyed, header):
    for operation in PROTECTED:
        found = problem(send(client, operation, **{header: "203.0.113.7"}), 403, "Forwarded")
        assert "proxy" in found.detail
        assert "mcfair keys add" in found.detail
    for operation in OPEN:
        assert send(client, operation, **{header: "203.0.113.7"}).status_code == 200
    usage = next(operation for operation in OPERATIONS if operation.path == "/v1/usage")
    assert send(keyed, usage, "token", **{header: "203.0.113.7"}).status_code == 200


def test_access_log_has_the_address_that_a_trusted_proxy_names(caplog):
    caplog.set_level(logging.INFO, "mcfair.access")
    for trusted, address in ((None, "127.0.0.1"), ("127.0.0.1", "203.0.113.7"), ("10.0.0.1", "127.0.0.1")):
        caplog.clear()
        with Ranker("memory:") as ranker, serving(ranker, access_log=True, trusted_proxies=trusted) as client:
            client.get("/livez", headers={"X-Forwarded-For": "203.0.113.7"})
        assert [record.getMessage().split()[:4] for record in caplog.records] == [[address, "GET", "/livez", "200"]]


def test_forwarded_addresses_cannot_forge_lines_of_the_access_log(caplog):
    caplog.set_level(logging.INFO, "mcfair.access")
    with Ranker("memory:") as ranker, serving(ranker, access_log=True, trusted_proxies="127.0.0.1") as client:
        for address in ("1.2.3.4 GET /v1/rank 200 0.1 ms", "\u00e4", "1" * 100):
            client.get("/livez", headers={b"X-Forwarded-For": address.encode()})
    assert [record.getMessage().split()[:4] for record in caplog.records] == [["-", "GET", "/livez", "200"]] * 3


# --- overload --------------------------------------------------------------------------------------------------------


def test_full_queue_is_answered_with_503():
    with Ranker("memory:", max_queued=1) as ranker, serving(ranker) as client, ThreadPoolExecutor(1) as pool:
        with held(ranker):
            waiting = pool.submit(client.post, "/v1/rank", json=RANK)
            while ranker.executor.queue_depth < 1:
                time.sleep(0.001)
            answer = client.post("/v1/rank", json=RANK)
            assert "waiting" in problem(answer, 503).detail
            assert answer.headers["retry-after"] == "1"
        assert waiting.result(10).status_code == 200


def test_admission_control_refuses_beyond_max_in_flight():
    with Ranker("memory:") as ranker, serving(ranker, max_in_flight=4) as client, ThreadPoolExecutor(4) as pool:
        with held(ranker):
            waiting = [pool.submit(client.post, "/v1/rank", json=RANK) for _ in range(4)]
            while ranker.executor.queue_depth < 4:
                time.sleep(0.001)
            headers = {"content-type": "application/json"}
            answer = client.post("/v1/rank", content=b"not even JSON", headers=headers)
            problem(answer, 503)
            assert answer.headers["retry-after"] == "1"
            assert client.get("/livez").status_code == client.get("/readyz").status_code == 200
            assert "mcfair_http_requests_rejected_total 1.0" in client.get("/metrics").text
        assert [each.result(10).status_code for each in waiting] == [200] * 4
        assert client.post("/v1/rank", json=RANK).status_code == 200


def test_fairness_is_that_of_the_time_of_the_call(client):
    for more in range(1, 4):
        before = client.get("/v1/fairness").json()["visits"]
        for _ in range(more):
            assert client.post("/v1/rank", json=RANK).status_code == 200
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: client.get("/v1/fairness").json(), range(8)))
        assert {each["visits"] for each in answers} == {before + more}


def raw(client, sent, timeout=10.0):
    """Send bytes, and return what comes back before the connection is closed."""
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=timeout) as connection:
        connection.sendall(sent)
        received = b""
        while piece := connection.recv(65_536):
            received += piece
    return received


class SlowStore(SQLiteStore):
    """A store whose commits take a given time."""

    seconds = 0.0

    def commit(self):
        time.sleep(self.seconds)
        super().commit()


def test_slow_commit_does_not_block_health_probes(tmp_path):
    store = SlowStore(tmp_path / "store.db")
    with Ranker(store) as ranker, serving(ranker) as client, ThreadPoolExecutor(1) as pool:
        store.seconds = 0.1  # which the moving average records
        client.post("/v1/rank", json=RANK)
        store.seconds = 1.0
        waiting = pool.submit(client.post, "/v1/rank", json=RANK)
        while not client.server.app.lifecycle.in_flight:
            time.sleep(0.001)
        for _ in range(10):
            assert client.get("/livez").status_code == 200
        assert not waiting.done()
        assert waiting.result().status_code == 200


# --- internal errors -------------------------------------------------------------------------------------------------


class FailingStore(SQLiteStore):
    """A store whose commits can be made to fail with an error that names a path."""

    failing = False

    def begin(self, **options):
        if self.failing:
            raise OSError(28, "No space left on device", "/secret/place/store.db")
        super().begin(**options)


def test_failures_of_the_store_name_no_path_to_clients(tmp_path):
    store = FailingStore(tmp_path / "store.db")
    with Ranker(store) as ranker, serving(ranker) as client:
        store.failing = True
        for answer in (client.post("/v1/rank", json=RANK), client.get("/readyz")):
            assert "secret" not in problem(answer, 503).detail
            assert answer.headers["retry-after"] == "1"
        assert client.get("/livez").status_code == 200
        assert "mcfair_store_writable 0.0" in client.get("/metrics").text
        store.failing = False
        assert client.post("/v1/rank", json=RANK).status_code == 200
        assert client.get("/readyz").status_code == 200  # a successful write proves it


def test_a_failing_policy_is_logged_once_without_its_message(caplog, monkeypatch):
    failures = []

    def fail(reading):
        failures.append(reading.now)
        raise PolicyError("the policy failed") from RuntimeError(SECRET)

    monkeypatch.setitem(READS, "fairness", Read(fail, {}))
    with Ranker("memory:") as ranker, serving(ranker) as client:
        for _ in range(3):
            problem(client.get("/v1/fairness"), 400, "policy")
        assert len(failures) == 3
    assert caplog.text.count("RuntimeError") == 1
    assert SECRET not in caplog.text


def test_unexpected_error_is_a_problem_and_its_message_is_not_logged(caplog, monkeypatch):
    def fairness(reading):
        raise RuntimeError(SECRET)

    monkeypatch.setitem(READS, "fairness", Read(fairness, {}))

    class PartlyUnreadable(SQLiteStore):
        @contextmanager
        def reader(self):
            with super().reader() as reader:
                read = reader.log

                def log(number, *range_of_entries):
                    if number > 1:
                        raise RuntimeError(SECRET)
                    return read(number, *range_of_entries)

                reader.log = log
                yield reader

    with Ranker(PartlyUnreadable(None)) as ranker, serving(ranker) as client:
        ranker.rank("first", [str(i) for i in range(2_000)], k=1)  # more than one chunk of an export
        ranker.rank("second", ["a"])
        assert SECRET not in problem(client.get("/v1/fairness"), 500).detail
        with pytest.raises(httpx.RemoteProtocolError):  # aborted, so that it cannot be mistaken for complete
            client.get("/v1/export")
    assert "in fairness" in caplog.text
    assert "RuntimeError" in caplog.text
    assert SECRET not in caplog.text


def test_result_that_cannot_be_encoded_is_a_problem(caplog, monkeypatch):
    monkeypatch.setitem(READS, "fairness", Read(lambda reading: {SECRET: object()}, {}))
    with Ranker("memory:") as ranker, serving(ranker) as client:
        assert SECRET not in problem(client.get("/v1/fairness"), 500).detail
        assert client.server.app.lifecycle.in_flight == 0
    assert "TypeError" in caplog.text
    assert SECRET not in caplog.text


def test_query_texts_are_never_logged(caplog):
    caplog.set_level(logging.DEBUG)
    for name in ("mcfair.access", "mcfair.service"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    with Ranker("memory:") as ranker, serving(ranker, access_log=True) as client:
        client.post("/v1/rank", json=RANK | {"query": SECRET})
        client.post("/v1/rank", json=RANK | {"query": SECRET, "policy": SECRET, "k": 0})
        client.post("/v1/rank", json=RANK | {"query": SECRET, "items": [{"id": SECRET}, {"id": SECRET}]})
        client.post("/v1/rank", content=f'{{"query": "{SECRET}"', headers={"content-type": "application/json"})
        client.post(f"/v1/rank?query={SECRET}", json=RANK)
        client.post("/v1/queries/lookup", json={"query": SECRET})
        client.get(f"/v1/queries/{SECRET}")
        client.get(f"/{SECRET}")
        raw(client, f"{SECRET}\r\n\r\n".encode())
    logged = "\n".join(
        record.getMessage() for record in caplog.records if record.name.split(".")[0] in ("mcfair", "asyncio")
    )
    assert "POST /v1/rank 200" in logged
    assert "GET /v1/queries/{query_id} 404" in logged
    assert SECRET not in logged
    assert "must not be" not in logged


# --- the process -----------------------------------------------------------------------------------------------------


def test_draining_is_reported_by_the_readiness_probe():
    with Ranker("memory:") as ranker, serving(ranker, drain_seconds=30.0) as client:
        client.server.drain()
        assert "draining" in problem(client.get("/readyz"), 503).detail
        answer = client.post("/v1/rank", json=RANK)
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert client.get("/livez").status_code == 200


SERVE = """
    import logging, sys
    from mcfair.service.ranker import Ranker
    from mcfair.service.web.server import serve
    logging.basicConfig(level=logging.INFO)
    serve(Ranker(sys.argv[1]), port=0, drain_seconds=float(sys.argv[2]), on_ready=lambda url: print(url, flush=True))
    print("done", flush=True)
"""


@contextmanager
def process(store, drain_seconds=0.0):
    """Serve in another process; yield it and its URL."""
    command = [sys.executable, "-c", textwrap.dedent(SERVE), store, str(drain_seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            url = child.stdout.readline().strip()
            assert url, child.stderr.read()
            yield child, url
        finally:
            child.kill()


def test_sigterm_loses_nothing_that_was_acknowledged(tmp_path):
    path = f"sqlite:///{tmp_path / 'store.db'}"
    acknowledged = []

    def send_until_refused(number):
        with httpx.Client(base_url=url, timeout=20) as client:
            while True:
                try:
                    answer = client.post("/v1/rank", json=RANK | {"query": f"{number}"})
                except httpx.TransportError:
                    return
                if answer.status_code != 200:
                    problem(answer, 503)
                    return
                acknowledged.append(answer.json()["impression"])

    with process(path, 0.3) as (child, url), ThreadPoolExecutor(8) as pool:
        senders = [pool.submit(send_until_refused, number) for number in range(8)]
        while len(acknowledged) < 100:
            assert child.poll() is None, child.stderr.read()
            time.sleep(0.01)
        child.send_signal(signal.SIGTERM)
        for sender in senders:
            sender.result(20)
        assert child.wait(20) == 0
        assert child.stdout.read() == "done\n"
    with Ranker(path) as ranker:
        for impression in acknowledged:
            ranker.explain(impression)
        assert ranker.usage().impressions == len(acknowledged)


def test_second_signal_stops_at_once(tmp_path):
    with process("memory:", 60.0) as (child, url):
        assert httpx.get(f"{url}/readyz").status_code == 200
        child.send_signal(signal.SIGINT)
        while httpx.get(f"{url}/readyz").status_code != 503:
            time.sleep(0.01)
        begun = time.monotonic()
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0
        assert time.monotonic() - begun < 5


def test_port_in_use_is_refused():
    with bind("127.0.0.1", 0) as taken, pytest.raises(SettingError, match="is in use"):
        bind("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 0), ("203.0.113.1", 0), ("127.0.0.1", 70_000)])
def test_addresses_that_cannot_be_bound_are_refused(host, port):
    with pytest.raises(SettingError, match=r"cannot listen|expected 0 to 65535"):
        bind(host, port)


def test_public_address_requires_keys():
    for host in ("0.0.0.0", "::", "", "example.org", "10.0.0.1"):
        with pytest.raises(SettingError, match="mcfair keys add"):
            check_bind(host, has_keys=False)
        check_bind(host, has_keys=True)
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        check_bind(host, has_keys=False)
    ranker = Ranker("memory:")
    with pytest.raises(SettingError, match="mcfair keys add"):
        serve(ranker, "0.0.0.0", 0)
    assert ranker.executor.closing


def test_url_of_a_wildcard_address():
    with bind("0.0.0.0", 0) as listener:
        assert url_of("0.0.0.0", listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
    assert is_loopback("127.0.0.1")


@pytest.mark.parametrize(
    ("missing", "module"),
    [("prometheus_client", "app"), ("uvicorn", "server"), ("uvloop", "server"), ("httptools", "server")],
)
def test_missing_extra_names_the_install_command(missing, module):
    code = f"import sys; sys.modules[{missing!r}] = None; import mcfair.service.web.{module}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "pip install 'mcfair[service]'" in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("foo[bar]", "'foo[bar]'"),
        ("a.b[0]", "'a.b[0]'"),
        ("", "''"),
        ("\n\x1b[31m", r"'\n\x1b[31m'"),
        ("n" * 10**6, "'nn"),
    ],
)
def test_an_unknown_field_of_any_name_is_refused_in_one_short_line(client, name, shown):
    for body in ({"query": "q", "items": [{"id": "a"}], name: 1}, {"query": "q", "items": [{"id": "a", name: 1}]}):
        answer = client.post("/v1/rank", json=body)
        assert answer.status_code == 400
        detail = answer.json()["detail"]
        assert f"unknown field {shown}" in detail
        assert "id, prior, group" in detail or "query, items, k" in detail
        assert detail.isprintable()
        assert len(answer.content) < 1_000


def test_a_wrong_word_is_refused_with_those_that_are_allowed(client):
    answer = client.post("/v1/keys", json={"name": "z", "scopes": ["w" * 10**5]})
    assert (answer.status_code, answer.json()["field"]) == (400, "scopes[0]")
    assert answer.json()["detail"].endswith("expected 'rank' or 'feedback' or 'read' or 'admin'")
    assert len(answer.content) < 1_000
