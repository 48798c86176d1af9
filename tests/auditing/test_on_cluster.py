"""A log that is read by a real Dask cluster has the numbers of the same log read here, to the bit."""

import time
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest
from dask_cluster import cluster
from logs import random_log

import mcfair as mf
from mcfair.auditing import counts
from mcfair.errors import DataError, SettingError

P = [1.0, 0.5, 0.25]


@pytest.fixture(scope="module")
def log():
    """A log whose impressions are spread over files, with a row that was logged twice and one that cannot be used."""
    _, table = random_log(6, P)
    table = table.with_columns(propensity=(pl.col("rank") % 3 + 1) / 7, time=86_400 * pl.col("impression"))
    wrong = table[:1].with_columns(query=pl.lit(None, pl.String))
    return pl.concat([table, table[:1], wrong]).sample(fraction=1, shuffle=True, seed=2)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    pytest.importorskip("distributed")
    with cluster(tmp_path_factory.mktemp("dask"), 2) as (address, _):
        yield address


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_results_are_identical(log, address, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(counts, "PART_ROWS", 17)  # parts that begin and end within files
    size = -(-log.height // 3)
    for i in range(3):
        part = log[size * i : size * (i + 1)]
        part.write_parquet(tmp_path / f"{i}.parquet") if kind == "parquet" else part.write_csv(tmp_path / f"{i}.csv")
    here, there = mf.audit(tmp_path, resamples=5), mf.audit(tmp_path, resamples=5, cluster=address)
    assert there.counts.excluded == {"query missing": 1, "rows logged twice": 1}
    assert there.to_dict() == here.to_dict()
    for name, table in here.tables().items():
        assert there.tables()[name].equals(table), name


def test_errors_of_workers_are_one_line(address, tmp_path):
    (tmp_path / "log.csv").write_text("query,item,rank,clicked\nq,a,first,1\n")
    with pytest.raises(DataError, match=r"none of 1 rows can be used; of 1: rank not a whole number"):
        mf.audit(tmp_path / "log.csv", cluster=address)
    with pytest.raises(DataError, match=r"a cluster reads flat tables .* got lists"):
        mf.audit(pl.DataFrame({"query": ["q"], "items": [["a"]], "clicks": [["a"]]}), cluster=address)


def test_a_cluster_that_does_not_answer(tmp_path):
    pytest.importorskip("distributed")
    (tmp_path / "log.csv").write_text("query,item,rank,clicked\nq,a,1,1\n")
    with pytest.raises(SettingError, match=r"no Dask scheduler answers at tcp://127.0.0.1:1 "):
        mf.audit(tmp_path / "log.csv", cluster="tcp://127.0.0.1:1")


@pytest.mark.parametrize("lost", ["a worker", "the scheduler"])
def test_what_is_lost_meanwhile_is_made_up_for_or_one_line(log, tmp_path, monkeypatch, lost):
    pytest.importorskip("distributed")
    monkeypatch.setattr(counts, "PART_ROWS", log.height)
    (tmp_path / "log").mkdir()
    for i in range(6):
        log.with_columns(pl.col("impression") + 100 * i).write_csv(tmp_path / "log" / f"{i}.csv")
    here = mf.audit(tmp_path / "log", resamples=2)
    with cluster(tmp_path, 2) as (address, processes), ThreadPoolExecutor(1) as thread:
        there = thread.submit(mf.audit, tmp_path / "log", resamples=2, cluster=address)
        time.sleep(1.0)  # while workers import what they need
        processes[2 if lost == "a worker" else 0].kill()
        error = there.exception(timeout=120)
        if error is None:
            assert there.result().to_dict() == here.to_dict()
        else:
            assert isinstance(error, SettingError)
            assert "\n" not in str(error)
