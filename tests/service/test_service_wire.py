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


WRONG_TYPES = [
    ("rank", ["q", [1, 2]], r"items\[0\] = 1 is not allowed: expected an id, a dict or an instance of Item"),
    ("rank", ["q", None], "items = None is not allowed: expected a list"),
    ("rank", ["q", "abc"], "items = 'abc' is not allowed"),
    ("rank", ["q", [wire.Item(id=5)]], r"items\[0\].id: Expected `str`, got `int`"),
    ("rank", ["q", [wire.Item("a", prior="x")]], r"items\[0\].prior = 'x' is not allowed"),
    ("rank", ["q", ["a", {"id": "b", "prior": 2}]], r"items\[1\].prior: Expected `float` <= 1.0, got 2"),
    ("rank", [5, ["a"]], "query: Expected `str`, got `int`"),
    ("explain", [5], "impression = 5 is not allowed"),
    ("explain", ["\ud800"], "impression is not valid Unicode"),
    ("query_state", ["\ud800"], "query is not valid Unicode"),
    ("feedback", [None], "events = None is not allowed"),
    ("feedback", [[5]], r"events\[0\] = 5 is not allowed"),
    ("feedback", [[wire.Event(impression=5)]], r"events\[0\].impression: Expected `str`, got `int`"),
    ("click", ["x", "\ud800"], r"events\[0\].item is not valid Unicode"),
    ("shown", ["x", 5], "ranks = 5 is not allowed"),
    ("delete_item", [5], "item: Expected `str`, got `int`"),
    ("delete_item", ["\ud800"], "item is not valid Unicode"),
    ("delete_query", [5], "query: Expected `str`, got `int`"),
    ("add_key", ["\ud800", ["rank"]], "name = .* is not allowed: expected printable characters"),
    ("add_key", ["x\n000000000000  backdoor\x1b[2J", ["rank"]], "name = .* is not allowed: expected printable"),
    ("add_key", ["x", "rank"], "scopes = 'rank' is not allowed: expected a list"),
    ("revoke_key", [5], "id = 5 is not allowed"),
    ("change_policy", [], "seed: Expected `int` >= 0, got -1"),
]


@pytest.mark.parametrize(("method", "args", "message"), WRONG_TYPES)
def test_wrong_types_and_lone_surrogates_name_the_argument(method, args, message):
    options = {"rank": {"fallback": True}, "change_policy": {"seed": -1}}.get(method, {})
    with Ranker("memory:", warm=False) as ranker, pytest.raises(RequestError, match=message):
        getattr(ranker, method)(*args, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"key": 5}, "key = 5"), ({"deadline": "1"}, "deadline = '1'"), ({"k": "1"}, "k: Expected")],
)
def test_wrong_types_of_options_are_refused_even_with_a_fallback(options, message):
    with Ranker("memory:", warm=False) as ranker, pytest.raises(RequestError, match=message):
        ranker.rank("q", ["a"], fallback=True, **options)


def test_ranker_accepts_what_a_client_accepts():
    """A prior that is not a number was once encoded as no prior, and a NumPy scalar was refused."""
    with Ranker("memory:", warm=False) as ranker:
        items = [wire.Item("a", prior=np.float32(0.5)), {"id": "b", "prior": np.float64(0.25)}]
        assert len(ranker.rank("q", items, np.int64(2)).items) == 2
        with pytest.raises(RequestError, match=r"items\[0\].prior = nan is not allowed"):
            ranker.rank("q", [wire.Item("a", prior=float("nan"))])
