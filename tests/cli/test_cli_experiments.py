"""The commands of many runs: tune, and those that write a report: run, reproduce, demo."""

import io
import json
import sys

import msgspec
import pytest
from command_line import refused, run

import mcfair as mf
from mcfair.cli.experiments import show_growing_table
from mcfair.cli.options import RunOptions
from mcfair.experiments.experiment import Experiment, Series

TUNE = ("tune", "--data", "mq2008-like", "--steps", "300", "--seeds", "1", "--policy")

MINE = """
title = "Mine"
settings = [{mode = "post-processing", steps = 200}]
seeds = 2
series = [{policies = ["TopK", "MCFair(alpha=[1, 10])"]}]
"""


def test_an_experiment_of_ones_own(tmp_path):
    (tmp_path / "mine.toml").write_text(MINE)
    words = ("run", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out"), "--jobs", "1")
    text = run(*words).stdout
    assert "floor (lowest possible)" in text
    assert "MCFair(alpha=10.0)" in text
    assert f"Report: {tmp_path / 'out' / 'index.html'}" in text
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*")}
    assert run(*words).stdout == text
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*")} == kept


@pytest.fixture
def reduced(monkeypatch):
    """Reduce experiments further than a command asks for, with plainer figures; collect what it asks for."""
    whole, asked = Experiment.reduced, []

    def smallest(self, **sizes):
        asked.append(sizes)
        show = "table" if self.show == "table" else "cutoffs"
        return msgspec.structs.replace(whole(self, seeds=1, points=2, shorter=200), show=show)

    monkeypatch.setattr(Experiment, "reduced", smallest)
    return asked


def test_without_the_papers_data_built_in_data_are_used_with_a_note(tmp_path, reduced):
    done = run("reproduce", "fig2", "--quick", "--out", str(tmp_path), "--jobs", "1", MCFAIR_DATA=str(tmp_path))
    assert reduced == [{"seeds": 2, "points": 5, "shorter": 10}]
    assert "mq2008/fold1 is not on this machine" in done.stderr
    assert "using built-in data of its size instead: mq2008-like" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "index.html").exists()
    assert list((tmp_path / "figures").glob("fig2*.png"))


def test_the_demo_shows_the_policies_of_the_paper_and_where_the_report_is(tmp_path, reduced):
    text = run("demo", "--out", str(tmp_path), "--jobs", "1").stdout
    assert reduced == [{"seeds": 2, "points": 5, "shorter": 5}] * 5
    for name in ("TopK", "RandomK", "FairK", "ExploreK", "MCFair", "FairCo", "MMF", "ILP", "LP", "PLFair"):
        assert name in text
    assert f"Report: {tmp_path / 'index.html'}" in text
    assert "(0.0" not in text  # one seed has no spread
    page = (tmp_path / "index.html").read_text()
    assert all(f"Figure {number}" in page for number in (2, 3, 4, 5))


def test_the_first_rows_of_the_demo_are_printed_while_the_others_are_still_to_be_run(tmp_path, monkeypatch):
    runs = {}

    class Terminal(io.StringIO):
        def write(self, text):
            if text.strip():
                runs[text.split()[0]] = len(list(tmp_path.glob("runs/*")))
            return super().write(text)

    policies = ("TopK", "RandomK", "FairK", "ExploreK", "FairCo", "MCFair")
    series = tuple(Series(policies=(each,)) for each in policies)
    small = {"settings": ({"steps": 50},), "max_items": 8, "seeds": 2}
    mine = Experiment(name="mine", title="Mine", data=("mq2008-like",), series=series, show="table", **small)
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    show_growing_table(mine, RunOptions(out=tmp_path, jobs=1))
    lines = terminal.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["Mine:", "method", "floor", *policies]
    assert [runs[name] for name in ("floor", *policies)] == [2, 2, 8, 8, 8, 12, 12]
    results = mf.run_experiments([mine], tmp_path)
    unfair = results.of("mq2008-like", mine.conditions[0], mf.TopK())["unfairness"].mean()
    assert lines[3].split()[1] == f"{unfair:.4g}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("reproduce", "table2"), "unknown experiment 'table2'; did you mean 'table1'?"),
        (("reproduce", "--data", "mq2009/fold1"), "no such file or folder: mq2009/fold1"),
        (("reproduce", "--data", "mq2008/fold1"), "is not on this machine"),
        (("reproduce", "--data", "mq2008-like", "--jobs", "0"), "jobs = 0 is not allowed"),
        (("run", "none.toml"), "cannot read none.toml: No such file or directory"),
    ],
)
def test_experiments_are_refused_before_any_work(tmp_path, words, message):
    out = ("--out", str(tmp_path / "out"))
    assert message in refused(*words, *out, MCFAIR_DATA=str(tmp_path), XDG_DATA_HOME=str(tmp_path))
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('clicks = "Cascad"', "line 1: unknown click model 'Cascad'; did you mean 'Cascade'?"),
        ('estimator = "IPS(prior_mean=2)"', "IPS: prior_mean = 2 is not allowed: expected a number from 0 to 1"),
        ('metrics = ["gin"]', "line 1: unknown metric 'gin'; did you mean 'gini'?"),
    ],
)
def test_parts_in_a_file_are_refused_with_their_line(tmp_path, line, message):
    (tmp_path / "mine.toml").write_text(line + MINE)
    assert message in refused("run", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out"))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot write to" in refused("reproduce", "table1", "--data", "mq2008-like", "--out", str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("words", "command"), [(("reproduce", "beyond"), "run.py"), (("leaderboard", "--policy", "TopK"), "leaderboard.py")]
)
def test_the_study_beyond_the_paper_has_moved(words, command):
    assert f"studies/beyond in the repository of mcfair: python studies/beyond/{command}" in refused(*words)


def test_without_the_extra_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    (tmp_path / "mine.toml").write_text(MINE)
    message = refused("run", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out"))
    assert 'this needs matplotlib, which is not installed: pip install "mcfair[report]"' in message
    assert not (tmp_path / "out").exists()


# --- tune -------------------------------------------------------------------------------------------------------------


def test_a_value_that_meets_the_target_is_found():
    found = json.loads(run(*TUNE, "MCFair", "--target", "unfairness <= 1.5 * floor", "--json").stdout)
    assert found["met"]
    assert found["figures"]["unfairness"] <= 1.5 * found["floor"]
    assert mf.parse_policy(found["policy"]).alpha in {row["alpha"] for row in found["runs"]}


def test_a_target_that_no_value_meets_is_reported_with_the_closest():
    none = run(*TUNE, "MMF", "--target", "unfairness <= 0", check=False)
    assert none.returncode == 1
    assert none.stderr.startswith("mcfair: no value of alpha meets 'unfairness <= 0'; MMF")
    assert none.stderr.count("\n") == 1


def test_data_and_setting_have_the_options_of_simulate():
    options = "--k 3 --examination 2 --clicks Cascade --estimator IPS(prior_strength=1) --metric gini --max-items 9"
    done = run(
        *TUNE, "MCFair", "--target", "group_unfairness <= 1e9", "--setting", "online", *options.split(), "--json"
    )
    found = json.loads(done.stdout)
    trace = mf.simulate(
        mf.synthetic("mq2008-like").select(max_items=9), found["policy"], "online", steps=300, k=3, examination=2,
        clicks="Cascade", estimator="IPS(prior_strength=1)", metrics=["gini", "group_unfairness"],
        checkpoints=1,
    )  # fmt: skip
    assert found["figures"] == trace.figures


def test_the_table_shows_the_metric_of_the_target():
    text = run(*TUNE, "MCFair", "--target", "gini <= 1").stdout
    assert "Gini" in text.splitlines()[2]
    assert "above floor" in text.splitlines()[2]
    assert "meets 'gini <= 1'" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("MMF", "--target", "x"), "cannot parse target 'x'"),
        (("MMF", "--target", "gin <= 1"), "target 'gin <= 1': unknown metric 'gin'; did you mean 'gini'?"),
        (("MMF", "--target", "gini <= 1", "--parameter", "alhpa"), "unknown parameter of MMF 'alhpa'; did you mean"),
        (("MMF", "--target", "gini <= 1", "--clicks", "Cascad"), "unknown click model 'Cascad'"),
        (("MMF", "--target", "ndcg@9 >= 0.5"), "ndcg@9: expected a cutoff from 1 to 5, the ranks of the lists"),
    ],
)
def test_bad_input_is_refused_in_one_line(words, message):
    assert message in refused(*TUNE, *words)
