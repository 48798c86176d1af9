"""The command `mcfair import`."""

import dataclasses
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_line import MCFAIR, refused, run
from postgres_server import missing, shared_server
from service_process import ServerProcess

import mcfair as mf
from mcfair.service.core.verification import replay, verify
from mcfair.service.histories import open_sources, read_source
from mcfair.service.ranker import Ranker
from mcfair.service.stores import open_reader

LOG = """impression,query,item,rank,clicked,seller
1,shoes,a,1,1,north
1,shoes,b,2,0,south
2,shoes,b,1,0,south
2,shoes,a,2,1,north
3,hats,c,1,1,
3,hats,d,x,0,north
"""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return str(path)


@pytest.fixture
def store(tmp_path):
    return f"sqlite:///{tmp_path / 'shop.db'}"


def stored(store):
    """Everything that is counted, and what verify and replay find."""
    with Ranker(store, warm=False) as ranker:
        lines = sorted(json.dumps(each) for each in ranker.export() if "visits" in each)
    with open_reader(store) as reader:
        assert [verify(reader), replay(reader)[2]] == [[], []]
    return lines


def outcome(*words):
    (found,) = json.loads(run("import", *words, "--json").stdout)["sources"]
    return found


def test_a_log_is_imported_once(log, store):
    found = outcome(log, "--store", store)
    assert {name: found[name] for name in ("rows", "queries", "items", "impressions", "shown", "clicks")} == {
        "rows": 6,
        "queries": 2,
        "items": 3,
        "impressions": 3,
        "shown": 5,
        "clicks": 3,
    }
    assert found["excluded"] == {"rank not a whole number of at least 1": 1}
    assert (found["imported"], found["duplicate"], found["refused"]) == (2, 0, {})
    before = stored(store)
    again = outcome(log, "--store", store)
    assert (again["imported"], again["duplicate"]) == (0, 2)
    assert stored(store) == before
    with Ranker(store, warm=False) as ranker:
        shoes = {item.id: (item.exposure, item.clicks, item.group) for item in ranker.query_state("shoes").items}
    p = 1 / np.log2([2, 3])
    assert shoes == {"a": (p.sum(), 2.0, "north"), "b": (p.sum(), 0.0, "south")}


def test_a_dry_run_counts_and_writes_nothing(log, store, tmp_path):
    text = run("import", log, "--store", store, "--dry-run").stdout
    assert "would import 2 queries, 3 items of queries, 3 impressions with 5 items shown, 3 clicks" in text
    assert "left out: 1 rows (rank not a whole number of at least 1)" in text
    assert not (tmp_path / "shop.db").exists()
    done = run("import", log, "--store", store).stdout
    assert "2 queries imported, 0 had been imported before" in done


def test_the_ledger_of_an_imported_run_is_its_state(store, tmp_path):
    """Every count of a simulated run, at every rank."""
    data = mf.synthetic("mq2008-like", seed=0).take(range(5))
    run_folder = tmp_path / "run"
    trace = mf.simulate(data, "MCFair", "online", steps=800, k=5, record=True)
    trace.save(run_folder)
    found = outcome(str(run_folder), "--store", store)
    assert (found["format"], found["impressions"], found["shown"]) == ("simulation", 800, int(trace.state.F.sum()))
    with Ranker(store, warm=False) as ranker:
        engine, ids = ranker.executor.engine, mf.Trace.load(run_folder).data.item_ids
        for q in range(data.queries):
            name = trace.data.query_id(q)
            if not trace.state.visits[q]:
                continue
            ledger = engine.ledger(engine.find_number(name, None))
            (block,) = ledger.counts.blocks.values()
            assert ledger.visits == trace.state.visits[q]
            for d in range(data.offsets[q], data.offsets[q + 1]):
                F, C = trace.state.F[d], trace.state.C[d]
                row = ledger.index.get(ids[d])
                assert (row is None) == (F.sum() == 0)
                if row is not None:
                    assert block.F[row].tolist() == F[: block.ranks].tolist()
                    assert F[block.ranks :].sum() == 0
                    assert block.C[row] == C


def test_files_of_a_folder_are_sources_of_their_own(log, store, tmp_path):
    folder = tmp_path / "days"
    folder.mkdir()
    (folder / "1.csv").write_text(LOG)
    first = json.loads(run("import", str(folder), "--store", store, "--json").stdout)["sources"]
    (folder / "2.csv").write_text(LOG.replace("shoes", "coats"))
    second = json.loads(run("import", str(folder), "--store", store, "--json").stdout)["sources"]
    assert [each["imported"] for each in first] == [2]
    assert [(each["imported"], each["duplicate"]) for each in second] == [(0, 2), (2, 0)]
    assert outcome(log, "--store", store)["duplicate"] == 2, "a copy under another name is the same source"


def test_what_the_service_would_not_accept_is_left_out(store, tmp_path):
    path = tmp_path / "long.parquet"
    rows = [("q", "a", 1, 1), ("q", "b" * 300, 2, 1), ("x" * 5000, "a", 1, 0)]
    pl.DataFrame(rows, schema=["query", "item", "rank", "clicked"], orient="row").write_parquet(path)
    found = outcome(str(path), "--store", store)
    assert found["excluded"] == {"query longer than 4,096 bytes": 1, "item longer than 256 bytes": 1}
    assert (found["queries"], found["items"], found["shown"], found["imported"]) == (1, 1, 1, 1)


def test_a_query_with_many_items_is_imported_in_parts(store, tmp_path):
    path = tmp_path / "many.parquet"
    n = 12_000
    pl.DataFrame(
        {"query": ["q"] * n, "item": [f"i{d}" for d in range(n)], "rank": [1] * n, "clicked": [d % 2 for d in range(n)]}
    ).write_parquet(path)
    found = outcome(str(path), "--store", store)
    assert (found["queries"], found["items"], found["imported"], found["clicks"]) == (1, n, 1, n // 2)
    with Ranker(store, warm=False) as ranker:
        state = ranker.query_state("q")
        assert (len(state.items), sum(item.clicks for item in state.items)) == (n, n / 2)
    assert outcome(str(path), "--store", store)["duplicate"] == 1


def test_stores_and_two_targets_are_refused(log, store, tmp_path):
    run("import", log, "--store", store)
    assert "mcfair migrate" in refused("import", str(tmp_path / "shop.db"), "--store", f"{store}2")
    assert "one target" in refused("import", log, "--store", store, "--url", "http://127.0.0.1:1")
    assert "no column for the item" in refused("import", str(write(tmp_path, "query,rank\nq,1\n")), "--store", store)


def write(tmp_path, text):
    path = tmp_path / "other.csv"
    path.write_text(text)
    return path


# --- real processes --------------------------------------------------------------------------------------------------


QUERIES = 1_000


def many_queries(tmp_path):
    """Write a log with a list of four items for each of many queries; return it and the counts it leads to."""
    path = tmp_path / "big.parquet"
    clicks = np.random.default_rng(0).integers(0, 2, (QUERIES, 4)).tolist()
    rows = [
        (q, f"query {q}", f"item {q}-{rank}", rank, clicked)
        for q, hits in enumerate(clicks)
        for rank, clicked in enumerate(hits, start=1)
    ]
    pl.DataFrame(rows, schema=["impression", "query", "item", "rank", "clicked"], orient="row").write_parquet(path)
    ranks = np.eye(4, dtype=int).tolist()
    return str(path), {f"item {q}-{rank}": (1, ranks[rank - 1], clicked) for q, _, _, rank, clicked in rows}


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_an_import_that_was_killed_is_completed_by_repeating_it(database, tmp_path):
    if database == "postgresql" and missing() is not None:
        pytest.skip(str(missing()))
    new = (lambda name: f"sqlite:///{tmp_path / name}.db") if database == "sqlite" else new_database
    (log, expected), store = many_queries(tmp_path), new("killed")
    with Ranker(store, warm=False):  # so that there is a store to look at
        pass
    process = subprocess.Popen([*MCFAIR, "import", log, "--store", store], env=os.environ, stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 300
        with open_reader(store) as reader:
            while not reader.numbers(0, 1) and process.poll() is None and time.monotonic() < end:
                time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    with open_reader(store) as reader:
        done = reader.usage().queries
        assert verify(reader) == []
    assert 0 < done < QUERIES, "the process was killed too early or too late"
    again = outcome(log, "--store", store)
    assert (again["imported"], again["duplicate"]) == (QUERIES - done, done)
    with Ranker(store, warm=False) as ranker:
        found = {
            item["id"]: (each["visits"], cell["ranks"], cell["clicks"])
            for each in ranker.export()
            for item in each.get("items", ())
            for cell in item["counts"]
        }
    assert found == expected


def new_database(_):
    return shared_server().new_database()


def test_beside_a_running_server(log, store, tmp_path):
    with ServerProcess(tmp_path / "shop.db") as server:
        server.ready()
        assert outcome(log, "--store", store)["imported"] == 2
        added = run("keys", "add", "import", "--scope", "admin", "--store", store).stdout.strip()
        reading = run("keys", "add", "reader", "--scope", "read", "--store", store).stdout.strip()
        address = f"http://127.0.0.1:{server.port}"
        found = outcome(log, "--url", address, "--key", added)
        assert (found["imported"], found["duplicate"]) == (0, 2)
        assert "scope" in refused("import", log, "--url", address, MCFAIR_KEY=reading)
        server.terminate()
    assert len(stored(store)) == 2


def test_a_file_that_grows_while_it_is_read_is_refused(log):
    (opened,) = open_sources(log, {})

    def growing(rows):
        with Path(log).open("a") as stream:
            stream.write("4,shoes,a,1,0,north\n")
        return rows

    assert read_source(opened, {})[1].queries == 2
    with pytest.raises(mf.DataError, match="changed while it was read"):
        read_source(dataclasses.replace(opened, rows=opened.rows.map_batches(growing)), {})
