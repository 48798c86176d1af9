"""The re-ranker for tables, PyTerrier's transformer, and the command that writes lists."""

import subprocess
import sys

import pandas as pd
import polars as pl
import pyarrow as pa
import pyterrier as pt
import pytest
from sklearn.base import clone

import mcfair as mf
from mcfair.data.frames import read_candidates
from mcfair.plugs.fair_lists import fair_lists
from mcfair.plugs.pyterrier import Fair
from mcfair.plugs.reranker import FairReranker

TABLE = {"query": ["s", "s", "s", "t"], "item": ["a", "b", "c", "d"], "prior": [0.9, 0.5, 0.1, 0.3]}


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_a_table_comes_back_as_lists(library):
    frame = pl.DataFrame(TABLE).with_columns(note=pl.lit("kept"))
    table = {"pandas": frame.to_pandas, "polars": lambda: frame, "arrow": frame.to_arrow}[library]()
    with FairReranker("TopK", k=2) as reranker:
        lists = reranker.rank(table)
    assert isinstance(lists, pd.DataFrame if library == "pandas" else pl.DataFrame)
    rows = pl.from_pandas(lists) if library == "pandas" else lists
    assert rows.select("query", "item", "rank", "note").rows() == [
        ("s", "a", 1, "kept"),
        ("s", "b", 2, "kept"),
        ("t", "d", 1, "kept"),
    ]
    assert rows["impression"].n_unique() == 2


def test_lists_are_those_of_the_ranker_and_clicks_are_counted():
    table = pl.DataFrame(TABLE)
    with FairReranker("MCFair", k=2) as reranker, mf.Ranker("memory:", policy="MCFair") as ranker:
        for _ in range(5):
            lists = reranker.rank(table).filter(pl.col("query") == "s")
            priors = [{"id": item, "prior": prior} for item, prior in zip("abc", [0.9, 0.5, 0.1], strict=True)]
            answer = ranker.rank("s", priors, k=2)
            assert lists["item"].to_list() == [item.id for item in answer.items]
            reranker.partial_fit(lists.head(1))
            reranker.partial_fit(lists.head(1))  # counts once
            ranker.feedback([{"impression": answer.impression, "item": answer.items[0].id}])
        state = reranker.ranker_.query_state("s")
        assert sum(item.clicks for item in state.items) == 5


def test_parameters_are_those_of_scikit_learn(tmp_path):
    reranker = FairReranker("MCFair(alpha=2)", k=3, store=f"sqlite:///{tmp_path / 'x.db'}")
    copy = clone(reranker)
    assert copy.get_params() == reranker.get_params()
    assert not hasattr(copy, "ranker_")
    assert reranker.set_params(k=1).k == 1
    with pytest.raises(mf.SettingError, match="unknown parameter 'kk'"):
        reranker.set_params(kk=1)


def test_what_is_wrong_with_a_table_or_a_click():
    with FairReranker("TopK") as reranker:
        with pytest.raises(mf.DataError, match="no column for the item"):
            reranker.rank(pd.DataFrame({"query": ["a"]}))
        with pytest.raises(mf.DataError, match="cannot convert Series"):
            reranker.rank(pd.Series(["a"]))
        with pytest.raises(mf.DataError, match="unknown_impression"):
            reranker.partial_fit(pd.DataFrame({"impression": ["x"], "item": ["a"]}))
        with pytest.raises(mf.DataError, match="'impression'"):
            reranker.partial_fit(pd.DataFrame({"item": ["a"]}))


def test_a_wrong_table_counts_nothing_as_shown():
    """A wrong row of the second query is found before the first query is ranked."""
    with FairReranker("TopK") as reranker:
        with pytest.raises(mf.DataError, match="row 3 of 3: item 'b' occurs twice in query 't'"):
            reranker.rank(pd.DataFrame({"query": ["s", "t", "t"], "item": ["a", "b", "b"]}))
        assert not hasattr(reranker, "ranker_")
    with pytest.raises(mf.DataError, match="'query', 'Query' may all be the query"):
        fair_lists(pl.DataFrame(TABLE | {"Query": ["x"] * 4}))


def test_scores_of_any_size_are_scaled():
    table = pl.DataFrame({"query": ["q"] * 3, "item": list("abc"), "score": [-1e308, 1e308, 0.0]})
    assert read_candidates(table)["relevance"].to_list() == [0.0, 1.0, 0.5]


def test_a_pipeline_of_pyterrier():
    found = pd.DataFrame(
        {
            "qid": ["1", "1", "1", "2"],
            "query": ["red shoes"] * 3 + ["hats"],
            "docno": ["a", "b", "c", "d"],
            "score": [12.0, 11.0, 2.0, 3.0],
            "rank": [0, 1, 2, 0],
        }
    )
    fair = Fair("FairK", k=2)
    pipeline = pt.Transformer.from_df(found) >> fair
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["red shoes", "hats"]})
    first, second = pipeline(topics), pipeline(topics)
    for result in (first, second):
        assert result.groupby("qid")["rank"].apply(list).to_dict() == {"1": [0, 1, 2], "2": [0]}
        assert (result.sort_values(["qid", "rank"]).groupby("qid")["score"].diff().dropna() < 0).all()
    assert first["docno"].tolist()[:2] != second["docno"].tolist()[:2], "exposure is kept from search to search"
    fair.partial_fit(first.dropna(subset="impression").head(1))
    assert pt.Evaluate(second, pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [1]}), metrics=["P_1"])
    empty = fair.transform(found.head(0))
    assert empty.empty
    assert {"rank", "impression"} <= set(empty.columns)


def test_pyterrier_keeps_columns_and_sends_groups():
    """The group term puts the provider first that has had nothing yet; columns of any name stay as they are."""
    found = pd.DataFrame({"qid": 1, "docno": list("abc"), "score": [0.5, 0.5, 0.5], "group": list("xxy"), "place": "p"})
    fair = Fair("TopK(alpha_group=1)", k=1)
    lists = [fair.transform(found.set_index(pd.Index([4, 4, 4]))) for _ in range(2)]
    assert [each["docno"][0] for each in lists] == ["a", "c"]
    assert lists[1]["place"].tolist() == ["p"] * 3


def test_lists_for_many_sessions_follow_scores():
    table = pd.DataFrame({"qid": ["q"] * 3 + ["one"], "docno": list("abcd"), "score": [8.0, 7.9, 1.0, 4.0]})
    lists = fair_lists(table, k=1, sessions=10)
    assert lists.filter(pl.col("query") == "one")["item"].to_list() == ["d"] * 10
    shown = lists.filter(pl.col("query") == "q")["item"].value_counts()
    assert sorted(shown.rows()) == [("a", 5), ("b", 5)]
    assert lists.select("session", "rank").row(0) == (1, 1)
    assert fair_lists(pa.table({"query": ["q", "q"], "item": ["a", "b"], "score": [1, 1]}), k=5, sessions=2).height == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k = 0"),
        ({"sessions": 0}, "sessions = 0"),
        ({"sessions": 10**12}, "would need about .* GiB of memory, and there are"),
    ],
)
def test_numbers_of_lists_are_checked(options, message):
    with pytest.raises(mf.SettingError, match=message):
        fair_lists(pl.DataFrame(TABLE), **options)


def test_a_misspelt_score_is_not_ranked_as_if_all_were_equal():
    with pytest.raises(mf.DataError, match=r"no column score \(or prediction, relevance, prior, "):
        fair_lists(pl.DataFrame({"query": ["q", "q"], "item": ["a", "b"], "scroe": [0.9, 0.1]}))


def test_a_file_of_any_separator_and_names_is_ranked(tmp_path):
    (tmp_path / "a.csv").write_text("query;sku_code;score\nq;a;0.9\nq;b;0.1\n")
    with pytest.warns(mf.MCFairWarning, match="read with the separator ';'"):
        lists = fair_lists(tmp_path / "a.csv", k=1, sessions=1, columns={"item": "sku_code"})
    assert lists["item"].to_list() == ["a"]
    with pytest.raises(mf.DataError, match=r"a.csv: no column for the item .*--column item=COLUMN"):
        fair_lists(tmp_path / "a.csv", separator=";")


def test_the_command_writes_a_file(tmp_path):
    scores, out = tmp_path / "scores.csv", tmp_path / "lists.csv"
    scores.write_text("query,item,score\nq,007,0.9\nq,b,0.8\nq,c,0.1\n")

    def run(*arguments):
        words = [sys.executable, "-m", "mcfair", "rank", *map(str, arguments)]
        return subprocess.run(words, capture_output=True, text=True)

    done = run(scores, "--k", 2, "--sessions", 3, "--out", out)
    assert done.returncode == 0, done.stderr
    lists = pl.read_csv(out, infer_schema=False)
    assert lists.columns == ["query", "session", "rank", "item"]
    assert lists.height == 6
    assert "007" in lists["item"]
    assert run(scores, "--k", 2, "--sessions", 3).stdout == out.read_text()
    wrong = run(scores, "--out", tmp_path / "lists.txt")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("mcfair: error:")
    assert wrong.stderr.count("\n") == 1
    assert "cannot read" in run(tmp_path / "none.csv").stderr
    scores.write_text("query,item,scroe\nq,a,0.9\nq,b,0.8\n")
    assert run(scores).stderr.startswith(f"mcfair: error: {scores}: no column score")
