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
