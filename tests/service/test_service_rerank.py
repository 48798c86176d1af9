"""`POST /v1/rerank`: it is `rank` in the shape of Cohere's endpoint, whatever the documents are."""

import hashlib

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import serving

from mcfair.errors import ConflictError, RequestError
from mcfair.service.methods import Methods
from mcfair.service.ranker import Ranker
from mcfair.service.wire import RerankRequest, document_id

QUERY = "symptoms of a rare disease"
DOCUMENTS = ["red shoes", {"id": "sku2", "prior": 0.9, "group": "shop", "title": "ignored"}, {"text": "socks"}]


@pytest.fixture(scope="module")
def ranker():
    with Ranker("memory:", policy="MCFair", warm=False) as ranker:
        yield ranker


@pytest.fixture(scope="module")
def client(ranker):
    with serving(ranker) as client:
        yield client


def naive_items(documents):
    """Return the items that documents stand for, as the documentation of the endpoint has it."""
    texts, items = [], []
    for document in documents:
        document = {"text": document} if isinstance(document, str) else document
        id = document.get("id")
        if id is None:
            texts.append(document["text"])
            copies = texts.count(document["text"])
            id = "text-" + hashlib.sha256(document["text"].encode("utf-8")).hexdigest()[:32]
            id += f"-{copies}" if copies > 1 else ""
        items.append({"id": id, "prior": document.get("prior"), "group": document.get("group")})
    return items


TEXTS = st.sampled_from(["", "a", "b", "rötlich", "a long text " * 100])
OBJECTS = st.fixed_dictionaries(
    {"text": TEXTS}, optional={"prior": st.sampled_from([0.0, 0.3, 1.0]), "group": st.sampled_from(["g", "h"])}
)
LISTS = st.lists(TEXTS | OBJECTS, min_size=1, max_size=6)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("qr"), LISTS, st.integers(1, 4) | st.none()), min_size=1, max_size=4))
def test_reranking_is_the_ranking_of_the_items_that_the_documents_stand_for(requests):
    with Ranker("memory:", policy="MCFair", warm=False) as one, Ranker("memory:", policy="MCFair", warm=False) as other:
        for query, documents, top_n in requests:
            items = naive_items(documents)
            answer = one.rerank(query, documents, top_n, return_documents=True)
            expected = other.rank(query, items, k=top_n or len(items))
            assert [result.id for result in answer.results] == [item.id for item in expected.items]
            assert [items[result.index]["id"] for result in answer.results] == [item.id for item in expected.items]
            assert [result.relevance_score for result in answer.results] == [1 / item.rank for item in expected.items]
            for result in answer.results:
                sent = documents[result.index]
                assert result.document.text == (sent if isinstance(sent, str) else sent["text"])
            assert one.click(answer.impression, answer.results[-1].id).status == "applied"
            other.click(expected.impression, expected.items[-1].id)
            assert one.query_state(query) == msgspec.structs.replace(
                other.query_state(query), query_id=answer.meta.query_id
            )


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_response_has_the_shape_of_cohere(client, path):
    body = {"model": "rerank-v3.5", "query": path, "documents": DOCUMENTS, "top_n": 2, "return_documents": True}
    answer = client.post(path, json=body).json()
    assert answer.keys() == {"id", "impression", "results", "meta"}
    assert answer["id"] == answer["impression"]
    assert answer["results"][0] == {"index": 1, "relevance_score": 1.0, "id": "sku2"}  # which has no text
    second = answer["results"][1]
    assert second["relevance_score"] == 0.5
    assert second["document"] == {"text": {0: "red shoes", 2: "socks"}[second["index"]]}
    assert answer["meta"].keys() == {"query_id", "policy", "version", "expires_at"}
    clicked = {"impression": answer["impression"], "item": second["id"]}
    assert client.post("/v1/feedback", json={"events": [clicked]}).json() == {"results": [{"status": "applied"}]}
    explained = client.get(f"/v1/impressions/{answer['impression']}/explain").json()
    assert [item["id"] for item in explained["items"]] == [result["id"] for result in answer["results"]]


def test_requests_are_counted_by_route(client):
    client.post("/v2/rerank", json={"query": "counted", "documents": ["a"]})
    line = 'mcfair_http_requests_total{method="POST",route="/v2/rerank",status="200"}'
    assert line in client.get("/metrics").text


def test_derived_ids_are_unique_whatever_ids_the_documents_bring_along(ranker, client):
    base = document_id("same")
    documents = ["same", {"id": f"{base}-2"}, "same", {"id": base, "text": "other"}, "same", {"id": f"{base}-3"}]
    assert {each.index: each.id for each in ranker.rerank("clash", documents).results} == {
        0: f"{base}-4", 1: f"{base}-2", 2: f"{base}-5", 3: base, 4: f"{base}-6", 5: f"{base}-3",
    }  # fmt: skip
    columns = {"query": "columns", "documents": ["same", "same", "x"], "ids": [None, base, "y"]}
    answer = client.post("/v1/rerank", json=columns).json()
    assert {each["index"]: each["id"] for each in answer["results"]} == {0: f"{base}-2", 1: base, 2: "y"}


def test_all_documents_are_ranked_unless_top_n_is_given(ranker):
    assert len(ranker.rerank("all", [f"{i}" for i in range(30)]).results) == 30
    assert len(ranker.rerank("all", ["a", "b"], top_n=7).results) == 2


def test_columns_are_those_of_the_documents(client):
    columns = {
        "documents": ["a", "b", {"id": "own", "text": "c", "prior": 0.2}],
        "ids": ["x", None, "z"],
        "priors": [0.1, 0.9, 0.5],
        "groups": ["g", None, "h"],
    }
    objects = [{"id": "x", "prior": 0.1, "group": "g"}, {"text": "b", "prior": 0.9}]
    objects.append({"id": "own", "prior": 0.2, "group": "h"})
    one = client.post("/v1/rerank", json={"query": "columns"} | columns, headers={"Idempotency-Key": "k"}).json()
    other = client.post("/v1/rerank", json={"query": "columns", "documents": objects}, headers={"Idempotency-Key": "k"})
    assert other.json() == one  # the same key and other items would be a conflict
    assert {result["index"]: result["id"] for result in one["results"]} == {
        0: "x",
        1: naive_items(["b"])[0]["id"],
        2: "own",
    }


def test_results_in_the_order_of_the_documents(client):
    documents = [{"id": "low", "prior": 0.1}, {"id": "high", "prior": 0.9}, {"id": "middle", "prior": 0.5}]
    body = {"query": "order", "documents": documents, "order": "documents", "policy": "TopK"}
    results = client.post("/v1/rerank", json=body).json()["results"]
    assert [(result["index"], result["relevance_score"]) for result in results] == [(0, 1 / 3), (1, 1.0), (2, 1 / 2)]
    body |= {"query": "shorter", "top_n": 2}
    results = client.post("/v1/rerank", json=body).json()["results"]
    assert [(result["id"], result["relevance_score"]) for result in results] == [
        ("low", 0.0),
        ("high", 1.0),
        ("middle", 1 / 2),
    ]


def test_a_key_belongs_to_the_ranking_whatever_its_shape(client, ranker):
    body = {"query": "keyed", "documents": ["a", {"id": "sku", "prior": 0.5}]}
    answers = [client.post("/v1/rerank", json=body, headers={"Idempotency-Key": "once"}).json() for _ in range(2)]
    assert answers[0] == answers[1]
    assert ranker.query_state("keyed").visits == 1
    body["documents"].append("b")
    assert client.post("/v1/rerank", json=body, headers={"Idempotency-Key": "once"}).status_code == 409


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"query": ""}, "query"),
        ({"query": None}, "query"),
        ({"documents": []}, "documents"),
        ({"documents": [3]}, "documents[0]"),
        ({"documents": ["a", {"title": "neither"}]}, "documents[1]"),
        ({"documents": ["a", {"id": ""}]}, "documents[1].id"),
        ({"documents": ["a", {"id": "ü" * 200}]}, "documents[1].id"),
        ({"documents": [{"id": "a"}, {"id": "a"}]}, "documents[1].id"),
        ({"documents": [{"id": "a", "prior": 1.5}]}, "documents[0].prior"),
        ({"documents": ["a"], "priors": [-0.5]}, "priors[0]"),
        ({"documents": ["a"], "ids": []}, "ids"),
        ({"documents": ["a"], "groups": ["g", "h"]}, "groups"),
        ({"documents": [str(i) for i in range(1001)]}, "top_n"),
        ({"top_n": 0}, "top_n"),
        ({"topn": 3}, "topn"),
        ({"policy": "Nothing"}, "policy"),
        ({"order": "reverse"}, "order"),
    ],
)
def test_errors_name_the_field(client, change, field):
    answer = client.post("/v1/rerank", json={"query": "q", "documents": ["a"]} | change)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["field"] == field
    assert answer.json()["detail"]


def test_lone_surrogates_are_refused(client):
    answer = client.post(
        "/v1/rerank", content=rb'{"query":"q","documents":["\ud800"]}', headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400
    assert "not JSON" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("documents", "options", "field"),
    [
        ("text", {}, "documents"),
        ([3], {}, "documents[0]"),
        ([{"id": "a", "prior": float("nan")}], {}, "documents[0].prior"),
        ([{"text": "\ud800"}], {}, "documents[0].text"),
        (["a"], {"top_n": 0}, "top_n"),
        (["a"], {"key": ""}, "key"),
        (["a"], {"deadline": 0}, "deadline"),
    ],
)
def test_errors_of_the_method_name_the_field(ranker, documents, options, field):
    with pytest.raises(RequestError) as caught:
        ranker.rerank("q", documents, **options)
    assert caught.value.field == field


def test_numbers_of_numpy_are_accepted(ranker):
    answer = ranker.rerank("numpy", [{"id": "a", "prior": np.float32(0.5)}, "b"], np.int64(1), policy="TopK")
    assert [result.id for result in answer.results] == ["a"]


def test_shadow_deferred_exposure_and_conflicts(ranker):
    answer = ranker.rerank("shadow", [{"id": "a", "prior": 0.1}, {"id": "b", "prior": 0.9}], shadow=True)
    assert [result.index for result in answer.results] == [0, 1]
    ranker.rerank("deferred", ["a"], defer_exposure=True, key="used")
    assert ranker.query_state("deferred").items[0].exposure == 0.0
    with pytest.raises(ConflictError):
        ranker.rerank("deferred", ["b"], key="used")


def test_fallback_is_the_order_of_the_documents(tmp_path):
    ranker = Ranker("memory:", warm=False)
    ranker.close()
    answer = ranker.rerank("q", ["a", {"id": "b", "prior": 1.0}], top_n=2, fallback=True)
    assert (answer.fallback, answer.impression, answer.id) == (True, None, None)
    assert [(result.index, result.relevance_score) for result in answer.results] == [(0, 1.0), (1, 0.5)]
    assert answer.meta.policy == "fallback"


# --- privacy ---------------------------------------------------------------------------------------------------------


class Recorder(Methods):
    """Returns the calls of its methods."""

    def _run(self, call):
        return call

    def ready(self):
        raise AssertionError("not called")

    export = ready


def test_ignored_fields_are_not_decoded():
    """They may hold anything: a megabyte of empty lists would take a second as objects."""
    body = b'{"query":"q","documents":["a"],"model":[%s[]],"priority":3}' % (b"[]," * 1000)
    request = msgspec.json.decode(body, type=RerankRequest)
    assert isinstance(request.model, msgspec.Raw)
    with Ranker("memory:", warm=False) as ranker, serving(ranker) as client:
        answer = client.post("/v1/rerank", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 200


def test_a_client_does_not_send_the_texts():
    call = Recorder().rerank(QUERY, ["a private text", {"id": "sku", "text": "another private text"}])
    sent = msgspec.json.encode(call.arguments["body"])
    assert b"sku" in sent
    assert b"private" not in sent


def test_queries_and_texts_are_not_stored(tmp_path):
    path = tmp_path / "mcfair.db"
    documents = ["a private text", {"id": "stored-id", "text": "another private text", "author": "a private name"}]
    with Ranker(path, warm=False) as ranker, serving(ranker) as client:
        body = {"query": QUERY, "documents": documents, "return_documents": True, "session": "a private session"}
        answer = client.post("/v1/rerank", json=body, headers={"Idempotency-Key": "private-key"})
        assert "another private text" in answer.text
        ranker.click(answer.json()["impression"], "stored-id")
    stored = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert b"stored-id" in stored
    assert b"private" not in stored
    assert QUERY.encode() not in stored
