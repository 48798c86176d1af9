"""The comparison beyond the paper and the leaderboard, on few and short runs."""

import json

import msgspec
import pytest
from command_line import refused, run

import mcfair as mf
from mcfair.experiments import beyond
from mcfair.experiments.experiment import Experiment

MINE = """
import mcfair as mf

@mf.register
class Mine(mf.Policy):
    '''Rank by relevance less a share of the exposure per visit.'''

    alpha: float = 1.0

    def score(self, q, rng):
        return q.R - self.alpha * q.E / max(int(q.visits), 1)
"""


@pytest.fixture(autouse=True)
def smaller(monkeypatch, tmp_path):
    """Fewer contestants and users, shorter runs, and built-in data in place of MQ2008."""
    whole, listed = Experiment.reduced, beyond.contestants()
    kept = [each for each in listed.contestants if each.name in ("TopK", "MCFair", "BayesFair")]
    few = msgspec.structs.replace(listed, contestants=tuple(kept), studied=listed.studied[:1])
    monkeypatch.setattr(beyond, "contestants", lambda: few)
    monkeypatch.setattr(Experiment, "reduced", lambda self, **_: whole(self, seeds=1, points=3, shorter=400))
    monkeypatch.setenv("MCFAIR_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nothing"))


def stored(folder):
    return {
        board["name"]: board for board in json.loads((folder / "beyond" / "leaderboard.json").read_text())["boards"]
    }


def test_the_page_and_a_policy_beside_the_others(tmp_path):
    done = run("reproduce", "beyond", "--quick", "--out", str(tmp_path), "--jobs", "1")
    page = (tmp_path / "beyond" / "index.html").read_text(encoding="utf-8")
    assert "<title>Fair ranking beyond the paper</title>" in page
    for heading in ("Frontiers: short lists", "Frontiers: long lists", "shorter and longer", "continuous relevance",
                    "noisy grades", "Wrong assumptions about users"):  # fmt: skip
        assert heading in page
    assert f"Report: {tmp_path / 'beyond' / 'index.html'}" in done.stdout
    before = stored(tmp_path)
    assert len(before) == 4
    assert {entry["name"] for entry in before["frontier, online"]["entries"]} == {"TopK", "MCFair", "BayesFair"}

    runs = {path.name for path in (tmp_path / "runs").iterdir()}
    (tmp_path / "mine.py").write_text(MINE)
    words = ("--plugin", str(tmp_path / "mine.py"), "--policy", "Mine(alpha=[0, 1])", "--quick", "--jobs", "1")
    done = run("leaderboard", *words, "--out", str(tmp_path))
    assert "not on this leaderboard yet" not in done.stderr
    assert done.stdout.count("Mine") == 4
    after = stored(tmp_path)
    for name, board in after.items():
        others = [entry for entry in board["entries"] if entry["name"] != "Mine"]
        assert others == before[name]["entries"]  # not run again
        (mine,) = [entry for entry in board["entries"] if entry["name"] == "Mine"]
        assert [point["policy"] for point in mine["points"]] == ["Mine(alpha=0.0)", "Mine(alpha=1.0)"]
    new = [path for path in (tmp_path / "runs").iterdir() if path.name not in runs]
    assert len(new) == 8  # two points on each of four boards
    assert {json.loads((path / "run.json").read_text())["policy"].split("(")[0] for path in new} == {"Mine"}


def test_on_an_empty_leaderboard_the_others_are_run_first(tmp_path):
    words = ("--policy", "FairK", "--label", "pooled", "--estimator", "IPS(prior_mean=0.3, prior_strength=5)")
    done = run("leaderboard", *words, "--quick", "--out", str(tmp_path), "--jobs", "1")
    assert "the other policies are not on this leaderboard yet and are run once" in done.stderr
    boards = stored(tmp_path)
    online, given = boards["frontier, online"], boards["frontier, post-processing"]
    assert {entry["name"] for entry in online["entries"]} == {"TopK", "MCFair", "BayesFair", "pooled"}
    estimators = {entry["name"]: entry["estimator"] for entry in online["entries"]}
    assert estimators["pooled"] == "IPS(prior_mean=0.3, prior_strength=5.0)"
    assert {entry["estimator"] for entry in given["entries"]} == {""}
    again = run("leaderboard", *words, "--quick", "--out", str(tmp_path), "--jobs", "1")
    assert (again.stdout, again.stderr) == (done.stdout, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("reproduce", "beyond", "fig3"), "beyond is run alone"),
        (("reproduce", "fig3", "--also", "x.txt"), "--also adds data to beyond only"),
        (("reproduce", "beyond", "--data", "mq2008-like"), "beyond compares on data of its own"),
        (("reproduce", "beyond", "--quick", "--also", "none.txt"), "no such file or folder: none.txt"),
        (("leaderboard", "--policy", "MCFiar"), "unknown policy 'MCFiar'; did you mean 'MCFair'?"),
        (("leaderboard", "--policy", "TopK", "--estimator", "IPX", "--quick"), "unknown estimator 'IPX'"),
    ],
)
def test_what_is_refused(tmp_path, words, message):
    assert message in refused(*words, "--out", str(tmp_path))
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_file_that_is_no_leaderboard_is_kept(tmp_path):
    (tmp_path / "beyond").mkdir()
    (tmp_path / "beyond" / "leaderboard.json").write_text("{}")
    assert "is not a leaderboard" in refused("leaderboard", "--policy", "TopK", "--quick", "--out", str(tmp_path))
    assert (tmp_path / "beyond" / "leaderboard.json").read_text() == "{}"
    assert mf.registered(mf.Policy)
