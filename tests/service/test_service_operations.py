"""The table of operations, and the calls that the methods of Python make of it."""

import inspect

import pytest

from mcfair.service.methods import Methods
from mcfair.service.operations import OPERATIONS


class Recorder(Methods):
    """Records the calls of its methods."""

    def _run(self, call):
        return call

    def ready(self):
        raise AssertionError("a client and a ranker have their own")

    export = ready


CALLS = [
    Recorder().rank("q", ["a"]),
    Recorder().rerank("q", ["a"]),
    Recorder().feedback([{"impression": "i", "item": "a"}]),
    Recorder().retract([{"impression": "i", "item": "a"}]),
    Recorder().click("i", "a"),
    Recorder().shown("i"),
    Recorder().explain("i"),
    Recorder().query_state("q"),
    Recorder().query_state(query_id="id"),
    Recorder().fairness(),
    Recorder().history("day", limit=3, groups=2),
    Recorder().unfair_queries("visits", limit=3, offset=2),
    Recorder().exposed_items("over", limit=3, offset=2),
    Recorder().usage(),
    Recorder().compare(["TopK"]),
    Recorder().experiment(),
    Recorder().policy(),
    Recorder().change_policy(seed=1),
    Recorder().import_history("source", [{"query": "q", "visits": 1, "items": [{"id": "a", "counts": [[1, 1, 0]]}]}]),
    Recorder().delete_query("q"),
    Recorder().delete_query(query_id="id"),
    Recorder().delete_item("a"),
    Recorder().reset(),
    Recorder().keys(),
    Recorder().add_key("name", ["read"]),
    Recorder().revoke_key("id"),
]


def test_every_operation_can_be_called_from_python():
    assert {call.operation for call in CALLS} == set(OPERATIONS) - {"export"}  # which is streamed


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.operation)
def test_arguments_of_a_call_are_those_of_its_operation(call):
    operation = OPERATIONS[call.operation]
    first, *_ = inspect.signature(operation.function).parameters
    assert first == {"background": "reading", "engine": "engine"}[operation.runs]
    inspect.signature(operation.function).bind(None, **call.arguments)
    assert set(operation.parameters) == {name for name in call.arguments if isinstance(call.arguments[name], str)}
    assert isinstance(call.arguments.get("body"), operation.request or type(None))
    assert isinstance(call.arguments.get("options"), operation.options or type(None))


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
def test_operation_with_a_body_has_an_example(operation):
    assert (operation.example is not None) == (operation.request is not None)
