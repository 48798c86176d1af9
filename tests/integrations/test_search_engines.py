"""The recipes of docs/how-to/search-engines.md: what the engines would send is sent, and read by the paths of the page.

No engine is run; the functions here do with the JSON of the page what the sources of the engines do with it.
"""

import json
import re
import subprocess
import sys

import httpx
import pytest
from pages import ADDRESS, blocks, sections
from service_process import ServerProcess

import mcfair as mf

PAGE = sections("search-engines.md")
APPLICATION, PIPELINE, ENDPOINT = (
    PAGE[name]
    for name in (
        "Elasticsearch: in your application",
        "OpenSearch: a search pipeline",
        "Elasticsearch: an inference endpoint",
    )
)
(RESPONSE,) = map(json.loads, blocks(APPLICATION, "json"))
SETTINGS, CONNECTOR, MODEL, SEARCH_PIPELINE, SEARCH, FEEDBACK = map(json.loads, blocks(PIPELINE, "json"))
INFERENCE, RETRIEVAL = map(json.loads, blocks(ENDPOINT, "json"))


class Service(httpx.Client):
    """A client of the service of the page, which replaces its address."""

    def __init__(self, address, key):
        super().__init__(base_url=address, timeout=60)
        self.key = key

    def send_as(self, action, headers, body):
        """Send what an engine would: the method, URL and headers of an action, with the key put in."""
        filled = {name: re.sub(r"\$\{.*?\}", self.key, value) for name, value in headers.items()}
        url = action["url"].replace(ADDRESS, str(self.base_url).rstrip("/"))
        answer = self.request(action.get("method", "POST"), url, headers=filled, content=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    with mf.Ranker(path, warm=False) as ranker:
        key = ranker.add_key("search engine", ["rank", "feedback", "read"]).key
    with ServerProcess(path) as server, Service(f"http://127.0.0.1:{server.ready().port}", key) as client:
        yield client


def read_path(document, path):
    """Read a JSON path of names and `[*]`: a list if it has a wildcard, else a value."""
    found = [document]
    for name in path.removeprefix("$.").split("."):
        found = [each[name.removesuffix("[*]")] for each in found]
        if name.endswith("[*]"):
            found = [member for each in found for member in each]
    return found if "[*]" in path else found[0]


HITS = [
    {"_source": {"sku": f"sku{i}", "seller": "Ada" if i < 4 else "Bo", "title": f'Shoes {i}, 3" heel'}}
    for i in range(7)
]


def fill(template, parameters):
    """Replace the parameters of a template: lists by JSON, texts escaped for JSON but without quotes."""

    def value(match):
        given = parameters[match[1]]
        return json.dumps(given)[1:-1] if isinstance(given, str) else json.dumps(given)

    return re.sub(r"\$\{parameters\.(\w+)\}", value, template)


def run_pipeline(service, hits, query):
    """Do with hits what the processors of the pipeline do; return them in their new order."""
    infer, rerank, truncate = SEARCH_PIPELINE["response_processors"]
    (inputs,), (outputs,) = infer["ml_inference"]["input_map"], infer["ml_inference"]["output_map"]
    parameters = dict(CONNECTOR["parameters"])
    for name, path in inputs.items():
        if path.startswith("$._request."):
            assert read_path(SEARCH, path.removeprefix("$._request.")) == "red shoes"
            parameters[name] = query
        else:
            parameters[name] = [hit["_source"][path] for hit in hits]
    (action,) = CONNECTOR["actions"]
    response = service.send_as(action, action["headers"], fill(action["request_body"], parameters))
    for name, path in outputs.items():
        values = read_path(response, path)
        assert not isinstance(values, list) or len(values) == len(hits)  # otherwise each hit would get the whole list
        for i, hit in enumerate(hits):
            hit["_source"][name] = values[i] if isinstance(values, list) else values
    target = rerank["rerank"]["by_field"]["target_field"]
    assert truncate == {"truncate_hits": {}}
    return sorted(hits, key=lambda hit: -hit["_source"][target])[: SEARCH["size"]]


def test_pipeline_of_opensearch_shows_the_list_of_the_service(service):
    assert SEARCH["size"] == CONNECTOR["parameters"]["top_n"]
    query = 'red "shoes"'
    with mf.Ranker("memory:", warm=False) as ranker:
        for _ in range(4):  # so that lists differ from the order of the hits
            hits = [{"_source": dict(hit["_source"])} for hit in HITS]
            shown = run_pipeline(service, hits, query)
            items = [{"id": hit["_source"]["sku"], "group": hit["_source"]["seller"]} for hit in HITS]
            expected = ranker.rank(query, items, k=3)
            assert [hit["_source"]["sku"] for hit in shown] == [item.id for item in expected.items]
            (event,) = FEEDBACK["events"]
            names = {"FAIR_IMPRESSION_OF_THE_HIT": "fair_impression", "FAIR_ITEM_OF_THE_HIT": "fair_item"}
            click = {name: shown[2]["_source"][names[value]] for name, value in event.items()}
            assert click["item"] == shown[2]["_source"]["sku"]
            answer = service.post(
                "/v1/feedback", json={"events": [click]}, headers={"Authorization": f"Bearer {service.key}"}
            )
            assert answer.json() == {"results": [{"status": "applied"}]}
            ranker.click(expected.impression, expected.items[2].id)


def test_endpoint_of_opensearch_may_be_called():
    (action,) = CONNECTOR["actions"]
    (allowed,) = SETTINGS["persistent"]["plugins.ml_commons.trusted_connector_endpoints_regex"]
    assert re.match(allowed, action["url"])
    assert MODEL["function_name"] == SEARCH_PIPELINE["response_processors"][0]["ml_inference"]["function_name"]


def test_inference_endpoint_of_elasticsearch(service):
    settings = INFERENCE["service_settings"]
    values = {"query": RETRIEVAL["retriever"]["text_similarity_reranker"]["inference_text"], "input": ["a", "b", "c"]}
    body = re.sub(r"\$\{(\w+)\}", lambda match: json.dumps(values[match[1]]), settings["request"])
    response = service.send_as(settings, settings["headers"], body)
    paths = settings["response"]["json_parser"]
    scores = read_path(response, paths["relevance_score"])
    assert sorted(read_path(response, paths["reranked_index"])) == [0, 1, 2]
    assert scores == [1.0, 1 / 2, 1 / 3]
    retriever = RETRIEVAL["retriever"]["text_similarity_reranker"]
    assert retriever["rank_window_size"] == RETRIEVAL["size"]


def test_recipe_of_the_application(service):
    (recipe,), (printed,) = blocks(APPLICATION, "python"), blocks(APPLICATION, "text")
    source = f"import json\nresponse = json.loads({json.dumps(RESPONSE)!r})\n{recipe}"
    source += 'assert fair_page("q", {"hits": {"max_score": None, "hits": []}}) == ([], None)\n'
    source = source.replace(f'"{ADDRESS}"', f'"{str(service.base_url).rstrip("/")}", {service.key!r}')
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == printed
