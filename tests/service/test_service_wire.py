"""The types of requests and responses: plain data for web frameworks, and a description of every field."""

import datetime
import inspect
import json

import msgspec
import numpy as np
import pytest

from mcfair.errors import RequestError
from mcfair.service import wire
from mcfair.service.ranker import Ranker
from mcfair.service.web.apidocs import openapi
from mcfair.service.web.operations import OPERATIONS

SCHEMAS = openapi(OPERATIONS, "0")["components"]["schemas"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_type_and_field_is_described(name):
    assert SCHEMAS[name]["description"]
    missing = [field for field, schema in SCHEMAS[name].get("properties", {}).items() if not schema.get("description")]
    assert missing == []


RESPONSES = [
    kind
    for kind in vars(wire).values()
    if inspect.isclass(kind) and issubclass(kind, wire.ResponseBody) and kind is not wire.ResponseBody
]


def test_every_response_of_an_operation_converts_to_plain_data():
    declared = {each.response for each in OPERATIONS if inspect.isclass(each.response)} - {dict}
    assert {kind for kind in declared if issubclass(kind, msgspec.Struct)} <= set(RESPONSES)
    assert len(RESPONSES) > 15


def plain(value):
    """Whether a value consists of the types of the standard JSON encoder."""
    if isinstance(value, dict):
        return type(value) is dict and all(type(key) is str and plain(each) for key, each in value.items())
    if isinstance(value, list):
        return type(value) is list and all(plain(each) for each in value)
    return value is None or type(value) in (str, int, float, bool)


def test_to_dict_is_the_response_as_plain_data():
    with Ranker("memory:", warm=False) as ranker:
        ranking = ranker.rank("q", [{"id": "a", "group": "shop"}, {"id": "b", "prior": 0.5}], explain=True)
        responses = [
            ranking,
            ranking.items[0],
            ranker.click(ranking.impression, "a"),
            ranker.explain(ranking.impression),
            ranker.query_state("q"),
            ranker.fairness(),
            ranker.usage(),
            ranker.policy(),
            ranker.add_key("shop", ["read"]),
            *ranker.keys(),
        ]
    for response in responses:
        data = response.to_dict()
        assert plain(data), type(response)
        assert data == msgspec.json.decode(msgspec.json.encode(response))
        assert msgspec.convert(json.loads(json.dumps(data)), type(response)) == response
    expires = datetime.datetime.fromisoformat(ranking.to_dict()["expires_at"])
    assert expires == ranking.expires_at


def test_ranking_of_the_service_does_not_mention_fallbacks():
    with Ranker("memory:", warm=False) as ranker:
        assert "fallback" not in ranker.rank("q", ["a"]).to_dict()
        assert ranker.rank("q", ["a"]).fallback is False


def test_ranker_accepts_what_a_client_accepts():
    """A prior that is not a number was once encoded as no prior, and a NumPy scalar was refused."""
    with Ranker("memory:", warm=False) as ranker:
        items = [wire.Item("a", prior=np.float32(0.5)), {"id": "b", "prior": np.float64(0.25)}]
        assert len(ranker.rank("q", items, np.int64(2)).items) == 2
        with pytest.raises(RequestError, match=r"items\[0\].prior = nan is not allowed"):
            ranker.rank("q", [wire.Item("a", prior=float("nan"))])
