"""Use an installed mcfair the way a newcomer would, in an environment without anything else.

Needs the package alone, not the tests beside it: `release_check.py` runs it in environments that it creates.

    python release_smoke.py base missing report cluster client postgres service docs integrations
"""

import os
import re
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import mcfair as mf

SCORES = "query,item,score\nshoes,a,0.9\nshoes,b,0.8\nshoes,c,0.1\n"
EXPERIMENT = """title = "Smoke"
show = "tradeoff"
data = ["mq2008-like"]
settings = [{ mode = "post-processing", steps = 200 }]
k_c = [5]
seeds = 1

[[series]]
label = "MCFair"
policies = ["MCFair(alpha=[0, 1])"]
"""


def command(*words, fails=False):
    """Run `mcfair` as installed beside this interpreter; return what it printed."""
    words = [str(Path(sys.prefix, "bin/mcfair")), *map(str, words)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=1800, check=False)
    assert (ran.returncode != 0) == fails, f"{' '.join(words)}: status {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout + ran.stderr


def refused(call, *words):
    """Check that a call raises an error of ours that holds all words."""
    text = ""
    try:
        call()
    except mf.MCFairError as error:
        text = str(error)
    assert text, f"no error that holds {words}"
    assert all(word in text for word in words), text


def base(folder):
    """Version, help, simulation, and lists from a file."""
    assert Path(mf.__file__).is_relative_to(sys.prefix), f"{mf.__file__} is not the installed package"
    assert command("--version") == f"mcfair {mf.__version__}\n"
    assert "simulate" in command("--help")
    data = mf.synthetic("mq2008-like", seed=0)
    trace = mf.simulate(data, mf.MCFair(alpha=1.0), steps=500)
    assert trace.sessions == 500
    scores = folder / "scores.csv"
    scores.write_text(SCORES)
    assert command("rank", scores, "--k", 2, "--sessions", 3).count("\n") == 1 + 3 * 2


def report(folder):
    """A small experiment with its report."""
    experiment = folder / "smoke.toml"
    experiment.write_text(EXPERIMENT)
    command("run", experiment, "--out", folder / "out", "--jobs", 1)
    assert list((folder / "out").glob("*.html")), list((folder / "out").iterdir())


def missing(folder):
    """Without an extra, what needs it names it."""
    experiment = folder / "smoke.toml"
    experiment.write_text(EXPERIMENT)
    refused(lambda: mf.Client("http://127.0.0.1:9"), "pip install 'mcfair[client]'")
    refused(lambda: mf.Ranker("postgresql:///nowhere"), "pip install 'mcfair[postgres]'")
    assert "pip install 'mcfair[service]'" in command("serve", "--store", "memory:", "--port", 0, fails=True)
    assert "mcfair[report]" in command("run", experiment, "--out", folder / "out", fails=True)
    on_a_cluster = ("run", experiment, "--cluster", "tcp://127.0.0.1:9")
    assert "pip install 'mcfair[cluster]'" in command(*on_a_cluster, fails=True)


def cluster(_):
    """A scheduler and a worker of Dask, in this process, pass the check that every run on a cluster begins with."""
    from distributed import LocalCluster

    from mcfair.experiments.execute import connect_cluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as started,
        connect_cluster(started.scheduler_address),
    ):
        pass


def client(_):
    """A client reports that nobody listens; without its transport it would name the extra."""
    with mf.Client("http://127.0.0.1:9", retry_timeout=0) as nobody:
        refused(lambda: nobody.rank("shoes", ["a", "b"]), "127.0.0.1")


def postgres(_):
    """The driver is found: it reports a server that is not there."""
    refused(lambda: mf.Ranker("postgresql://127.0.0.1:9/nowhere?connect_timeout=2"), "127.0.0.1")


def service(folder):
    """A served process ranks, learns from a click, and shows its dashboard; `demo --live` runs too."""
    server = subprocess.Popen(
        [sys.executable, "-m", "mcfair", "serve", "--store", str(folder / "smoke.db"), "--port", "0"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        address = next(found[1] for line in server.stderr if (found := re.search(r"serving on (http://\S+)", line)))
        with mf.Client(address, rank_deadline=60.0) as connected:
            ranking = connected.rank("shoes", ["a", "b", "c"], k=2)
            (result,) = connected.feedback([{"impression": ranking.impression, "item": ranking.items[0].id}])
            assert result.status == "applied"
    finally:
        server.terminate()
        assert server.wait(60) == 0
    command("verify", "--store", folder / "smoke.db")
    command("demo", "--live", "--seconds", 2, "--no-browser")


def docs(_):
    """The tools that build the pages can be imported, and the adapters that the pages document."""
    for name in ("furo", "myst_nb", "numpydoc", "sphinx", "mcfair.plugs.exposure_measures", "mcfair.plugs.pyterrier"):
        import_module(name)


def integrations(_):
    """Each library ranks through a client without a service, which keeps the order, as the pages promise."""
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    with mf.Client("http://127.0.0.1:9", retry_timeout=0) as nobody:
        for name, ranked in (("LangChain", langchain), ("LlamaIndex", llama_index), ("Haystack", haystack)):
            assert ranked(nobody) == ["a", "b"], f"{name}: {ranked(nobody)}"
    import cohere
    import httpx

    try:
        cohere.ClientV2(api_key="none", base_url="http://127.0.0.1:9").rerank(model="m", query="q", documents=["a"])
    except httpx.ConnectError:
        return
    raise AssertionError("Cohere's client did not connect to the address that it was given")


def order(client, ids):
    """Return the indices of the first two of some documents, in the order of the service."""
    answer = client.rerank("shoes", [{"id": each} for each in ids], 2, fallback=True)
    return [result.index for result in answer.results]


def langchain(client):
    from langchain_core.documents import BaseDocumentCompressor, Document

    class Compressor(BaseDocumentCompressor):
        def compress_documents(self, documents, query, callbacks=None):
            return [documents[index] for index in order(client, [each.id for each in documents])]

    found = [Document(f"text {name}", id=name) for name in "abc"]
    return [each.id for each in Compressor().compress_documents(found, "shoes")]


def llama_index(client):
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import NodeWithScore, TextNode

    class Postprocessor(BaseNodePostprocessor):
        def _postprocess_nodes(self, nodes, query_bundle=None):
            return [nodes[index] for index in order(client, [each.node.node_id for each in nodes])]

    found = [NodeWithScore(node=TextNode(id_=name, text=f"text {name}"), score=0.5) for name in "abc"]
    return [each.node.node_id for each in Postprocessor().postprocess_nodes(found, query_str="shoes")]


def haystack(client):
    from haystack import Document, Pipeline, component

    @component
    class Ranker:
        @component.output_types(documents=list[Document])
        def run(self, documents: list[Document]):
            return {"documents": [documents[index] for index in order(client, [each.id for each in documents])]}

    pipeline = Pipeline()
    pipeline.add_component("ranker", Ranker())
    found = [Document(id=name, content=f"text {name}") for name in "abc"]
    return [each.id for each in pipeline.run({"ranker": {"documents": found}})["ranker"]["documents"]]


STEPS = {
    step.__name__: step for step in (base, missing, report, cluster, client, postgres, service, docs, integrations)
}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as place:
            STEPS[name](Path(place))
