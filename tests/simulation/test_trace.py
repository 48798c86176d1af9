import json
from statistics import NormalDist

import naive
import naive_estimators
import numpy as np
import polars as pl
import pytest
from same_runs import same

import mcfair as mf
from mcfair.errors import TraceError


@pytest.fixture(scope="module")
def trace():
    data = mf.synthetic("mq2008-like", seed=0).take(range(8))
    data = data.with_providers([None if i % 7 == 0 else f"shop {i % 4}" for i in range(data.items)])
    metrics = ["group_unfairness", "gini"]
    return mf.simulate(
        data, "MCFair(alpha=3)", "online", steps=700, seed=9, record=True, checkpoints=7, metrics=metrics
    )


def test_final_figures_are_those_of_the_last_checkpoint(trace):
    assert trace.sessions == 700
    assert trace.figures == {text: values[-1] for text, values in trace.values.items()}
    assert trace.unfairness == trace.values["unfairness"][-1]
    assert trace.relative_unfairness == trace.values["relative_unfairness"][-1]
    assert trace.cndcg == {k: trace.values[f"cndcg@{k}"][-1] for k in range(1, 6)}
    assert trace.ndcg == {k: trace.values[f"ndcg@{k}"][-1] for k in range(1, 6)}
    assert trace.cndcg[5] > trace.ndcg[5] > 0
    assert repr(trace).startswith(
        "Trace(MCFair(alpha=3.0, beta='auto', scale='max', mc_floor=0.1, ties='index', explore='mc'), online, "
        "700 sessions: "
    )


def test_a_notebook_shows_every_figure(trace):
    html = trace._repr_html_()
    assert "beta=&#x27;auto&#x27;" in html
    for text, value in trace.figures.items():
        assert f"<tr><th>{text}</th><td>{value:.5g}</td></tr>" in html


def test_the_table_of_figures_is_tidy(trace):
    frame = trace.frame()
    assert frame.columns == ["policy", "setting", "seed", "sessions", "metric", "value"]
    assert frame.height == 7 * len(trace.values)
    assert len(trace.values) == 2 + 5 + 5 + 2
    last = frame.filter((pl.col("sessions") == 700) & (pl.col("metric") == "cndcg@5"))
    assert last["value"].to_list() == [trace.cndcg[5]]
    for text, values in trace.values.items():
        assert frame.filter(pl.col("metric") == text)["value"].to_list() == values.tolist()


def test_the_table_of_queries(trace):
    queries = trace.queries()
    assert queries.height == 8
    assert queries["sessions"].sum() == queries["visits"].sum() == 700
    assert queries["items"].to_list() == trace.data.sizes.tolist()
    for text in ("unfairness", "ndcg@5", "gini", "group_unfairness"):
        assert queries[text].to_list() == trace.query_values[text].tolist()
    assert not [name for name in queries.columns if name.startswith("cndcg@")]  # a query has no cumulative value


def test_the_table_of_items(trace):
    items, state, data = trace.items(), trace.state, trace.data
    shown = [f"shown@{j}" for j in range(1, 6)]
    assert items.columns == [
        "query", "item", "provider", "grade", "relevance", "estimate", "uncertainty", "exposure", "clicks", *shown,
    ]  # fmt: skip
    assert items["query"].to_list() == [data.query_id(q) for q in range(8) for _ in range(data.sizes[q])]
    assert items["item"].to_list()[: data.sizes[0]] == [str(i) for i in range(data.sizes[0])]
    assert items["relevance"].to_list() == data.R.tolist()
    assert items["exposure"].to_list() == [naive.exposure(row, state.p) for row in state.F]
    assert items["estimate"].to_list() == naive.estimate(state.C, state.E).tolist()
    assert items["uncertainty"].to_list() == naive.uncertainty(state.E).tolist()
    assert items["clicks"].to_list() == state.C.tolist()
    assert items.select(shown).to_numpy().tolist() == state.F.tolist()
    assert items["provider"].to_list()[:3] == ["item 0 of query 0", "shop 1", "shop 2"]


def test_items_have_intervals_if_the_estimator_has_a_posterior(trace, tmp_path):
    run = mf.simulate(trace.data, "BayesFair", "online", steps=300)
    items, state = run.items(), run.state
    prior = np.array(state.estimator.theta).reshape(4, -1)[:3].T.tolist()
    assert items.columns[6:9] == ["uncertainty", "low", "high"]
    assert "low" not in trace.items().columns
    for C, F, low, high in zip(state.C.tolist(), state.F.tolist(), items["low"], items["high"], strict=True):
        mean, variance = naive_estimators.moments(naive_estimators.posterior(C, F, state.p, prior))
        ends = NormalDist(mean, variance**0.5).inv_cdf(0.025), NormalDist(mean, variance**0.5).inv_cdf(0.975)
        assert (low, high) == pytest.approx((max(ends[0], 0.0), min(ends[1], 1.0)), rel=1e-6, abs=1e-9)
    assert mf.Trace.load(run.save(tmp_path / "run")).items().equals(items)


def test_provenance_is_enough_to_run_it_again(trace):
    about = trace.provenance
    assert about["data"]["fingerprint"] == trace.data.fingerprint
    again = mf.simulate(
        trace.data, about["policy"], mf.Setting(**about["setting"]), seed=about["seed"], checkpoints=trace.checkpoints
    )
    assert same(again, trace)
    assert set(about["versions"]) == {"python", "mcfair", "numpy", "numba"}


def test_a_trace_is_loaded_as_it_was_saved(trace, tmp_path):
    folder = trace.save(tmp_path / "a" / "run")
    assert {path.name for path in folder.iterdir()} == {
        "run.json", "metrics.parquet", "queries.parquet", "state.parquet", "sessions.parquet",
    }  # fmt: skip
    assert json.loads((folder / "run.json").read_text()) == trace.provenance
    loaded = mf.Trace.load(folder)
    for name in ("checkpoints", "query_judged", "query_sessions", "lists", "clicks", "arrivals"):
        assert np.array_equal(getattr(loaded, name), getattr(trace, name)), name
    assert list(loaded.values) == list(trace.values)
    for text, values in trace.values.items():
        assert np.array_equal(loaded.values[text], values), text
    kept = [text for text in trace.query_values if not text.startswith("cndcg@")]
    assert sorted(loaded.query_values) == sorted(kept)
    for text in kept:
        assert np.array_equal(loaded.query_values[text], trace.query_values[text], equal_nan=True), text
    for name in ("offsets", "p", "F", "C", "visits", "E"):
        assert np.array_equal(getattr(loaded.state, name), getattr(trace.state, name)), name
    for name in ("offsets", "y", "R"):
        assert np.array_equal(getattr(loaded.data, name), getattr(trace.data, name)), name
    assert loaded.data.fingerprint == trace.data.fingerprint
    assert loaded.queries().equals(trace.queries())
    assert loaded.items().equals(trace.items())
    assert loaded.frame().equals(trace.frame())


def test_a_loaded_state_can_be_continued(trace, tmp_path):
    data = mf.synthetic("mq2008-like").take(range(8))
    loaded = mf.Trace.load(trace.save(tmp_path / "run"))
    on = [mf.simulate(data, "MCFair", "online", steps=100, seed=9, state=each.state) for each in (trace, loaded)]
    assert np.array_equal(on[0].state.F, on[1].state.F)


def test_without_record_there_are_no_sessions(tmp_path):
    trace = mf.simulate(mf.synthetic("mq2008-like").take([0]), "TopK", steps=5)
    assert (trace.lists, trace.clicks, trace.arrivals) == (None, None, None)
    assert mf.Trace.load(trace.save(tmp_path / "run")).lists is None
    assert not (tmp_path / "run" / "sessions.parquet").exists()


def test_a_folder_is_never_overwritten_nor_written_in_part(trace, tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(TraceError, match="exists already"):
        trace.save(tmp_path / "run")
    (tmp_path / "file").write_text("x")
    with pytest.raises(TraceError, match="cannot write to"):
        trace.save(tmp_path / "file" / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "run"]


def test_what_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(TraceError, match="is not a saved run"):
        mf.Trace.load(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(TraceError, match="is not a saved run"):
        mf.Trace.load(tmp_path)
