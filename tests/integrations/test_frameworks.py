"""The recipes of docs/how-to/llm-frameworks.md: each is run with its library, against a real service.

Each runs in a process of its own, because the libraries leave threads, connections and settings behind.
"""

import importlib.util
import os
import subprocess
import sys

import pytest
from pages import ADDRESS, blocks, sections
from service_process import ServerProcess
from serving import serving

import mcfair as mf

PAGE = sections("llm-frameworks.md")
COMMON = "What all recipes share"
LIBRARIES = {
    "LangChain": "langchain_core",
    "LlamaIndex": "llama_index",
    "Haystack": "haystack",
    "Cohere's client": "cohere",
}
NOTHING_FOUND = {
    "LangChain": "FairCompressor(client=client).compress_documents([], 'q')",
    "LlamaIndex": "FairPostprocessor(client=client).postprocess_nodes([], query_str='q')",
    "Haystack": f"FairRanker({ADDRESS!r}).run('q', [])['documents']",
    "Cohere's client": "[]",
}
NO_QUERY = """
try:
    FairPostprocessor(client=client).postprocess_nodes(found)
except ValueError as error:
    assert "needs the query" in str(error)
else:
    raise AssertionError("ranked without a query")
"""
OFFLINE = {
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LANGSMITH_TRACING": "false",
    "HF_HUB_OFFLINE": "1",
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "no_proxy": "127.0.0.1",
}
"""Environment of the recipes: no telemetry, and nothing but this machine can be reached."""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with ServerProcess(tmp_path_factory.mktemp("sources") / "sources.db") as server:
        server.ready()
        yield f"http://127.0.0.1:{server.port}"


def require(section):
    library = LIBRARIES[section]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: pip install 'mcfair[plugs]'")


def run(source, address):
    """Run a program that calls the service; return what it prints."""
    command = [sys.executable, "-W", "ignore", "-c", source.replace(ADDRESS, address)]
    environment = os.environ | OFFLINE
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_what_the_recipes_share(address):
    assert run("".join(blocks(PAGE[COMMON], "python")), address) == "".join(blocks(PAGE[COMMON], "text"))


def test_every_recipe_is_run():
    assert {name for name, text in PAGE.items() if blocks(text, "python")} == {COMMON, *LIBRARIES}


@pytest.mark.parametrize("section", LIBRARIES)
def test_recipe(section, address):
    require(section)
    (recipe,), (printed,) = blocks(PAGE[section], "python"), blocks(PAGE[section], "text")
    lines = [*blocks(PAGE[COMMON], "python"), "print('---')\n", recipe, f"assert {NOTHING_FOUND[section]} == []\n"]
    lines += [NO_QUERY] if section == "LlamaIndex" else []
    assert run("".join(lines), address).partition("---\n")[2] == printed
    with mf.Client(address) as client:
        state = client.query_state(f"{LIBRARIES[section].split('_')[0]}: fjords")
    assert state.visits == 1
    assert sum(item.clicks for item in state.items) == 1
    assert {item.group for item in state.items} == ({None} if section == "Cohere's client" else {"Atlas", "Cairn"})


ERRORS = """
import cohere
for key, documents in ((KEY, []), ("other", ["a"])):
    try:
        cohere.ClientV2(api_key=key, base_url="http://127.0.0.1:8000").rerank(model="m", query="q", documents=documents)
    except cohere.core.api_error.ApiError as error:
        print(error.status_code, error.body.get("field"))
"""


def test_clients_of_cohere_get_our_errors_and_send_our_keys():
    require("Cohere's client")
    with mf.Ranker("memory:", warm=False) as ranker, serving(ranker) as client:
        key = ranker.add_key("rag", ["rank"]).key
        printed = run(f"KEY = {key!r}\n{ERRORS}", str(client.base_url).rstrip("/"))
    assert printed == "400 documents\n401 None\n"
