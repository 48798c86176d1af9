"""Requests made up from the OpenAPI document, good and bad ones: no answer is a 5xx or other than documented."""

import pytest
import schemathesis
from hypothesis import settings
from serving import serving

from mcfair.service.apidocs import openapi
from mcfair.service.app import OPERATIONS
from mcfair.service.ranker import Ranker

# What a schema cannot say makes a 400 of what it allows: bytes, ids that repeat, policies, settings that contradict.
STATUSES = {"positive_data_acceptance": {"expected-statuses": ["2xx", "400", "404", "409"]}}
config = schemathesis.Config.from_dict(
    {"operations": [{"include-operation-id": each, "checks": STATUSES} for each in ("rank", "lookup", "change_policy")]}
)
schema = schemathesis.openapi.from_dict(openapi(OPERATIONS, "0"), config=config)


@pytest.fixture(scope="module")
def url():
    """Where a service with keys answers."""
    with Ranker("memory:") as ranker:
        ranker.add_key("any", ["read"])
        with serving(ranker, admin_token="token") as client:
            yield str(client.base_url)


@schema.parametrize()
@settings(max_examples=15, derandomize=True, deadline=None)
def test_answers_are_as_documented(case, url):
    case.call_and_validate(base_url=url, headers={"Authorization": "Bearer token"})
