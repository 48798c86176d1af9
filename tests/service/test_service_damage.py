"""Damaged data: the query that has it is refused, with one line in the log, and everything else goes on."""

import json
import os
import sqlite3

import msgspec
import pytest
from postgres_server import missing, shared_server
from serving import figures

import mcfair as mf
from mcfair.errors import ConflictError, PolicyError, StoreError, UnavailableError
from mcfair.service.core.engine import Engine
from mcfair.service.core.records import Candidates, decode_impression, decode_positions
from mcfair.service.core.reports import export
from mcfair.service.core.verification import replay, verify
from mcfair.service.ranker import Ranker
from mcfair.service.stores import SQLiteStore, StoreCorruptError, open_reader
from mcfair.service.wire import RawRankRequest

START = 1_700_000_000_000


class SQLiteFile:
    """A store in a file that is changed behind the back of the service, which is stopped meanwhile."""

    def __init__(self, folder):
        self.url = str(folder / "store.db")

    def execute(self, sql, *values):
        with sqlite3.connect(self.url) as db:
            found = db.execute(sql, values).fetchall()
        db.close()
        return found


class PostgresDatabase:
    """The same in PostgreSQL."""

    def __init__(self, folder):
        import psycopg

        self.connect = psycopg.connect
        self.url = shared_server().url()
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute("DROP SCHEMA IF EXISTS mcfair CASCADE")

    def execute(self, sql, *values):
        with self.connect(self.url, autocommit=True, options="-c search_path=mcfair") as db:
            ran = db.execute(sql.replace("?", "%s").replace("x'", "'\\x"), values)
            return ran.fetchall() if ran.description else []


NEEDS_POSTGRES = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=NEEDS_POSTGRES)])
def database(request, tmp_path):
    return {"sqlite": SQLiteFile, "postgresql": PostgresDatabase}[request.param](tmp_path)


def opened(database, clock=START, **rules):
    return Ranker(database.url, warm=False, clock=lambda: clock, policy="TopK", **rules)


def maintained(ranker, runs=30):
    """Run compaction as the writer does, several times."""
    for _ in range(runs):
        ranker.executor.submit(lambda engine: setattr(ranker.executor, "next_compaction", 0.0)).result()


def test_compaction_leaves_a_damaged_query_out_and_keeps_the_cache(database, caplog):
    with opened(database, retention=10.0) as ranker:
        for query in ("damaged", *map(str, range(5))):
            ranker.rank(query, ["a", "b"])
    database.execute("UPDATE log SET body = x'00' WHERE query = 1")
    with opened(database, START + 60_000, retention=10.0) as ranker:
        ranker.rank("4", ["a", "b"])
        maintained(ranker)
        assert ranker.usage().impressions == 2  # the damaged one, and the one ranked just now
        assert list(ranker.executor.engine.damaged) == ["query 1"]
        ranker.rank("4", ["a", "b"])
        before = ranker.executor.engine.ledgers.copy()
        maintained(ranker)
        assert before
        assert {number: id(each) for number, each in ranker.executor.engine.ledgers.items()} == {
            number: id(each) for number, each in before.items()
        }
        with pytest.raises(StoreError):
            ranker.rank("damaged", ["a", "b"])
        assert before.items() <= ranker.executor.engine.ledgers.items()
        assert ranker.ready()
    lines = [each.getMessage() for each in caplog.records if "background work leaves query 1 out" in each.getMessage()]
    assert len(lines) == 1


def test_an_item_is_deleted_from_every_query_but_a_damaged_one(database):
    with opened(database) as ranker:
        for i in range(40):
            ranker.rank(f"q{i}", ["secret", "b"])
    database.execute("UPDATE log SET body = x'00' WHERE query = 3")
    with opened(database) as ranker:
        assert ranker.delete_item("secret") == 40
        maintained(ranker)
        assert not ranker.executor.engine.deletions
    assert database.execute("SELECT query FROM items WHERE id = ?", item_key(database, "secret")) == [(3,)]


def item_key(database, item):
    """Return an item id as the database stores it."""
    return item.encode() if isinstance(database, PostgresDatabase) else item


@pytest.mark.parametrize("bit", [8, 24, 31])
def test_a_damaged_row_number_is_refused_before_rows_are_allocated(database, bit):
    with opened(database) as ranker:
        ranker.rank("q", ["a", "b"])
        ranker.rank("other", ["a", "b"])
    ((body,),) = database.execute("SELECT body FROM candidates WHERE query = 1")
    damaged = bytearray(body)
    damaged[bit // 8] ^= 1 << bit % 8
    database.execute("UPDATE candidates SET body = ? WHERE query = 1", bytes(damaged))
    with opened(database) as ranker:
        with pytest.raises(StoreError, match=r"a candidate has row \d+, but there are 2 rows"):
            ranker.rank("q", ["a", "b"])
        assert ranker.rank("other", ["a", "b"]).items
    with open_reader(database.url) as reader:
        assert ["a candidate has row" in fault for fault in verify(reader)] == [True]
        assert ["a candidate has row" in fault for fault in replay(reader)[2]] == [True]


def test_items_that_are_lost_are_not_replaced_by_others(database):
    with opened(database) as ranker:
        for _ in range(5):
            ranker.rank("q", ["a", "b", "c"])
    database.execute("DELETE FROM items WHERE row = 1")
    with opened(database) as ranker, pytest.raises(StoreError, match="row 1 has an item in the log"):
        ranker.rank("q", ["a", "x", "c"])
    with open_reader(database.url) as reader:
        assert replay(reader)[2]


def test_a_damaged_version_of_the_rules_is_refused_with_its_cause(database):
    with opened(database) as ranker:
        ranker.rank("q", ["a"])
    database.execute("UPDATE versions SET body = x'ff'")
    with pytest.raises(StoreError, match="a version of the rules cannot be decoded"):
        opened(database)


def test_a_damaged_feedback_state_makes_export_and_feedback_unavailable(database):
    with opened(database) as ranker:
        answer = ranker.rank("q", ["a"])
    database.execute("UPDATE log SET bits = x'01'")
    with opened(database) as ranker:
        with pytest.raises(UnavailableError):
            list(ranker.export())
        with pytest.raises(StoreError, match="the feedback state of an impression cannot be decoded"):
            ranker.click(answer.impression, "a")


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x01" * 9, b"\x00" * 10, b"\x00\x00\x00\x00\x02"])
def test_damaged_candidate_sets_are_refused(body):
    with pytest.raises(StoreCorruptError, match="do not encode 2 candidates"):
        Candidates.unpacked(body, 2)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x95", msgspec.msgpack.encode(["text", None, False, 1]), "text"])
def test_damaged_impressions_are_refused(body):
    with pytest.raises(StoreCorruptError, match="an impression cannot be decoded"):
        decode_impression(body)


def test_damaged_positions_are_refused():
    with pytest.raises(StoreCorruptError, match="1 bytes do not encode a list"):
        decode_positions(b"\x00")


# --- policies that are not known any more ----------------------------------------------------------------------------


def test_a_query_can_be_read_without_the_policy_that_one_request_named(database, registries):
    @mf.register
    class Mine(mf.Policy):
        w: float = 1.0

        def score(self, q, rng):
            return q.R * self.w

    with opened(database) as ranker:
        named = ranker.rank("q", ["a", "b"], policy="Mine(w=3)")
        plain = ranker.rank("q", ["a", "b"])
    del mf.Policy.kind.registry["Mine"]
    with opened(database) as ranker:
        assert ranker.rank("q", ["a", "b"]).items
        assert ranker.click(named.impression, "a").status == "applied"
        assert ranker.explain(plain.impression).items
        with pytest.raises(ConflictError, match=r"its policy Mine\(w=3.0\) is not known"):
            ranker.explain(named.impression)
        assert ranker.fairness().queries == 1
        ranker.worker.summarize()
        assert len(list(ranker.export())) == 6  # a version, the query, three lists, and an hour of the history
    with open_reader(database.url) as reader:
        assert verify(reader) == []
        assert ["list 1" in fault and "is not known" in fault for fault in replay(reader)[2]] == [True]


def test_a_policy_that_exits_fails_alone(registries):
    @mf.register
    class Exits(mf.Policy):
        w: float = 1.0

        def score(self, q, rng):
            raise SystemExit(3)

    with Ranker("memory:", warm=False) as ranker:
        with pytest.raises(PolicyError, match=r"Exits\(.*\) failed: SystemExit: 3"):
            ranker.rank("q", ["a", "b"], policy="Exits")
        assert ranker.rank("q", ["a", "b"]).items


# --- deletions under way ---------------------------------------------------------------------------------------------


def test_export_and_fairness_leave_items_out_whose_deletion_is_under_way():
    engine = Engine(SQLiteStore(None))
    for i in range(40):
        items = [{"id": "secret", "group": "gone"}, {"id": "b", "group": "kept"}]
        raw = msgspec.Raw(msgspec.json.encode(items))
        engine.rank(RawRankRequest(query=f"q{i}", items=raw, k=2))
    engine.delete_item("secret")
    engine.rank(RawRankRequest(query="new", items=raw, k=2))  # it has the item anew
    assert engine.deletions
    lines = [json.loads(line) for line in export(engine.store)]
    having = [line["query"] for line in lines if "secret" in json.dumps(line)]
    assert having == [engine.ids.query("new").hex()] * 2
    assert [(group.group, group.items) for group in figures(engine.store, START).groups] == [("kept", 41), ("gone", 1)]
    engine.store.close()


# --- files that were changed in place --------------------------------------------------------------------------------


def overwrite(path):
    with path.open("r+b") as file:
        file.write(bytes(100))


IN_PLACE = {
    "emptied": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 8192 * 4096),
    "overwritten": overwrite,
}


@pytest.mark.parametrize("change", IN_PLACE)
def test_a_store_that_is_changed_in_place_is_not_ready(tmp_path, caplog, change):
    path = tmp_path / "store.db"
    with Ranker(path, warm=False) as ranker:
        for i in range(20):
            ranker.rank(f"q{i}", ["a", "b"])
    with Ranker(path, warm=False) as ranker:
        assert ranker.ready()
        IN_PLACE[change](path)
        assert not ranker.ready()
        for query in ("q1", "new"):
            with pytest.raises((UnavailableError, StoreError)):
                ranker.rank(query, ["a", "b"])
        assert not ranker.ready()
    said = [each.getMessage() for each in caplog.records if "was truncated or overwritten while in use" in each.message]
    assert len(said) == 1


@pytest.mark.parametrize("size", [0, 1, 50, 100, 512, 4_096, 8_192])
@pytest.mark.parametrize("content", ["cut", "zeros"])
def test_what_is_left_of_a_store_is_refused_at_the_start_and_not_made_anew(tmp_path, size, content):
    path = tmp_path / "store.db"
    with Ranker(path, warm=False) as ranker:
        ranker.rank("q", ["a", "b"])
    left = path.read_bytes()[:size] if content == "cut" else bytes(size)
    path.write_bytes(left)
    with pytest.raises(StoreError, match=r"is empty, but it was a store|is damaged .*: restore a backup"):
        Ranker(path, warm=False)
    assert path.read_bytes() == left
    path.unlink()
    with Ranker(path, warm=False) as ranker:
        assert ranker.usage().queries == 0


def test_an_empty_file_that_never_was_a_store_becomes_one(tmp_path):
    path = tmp_path / "store.db"
    path.touch()
    with Ranker(path, warm=False) as ranker:
        assert ranker.rank("q", ["a"]).items
