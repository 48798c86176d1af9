"""The command `mcfair compare`, and what it was called for before."""

import json

import pytest
from command_line import refused, run

import mcfair as mf

COMPARE = ("compare", "--data", "mq2008-like", "--max-items", "9", "--steps", "60", "--seeds", "2", "--jobs", "1")


def test_policies_are_compared_with_tests(tmp_path):
    words = (*COMPARE, "--policy", "FairCo", "--policy", "MCFair(alpha=[1, 10])", "--out", str(tmp_path / "out"))
    text = run(*words).stdout
    for word in ("floor (lowest possible)", "FairCo", "MCFair(alpha=10.0)", "Fisher", "2 seeds"):
        assert word in text
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*")}
    assert run(*words).stdout == text
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*")} == kept
    run(*words, "--fresh")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*")} != kept


def test_json_holds_the_tests_over_all_data(tmp_path):
    words = (*COMPARE, "--policy", "FairCo", "--policy", "TopK", "--against", "TopK", "--also", "istella-s-like")
    found = json.loads(run(*words[:4], "40", *words[5:], "--json").stdout)
    assert found["data"] == ["mq2008-like", "istella-s-like"]
    assert [row["label"] for row in found["policies"]] == ["FairCo", "TopK"]
    assert {row["against"] for row in found["tests"]} == {"TopK"}
    assert {row["metric"] for row in found["tests"]} == {"relative_unfairness", "ndcg@5"}


def test_on_a_store_it_is_called_what_if_now(tmp_path):
    done = run("compare", "--store", f"sqlite:///{tmp_path}/none.db", check=False)
    assert "mcfair compare --store is now called mcfair what-if --store" in done.stderr
    assert "none.db does not exist" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "TopKK"), "unknown policy 'TopKK'; did you mean 'TopK'?"),
        (("--policy", "TopK", "--against", "MMF"), "unknown policy to compare with 'MMF'"),
    ],
)
def test_bad_input_is_refused_in_one_line(words, message):
    assert message in refused(*COMPARE, *words)


@pytest.mark.parametrize("seeds", ["0", "1000000000"])
def test_seeds_out_of_range_are_refused(seeds):
    message = refused(*COMPARE, "--policy", "TopK", "--seeds", seeds, status=2)
    assert "Invalid value for '--seeds'" in message


def test_a_cluster_that_does_not_answer_is_one_line():
    assert "no Dask scheduler answers at nowhere" in refused(*COMPARE, "--policy", "TopK", "--cluster", "nowhere")


def test_it_is_the_function_of_the_library():
    found = json.loads(run(*COMPARE, "--policy", "TopK", "--policy", "MCFair", "--json").stdout)
    data = mf.open_data("mq2008-like", max_items=9)
    same = mf.compare({"mq2008-like": data}, ["TopK", "MCFair"], steps=60, seeds=2).tests()
    assert [row["p_adjusted"] for row in found["tests"]] == same["p_adjusted"].to_list()


SHORT = "query,item,relevance\na,x,0.5\na,y,0.2\na,z,0.1\nb,x,0.5\nb,y,0.2\n"


def test_cutoffs_follow_the_longest_list_by_default(tmp_path):
    data, where = tmp_path / "short.csv", ("--steps", "20", "--seeds", "2", "--jobs", "1")
    data.write_text(SHORT)
    words = ("--data", str(data), "--policy", "TopK", "--policy", "MCFair(alpha=[1, 10])")
    assert "NDCG@3" in run("compare", *words, *where).stdout
    (file := tmp_path / "mine.toml").write_text(
        'data = ["short.csv"]\nsettings = [{steps = 20}]\nseeds = 1\n[[series]]\npolicies = ["TopK", "MCFair"]\n'
    )
    content = file.read_text()
    for show in ("table", "cutoffs", "tradeoff"):
        for k in ("", "{steps = 20, k = 2}, "):
            file.write_text(f'show = "{show}"\n' + content.replace("[{", f"[{k}{{"))
            run("run", str(file), "--out", str(tmp_path / show), "--jobs", "1")
    file.write_text(f"k_c = [4, 3]\n{content}")
    message = refused("run", str(file), "--out", str(tmp_path / "none"))
    assert "mine: k_c = (4, 3): expected cutoffs from 1 to 3, the items of the longest query of" in message


def test_cutoffs_of_results_follow_the_longest_list(tmp_path):
    (data := tmp_path / "short.csv").write_text(SHORT)
    found = mf.compare(data, ["TopK", "MCFair"], steps=20, seeds=2)
    assert set(found.tests()["metric"]) == {"unfairness", "ndcg@3"}
    pooled = mf.compare({"a": data, "b": "mq2008-like"}, ["TopK", "MCFair"], steps=20, seeds=2)
    assert set(pooled.tests()["metric"]) == {"relative_unfairness", "ndcg@3"}
    curves = mf.tradeoff(data, ["MCFair(alpha=[0, 1])", "TopK"], steps=20, seeds=2)
    assert curves.frame()["cndcg@3"].null_count() == 0
    curves.plot()
    with pytest.raises(mf.SettingError, match="expected a cutoff from 1 to 3, the ranks of the lists"):
        mf.tradeoff(data, ["TopK"], metric="cndcg@5", steps=20)
