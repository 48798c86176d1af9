"""The base install ranks, simulates and has the command line; what needs an extra says how to install it."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

EXTRAS = {
    "report": ("matplotlib", "jinja2"),
    "service": ("uvicorn", "uvloop", "httptools", "prometheus_client"),
    "client": ("httpcore",),
    "cluster": ("distributed", "dask"),
    "postgres": ("psycopg",),
    "integrations": ("pyterrier", "ir_measures", "ranx", "sklearn", "fastapi", "starlette", "hypercorn"),
    "dev": ("pandas", "pyarrow", "httpx", "pytest", "hypothesis"),
}
"""What an extra installs, by the names of the modules."""

PROGRAM = """
import contextlib, io, json, sys, warnings

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
warnings.simplefilter("ignore")

import mcfair as mf
from mcfair.cli.app import main

def command(*words):
    sys.argv = ["mcfair", *words]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as left:
            return left.code, out.getvalue() + err.getvalue()

def refused(call):
    try:
        call()
    except mf.MCFairError as error:
        return str(error)

simulate = ("simulate", "--data", "mq2008-like", "--policy", "TopK", "--steps", "50")
found = {
    "help": command("--help"),
    "simulate": command(*simulate),
    "lists": command("rank", SCORES, "--k", "2"),
    "steps": mf.simulate(mf.synthetic("mq2008-like", seed=0), "MCFair", steps=50).sessions,
    "demo": command("demo", "--out", FOLDER),
    "serve": command("serve", "--store", "memory:"),
    "what-if": command("what-if"),
    "run": command("run", TOML, "--out", FOLDER),
    "compare": command("compare", *simulate[1:], "--policy", "MCFair", "--seeds", "1"),
    "cluster": command("compare", *simulate[1:], "--policy", "MCFair", "--cluster", "tcp://127.0.0.1:1"),
    "client": refused(lambda: mf.Client("http://127.0.0.1:1")),
    "postgres": refused(lambda: mf.Ranker("postgresql://127.0.0.1/none")),
}
print(json.dumps(found))
"""

TOML = """
show = "table"
data = ["mq2008-like"]
settings = [{ mode = "post-processing", steps = 50 }]
seeds = 1

[[series]]
label = "ours"
policies = ["TopK"]
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """What commands print where only the base is installed."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "scores.csv").write_text("query,item,score\nq,a,0.9\nq,b,0.8\nq,c,0.1\n")
    (folder / "own.toml").write_text(TOML)
    names = [name for modules in EXTRAS.values() for name in modules]
    given = {"MISSING": names, "SCORES": "scores.csv", "TOML": "own.toml", "FOLDER": "out"}
    program = "".join(f"{name} = {value!r}\n" for name, value in given.items()) + PROGRAM
    ran = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), folder


def test_the_base_simulates_and_ranks(base):
    found, _ = base
    assert found["steps"] == 50
    assert [found[name][0] for name in ("help", "simulate", "compare", "lists")] == [0] * 4, found
    assert "TopK" in found["simulate"][1]
    assert "MCFair" in found["compare"][1]
    assert all(name in found["help"][1] for name in ("simulate", "audit", "serve", "demo"))


@pytest.mark.parametrize(
    ("command", "extra"),
    [("demo", "report"), ("run", "report"), ("serve", "service"), ("what-if", "service"), ("cluster", "cluster")],
)
def test_a_command_without_its_extra_says_how_to_install_it(base, command, extra):
    found, folder = base
    status, printed = found[command]
    assert status == 1
    assert len(printed.splitlines()) == 1, printed
    assert f"pip install 'mcfair[{extra}]'" in printed.replace('"', "'")
    assert not (folder / "out").exists()


@pytest.mark.parametrize("extra", ["client", "postgres"])
def test_a_class_without_its_extra_says_how_to_install_it(base, extra):
    assert f"pip install 'mcfair[{extra}]'" in base[0][extra].replace('"', "'")


def test_the_modules_above_are_those_of_the_extras():
    named = {"prometheus_client": "prometheus-client", "ir_measures": "ir-measures", "sklearn": "scikit-learn"}
    for extra, modules in EXTRAS.items():
        listed = " ".join(PROJECT["optional-dependencies"][extra])
        assert all(named.get(name, name) in listed or name == "dask" for name in modules), extra


def test_names_of_extras_of_the_last_version_still_work():
    assert {"cluster", "client", "postgres", "service", "docs", "plugs", "dev"} <= set(PROJECT["optional-dependencies"])
