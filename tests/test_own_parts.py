"""Parts of a user's own, each in one plugin file: on the command line, in experiments, in reports, on a cluster."""

import json
import os
import sys
from html import unescape

import numpy as np
import polars as pl
import pytest
from dask_cluster import cluster
from fork_server import run_forked

import mcfair as mf
from mcfair.cli.parts import import_plugin
from mcfair.experiments.compare import run_experiments
from mcfair.experiments.experiment import read_experiment
from mcfair.testing import check_part

READERS = '''
"""Users who read from the top and leave once they are satisfied."""

import numpy as np

import mcfair as mf
from mcfair.random import uniform
from mcfair.parts import Share

SECOND = 2**20  # slots of the second draw of each item


@mf.kernel
def read(pi, truth, p, theta, rng, hits):
    reading = True
    for j in range(pi.shape[0]):
        hits[j] = reading and uniform(rng, pi[j]) < truth[pi[j]]
        if hits[j] and uniform(rng, pi[j] + SECOND) < theta[0]:
            reading = False


@mf.register
class Readers(mf.ClickModel):
    """Read from the top and leave after a click with some probability."""

    leave: Share = 0.5

    kernel = read


@mf.register
class PlainReaders(mf.ClickModel):
    """The same in plain Python."""

    leave: Share = 0.5

    def clicks(self, pi, truth, p, rng):
        hits = np.zeros(pi.size, bool)
        for j, item in enumerate(pi):
            hits[j] = uniform(rng, item) < truth[item]
            if hits[j] and uniform(rng, item + SECOND) < self.leave:
                break
        return hits
'''

SMOOTHED = '''
"""Clicks and exposure with pseudo-counts."""

from typing import Annotated

import msgspec

import mcfair as mf

Positive = Annotated[float, msgspec.Meta(gt=0)]


@mf.kernel
def smooth(C, E, F, p, theta, out):
    shown = 0
    for j in range(F.shape[0]):
        shown += F[j]
    out[0] = (C + theta[0]) / (E + 2.0 * theta[0])
    out[1] = 1.0 / (shown + theta[0])


@mf.register
class Smoothed(mf.Estimator):
    """Estimate relevance by clicks over exposure, both with pseudo-counts."""

    weight: Positive = 1.0

    kernel = smooth


@mf.register
class PlainSmoothed(mf.Estimator):
    """The same in plain Python."""

    weight: Positive = 1.0

    def estimate(self, C, E, F, p):
        return (C + self.weight) / (E + 2.0 * self.weight), 1.0 / (int(F.sum()) + self.weight)
'''

SHARE_SHOWN = '''
"""How many items users get to see."""

from typing import ClassVar

import mcfair as mf
from mcfair.parts import NonNegative


@mf.kernel
def covered(E, R, groups, visits, theta):
    count = 0
    for d in range(E.shape[0]):
        if E[d] > theta[0] * visits:
            count += 1
    return count / E.shape[0]


@mf.register
class ShareShown(mf.Metric):
    """Share of the items whose exposure per visit is above a threshold."""

    threshold: NonNegative = 0.0
    higher_is_better: ClassVar[bool] = True

    kernel = covered


@mf.register
class PlainShareShown(mf.Metric):
    """The same in plain Python."""

    threshold: NonNegative = 0.0
    higher_is_better: ClassVar[bool] = True

    def value(self, E, R, groups, visits):
        return sum(1 for exposure in E if exposure > self.threshold * visits) / E.size
'''

CURIOUS = '''
"""Relevance plus a random bonus for items that were seldom seen."""

import numpy as np

import mcfair as mf
from mcfair.random import uniform
from mcfair.parts import NonNegative


@mf.kernel
def curious(q, theta, rng, out):
    for d in range(out.shape[0]):
        out[d] = q.R[d] + theta[0] * uniform(rng, d) / (1.0 + q.E[d])


@mf.register
class Curious(mf.Policy):
    """Rank by relevance plus a random bonus that shrinks with exposure."""

    weight: NonNegative = 2.0

    kernel = curious
    style = ("#CC79A7", "*")


@mf.register
class PlainCurious(mf.Policy):
    """The same in plain Python."""

    weight: NonNegative = 2.0

    def score(self, q, rng):
        bonus = np.array([self.weight * uniform(rng, d) for d in range(q.R.size)])
        return q.R + bonus / (1.0 + q.E)
'''

FILES = {"readers.py": READERS, "smoothed.py": SMOOTHED, "share_shown.py": SHARE_SHOWN, "curious.py": CURIOUS}

EXPERIMENT = """
title = "Own parts"
clicks = "Readers(leave=0.7)"
estimator = "Smoothed"
metrics = ["share_shown(threshold=0.1)"]
settings = [{mode = "online", steps = 200}, {mode = "online", steps = 200, clicks = "PlainReaders(leave=0.7)", \
estimator = "PlainSmoothed", metrics = ["plain_share_shown(threshold=0.1)"]}]
max_items = 9
seeds = 2
series = [{policies = ["Curious(weight=3)"]}, {policies = ["PlainCurious(weight=3)"]}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the four plugins and an experiment."""
    folder = tmp_path_factory.mktemp("plugins")
    for name, source in FILES.items():
        (folder / name).write_text(source)
    (folder / "own.toml").write_text(EXPERIMENT)
    return folder


KINDS = (mf.Policy.kind, mf.ClickModel.kind, mf.Estimator.kind, mf.Metric.kind)


@pytest.fixture(scope="module")
def imported(folder):
    """Import the four plugins into this process, once: their kernels are compiled for each import."""
    before = [dict(kind.registry) for kind in KINDS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        for name in FILES:
            patch.setitem(sys.modules, name.removesuffix(".py"), None)
            import_plugin(str(folder / name))
        parts = [dict(kind.registry.items() - old.items()) for kind, old in zip(KINDS, before, strict=True)]
        for kind, old in zip(KINDS, before, strict=True):
            kind.registry.clear()
            kind.registry.update(old)
        yield parts


@pytest.fixture
def plugins(imported):
    """Register the parts of the four plugins, which are removed after each test."""
    for kind, parts in zip(KINDS, imported, strict=True):
        kind.registry.update(parts)


def mcfair(folder, *words):
    """Run a command with the four plugins in a process of its own."""
    options = [word for name in FILES for word in ("--plugin", name)]
    done = run_forked(["-m", "mcfair", *words, *options], cwd=folder, env=os.environ, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


COMPILED = {"clicks": "Readers(leave=0.7)", "estimator": "Smoothed", "metrics": ["share_shown(threshold=0.1)"]}
PLAIN = {
    "clicks": "PlainReaders(leave=0.7)",
    "estimator": "PlainSmoothed",
    "metrics": ["plain_share_shown(threshold=0.1)"],
}


def same_bits(one, other):
    """Compare two runs; metrics of the compiled and the plain form have names of their own."""
    assert np.array_equal(one.lists, other.lists)
    assert np.array_equal(one.clicks, other.clicks)
    names, others = ([name.removeprefix("plain_") for name in each.values] for each in (one, other))
    assert names == others
    for ours, theirs in zip(one.values.values(), other.values.values(), strict=True):
        assert np.array_equal(ours, theirs, equal_nan=True)


# --- in the library --------------------------------------------------------------------------------------------------


def test_every_part_keeps_the_contract(plugins):
    for part in ("Curious", "PlainCurious"):
        check_part(mf.parse_policy(part))
    for part in ("Readers(leave=0.7)", "PlainReaders"):
        check_part(mf.parse_click_model(part))
    for part in ("Smoothed(weight=0.5)", "PlainSmoothed"):
        check_part(mf.parse_estimator(part))
    for part in ("share_shown(threshold=0.1)", "plain_share_shown"):
        check_part(mf.parse_metric(part))


def test_compiled_and_plain_forms_agree_to_the_bit_alone_and_together(plugins):
    data = mf.synthetic("mq2008-like").select(max_items=9)

    def run(policy="MCFair", **options):
        return mf.simulate(data, policy, "online", steps=400, record=True, **options)

    plain = run()
    for name in COMPILED:
        compiled = run(**{name: COMPILED[name]})
        same_bits(compiled, run(**{name: PLAIN[name]}))
        if name != "metrics":
            assert compiled.unfairness != plain.unfairness
    same_bits(run("Curious"), run("PlainCurious"))
    same_bits(run("Curious", **COMPILED), run("PlainCurious", **PLAIN))


# --- on the command line ---------------------------------------------------------------------------------------------


def test_each_part_is_listed_with_its_description_and_parameters(folder):
    for command, name, parameter, text in (
        ("policies", "Curious", "weight = 2.0", "Rank by relevance plus a random bonus that shrinks with exposure."),
        ("clicks", "Readers", "leave = 0.5", "Read from the top and leave after a click with some probability."),
        ("estimators", "Smoothed", "weight = 1.0", "Estimate relevance by clicks over exposure, both with pseudo-co"),
        ("metrics", "share_shown", "threshold = 0.0", "Share of the items whose exposure per visit is above a thresh"),
    ):
        listed = mcfair(folder, command)
        row = next(line for line in listed.splitlines() if line.partition("│")[2].split("│")[0].strip() == name)
        assert parameter in row
        assert text in row


def test_simulate_with_plugins_prints_and_saves_every_part(folder, plugins, tmp_path):
    out = tmp_path / "runs"
    words = ["simulate", "--data", "mq2008-like", "--steps", "400", "--setting", "online", "--policy", "Curious"]
    words += ["--clicks", COMPILED["clicks"], "--estimator", "Smoothed", "--metric", COMPILED["metrics"][0]]
    result = json.loads(mcfair(folder, *words, "--json", "--out", str(out)))
    trace = mf.simulate(mf.synthetic("mq2008-like"), "Curious", "online", steps=400, **COMPILED)
    assert result["runs"][0]["policy"] == "Curious(weight=2.0)"
    assert result["runs"][0]["clicks"] == "Readers(leave=0.7)"
    assert result["runs"][0]["estimator"] == "Smoothed(weight=1.0)"
    assert result["runs"][0]["metrics"] == trace.figures
    assert set(result["summary"][0]["metrics"]["share_shown(threshold=0.1)"]) == {"mean", "std"}
    saved = out / "001-Curious-seed0"
    about = json.loads((saved / "run.json").read_text())
    assert about["setting"]["clicks"] == "Readers(leave=0.7)"
    assert about["setting"]["estimator"] == "Smoothed(weight=1.0)"
    assert about["setting"]["metrics"] == ["share_shown(threshold=0.1)"]
    metrics = pl.read_parquet(saved / "metrics.parquet")
    assert "share_shown(threshold=0.1)" in metrics["metric"].unique()
    assert "share_shown(threshold=0.1)" in pl.read_parquet(saved / "queries.parquet").columns
    loaded = mf.Trace.load(saved)
    assert loaded.figures == trace.figures
    assert loaded.items()["estimate"].to_list() == trace.items()["estimate"].to_list()


# --- in an experiment ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def from_the_command_line(folder):
    """Run the experiment in a process of its own; return the folder of its results and what the command printed."""
    printed = mcfair(folder, "run", "own.toml", "--out", "out", "--jobs", "1")
    return folder / "out", printed


@pytest.fixture
def results(folder, plugins):
    """The results of the experiment, run in this process, for the first test that needs them."""
    return run_experiments([read_experiment(folder / "own.toml")], folder / "local")


def test_an_experiment_of_another_process_gives_the_same_runs(from_the_command_line, results):
    out, printed = from_the_command_line
    assert "share shown(threshold=0.1)" in printed
    assert "│ PlainCurious " in printed
    assert sorted(path.name for path in (out / "runs").iterdir()) == sorted(results.runs["key"])
    for row in results.runs.iter_rows(named=True):
        trace = mf.Trace.load(out / "runs" / row["key"])
        assert trace.figures == {name: row[name] for name in trace.figures}


def test_compiled_and_plain_forms_agree_in_an_experiment(results):
    compiled, plain = results.experiments[0].conditions
    one = results.of("mq2008-like", compiled, mf.parse_policy("Curious(weight=3)"))
    other = results.of("mq2008-like", plain, mf.parse_policy("PlainCurious(weight=3)"))
    assert one.height == 2
    for name in ("unfairness", "cndcg@1", "ndcg@5"):
        assert one[name].to_list() == other[name].to_list()
    share = one["share_shown(threshold=0.1)"].to_list()
    assert share == other["plain_share_shown(threshold=0.1)"].to_list()
    assert None not in share


def test_the_report_names_every_part(from_the_command_line):
    page = unescape((from_the_command_line[0] / "index.html").read_text(encoding="utf-8"))
    assert '<th scope="col">share shown(threshold=0.1)</th>' in page
    assert "Curious(weight=3.0)" in page
    how = page.split("How the experiments were run</h2>")[1]
    for text in ("Readers(leave=0.7)", "Smoothed", "share shown(threshold=0.1)", "PlainReaders(leave=0.7)"):
        assert f">{text}</td>" in how
    head = page.split("<main>")[0]
    for text in (
        "Rank by relevance plus a random bonus",
        "Read from the top and leave after a click",
        "both with pseudo-counts.",
        "above a threshold. Higher is better.",
    ):
        assert text in head


# --- on a cluster ----------------------------------------------------------------------------------------------------


def test_a_cluster_whose_worker_has_no_plugin_gives_the_same(folder, results, tmp_path):
    pytest.importorskip("distributed", reason="needs the extra [cluster]")
    with cluster(tmp_path, workers=1) as (address, _):
        experiment = read_experiment(folder / "own.toml")
        remote = run_experiments([experiment], tmp_path / "remote", cluster=address)
    assert remote.runs.sort("key").equals(results.runs.sort("key"), null_equal=True)
    assert remote.queries.sort("key", "query").equals(results.queries.sort("key", "query"), null_equal=True)
