"""Privacy: what is stored and what erasure leaves, checked in the raw bytes of files; see docs/how-to/privacy.md."""

import shutil
import sqlite3
import time
from contextlib import closing

import postgres_server
import pytest
from service_process import ServerProcess, mcfair

from mcfair.service.ranker import Ranker
from mcfair.service.stores import SQLiteStore

QUERY, OTHER_QUERY = "symptoms of a rare disease", "red shoes"
ERASED, KEPT = "item-of-a-person-who-objects", "item-that-stays"
GROUP = "provider-of-that-person"


def fill(ranker):
    """Rank two queries; both have an item that will be erased from one or both of them."""
    for query in (QUERY, OTHER_QUERY):
        items = [{"id": ERASED, "group": GROUP}, {"id": KEPT}, *({"id": f"{query} {i}"} for i in range(300))]
        answer = ranker.rank(query, items, k=2, key="idempotency-key-" + query.replace(" ", "-"))
        ranker.feedback([{"impression": answer.impression, "item": answer.items[0].id}])


def stored_bytes(path):
    """Return everything that is in the files of a store."""
    files = [each for each in path.parent.glob(f"{path.name}*") if not each.name.endswith((".lock", "-shm"))]
    assert path in files
    return b"".join(each.read_bytes() for each in files)


def wait_until_gone(path, *words, seconds=60.0):
    until = time.monotonic() + seconds
    while left := [word for word in words if word.encode() in stored_bytes(path)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


ERASURES = {
    "delete_item": (lambda ranker: ranker.delete_item(ERASED), [ERASED, GROUP], [KEPT, "red shoes 7"]),
    "delete_query": (lambda ranker: ranker.delete_query(QUERY), [f"{QUERY} 7"], [ERASED, "red shoes 7"]),
    "reset": (lambda ranker: ranker.reset(), [ERASED, GROUP, KEPT, f"{QUERY} 7", "red shoes 7"], []),
}


@pytest.mark.parametrize("name", ERASURES)
def test_erased_data_leaves_the_database_and_its_write_ahead_log(tmp_path, name):
    erase, gone, kept = ERASURES[name]
    path = tmp_path / "mcfair.db"
    with Ranker(SQLiteStore(path, truncate_seconds=0.5), warm=False) as ranker:
        fill(ranker)
        assert all(word.encode() in stored_bytes(path) for word in gone + kept)
        erase(ranker)
        wait_until_gone(path, *gone)
        assert all(word.encode() in stored_bytes(path) for word in kept)


def test_erased_data_leaves_the_files_when_the_service_stops(tmp_path):
    path = tmp_path / "mcfair.db"
    with Ranker(SQLiteStore(path, truncate_seconds=3600), warm=False) as ranker:
        fill(ranker)
        ranker.delete_item(ERASED)
        assert ERASED.encode() in stored_bytes(path)  # in the write-ahead log, which is not emptied yet
    assert ERASED.encode() not in stored_bytes(path)
    assert KEPT.encode() in stored_bytes(path)


def test_erased_data_leaves_the_log_that_a_crash_left_behind(tmp_path):
    path, crashed = tmp_path / "mcfair.db", tmp_path / "crashed" / "mcfair.db"
    crashed.parent.mkdir()
    with Ranker(SQLiteStore(path, truncate_seconds=3600), warm=False) as ranker:
        fill(ranker)
        ranker.delete_item(ERASED)
        for suffix in ("", "-wal"):  # the files as a crash at this moment would leave them
            shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
    assert ERASED.encode() in stored_bytes(crashed)
    with Ranker(SQLiteStore(crashed, truncate_seconds=0.5), warm=False):
        wait_until_gone(crashed, ERASED)
        assert KEPT.encode() in stored_bytes(crashed)


def test_a_reader_delays_the_truncation_of_the_log_and_nothing_else(tmp_path):
    path = tmp_path / "mcfair.db"
    with Ranker(SQLiteStore(path, truncate_seconds=0.1), warm=False) as ranker:
        fill(ranker)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM items").fetchone()[0]
            ranker.delete_item(ERASED)
            begun = time.monotonic()
            while time.monotonic() < begun + 1.5:
                ranker.rank(OTHER_QUERY, [KEPT], k=1)
            assert ERASED.encode() in stored_bytes(path)
        wait_until_gone(path, ERASED)


@pytest.mark.skipif(postgres_server.missing() is not None, reason=str(postgres_server.missing()))
def test_erased_data_leaves_the_tables_of_postgresql_after_a_full_vacuum():
    import psycopg

    server = postgres_server.shared_server()
    url = server.new_database()

    def in_tables(word):
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("CHECKPOINT")
            (folder,) = db.execute("SELECT oid::text FROM pg_database WHERE datname = current_database()").fetchone()
        return any(word.encode() in file.read_bytes() for file in (server.data / "base" / folder).iterdir())

    with Ranker(url, warm=False) as ranker:
        fill(ranker)
        assert in_tables(ERASED)
        assert in_tables(KEPT)
        ranker.delete_item(ERASED)
        until = time.monotonic() + 60
        while in_tables(ERASED):
            assert time.monotonic() < until
            with psycopg.connect(url, autocommit=True) as db:
                db.execute("VACUUM FULL")
        assert in_tables(KEPT)


def test_query_texts_and_secrets_are_not_stored(tmp_path):
    path = tmp_path / "mcfair.db"
    with Ranker(path, warm=False) as ranker:
        fill(ranker)
        secret = ranker.add_key("shop", ["rank"]).key
        ranker.rank("another text", [KEPT], k=1, key="another-idempotency-key")
        content = stored_bytes(path)
    content += stored_bytes(path)
    assert KEPT.encode() in content
    for word in ("another text", "idempotency-key", secret, secret.split("_", 2)[2]):
        assert word.encode() not in content, word


def test_digests_of_requests_are_keyed_with_the_secret_of_the_store(tmp_path):
    """Without that, whoever has the file could test guesses of query texts."""
    rows = []
    for name in ("one.db", "two.db"):
        with Ranker(tmp_path / name, warm=False) as ranker:
            ranker.rank(QUERY, [KEPT], k=1, key="k")
        with closing(sqlite3.connect(tmp_path / name)) as db:
            rows.append(db.execute("SELECT key, digest FROM requests").fetchone())
    assert not set(rows[0]) & set(rows[1])


def test_a_backup_keeps_what_is_erased_later(tmp_path):
    path = tmp_path / "mcfair.db"
    with Ranker(path, warm=False) as ranker:
        fill(ranker)
        assert mcfair("backup", tmp_path / "before", "--store", path).returncode == 0
        ranker.delete_item(ERASED)
        assert mcfair("backup", tmp_path / "after", "--store", path).returncode == 0
    assert ERASED.encode() in (tmp_path / "before").read_bytes()
    assert ERASED.encode() not in (tmp_path / "after").read_bytes()
    assert KEPT.encode() in (tmp_path / "after").read_bytes()


def test_logs_have_neither_queries_nor_items_nor_ids(tmp_path):
    with ServerProcess(tmp_path / "mcfair.db", "--access-log") as server, server.ready().connect() as connection:
        rank = {"query": QUERY, "items": [{"id": ERASED}, {"id": KEPT}]}
        answer = connection.post("/v1/rank", rank, "the-idempotency-key").json
        connection.post("/v1/feedback", {"events": [{"impression": answer["impression"], "item": ERASED}]})
        connection.get(f"/v1/impressions/{answer['impression']}/explain")
        connection.get(f"/v1/queries/{answer['query_id']}")
        connection.get(f"/v1/{ERASED}")
        connection.post("/v1/rank", rank | {"k": -1, "policy": ERASED})
        connection.post("/v1/items/delete", {"item": ERASED})
        assert server.terminate() == 0
        text = server.text
    assert "POST /v1/rank 200" in text
    for word in (QUERY, ERASED, KEPT, answer["impression"], answer["query_id"], "the-idempotency-key"):
        assert word not in text, word
