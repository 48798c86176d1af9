"""What the documents promise exists and runs."""

import re
from pathlib import Path

import pytest
import typer.main
from service_process import ServerProcess

import mcfair as mf
from mcfair.cli.app import app
from mcfair.experiments.experiment import parse_experiment
from mcfair.testing import check_part

ROOT = Path(__file__).parent.parent
USAGE = (ROOT / "docs" / "usage.md").read_text()
SERVICE = (ROOT / "docs" / "service.md").read_text()
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()

command = typer.main.get_command(app)


def blocks(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def commands(group, path=()):
    for name, each in group.commands.items():
        yield from commands(each, (*path, name)) if hasattr(each, "commands") else [(" ".join((*path, name)), each)]


ALL_COMMANDS = dict(commands(command))


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_every_command_and_option_is_documented(name):
    page = USAGE + SERVICE
    assert f"mcfair {name}" in page
    for parameter in ALL_COMMANDS[name].params:
        if parameter.opts[0].startswith("--"):
            assert re.search(rf"{parameter.opts[0]}\b", page), parameter.opts[0]


def test_every_module_of_the_service_is_on_the_architecture_page():
    for path in (ROOT / "src" / "mcfair" / "service").iterdir():
        if path.suffix == ".py" and not path.stem.startswith("__"):
            assert f"`{path.stem}`" in ARCHITECTURE, path.stem


def test_every_call_of_the_service_is_documented():
    from mcfair.service.app import OPERATIONS

    for operation in OPERATIONS:
        assert operation.path in SERVICE, operation.path


def test_the_service_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(SERVICE)
    with ServerProcess(tmp_path / "mcfair.db") as server:
        exec(block.replace("127.0.0.1:8000", f"127.0.0.1:{server.ready().port}"), {})
    assert "Rank 1 of 3" in capsys.readouterr().out


def test_the_experiment_of_the_usage_page_runs(tmp_path):
    text = re.search(r"```toml\n(.*?)```", USAGE, flags=re.DOTALL)[1]
    experiment = parse_experiment(text, "usage.toml").reduced(seeds=1, points=2, shorter=200)
    results = mf.run_experiments([experiment], tmp_path)
    assert results.runs.height == 6


def test_the_readme_runs(capsys):
    exec(blocks(README)[0], {})
    assert "unfairness" in capsys.readouterr().out


def test_the_policies_of_the_usage_page_run_and_agree():
    own = [block for block in blocks(USAGE) if "register" in block]
    space = {"mf": mf, "data": mf.synthetic("mq2008-like").take(range(5))}
    for block in own:
        exec(block, space)
    plain, compiled = space["Damped"](), space["FastDamped"]()
    check_part(compiled)
    traces = [mf.simulate(space["data"], each, "online", steps=500) for each in (plain, compiled)]
    assert traces[0].unfairness == traces[1].unfairness


def test_every_policy_is_documented():
    for name in mf.registered(mf.Policy):
        assert f"| {name} |" in USAGE


def test_every_module_is_on_the_architecture_page():
    for path in (ROOT / "src" / "mcfair").glob("*.py"):
        if not path.stem.startswith("__"):
            assert f"`{path.stem}`" in ARCHITECTURE, path.stem


def test_what_the_equation_map_names_exists():
    rows = ARCHITECTURE.split("## Where each equation is")[1].split("## ")[0]
    for module, name in re.findall(r"`((?:policies\.)?[a-z]+)\.([a-z_0-9]+)`", rows):
        assert hasattr(__import__(f"mcfair.{module}", fromlist=["x"]), name), f"{module}.{name}"


def test_what_is_public_exists():
    assert all(hasattr(mf, name) for name in mf.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+", mf.__version__)
