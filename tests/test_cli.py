import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import mcfair as mf

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
    for command in ("simulate", "policies", "datasets", "demo"):
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
        "    def score(self, q):\n        return -q.E\n"
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
    for name in mf.policies():
        assert name in text
    assert "least-exposed" in text
    text = run("datasets", MCFAIR_DATA="").stdout
    assert "mq2008-like" in text
    assert "mq2008/fold5" in text


def test_the_demo_compares_six_policies_in_both_settings():
    text = run("demo", "--seeds", "1").stdout
    assert text.count("MCFair") >= 2
    assert "post-processing" in text
    assert "online" in text
    assert all(text.count(name) >= 2 for name in ("TopK", "RandomK", "ExploreK", "FairCo", "FairK"))


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
