import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mcfair as mf
from mcfair.cli.app import app
from mcfair.experiments.experiment import Experiment

MCFAIR = [sys.executable, "-m", "mcfair"]


def run(*words, check=True, **environment):
    done = subprocess.run([*MCFAIR, *words], capture_output=True, text=True, env=os.environ | environment)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def refused(*words, **environment):
    done = run(*words, check=False, **environment)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("mcfair: error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


SIMULATE = ("simulate", "--data", "mq2008-like", "--steps", "500")


def test_help_names_every_command_and_option():
    text = run("--help").stdout
    for command in ("simulate", "reproduce", "run", "tune", "policies", "datasets", "demo"):
        assert command in text
    options = run("simulate", "--help", COLUMNS="200").stdout
    for option in ("--data", "--split", "--policy", "--setting", "--steps", "--seeds", "--preset", "--min-items",
                   "--max-items", "--k-s", "--gamma", "--epsilon", "--prior-mean", "--prior-strength", "--checkpoints",
                   "--threads", "--out", "--json", "--severity", "--record", "--plugin"):  # fmt: skip
        assert option in options


def test_json_is_one_object_with_runs_and_their_summary():
    done = run(
        *SIMULATE, "--policy", "MCFair(alpha=10)", "--policy", "TopK", "--seeds", "3", "--setting", "online", "--json"
    )
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert list(result) == ["runs", "summary"]
    assert len(result["runs"]) == 6
    first = result["runs"][0]
    assert " ".join(first) == "policy setting steps sessions seed threads queries unfairness cndcg ndcg seconds"
    assert list(first["cndcg"]) == list(first["ndcg"]) == ["1", "2", "3", "4", "5"]
    trace = mf.simulate(mf.synthetic("mq2008-like"), "MCFair(alpha=10)", "online", steps=500)
    assert first["policy"] == repr(mf.MCFair(alpha=10))
    assert first["unfairness"] == trace.unfairness
    assert first["cndcg"]["5"] == trace.cndcg[5]
    assert (first["setting"], first["steps"], first["sessions"], first["queries"]) == ("online", 500, 500, 83)
    assert [row["policy"] for row in result["summary"]] == [repr(mf.MCFair(alpha=10)), repr(mf.TopK())]
    values = [each["unfairness"] for each in result["runs"][:3]]
    mean = sum(values) / 3
    assert result["summary"][0]["unfairness"]["mean"] == pytest.approx(mean)
    assert result["summary"][0]["unfairness"]["std"] == pytest.approx((sum((v - mean) ** 2 for v in values) / 3) ** 0.5)
    assert set(result["summary"][0]["cndcg"]["1"]) == {"mean", "std"}


def test_a_table_for_people():
    text = run(*SIMULATE, "--policy", "MCFair(alpha=10)", "--policy", "FairK").stdout
    assert "MCFair(alpha=10.0)" in text
    assert "unfairness" in text
    assert "cNDCG@5" in text


def test_options_reach_the_simulation(tmp_path):
    out = tmp_path / "runs"
    options = (
        "--k-s 3 --gamma 0.9 --epsilon 0.2 --prior-mean 0.3 --prior-strength 5 --severity 0.5 --threads 2 --record"
    )
    more = "--setting online --checkpoints 100,400 --min-items 8 --max-items 12 --record"
    run(*SIMULATE, "--policy", "MCFair", *options.split(), *more.split(), "--out", str(out))
    trace = mf.Trace.load(out / "001-MCFair-seed0")
    data = mf.synthetic("mq2008-like").with_relevance(0.2).select(min_items=8, max_items=12)
    same = mf.simulate(
        data, "MCFair", "online", steps=500, k_s=3, gamma=0.9, prior_mean=0.3, prior_strength=5, severity=0.5,
        checkpoints=[100, 400],
    )  # fmt: skip
    assert trace.checkpoints.tolist() == [100, 400, 500]
    assert trace.unfairness_at.tolist() == same.unfairness_at.tolist()
    assert trace.cndcg_at.tolist() == same.cndcg_at.tolist()
    assert trace.lists is not None
    assert json.loads((out / "summary.json").read_text())["runs"][0]["unfairness"] == same.unfairness
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_a_policy_of_ones_own(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "import mcfair as mf\n@mf.register\nclass Mine(mf.Policy):\n    '''Rank the unseen first.'''\n"
        "    def score(self, q, rng):\n        return -q.E\n"
    )
    result = json.loads(
        run(*SIMULATE, "--plugin", str(plugin), "--policy", "Mine", "--policy", "ExploreK", "--json").stdout
    )
    assert result["runs"][0]["policy"] == "Mine()"
    assert result["runs"][0]["unfairness"] == result["runs"][1]["unfairness"]
    assert "Rank the unseen first." in run("policies", "--plugin", str(plugin)).stdout
    plugin.write_text("import nothing_of_that_name\n")
    assert "ModuleNotFoundError" in refused(*SIMULATE, "--plugin", str(plugin), "--policy", "TopK")


def test_lists_of_policies_and_data():
    text = run("policies").stdout
    for name in mf.registered(mf.Policy):
        assert name in text
    assert "least-exposed" in text
    text = run("datasets", MCFAIR_DATA="").stdout
    assert "mq2008-like" in text
    assert "mq2008/fold5" in text


MINE = """
title = "Mine"
settings = [{mode = "post-processing", steps = 200}]
seeds = 2
series = [{policies = ["TopK", "MCFair(alpha=[1, 10], beta=0)"]}]
"""


def test_an_experiment_of_ones_own(tmp_path):
    (tmp_path / "mine.toml").write_text(MINE)
    words = ("run", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out"), "--jobs", "1")
    text = run(*words).stdout
    assert "no policy can be below" in text
    assert "MCFair(alpha=10.0, beta=0.0)" in text
    assert f"Report: {tmp_path / 'out' / 'index.html'}" in text
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*")}
    assert run(*words).stdout == text
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*")} == kept


def test_a_users_policy_in_an_experiment_on_two_processes(tmp_path):
    (tmp_path / "own.py").write_text(
        "import mcfair as mf\n@mf.register\nclass Backwards(mf.Policy):\n    def score(self, q, rng):\n        return -q.R\n"
    )
    (tmp_path / "mine.toml").write_text(MINE.replace('"TopK"', '"Backwards"'))
    text = run(
        "run", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out"), "--jobs", "2",
        "--plugin", str(tmp_path / "own.py"),
    ).stdout  # fmt: skip
    assert "Backwards" in text


def test_ctrl_c_ends_all_processes_and_keeps_what_is_finished(tmp_path):
    (tmp_path / "long.toml").write_text(
        'settings = [{mode = "online", steps = 100_000}]\nseries = [{policies = ["TopK", "LP(alpha=[0.1, 1, 10])"]}]\n'
    )
    words = [*MCFAIR, "run", str(tmp_path / "long.toml"), "--out", str(tmp_path / "out"), "--jobs", "2"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    runs = tmp_path / "out" / "runs"
    while process.poll() is None and not (runs.exists() and list(runs.glob("[!.]*"))):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "mcfair: interrupted\n")
    deadline = time.monotonic() + 10
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(process.pid) == []
    assert list(runs.glob("[!.]*/run.json"))


def alive(session):
    """Command lines of the processes of a session that still run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, own = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(own) == session and state != "Z":
                found.append((folder / "cmdline").read_text())
        except OSError:
            continue  # it has just ended
    return found


def test_one_of_the_papers_experiments_quickly(tmp_path):
    """Without the data it goes on with built-in data and says so."""
    done = run("reproduce", "fig2", "--quick", "--out", str(tmp_path), MCFAIR_DATA=str(tmp_path))
    assert "mq2008/fold1 is not on this machine" in done.stderr
    assert "on to built-in data" in done.stderr
    assert (tmp_path / "index.html").exists()
    assert list((tmp_path / "figures").glob("fig2*.png"))


def test_the_demo_shows_all_policies_and_where_the_report_is(tmp_path, monkeypatch):
    whole = Experiment.reduced  # the demo itself takes a minute; this is its smallest version
    monkeypatch.setattr(Experiment, "reduced", lambda self, **_: whole(self, seeds=1, points=2, shorter=200))
    text = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--jobs", "1"], catch_exceptions=False).stdout
    for name in mf.registered(mf.Policy):
        assert name in text
    assert f"Report: {tmp_path / 'index.html'}" in text
    page = (tmp_path / "index.html").read_text()
    assert all(f"Figure {number}" in page for number in (2, 3, 4, 5))


def test_tuning_finds_a_value_or_says_that_there_is_none():
    words = ("tune", "--data", "mq2008-like", "--steps", "300", "--seeds", "1", "--policy")
    found = json.loads(run(*words, "MCFair(beta=0)", "--target", "unfairness <= 1.5 * floor", "--json").stdout)
    assert found["met"]
    assert found["figures"]["unfairness"] <= 1.5 * found["floor"]
    assert mf.parse_policy(found["policy"]).alpha in {row["alpha"] for row in found["runs"]}
    none = run(*words, "MMF", "--target", "unfairness <= 0", check=False)
    assert none.returncode == 1
    assert "no value of alpha meets 'unfairness <= 0'" in none.stderr
    assert "Traceback" not in none.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("reproduce", "table2"), "unknown experiment 'table2'; did you mean 'table1'?"),
        (("reproduce", "--data", "mq2009/fold1"), "no such file or folder: mq2009/fold1"),
        (("reproduce", "--data", "mq2008/fold1"), "is not on this machine"),
        (("reproduce", "--data", "mq2008-like", "--jobs", "0"), "jobs = 0 is not allowed"),
        (("run", "none.toml"), "cannot read none.toml: No such file or directory"),
        (("tune", "--data", "mq2008-like", "--policy", "MMF", "--target", "x"), "cannot read target 'x'"),
    ],
)
def test_experiments_are_refused_before_any_work(tmp_path, words, message):
    out = () if words[0] == "tune" else ("--out", str(tmp_path / "out"))
    assert message in refused(*words, *out, MCFAIR_DATA=str(tmp_path), XDG_DATA_HOME=str(tmp_path))
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot write to" in refused("reproduce", "table1", "--data", "mq2008-like", "--out", str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Missing option '--data'"),
        (("--data", "mq2008-like"), "Missing option '--policy'"),
        (("--data", "mq2008-like", "--policy", "MCFiar"), "unknown policy 'MCFiar'; did you mean 'MCFair'?"),
        (("--data", "mq2008-like", "--policy", "MCFair(alpa=1)"), "did you mean 'alpha'?"),
        (("--data", "mq2008-like", "--policy", "MCFair(alpha=-1)"), "alpha = -1 is not allowed"),
        (("--data", "mq2008-like", "--policy", "TopK", "--k-s", "0"), "k_s = 0 is not allowed"),
        (("--data", "mq2008-like", "--policy", "TopK", "--steps", "0"), "steps = 0 is not allowed"),
        (("--data", "mq2008-like", "--policy", "TopK", "--steps", "ten"), "--steps"),
        (("--data", "mq2008-like", "--policy", "TopK", "--seeds", "0"), "seeds = 0 is not allowed"),
        (("--data", "mq2008-like", "--policy", "TopK", "--threads", "0"), "threads = 0 is not allowed"),
        (("--data", "mq2008-like", "--policy", "TopK", "--setting", "ofline"), "did you mean 'online'?"),
        (("--data", "mq2008-like", "--policy", "TopK", "--preset", "wsdm"), "did you mean 'wsdm23'?"),
        (("--data", "mq2008-like", "--policy", "TopK", "--preset", "wsdm23"), "is a built-in profile"),
        (("--data", "mq2008-like", "--policy", "TopK", "--checkpoints", "a"), "checkpoints = 'a'"),
        (("--data", "mq2008-like", "--policy", "TopK", "--min-items", "99"), "none of 83 queries is left"),
        (("--data", "mq2008-like", "--policy", "TopK", "--epsilon", "7"), "epsilon = 7.0"),
        (("--data", "mq2008-lik", "--policy", "TopK"), "mq2008-like"),
        (("--data", "no/such/file.txt", "--policy", "TopK"), "no/such/file.txt"),
        (("--data", "mq2008/fold1", "--policy", "TopK"), "MCFAIR_DATA"),
        (("--data", "mq2008-like", "--policy", "TopK", "--record"), "--out"),
        (("--data", "mq2008-like", "--policy", "TopK", "--surprise"), "--surprise"),
    ],
)
def test_an_error_is_one_line(words, message, tmp_path):
    assert message in refused("simulate", *words, MCFAIR_DATA=str(tmp_path), XDG_DATA_HOME=str(tmp_path))


def test_a_malformed_file_is_named_with_its_line(tmp_path):
    path = tmp_path / "test.txt"
    path.write_text("1 qid:1 1:0.5\n0 qid:1 1:nan\n")
    error = refused("simulate", "--data", str(path), "--policy", "TopK")
    assert f"{path}, line 2" in error


def test_nothing_is_left_behind_by_a_failed_run(tmp_path):
    out = tmp_path / "runs"
    refused(*SIMULATE, "--policy", "TopK", "--out", str(out), "--min-items", "99")
    assert list(tmp_path.iterdir()) == []
    out.mkdir()
    assert "exists already" in refused(*SIMULATE, "--policy", "TopK", "--out", str(out))
    assert list(out.iterdir()) == []


def test_a_traceback_only_on_request():
    done = run("simulate", "--data", "nothing", "--policy", "TopK", "--debug", check=False)
    assert "Traceback" in done.stderr
    assert done.returncode == 1


def test_short_queries_are_counted_once(tmp_path):
    path = tmp_path / "test.txt"
    path.write_text("1 qid:1 1:0.5\n0 qid:2 1:0.1\n1 qid:2 1:0.2\n")
    done = run("simulate", "--data", str(path), "--policy", "TopK", "--policy", "FairK", "--seeds", "3", "--steps", "9")
    assert done.stderr.count("left out 1 of 2 queries") == 1


def test_progress_is_shown_to_people_on_stderr():
    main, other = pty.openpty()
    done = subprocess.Popen(
        [*MCFAIR, *SIMULATE, "--policy", "TopK", "--steps", "3000000"], stdout=subprocess.PIPE, stderr=other,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(other)
    seen = b""
    try:
        while piece := os.read(main, 4096):
            seen += piece
    except OSError:  # how a terminal says that the other side is gone
        pass
    os.close(main)
    out = done.communicate()[0].decode()
    assert done.returncode == 0
    assert b"/3000000" in seen
    assert "TopK" in out


def test_a_terminal_that_knows_ascii_only_is_no_error():
    assert "TopK" in run("policies", PYTHONIOENCODING="ascii").stdout
    assert "MCFair" in run(*SIMULATE, "--policy", "MCFair", PYTHONIOENCODING="ascii").stdout


def test_a_reader_that_goes_away_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m mcfair policies | head -n 1", shell=True, capture_output=True, text=True
    )  # fmt: skip
    assert "Traceback" not in done.stderr


def test_the_installed_command_is_the_module():
    installed = Path(sys.executable).with_name("mcfair")
    assert subprocess.run([installed, "policies"], capture_output=True, text=True).stdout == run("policies").stdout
