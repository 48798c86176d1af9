"""The commands of the study, on few policies and short runs."""

import json
import runpy
import sys
from pathlib import Path

import grid
import leaderboard
import msgspec
import pytest
import run

import mcfair as mf

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
    whole, listed = mf.Experiment.reduced, grid.contestants()
    kept = [each for each in listed.contestants if each.name in ("TopK", "BayesFair")]
    few = msgspec.structs.replace(listed, contestants=tuple(kept), studied=listed.studied[:1])
    monkeypatch.setattr(grid, "contestants", lambda: few)
    monkeypatch.setattr(mf.Experiment, "reduced", lambda self, **_: whole(self, seeds=1, points=2, shorter=400))
    monkeypatch.setenv("MCFAIR_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nothing"))
    grid.short_lists.cache_clear()
    yield
    grid.short_lists.cache_clear()


def stored(folder):
    return {board["name"]: board for board in json.loads((folder / "leaderboard.json").read_text())["boards"]}


def test_the_page_and_then_a_policy_beside_the_others_with_tests(tmp_path, capsys):
    words = ["--quick", "--out", str(tmp_path), "--jobs", "1"]
    run.main(words)
    assert "noisy grades" in (tmp_path / "index.html").read_text(encoding="utf-8")
    before = stored(tmp_path)
    assert len(before) == 4
    assert {entry["name"] for entry in before["frontier, online"]["entries"]} == {"TopK", "BayesFair"}
    runs = {path.name for path in (tmp_path / "runs").iterdir()}
    (tmp_path / "mine.py").write_text(MINE)
    capsys.readouterr()
    leaderboard.main([*words, "--plugin", str(tmp_path / "mine.py"), "--policy", "Mine(alpha=[0, 1])"])
    printed = capsys.readouterr().out
    assert printed.count("Differences from BayesFair") == 4
    assert printed.count("least unfairness") == 4 + 4  # a column of each board, and a row of each table of tests
    for name, board in stored(tmp_path).items():
        others = [entry for entry in board["entries"] if entry["name"] != "Mine"]
        assert others == before[name]["entries"]  # not run again
        (mine,) = [entry for entry in board["entries"] if entry["name"] == "Mine"]
        assert [point["policy"] for point in mine["points"]] == ["Mine(alpha=0.0)", "Mine(alpha=1.0)"]
    new = [path for path in (tmp_path / "runs").iterdir() if path.name not in runs]
    assert {json.loads((path / "run.json").read_text())["policy"].split("(")[0] for path in new} == {"Mine"}


def test_what_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "leaderboard.json"
    file.write_text("{}")
    with pytest.raises(mf.TraceError, match="is not a leaderboard"):
        leaderboard.main(["--policy", "TopK", "--quick", "--out", str(tmp_path)])
    assert file.read_text() == "{}"
    with pytest.raises(mf.PartError, match=r"cannot load none\.py"):
        leaderboard.main(["--policy", "TopK", "--plugin", "none.py", "--out", str(tmp_path)])
    monkeypatch.setattr(sys, "argv", ["leaderboard.py", "--policy", "MCFiar", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="error: unknown policy 'MCFiar'; did you mean 'MCFair'"):
        runpy.run_path(str(Path(leaderboard.__file__)), run_name="__main__")
