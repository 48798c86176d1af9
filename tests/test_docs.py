"""The documents are complete, what they name exists, and their examples run."""

import dataclasses
import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import typer.main
from real_data import FOLDS, needs_mq2008
from service_process import ServerProcess

import mcfair as mf
from mcfair.cli.app import app
from mcfair.data.protocols import PROTOCOLS
from mcfair.experiments.experiment import Experiment, parse_experiment
from mcfair.parsing import parse_part
from mcfair.parts import common_parameters, parameter_types

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "mcfair"
README, USAGE, SERVICE, AUDIT, ARCHITECTURE, CONTRIBUTING, BEYOND, PLUGS = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in (
        "README.md",
        "docs/usage.md",
        "docs/service.md",
        "docs/audit.md",
        "docs/architecture.md",
        "CONTRIBUTING.md",
        "docs/beyond.md",
        "docs/plugs.md",
    )
)
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])

KINDS = (mf.Policy, mf.ClickModel, mf.Estimator, mf.Metric)

command = typer.main.get_command(app)


def blocks(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def commands(group, path=()):
    for name, each in group.commands.items():
        yield from commands(each, (*path, name)) if hasattr(each, "commands") else [(" ".join((*path, name)), each)]


ALL_COMMANDS = dict(commands(command))


# --- completeness ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_every_command_and_option_is_documented(name):
    page = USAGE + SERVICE + AUDIT + PLUGS
    assert f"mcfair {name}" in page
    for parameter in ALL_COMMANDS[name].params:
        if parameter.opts[0].startswith("--"):
            assert re.search(rf"{parameter.opts[0]}\b", page), parameter.opts[0]


SHIPPED = [
    pytest.param(base, name, cls, id=name)
    for base in KINDS
    for name, cls in mf.registered(base).items()
    if cls.__module__.startswith("mcfair.")
]


@pytest.mark.parametrize(("base", "name", "cls"), SHIPPED)
def test_every_part_is_documented_with_its_parameters_and_defaults(base, name, cls):
    (row,) = re.findall(rf"^\| {name} \|.*\|(.*)\|$", USAGE, flags=re.MULTILINE)
    parameters = row.strip().strip("`")
    own = [name for name in parameter_types(cls) if name not in common_parameters(cls)]
    assert re.findall(r"(\w+)=", parameters) == own
    assert parse_part(base, f"{name}({parameters})") == cls()


def test_every_kind_of_part_is_documented():
    for base in KINDS:
        assert f"| `mf.{base.__name__}` |" in USAGE
        assert f"`mcfair.{base.kind.plural}`" in USAGE
        for method in base.kind.methods:
            assert f"`{method}(" in USAGE, method


def test_every_field_of_a_setting_and_of_a_view_is_documented():
    for name in [field.name for field in dataclasses.fields(mf.Setting)]:
        assert f"`{name}`" in USAGE, name
    for name in mf.Query._fields:
        assert f"`{name}`" in USAGE, name


def test_every_preset_and_every_key_of_an_experiment_is_documented():
    for name in PROTOCOLS:
        assert f'preset="{name}"' in USAGE
    told_elsewhere = {"name", "about", "as_published", "series"}
    for key in set(Experiment.__struct_fields__) - told_elsewhere:
        assert re.search(rf"^{key} =|`{key}`", USAGE, flags=re.MULTILINE), key


def test_every_package_and_module_is_on_the_architecture_page():
    for path in SOURCE.iterdir():
        if not path.name.startswith("__") and (path.suffix == ".py" or (path / "__init__.py").exists()):
            assert f"`{path.stem}{'/' if path.is_dir() else ''}`" in ARCHITECTURE, path.stem


def test_every_module_of_the_service_is_on_the_architecture_page():
    for path in [*(SOURCE / "service").glob("[!_]*.py"), *(SOURCE / "service" / "core").glob("[!_]*.py")]:
        assert f"`{path.stem}`" in ARCHITECTURE, path.stem


def test_every_operation_of_the_service_is_documented():
    from mcfair.service.web.operations import OPERATIONS

    for operation in OPERATIONS:
        assert operation.path in SERVICE, operation.path


# --- what the pages name exists --------------------------------------------------------------------------------------


def find(path):
    """Find what a dotted path below `mcfair` names: attributes of the longest part of it that is a module."""
    words = path.split(".")
    for length in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(["mcfair", *words[:length]]))
        except ModuleNotFoundError:
            continue
        for name in words[length:]:
            found = getattr(found, name)
        return found
    raise AttributeError(path)


def test_what_the_equation_map_names_exists():
    rows = ARCHITECTURE.split("## Where each equation is")[1].split("## ")[0]
    named = re.findall(r"`([a-z_]+(?:\.\w+)+)`", rows)
    assert len(named) > 15
    for path in named:
        find(path)


def test_the_equation_map_is_complete():
    rows = re.findall(r"^\| (\d[^|]*)", ARCHITECTURE.split("## Where each equation is")[1], flags=re.MULTILINE)
    numbers = set()
    for first, last in re.findall(r"\b(\d+)(?:\u2013(\d+))?", " ".join(rows)):
        numbers |= set(range(int(first), int(last or first) + 1))
    assert numbers >= set(range(1, 30))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_public_names_on_the_pages_exist(page):
    for name in set(re.findall(r"\bmf\.(\w+)", page.read_text(encoding="utf-8"))):
        assert hasattr(mf, name), name


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_and_paths_on_the_pages_exist(page):
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        file = page.parent / target if target else page
        assert file.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads], anchor
    for path in re.findall(r"`((?:tests|benchmarks)/\w+(?:/\w+)*\.py)`", text):
        assert (ROOT / path).exists(), path


def test_what_is_public_exists():
    assert all(hasattr(mf, name) for name in mf.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+", mf.__version__)


# --- examples --------------------------------------------------------------------------------------------------------


def test_the_readme_runs(capsys):
    space = {}
    for block in blocks(README):
        if "mf.Client" not in block:
            exec(block, space)
    shown = capsys.readouterr().out
    assert "unfairness" in shown
    assert "Trace(Damped(weight=0.5), online, 2,000 sessions" in shown


def example_space():
    """Run the examples of the usage page that need no files, in order; return their names."""
    space = {}
    for block in blocks(USAGE):
        if "MQ2008" not in block:
            exec(block, space)
    return space


def test_the_usage_page_runs_and_both_forms_of_its_parts_agree(capsys):
    space = example_space()
    out = capsys.readouterr().out
    assert "gini" in out
    table = [line for line in out.splitlines() if line.startswith("| `")]
    assert len(table) == 4
    assert set(table) < set(USAGE.splitlines())
    runs = []
    for plain in (False, True):
        parts = [space[name] for name in ("Damped", "FirstClick", "ClippedIPS", "Neglected")]
        if plain:
            parts = [without_kernel(cls) for cls in parts]
        assert all((cls.kernel is None) == plain for cls in parts)
        policy, clicks, estimator = (cls() for cls in parts[:3])
        options = {"clicks": clicks, "estimator": estimator, "metrics": [parts[3](least=0.3)], "record": True}
        runs.append(mf.simulate(space["data"].take(range(5)), policy, "online", steps=500, **options))
    compiled, interpreted = runs
    assert np.array_equal(compiled.lists, interpreted.lists)
    assert np.array_equal(compiled.clicks, interpreted.clicks)
    assert list(compiled.figures.values()) == list(interpreted.figures.values())
    assert 0 < compiled.figures["neglected(least=0.3)"] < 1


def without_kernel(cls):
    """Derive a part of the same name that computes by the plain method of `cls`."""
    method = next(name for name in cls.kind.methods if name in vars(cls))
    return type(cls.__name__, (cls,), {method: vars(cls)[method]})


@needs_mq2008
def test_the_usage_page_runs_on_mq2008(tmp_path, monkeypatch):
    (tmp_path / "MQ2008").symlink_to(FOLDS)
    monkeypatch.chdir(tmp_path)
    space = {"mf": mf}
    own = [block for block in blocks(USAGE) if "MQ2008" in block]
    for block in own:
        exec(block, space)
    assert space["fold"].protocol.name == "wsdm23"
    assert space["data"].sizes.max() <= 19


def test_the_experiment_of_the_usage_page_runs(tmp_path):
    text = re.search(r"```toml\n(.*?)```", USAGE, flags=re.DOTALL)[1]
    experiment = parse_experiment(text, "usage.toml").reduced(seeds=1, points=2, shorter=200)
    results = mf.run_experiments([experiment], tmp_path)
    assert results.runs.height == 6
    assert "gini" in results.runs.columns


def test_the_page_on_the_comparison_runs(capsys):
    (example,) = blocks(BEYOND)
    exec(example, {})
    assumed, fitted = (float(line.split()[-1]) for line in capsys.readouterr().out.splitlines())
    assert fitted < assumed


def test_the_figures_of_the_comparison_are_those_of_the_leaderboard():
    boards = json.loads((ROOT / "docs" / "results" / "leaderboard.json").read_text(encoding="utf-8"))["boards"]
    entries = {
        each["name"]: each for board in boards if board["name"] == "frontier, online" for each in board["entries"]
    }

    def cells(entry):
        values = [
            entry["hypervolume"],
            entry["least_unfairness"],
            *(entry["ndcg_at"][level] for level in ("1.1", "1.5", "2")),
        ]
        values.append(entry["cndcg_at"]["1.5"])
        digits = (3, 2, 3, 3, 3, 1)
        return [
            f"{v['mean']:.{n}f}" if v["mean"] is not None else "\u2013" for v, n in zip(values, digits, strict=True)
        ]

    rows = BEYOND.split("## Results")[1].split("## ")[0]
    shown = {name: row.split(" | ") for name, row in re.findall(r"^\| ([^|]+?) \| (.*) \|$", rows, flags=re.MULTILINE)}
    assert {name: shown[name] for name in entries if name != "TopK"} == {
        name: cells(each) for name, each in entries.items() if name != "TopK"
    }
    paragraph = README.split("## Past the paper")[1].split("## ")[0]
    for name in ("BayesFair", "MCFair", "MCFair, by mean"):
        assert cells(entries[name])[0] in paragraph, name
    for name in ("BayesFair", "MCFair"):
        assert f"{cells(entries[name])[1]}" in paragraph, name


def test_the_page_on_other_tools_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in blocks(PLUGS):
        exec(block, {})
    shown = capsys.readouterr().out
    assert "EEL@2: 0.0" in shown
    assert "[['a', 'b', 'c'], ['b', 'a', 'c']" in shown


def test_the_page_on_bayesfair_runs_and_the_intervals_hold_what_it_says(capsys):
    space = {}
    for block in blocks((ROOT / "docs" / "bayesfair.md").read_text(encoding="utf-8")):
        exec(block, space)
    assert space["inside"].mean() > 0.9
    lost = [float(line.split()[4].rstrip(",")) for line in capsys.readouterr().out.splitlines() if "alpha =" in line]
    assert lost == sorted(lost, reverse=True), "a larger alpha costs more"
    for picture in (ROOT / "docs" / "figures").iterdir():
        assert picture.stat().st_size < 60_000, picture.name


def test_the_audit_page_runs(capsys):
    (block,) = blocks(AUDIT)
    exec(block, {})
    assert capsys.readouterr().out.startswith("1.0 0.0")


def test_every_measure_and_format_of_an_audit_is_documented():
    from mcfair.auditing.explanations import EXPLANATIONS
    from mcfair.auditing.opening import FORMATS

    for name in EXPLANATIONS:
        stem = "awrf_…" if name.startswith("awrf") else name.removesuffix("_corrected")
        assert f"`{stem}`" in AUDIT, name
    for name in FORMATS:
        assert f"| `{name}` |" in AUDIT, name


def test_the_service_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, page = blocks(SERVICE)
    space = {}
    with ServerProcess(tmp_path / "mcfair.db") as server:
        there = f"127.0.0.1:{server.ready().port}"
        exec(first.replace("127.0.0.1:8000", there), {})
        exec(page.replace("127.0.0.1:8000", there), space)
    assert "Ranked 1st" in capsys.readouterr().out
    shown = space["search"]("red shoes", ["sku2", "sku1"])  # the server has ended
    assert (shown["fallback"], [item["id"] for item in shown["items"]]) == (True, ["sku2", "sku1"])
