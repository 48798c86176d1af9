import json

import numpy as np
import polars as pl
import pytest

import mcfair as mf
from mcfair.errors import TraceError


@pytest.fixture(scope="module")
def trace():
    data = mf.synthetic("mq2008-like", seed=0).take(range(8))
    return mf.simulate(data, "MCFair(alpha=3)", "online", steps=700, seed=9, record=True, checkpoints=7)


def test_its_final_figures(trace):
    assert trace.sessions == 700
    assert trace.unfairness == trace.unfairness_at[-1]
    assert trace.cndcg == {k + 1: value for k, value in enumerate(trace.cndcg_at[-1])}
    assert trace.cndcg[5] > trace.ndcg[5] > 0
    assert repr(trace).startswith(
        "Trace(MCFair(alpha=3.0, beta=100.0, scale='max', mc_floor=0.1, ties='index'), online, 700"
    )


def test_its_table_is_tidy(trace):
    frame = trace.frame()
    assert frame.columns == ["policy", "setting", "seed", "sessions", "metric", "k", "value"]
    assert frame.height == 7 * (2 + 5 + 5)
    last = frame.filter((pl.col("sessions") == 700) & (pl.col("metric") == "cndcg") & (pl.col("k") == 5))
    assert last["value"].to_list() == [trace.cndcg[5]]
    assert frame.filter(pl.col("metric") == "unfairness")["value"].to_list() == trace.unfairness_at.tolist()
    assert frame["k"].null_count() == 14


def test_its_queries(trace):
    queries = trace.queries()
    assert queries.height == 8
    assert queries["sessions"].sum() == 700
    assert queries["unfairness"].to_list() == trace.query_unfairness.tolist()
    assert queries["ndcg@5"].to_list() == trace.query_ndcg[:, 4].tolist()


def test_provenance_is_enough_to_run_it_again(trace):
    about = trace.provenance
    assert about["data"]["fingerprint"] == mf.synthetic("mq2008-like", seed=0).take(range(8)).fingerprint
    again = mf.simulate(
        mf.synthetic("mq2008-like").take(range(8)), about["policy"], mf.Setting(**about["setting"]), seed=about["seed"]
    )
    assert again.unfairness == trace.unfairness
    assert set(about["versions"]) == {"python", "mcfair", "numpy", "numba"}


def test_saved_and_loaded_it_is_the_same(trace, tmp_path):
    folder = trace.save(tmp_path / "a" / "run")
    assert {path.name for path in folder.iterdir()} == {
        "run.json", "metrics.parquet", "queries.parquet", "state.parquet", "sessions.parquet",
    }  # fmt: skip
    assert json.loads((folder / "run.json").read_text()) == trace.provenance
    loaded = mf.Trace.load(folder)
    for name in ("checkpoints", "unfairness_at", "relative_unfairness_at", "cndcg_at", "ndcg_at", "query_unfairness",
                 "query_ndcg", "query_judged", "query_sessions", "lists", "clicks", "arrivals"):  # fmt: skip
        assert np.array_equal(getattr(loaded, name), getattr(trace, name)), name
    for name in ("offsets", "p", "F", "C", "visits", "E"):
        assert np.array_equal(getattr(loaded.state, name), getattr(trace.state, name)), name
    assert loaded.query_ids == trace.query_ids
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


def test_nothing_is_overwritten_and_nothing_half_written(trace, tmp_path):
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
