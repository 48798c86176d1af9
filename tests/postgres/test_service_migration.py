"""A store moves between SQLite and PostgreSQL without a change, also if the move is interrupted."""

import signal
import subprocess
import sys
import textwrap

import psycopg
import pytest
from postgres_server import missing, shared_server
from service_process import SERVE, mcfair

from mcfair.errors import StoreError
from mcfair.service.core.verification import replay, verify
from mcfair.service.migration import migrate
from mcfair.service.ranker import Ranker
from mcfair.service.stores import TABLES, open_reader, open_store

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture
def url():
    return shared_server().new_database()


def fill(where):
    """Fill a store with every kind of row; return what must stay valid."""
    arms = [{"name": "b", "policy": "MMF", "share": 0.5}]
    with Ranker(where, warm=False, retention=1_000, experiment={"name": "e", "arms": arms}) as ranker:
        key = ranker.add_key("shop é", ["rank"]).key
        for query in range(30):
            ranker.rank(f"query {query}", ["everywhere", {"id": f"own {query}\0", "group": "G"}, "third"], k=2)
        answers = [
            ranker.rank("hot", ["a", "b", {"id": f"item {i % 7}", "prior": 0.5}], k=3, key=f"key-{i}")
            for i in range(150)
        ]
        ranker.feedback([{"impression": each.impression, "item": each.items[0].id} for each in answers[::3]])
        ranker.worker.summarize()
        ranker.change_policy(policy="TopK")
        ranker.rank("hot", ["a", "third"], session="s")
        ranker.delete_item("b")
        ranker.delete_query("query 3")
        store = ranker.executor.store
        ranker.executor.submit(lambda engine: store.exempt(store.add_deletion("everywhere"), 1)).result()
    return key, answers


def content(where):
    """Return every row of every table."""
    store = open_store(where)
    try:
        return {
            table.name: [tuple(row) for row in store.read_page(table._replace(page=10**6), None)] for table in TABLES
        }
    finally:
        store.close()


def test_a_store_moves_to_postgresql_and_back_without_a_change(tmp_path, url):
    key, answers = fill(tmp_path / "old.db")
    rows = migrate(str(tmp_path / "old.db"), url)
    before = content(tmp_path / "old.db")
    assert rows == sum(map(len, before.values())) > 500
    assert all(before.values()), f"tables without rows prove nothing: {[name for name in before if not before[name]]}"
    assert content(url) == before
    migrate(url, str(tmp_path / "new.db"))
    assert content(tmp_path / "new.db") == before
    for where in (url, tmp_path / "new.db"):
        with Ranker(where, warm=False) as ranker:
            assert ranker.authenticate(key) == {"rank"}
            again = ranker.rank("hot", ["a", "b", {"id": "item 0", "prior": 0.5}], k=3, key="key-0")
            assert again.impression == answers[0].impression
            statuses = ranker.feedback(
                [{"impression": each.impression, "item": each.items[0].id} for each in answers[:2]]
            )
            assert [each.status for each in statuses] == ["duplicate", "applied"]
            last = max(row[0] for row in before["queries"])
            ranker.rank("a new query", ["a"])
        with open_reader(where) as reader:
            assert len(reader.numbers(last, 9)) == 1, "the number of a query is used again"
            assert [verify(reader), replay(reader)[2]] == [[], []]


def test_a_migration_that_was_killed_is_continued(tmp_path, url):
    fill(tmp_path / "old.db")
    script = textwrap.dedent("""
        import os, signal, sys
        from mcfair.service.migration import migrate
        pages = []
        def progress(rows):
            pages.append(rows)
            if len(pages) == int(sys.argv[3]):
                os.kill(os.getpid(), signal.SIGKILL)
        migrate(sys.argv[1], sys.argv[2], progress)
    """)
    for pages in (1, 4, 7, 12):
        ran = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "old.db"), url, str(pages)], check=False, capture_output=True
        )
        assert ran.returncode == -signal.SIGKILL, ran.stderr
        with pytest.raises(StoreError, match="unfinished migration"):
            open_store(url)
        with pytest.raises(StoreError, match="unfinished migration"), open_reader(url):
            pass
    ran = mcfair("migrate", tmp_path / "old.db", url)
    assert ran.returncode == 0, ran.stderr
    assert "equal to those of" in ran.stdout
    assert content(url) == content(tmp_path / "old.db")
    with pytest.raises(StoreError, match="from a migration of this source that is complete"):
        migrate(str(tmp_path / "old.db"), url)


def test_a_target_with_other_data_is_refused(tmp_path, url):
    fill(tmp_path / "old.db")
    fill(tmp_path / "other.db")
    with pytest.raises(StoreError, match="has data already"):
        migrate(str(tmp_path / "old.db"), str(tmp_path / "other.db"))
    migrate(str(tmp_path / "other.db"), url)
    before = content(tmp_path / "other.db")
    with pytest.raises(StoreError, match="has data already"):
        migrate(str(tmp_path / "old.db"), url)
    assert content(url) == before


def test_a_difference_is_found(tmp_path, url):
    fill(tmp_path / "old.db")

    def tamper(rows):
        with psycopg.connect(url) as db:
            db.execute("UPDATE mcfair.log SET body = body || '\\x00' WHERE query = 2 AND seq = 1")

    with pytest.raises(StoreError, match="differs from the source in log"):
        migrate(str(tmp_path / "old.db"), url, tamper)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_source_that_is_in_use_is_refused(tmp_path, url, kind):
    source, target = (tmp_path / "old.db", url) if kind == "sqlite" else (url, tmp_path / "new.db")
    with Ranker(source, warm=False) as ranker:
        ranker.rank("q", ["a"])
        if kind == "postgresql":
            ranker.executor.submit(lambda engine: engine.store.leads()).result()
        ran = subprocess.run([*SERVE, "migrate", str(source), str(target)], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "is in use by" in ran.stderr
