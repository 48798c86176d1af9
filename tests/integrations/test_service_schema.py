"""Requests generated from the OpenAPI document, valid and invalid: every response conforms to it, and none is a 5xx."""

import pytest
import schemathesis
from hypothesis import settings
from serving import serving

from mcfair.service.ranker import Ranker
from mcfair.service.web.apidocs import openapi
from mcfair.service.web.operations import OPERATIONS

pytest_plugins = ["schemathesis.pytest.plugin"]  # here, because it takes a second to import

# Some requests that the schema allows are refused with 400: byte lengths, duplicate ids, policies, conflicting rules,
# names that cannot be printed, more clicks than impressions, documents without an id or a text.
STATUSES = {"positive_data_acceptance": {"expected-statuses": ["2xx", "400", "404", "409"]}}
STRICTER = ("rank", "rerank", "lookup", "change_policy", "compare", "import_history", "add_key")
config = schemathesis.Config.from_dict(
    {"operations": [{"include-operation-id": each, "checks": STATUSES} for each in STRICTER]}
)
schema = schemathesis.openapi.from_dict(openapi(OPERATIONS, "0"), config=config)


@pytest.fixture(scope="module")
def url():
    """URL of a service with keys."""
    with Ranker("memory:") as ranker:
        ranker.add_key("any", ["read"])
        with serving(ranker, admin_token="token") as client:
            yield str(client.base_url)


@schema.parametrize()
@settings(max_examples=15, derandomize=True, deadline=None)
def test_responses_conform_to_the_openapi_document(case, url):
    case.call_and_validate(base_url=url, headers={"Authorization": "Bearer token"})
