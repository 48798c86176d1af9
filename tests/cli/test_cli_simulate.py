"""The command `mcfair simulate`: what it prints and writes, every option, and what it refuses."""

import json
import re

import polars as pl
import pytest
from command_line import SIMULATE, refused, run, start

import mcfair as mf

# --- output ----------------------------------------------------------------------------------------------------------


def test_json_is_one_object_with_runs_and_their_summary():
    done = start(
        *SIMULATE, "--policy", "MCFair(alpha=10)", "--policy", "TopK", "--seeds", "3", "--setting", "online", "--json"
    )
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert list(result) == ["runs", "summary"]
    assert len(result["runs"]) == 6
    first = result["runs"][0]
    assert " ".join(first) == (
        "policy setting steps sessions seed threads queries clicks estimator unfairness cndcg ndcg metrics seconds"
    )
    assert list(first["cndcg"]) == list(first["ndcg"]) == ["1", "2", "3", "4", "5"]
    trace = mf.simulate(mf.synthetic("mq2008-like"), "MCFair(alpha=10)", "online", steps=500)
    assert first["policy"] == repr(mf.MCFair(alpha=10))
    assert (first["clicks"], first["estimator"]) == (repr(mf.PositionBased()), repr(mf.IPS()))
    assert first["unfairness"] == trace.unfairness
    assert first["cndcg"]["5"] == trace.cndcg[5]
    assert first["metrics"] == trace.figures
    assert (first["setting"], first["steps"], first["sessions"], first["queries"]) == ("online", 500, 500, 83)
    assert [row["policy"] for row in result["summary"]] == [repr(mf.MCFair(alpha=10)), repr(mf.TopK())]
    values = [each["unfairness"] for each in result["runs"][:3]]
    mean = sum(values) / 3
    assert result["summary"][0]["unfairness"]["mean"] == pytest.approx(mean)
    assert result["summary"][0]["unfairness"]["std"] == pytest.approx((sum((v - mean) ** 2 for v in values) / 3) ** 0.5)
    assert result["summary"][0]["metrics"]["unfairness"] == result["summary"][0]["unfairness"]
    assert set(result["summary"][0]["cndcg"]["1"]) == {"mean", "std"}


def test_without_an_estimator_each_policy_is_run_with_its_own():
    words = ["--policy", "BayesFair", "--policy", "TopK", "--setting", "online", "--json"]
    runs = json.loads(run(*SIMULATE, *words).stdout)["runs"]
    assert [each["estimator"] for each in runs] == [repr(mf.Mixture()), repr(mf.IPS())]
    trace = mf.simulate(mf.synthetic("mq2008-like"), "BayesFair", "online", steps=500)
    assert runs[0]["unfairness"] == trace.unfairness


def table_row(text, policy):
    """Return the cells of a policy's row, by heading."""
    lines = [re.split("[┃│]", line)[1:-1] for line in text.splitlines() if "┃" in line or "│" in line]
    head, *rows = [[cell.strip() for cell in line] for line in lines]
    return next(dict(zip(head, row, strict=True)) for row in rows if row[0] == policy)


def test_a_table_shows_every_policy_and_metric():
    text = run(*SIMULATE, "--policy", "MCFair(alpha=10)", "--policy", "FairK", "--metric", "gini").stdout
    assert text.startswith("mq2008-like, post-processing, 500 sessions, 1 seed ")
    row = table_row(text, "MCFair(alpha=10.0)")
    assert list(row) == ["policy", "unfairness", "cNDCG@1", "cNDCG@3", "cNDCG@5", "NDCG@5", "Gini", "µs/session"]
    assert table_row(text, "FairK")
    trace = mf.simulate(mf.synthetic("mq2008-like"), "MCFair(alpha=10)", steps=500, metrics=["gini"])
    assert float(row["Gini"]) == pytest.approx(trace.figures["gini"], rel=1e-3)
    assert float(row["cNDCG@3"]) == pytest.approx(trace.cndcg[3], rel=1e-3)


def test_one_seed_shows_no_spread_and_several_do():
    one = run(*SIMULATE, "--policy", "TopK").stdout
    assert "1 seed" in one
    assert "(" not in one
    several = run(*SIMULATE, "--policy", "TopK", "--seeds", "2").stdout
    assert "2 seeds" in several
    row = table_row(several, "TopK")
    assert all(re.fullmatch(r"[\d.]+ \([\d.]+\)", row[name]) for name in ("unfairness", "cNDCG@5", "NDCG@5"))


def test_small_figures_keep_three_significant_digits():
    row = table_row(run(*SIMULATE, "--policy", "MCFair", "--metric", "relative_unfairness").stdout, "MCFair")
    trace = mf.simulate(mf.synthetic("mq2008-like"), "MCFair", steps=500)
    assert trace.relative_unfairness < 0.05
    for name, value in (("unfairness", trace.unfairness), ("relative unfairness", trace.relative_unfairness)):
        assert len(row[name].replace(".", "").lstrip("0")) >= 3
        assert float(row[name]) == pytest.approx(value, rel=1e-3)


# --- options ---------------------------------------------------------------------------------------------------------


def test_options_reach_the_simulation(tmp_path):
    out = tmp_path / "runs"
    options = (
        "--k 3 --gamma 0.9 --epsilon 0.2 --examination 1,0.5,0.25 --threads 2 --clicks DBN(satisfaction=0.5) "
        "--estimator IPS(prior_mean=0.3,prior_strength=5) --metric gini --metric ndcg@2 --metric gini --record "
        "--setting online --checkpoints 100,400 --min-items 8 --max-items 12"
    )
    run(*SIMULATE, "--policy", "MCFair", *options.split(), "--out", str(out))
    trace = mf.Trace.load(out / "001-MCFair-seed0")
    data = mf.synthetic("mq2008-like").with_relevance(0.2).select(min_items=8, max_items=12)
    same = mf.simulate(
        data, "MCFair", "online", steps=500, k=3, gamma=0.9, examination=[1, 0.5, 0.25],
        clicks=mf.DBN(satisfaction=0.5), estimator=mf.IPS(prior_mean=0.3, prior_strength=5),
        metrics=["gini", "ndcg@2"], checkpoints=[100, 400],
    )  # fmt: skip
    assert trace.checkpoints.tolist() == [100, 400, 500]
    assert list(trace.values) == list(same.values)
    for text, values in same.values.items():
        assert trace.values[text].tolist() == values.tolist()
    assert trace.provenance["setting"] == same.provenance["setting"]
    assert trace.lists is not None
    assert json.loads((out / "summary.json").read_text())["runs"][0]["unfairness"] == same.unfairness
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("--examination", "2"), {"examination": 2}),
        (("--examination", "1,0.5"), {"examination": (1, 0.5)}),
        (("--clicks", "TrustBias"), {"clicks": mf.TrustBias()}),
        (("--clicks", "PositionBased(severity=0.5)"), {"clicks": mf.PositionBased(severity=0.5)}),
        (("--estimator", "IPS(prior_strength=2)"), {"estimator": mf.IPS(prior_strength=2)}),
    ],
)
def test_conditions_of_users_and_estimates_change_the_run(words, options):
    def unfairness(*more):
        done = run(*SIMULATE, "--policy", "MCFair", "--setting", "online", "--json", *more)
        return json.loads(done.stdout)["runs"][0]["unfairness"]

    data = mf.synthetic("mq2008-like")
    assert unfairness(*words) == mf.simulate(data, "MCFair", "online", steps=500, **options).unfairness
    assert unfairness(*words) != unfairness()


@pytest.mark.parametrize(("setting", "beta"), [("post-processing", 0), ("online", 100)])
def test_mcfair_without_parameters_explores_online_only(setting, beta):
    done = run(*SIMULATE, "--policy", "MCFair", "--policy", f"MCFair(beta={beta})", "--setting", setting, "--json")
    automatic, explicit = json.loads(done.stdout)["runs"]
    assert automatic["metrics"] == explicit["metrics"]
    other = json.loads(run(*SIMULATE, "--policy", "MCFair(beta=50)", "--setting", setting, "--json").stdout)
    assert other["runs"][0]["metrics"] != automatic["metrics"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_of_ones_own(tmp_path, suffix):
    frame = pl.DataFrame({"query": ["a"] * 4 + ["b"] * 3, "item": list("pqrspqr"), "grade": [0, 1, 2, 0, 1, 0, 2]})
    path = tmp_path / f"my.{suffix}"
    frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
    result = json.loads(run("simulate", "--data", str(path), "--policy", "MCFair", "--steps", "50", "--json").stdout)
    trace = mf.simulate(mf.Dataset.from_frame(frame, query="query", item="item", grade="grade"), "MCFair", steps=50)
    assert result["runs"][0]["queries"] == 2
    assert result["runs"][0]["metrics"] == trace.figures


def test_a_plugin_brings_a_policy_of_ones_own(tmp_path):
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
    for name in ("random.py", "polars.py"):
        (tmp_path / name).write_text("")
        taken = refused(*SIMULATE, "--plugin", str(tmp_path / name), "--policy", "TopK")
        assert f"{name}: {name[:-3]} is the name of an installed module; rename the file" in taken
    assert "none.py: there is no such file" in refused(*SIMULATE, "--plugin", "none.py", "--policy", "TopK")


# --- errors ----------------------------------------------------------------------------------------------------------

BAD = [
    ("--data mq2008-like --policy MCFiar", "unknown policy 'MCFiar'; did you mean 'MCFair'? available: "),
    ("--data mq2008-like --policy MCFair(alpa=1)", "unknown parameter of MCFair 'alpa'; did you mean 'alpha'?"),
    ("--data mq2008-like --policy MCFair(alpha=-1)", "MCFair: alpha = -1 is not allowed: expected a finite number"),
    ("--policy TopK --k 0", "k = 0 is not allowed: expected a whole number of at least 1"),
    ("--policy TopK --steps 0", "steps = 0 is not allowed"),
    ("--policy TopK --threads 0", "threads = 0 is not allowed"),
    ("--policy TopK --setting ofline", "did you mean 'online'?"),
    ("--policy TopK --preset wsdm", "unknown preset 'wsdm'; did you mean 'wsdm23'?"),
    ("--policy TopK --preset wsdm23", "is a built-in profile"),
    ("--policy TopK --checkpoints a", "checkpoints = 'a'"),
    ("--policy TopK --min-items 99", "none of 83 queries is left"),
    ("--policy TopK --epsilon 7", "epsilon = 7.0"),
    ("--policy TopK --gamma 2", "gamma = 2.0 is not allowed: expected a number from 0 to 1"),
    (
        "--policy TopK --examination steep",
        "examination = 'steep' is not allowed: expected log2, a severity such as 1.5, ",
    ),
    ("--policy TopK --examination=-1", "examination = -1.0 is not allowed: expected a finite number of at least 0"),
    ("--policy TopK --examination 0.5,1", "examination = [0.5, 1.0] is not allowed: expected probabilities that never"),
    ("--policy TopK --examination 1,2", "examination = 2.0 is not allowed: expected a number from 0 to 1"),
    ("--policy TopK --examination 1,0.5 --k 3", "k = 3 is not allowed: examination lists 2 ranks"),
    (
        "--policy TopK --clicks Cascad",
        "unknown click model 'Cascad'; did you mean 'Cascade'? available: Cascade, ",
    ),
    ("--policy TopK --clicks Cascade(stop=2)", "Cascade: stop = 2 is not allowed: expected a number from 0 to 1"),
    ("--policy TopK --clicks Cascade(halt=1)", "unknown parameter of Cascade 'halt'; available: stop"),
    ("--policy TopK --clicks Cascade(", "cannot parse click model 'Cascade(': expected Name or Name(parameter=value"),
    ("--policy TopK --estimator IPs", "unknown estimator 'IPs'; did you mean 'IPS'?"),
    (
        "--policy TopK --estimator IPS(prior_mean=2)",
        "IPS: prior_mean = 2 is not allowed: expected a number from 0 to",
    ),
    ("--policy TopK --metric gin", "unknown metric 'gin'; did you mean 'gini'? available: unfairness, "),
    ("--policy TopK --metric ndcg@0", "ndcg: k = 0 is not allowed: expected a whole number of at least 1"),
    ("--policy TopK --metric ndcg@6", "ndcg@6: expected a cutoff from 1 to 5, the ranks of the lists"),
    ("--policy TopK --metric gini(k=1)", "unknown parameter of gini 'k'"),
    ("--data mq2008-lik --policy TopK", "mq2008-like"),
    ("--data no/such/file.txt --policy TopK", "no/such/file.txt"),
    ("--data mq2008/fold1 --policy TopK", "MCFAIR_DATA"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[text for text, _ in BAD])
def test_what_is_refused_is_named_in_one_line_and_nothing_is_written(text, message, tmp_path):
    words = text.split(" ") if "--data" in text else ["--data", "mq2008-like", *text.split(" ")]
    out = tmp_path / "runs"
    line = refused("simulate", *words, "--out", str(out), MCFAIR_DATA=str(tmp_path), XDG_DATA_HOME=str(tmp_path))
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_lists_are_recorded_on_disk_only():
    assert "--out" in refused(*SIMULATE, "--policy", "TopK", "--record")


def test_a_folder_that_exists_is_left_alone(tmp_path):
    assert "exists already" in refused(*SIMULATE, "--policy", "TopK", "--out", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_fails_in_the_middle_leaves_nothing_behind(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "import mcfair as mf\n@mf.register\nclass Tired(mf.Policy):\n    def score(self, q, rng):\n"
        "        return q.R if q.visits < 3 else q.R * float('nan')\n"
    )
    words = (*SIMULATE, "--plugin", str(plugin), "--policy", "TopK", "--policy", "Tired")
    assert "Tired() returned a score that is not a number" in refused(*words, "--out", str(tmp_path / "runs"))
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["mine.py"]


def test_a_malformed_file_is_named_with_its_line(tmp_path):
    path = tmp_path / "test.txt"
    path.write_text("1 qid:1 1:0.5\n0 qid:1 1:nan\n")
    error = refused("simulate", "--data", str(path), "--policy", "TopK")
    assert f"{path}, line 2" in error


def test_short_queries_are_counted_once(tmp_path):
    path = tmp_path / "test.txt"
    path.write_text("1 qid:1 1:0.5\n0 qid:2 1:0.1\n1 qid:2 1:0.2\n")
    done = run("simulate", "--data", str(path), "--policy", "TopK", "--policy", "FairK", "--seeds", "3", "--steps", "9")
    assert done.stderr.count("left out 1 of 2 queries") == 1
