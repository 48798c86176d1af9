"""Exposure measures through ir_measures."""

import sys

import ir_measures
import numpy as np
import pandas as pd
import pytest

import mcfair as mf
from mcfair.plugs.exposure_measures import EED, EEL, EER, Unfairness


def naive(rankings, grades, cutoff, y_max):
    """Compute all four from their definitions, document by document."""
    documents = sorted(set(grades) | {each for ranking in rankings for each in ranking})
    seen = min(cutoff or len(documents), len(documents))

    def weight(rank):
        return 1 / np.log2(rank + 1) if rank <= seen else 0.0

    E = {
        d: sum(weight(ranking.index(d) + 1) for ranking in rankings if d in ranking) / max(len(rankings), 1)
        for d in documents
    }
    order = sorted(documents, key=lambda d: -grades.get(d, 0))
    ideal = {}
    for d in documents:
        alike = [i + 1 for i, e in enumerate(order) if grades.get(e, 0) == grades.get(d, 0)]
        ideal[d] = sum(weight(rank) for rank in alike) / len(alike)
    R = {d: 0.1 + 0.9 * (2 ** grades.get(d, 0) - 1) / (2**y_max - 1) for d in documents}
    n = len(documents)
    pairs = [(E[x] * R[y] - E[y] * R[x]) ** 2 for x in documents for y in documents]
    return {
        "EED": sum(E[d] ** 2 for d in documents),
        "EER": 2 * sum(E[d] * ideal[d] for d in documents),
        "EEL": sum((E[d] - ideal[d]) ** 2 for d in documents),
        "Unfairness": sum(pairs) / (n * (n - 1)),
    }


@pytest.mark.parametrize("cutoff", [None, 2, 3])
def test_measures_are_those_of_their_definitions(cutoff):
    rng = np.random.default_rng(7)
    qrels, rows = {}, []
    for q in range(6):
        documents = [f"d{i}" for i in range(6)]
        qrels[f"q{q}"] = {d: int(rng.integers(0, 3)) for d in documents[:4]} | {"d0": 2}
        for sample in range(1 + q % 3):
            for score, d in enumerate(rng.permutation(documents)[: rng.integers(1, 6)]):
                rows.append((f"q{q}", str(d), float(score), sample))
    run = pd.DataFrame(rows, columns=["query_id", "doc_id", "score", "sample"])
    measures = [each if cutoff is None else each @ cutoff for each in (EED, EER, EEL, Unfairness)]
    found = {(m.query_id, m.measure.NAME): m.value for m in ir_measures.iter_calc(measures, qrels, run)}
    for query, grades in qrels.items():
        part = run[run.query_id == query].sort_values("score", ascending=False)
        rankings = [each["doc_id"].tolist() for _, each in part.groupby("sample")]
        for name, value in naive(rankings, grades, cutoff, 2).items():
            assert found[query, name] == pytest.approx(value, abs=1e-12), (query, name)


def test_two_samples_share_what_one_ranking_cannot():
    qrels = {"q": {"a": 1, "b": 1}}
    alone = {"q": {"a": 2.0, "b": 1.0}}
    both = pd.DataFrame({"query_id": ["q"] * 4, "doc_id": list("abba"), "score": [2, 1, 2, 1], "sample": [0, 0, 1, 1]})
    assert ir_measures.calc_aggregate([EEL], qrels, alone)[EEL] > 0.05
    assert ir_measures.calc_aggregate([EEL], qrels, both)[EEL] == pytest.approx(0, abs=1e-15)


def test_a_query_that_the_run_lacks_is_no_perfect_one():
    assert ir_measures.calc_aggregate([EEL @ 1], {"q": {"a": 1}}, {"other": {"a": 1.0}})[EEL @ 1] == 1.0


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="ir_measures 0.4.3 parses with what Python 3.14 has removed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_names_parse():
    assert ir_measures.parse_measure("EEL@10") == EEL @ 10


def test_measures_stand_beside_others():
    both = ir_measures.calc_aggregate([EEL @ 1, ir_measures.nDCG @ 1], {"q": {"a": 1, "b": 0}}, {"q": {"a": 1.0}})
    assert both == {EEL @ 1: 0.0, ir_measures.nDCG @ 1: 1.0}


def test_ties_are_those_of_trec_eval():
    """One call ranks equal scores alike for all its measures: P@1 is trec_eval's, and EEL@1 is 0 where it is 1."""
    run = {"q": {"a": 1.0, "b": 1.0}}
    for grades, found in (({"a": 1, "b": 0}, {"P": 0.0, "EEL": 2.0}), ({"a": 0, "b": 1}, {"P": 1.0, "EEL": 0.0})):
        values = ir_measures.calc_aggregate([ir_measures.P @ 1, EEL @ 1], {"q": grades}, run)
        assert values == {ir_measures.P @ 1: found["P"], EEL @ 1: found["EEL"]}


def test_odd_runs():
    """Numbers as ids match texts; two rankings that are not numbered are no ranking."""
    run = pd.DataFrame({"query_id": [1, 1], "doc_id": [7, 8], "score": [2.0, 1.0]}, index=[5, 5])
    assert ir_measures.calc_aggregate([EED @ 1], {"1": {"7": 1, "8": 0}}, run)[EED @ 1] == 1.0
    with pytest.raises(mf.DataError, match="document '7' occurs twice in a ranking of query '1'"):
        ir_measures.calc_aggregate([EED @ 1], {"1": {"7": 1}}, pd.concat([run, run]))
    with pytest.raises(mf.DataError, match="sample"):
        ir_measures.calc_aggregate([EED @ 1], {"1": {"7": 1}}, run.assign(sample=[0, None]))
