"""Judgements and runs of TREC, and the NDCG of other libraries beside ours."""

import json
import os
import subprocess
import sys

import ir_measures
import numpy as np
import pandas as pd
import polars as pl
import pytest

import mcfair as mf
from mcfair.data.dataset import relevance
from mcfair.data.frames import write_trec

RANX = """
import json, sys, ranx
qrels, run, measures = sys.argv[1], sys.argv[2], sys.argv[3:]
judged, ranked = ranx.Qrels.from_file(qrels, kind="trec"), ranx.Run.from_file(run, kind="trec")
figures = {each: float(ranx.evaluate(judged, ranked, each)) for each in measures}
print(json.dumps({"run": ranked.to_dict(), "figures": figures}))
"""


def read_by_ranx(qrels, run, *measures):
    """Return the run and its measures by ranx, not compiled: that would take minutes at its first use."""
    command = [sys.executable, "-c", RANX, qrels, run, *measures]
    done = subprocess.run(command, env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    sizes = rng.integers(2, 9, 12)
    y = rng.integers(0, 4, sizes.sum())
    names = [f"d{i}" for n in sizes for i in range(n)]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    return mf.Dataset(offsets=offsets, y=y, query_ids=[f"q{i}" for i in range(12)], item_ids=names)


@pytest.fixture(scope="module")
def trace(data):
    return mf.simulate(data, "RandomK", steps=400, record=True, checkpoints=1)


def test_files_are_read_by_other_tools_and_by_ourselves(data, trace, tmp_path):
    qrels, run = write_trec(data.to_qrels(), tmp_path / "qrels"), write_trec(trace.to_run(), tmp_path / "run")
    judged = {(each.query_id, each.doc_id): each.relevance for each in ir_measures.read_trec_qrels(str(qrels))}
    assert judged == {(query, item): grade for query, item, grade in data.to_qrels().rows()}
    found = read_by_ranx(qrels, run)["run"]
    for query, item, rank, _ in trace.to_run().rows():
        assert sorted(found[query], key=found[query].get, reverse=True)[rank - 1] == item
    again = mf.Dataset.from_trec(qrels)
    assert again.y.tolist() == data.y.tolist()
    assert list(again.item_ids) == list(data.item_ids)


@pytest.mark.parametrize("visit", [0, 3, -1])
def test_a_run_holds_the_list_of_the_visit(data, trace, visit):
    lists = trace.to_run(visit).group_by("query_id", maintain_order=True).agg("doc_id")
    expected = {}
    for q in range(data.queries):
        shown = trace.lists[trace.arrivals == q]
        if -len(shown) <= visit < len(shown):
            expected[f"q{q}"] = [data.item_ids[data.offsets[q] + i] for i in shown[visit] if i >= 0]
    assert dict(lists.rows()) == expected


def test_a_run_without_recorded_lists_is_an_error(data):
    with pytest.raises(mf.TraceError, match="record=True"):
        mf.simulate(data, "TopK", steps=10).to_run()


def test_ndcg_of_other_libraries_is_ours_for_the_same_gain(data, tmp_path):
    """Ours has gain R = ε + (1 - ε)(2^y - 1)/(2^y_max - 1); with ε = 0 the factor cancels, and R may be y itself."""
    relevant = np.add.reduceat(data.y, data.offsets[:-1]) > 0  # others leave out queries without relevant documents
    data = data.take(np.flatnonzero(relevant))
    trace = mf.simulate(data, "RandomK", steps=data.queries * 9, record=True, checkpoints=1, seed=4)
    last = trace.to_run()
    queries = last["query_id"].unique(maintain_order=True).to_list()
    qrels = data.to_qrels().filter(pl.col("query_id").is_in(queries))
    files = write_trec(qrels, tmp_path / "qrels"), write_trec(last, tmp_path / "run")
    figures = read_by_ranx(*files, "ndcg@5", "ndcg_burges@5")["figures"]
    linear = mean_ndcg(trace, data.y / data.y_max)
    assert figures["ndcg@5"] == pytest.approx(linear, abs=1e-12)
    assert figures["ndcg_burges@5"] == pytest.approx(
        mean_ndcg(trace, relevance(data.y, data.y_max, epsilon=0.0)), abs=1e-12
    )
    measure = ir_measures.nDCG @ 5
    found = ir_measures.calc_aggregate([measure], qrels.to_pandas(), last.to_pandas())
    assert found[measure] == pytest.approx(linear, abs=1e-12)


def mean_ndcg(trace, R):
    """Compute the mean NDCG@5 of the last list of every query."""
    data = trace.data
    discount = 1 / np.log2(np.arange(2, 7))
    values = []
    for q in range(data.queries):
        shown = trace.lists[trace.arrivals == q]
        if len(shown):
            gains = R[data.offsets[q] : data.offsets[q + 1]]
            ideal = np.sort(gains)[::-1][:5]
            last = shown[-1][shown[-1] >= 0]
            values.append(gains[last] @ discount[: len(last)] / (ideal @ discount[: len(ideal)]))
    return np.mean(values)


def test_candidates_of_a_run_and_tables_of_other_libraries(tmp_path):
    qrels = pd.DataFrame({"qid": ["1", "1", "2", "9"], "docno": ["a", "b", "a", "z"], "label": [2, -1, 1, 1]})
    run = pd.DataFrame({"qid": ["2", "1", "1", "3"], "docno": ["a", "b", "new", "a"], "score": [4.0, 2.5, 2.0, 1.0]})
    data = mf.Dataset.from_trec(qrels, run, name="trec")
    assert list(data.query_ids) == ["2", "1"]
    assert list(data.item_ids) == ["a", "b", "new"]
    assert data.y.tolist() == [1, 0, 0]
    assert data.scores.tolist() == [4.0, 2.5, 2.0]
    assert data.y_max == 2  # of a document that the run lacks
    assert data.R.tolist() == pytest.approx([0.1 + 0.9 / 3, 0.1, 0.1])


def test_odd_tables(tmp_path):
    qrels = pd.DataFrame({"qid": ["1", "1"], "docno": [7.0, 8.0], "label": [1, 0]})  # numbers with gaps become floats
    run = pl.LazyFrame({"qid": ["1", "1"], "docno": ["7", "8"], "score": [2.0, 1.0]})
    assert mf.Dataset.from_trec(qrels, run).y.tolist() == [1, 0]
    (tmp_path / "qrels").write_text("1 0 7 1\n1 0 8 0\n", encoding="utf-8-sig")
    assert list(mf.Dataset.from_trec(tmp_path / "qrels").query_ids) == ["1"]
    twice = pd.concat([qrels, qrels])
    assert mf.Dataset.from_trec(twice, run).y.tolist() == [1, 0]
    for wrong, message in (
        (qrels.assign(label=[1, None]), "'label', row 2 of 2: the value is missing"),
        (qrels.assign(label=["1", "x"]), "'label', row 2 of 2: got 'x', expected a finite number"),
        (qrels.assign(query_id=["1", "1"]), "columns 'query_id', 'qid' may all be the query"),
        (twice.assign(label=[1, 0, 2, 0]), "item '7' occurs twice in query '1'"),
    ):
        with pytest.raises(mf.DataError, match=message):
            mf.Dataset.from_trec(wrong, run)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 0 a\n", "line 1: got 3 columns, expected 4"),
        ("1 0 a 1\n\n1 0 b x\n", "does not hold numbers"),
        ("", "no rows"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, text, message):
    (tmp_path / "qrels").write_text(text)
    with pytest.raises(mf.DataError, match=message) as caught:
        mf.Dataset.from_trec(tmp_path / "qrels")
    assert "\n" not in str(caught.value)


def test_wrong_tables_missing_files_and_ids_with_spaces(tmp_path):
    with pytest.raises(mf.DataError, match="no column for the grade"):
        mf.Dataset.from_trec(pd.DataFrame({"qid": ["1"], "docno": ["a"]}))
    with pytest.raises(mf.DataError, match="cannot read"):
        mf.Dataset.from_trec(tmp_path / "none")
    with pytest.raises(mf.DataError, match="no query of the judgements"):
        mf.Dataset.from_trec(
            pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [1]}),
            pd.DataFrame({"qid": ["2"], "docno": ["a"], "score": [1.0]}),
        )
    with pytest.raises(mf.DataError, match="red shoes"):
        write_trec(mf.Dataset(offsets=[0, 2], y=[0, 1], query_ids=["red shoes"]).to_qrels(), tmp_path / "qrels")
