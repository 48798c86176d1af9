"""Stores: the interface in memory and in a file, and durability, locking and migration of files."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading

import pytest

from mcfair.errors import StoreError
from mcfair.service.history import verify
from mcfair.service.ranker import Ranker
from mcfair.service.stores import LogEntry, SQLiteStore, StoredKey, locate, open_reader, open_store, read_lock_note
from mcfair.service.stores import sqlite as sqlite_module


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    made = open_store("memory:" if request.param == "memory" else tmp_path / "s.db")
    yield made
    made.close()


def entry(seq, **changes):
    return LogEntry(seq, 1000 + seq, 0, 1, 1, b"body", None)._replace(**changes)


# --- every store -----------------------------------------------------------------------------------------------------


def test_rollback_discards_everything(store):
    store.begin()
    first = store.add_query(b"one")
    store.commit()
    store.begin()
    store.add_query(b"two")
    store.append(first, entry(1))
    store.add_items(first, 0, [("a", None)])
    assert store.find_query(b"two") is not None  # the writer reads its own uncommitted rows
    store.rollback()
    assert store.find_query(b"two") is None
    assert store.entry(first, 1) is None
    assert store.items(first) == []
    store.rollback()  # without a transaction it does nothing


def test_query_numbers_are_never_reused(store):
    store.begin()
    numbers = [store.add_query(bytes([i])) for i in range(3)]
    assert store.numbers(0, 2) == numbers[:2]
    assert store.numbers(numbers[1], 2) == numbers[2:]
    store.delete_query(numbers[2])
    assert store.add_query(b"new") > numbers[2]
    assert store.reset() == 3
    assert store.add_query(b"newer") > numbers[2] + 1
    store.commit()


def test_duplicate_sequence_numbers_are_refused(store):
    store.begin()
    number = store.add_query(b"q")
    store.append(number, entry(1))
    with pytest.raises(sqlite3.IntegrityError):
        store.append(number, entry(1))
    store.append(number, entry(2, kind=1, bits=None))
    store.set_bits(number, 1, b"\1\5")
    assert store.entry(number, 1) == entry(1, bits=b"\1\5")
    assert [each.seq for each in store.log(number, 0)] == [1, 2]
    assert [each.seq for each in store.log(number, 0, 1)] == [1]
    assert [each.seq for each in store.log_descending(number, 2)] == [2, 1]
    assert [each.seq for each in store.log_descending(number, 1)] == [1]
    assert list(store.log_descending(number + 1, 9)) == []
    store.commit()


def test_compaction_deletes_a_bounded_prefix_of_the_log(store):
    store.begin()
    number = store.add_query(b"q")
    for seq in range(1, 7):
        store.append(number, entry(seq, candidates=1 + seq // 4))
    for candidates in (1, 2):
        store.add_candidates(number, candidates, 1, bytes([candidates]))
    for seq in (2, 4, 6):
        store.add_snapshot(number, seq, 1000 + seq, bytes([seq]))
    assert store.snapshot(number) == b"\6"
    assert store.snapshot(number, 5) == b"\4"
    assert store.snapshot(number, 1) is None
    assert store.base(number) == 0
    oldest = store.entry(number, 1).time
    assert store.compact(number, 4, oldest - 1, 9) == 0  # the whole log is younger
    assert store.base(number) == 4
    assert [seq for seq, _ in store.snapshots(number)] == [4, 6]
    assert store.compact(number, 4, oldest + 1_000_000, 3) == 3
    assert store.compact(number, 4, oldest + 1_000_000, 3) == 4
    assert [each.seq for each in store.log(number, 0)] == [5, 6]
    assert store.delete_candidates(number, 1) == [1]
    assert store.delete_candidates(number, 1) == []
    assert store.candidates(number, 2) == (1, b"\2")
    with pytest.raises(StoreError, match="candidate set 1 is missing"):
        store.candidates(number, 1)
    store.commit()


def test_items_are_found_by_id_until_erased(store):
    store.begin()
    p, q = store.add_query(b"p"), store.add_query(b"q")
    store.add_items(p, 0, [("a", "G"), ("b", None)])
    store.add_items(q, 0, [("a", None)])
    assert store.rows_of_item("a", 0, 9) == [(p, 0), (q, 0)]
    assert store.rows_of_item("a", 0, 1) == [(p, 0)]
    assert store.rows_of_item("a", p, 9) == [(q, 0)]
    assert (store.count_item("a"), store.count_item("stranger")) == (2, 0)
    store.set_group(p, 1, "H")
    assert store.items(p) == [("a", "G"), ("b", "H")]
    store.erase_item(p, 0)
    assert store.items(p) == [(None, None), ("b", "H")]
    assert store.rows_of_item("a", 0, 9) == [(q, 0)]
    store.commit()


def test_deletions_are_kept_until_they_are_finished(store):
    store.begin()
    p, q = store.add_query(b"p"), store.add_query(b"q")
    for number in (p, q):
        store.add_items(number, 0, [("a", None)])
    first, second = store.add_deletion("a"), store.add_deletion("b")
    store.advance_deletion(first, p)
    assert store.deletions() == [(first, "a", p), (second, "b", 0)]
    store.exempt(first, q)
    store.exempt(first, q)
    assert store.rows_of_item("a", 0, 9, first) == [(p, 0)]
    assert store.rows_of_item("a", 0, 9, second) == [(p, 0), (q, 0)]
    store.finish_deletion(first)
    assert store.deletions() == [(second, "b", 0)]
    assert store.rows_of_item("a", 0, 9, first) == [(p, 0), (q, 0)]
    store.finish_deletion(second)
    assert store.add_deletion("a") > second
    store.commit()


@pytest.mark.parametrize("n", [0, 1, 9, 10, 49, 50, 51, 123])
def test_items_keep_their_order(store, n):
    store.begin()
    number = store.add_query(b"p")
    items = [(f"item {i}", "G" if i % 3 else None) for i in range(n)]
    store.add_items(number, 0, items)
    store.add_items(number, n, [("last", None)])
    store.commit()
    assert store.items(number) == [*items, ("last", None)]
    assert store.rows_of_item("last", 0, 9) == [(number, n)]


def test_requests_expire(store):
    store.begin()
    for i in range(3):
        store.add_request(bytes([i]), b"digest", 1, i, 1000 + i)
    assert store.find_request(b"\1") == (b"digest", 1, 1)
    assert store.expire_requests(1002) == 1002
    assert [store.find_request(bytes([i])) is None for i in range(3)] == [True, True, False]
    assert store.expire_requests(1003) is None
    store.commit()


def test_revocation_time_of_a_key_does_not_change(store):
    store.begin()
    store.add_key(StoredKey("id", b"digest", "name", "rank", 1, None))
    store.revoke_key("id", 5)
    store.revoke_key("id", 9)
    assert store.all_keys() == [StoredKey("id", b"digest", "name", "rank", 1, 5)]
    store.commit()


def test_reader_sees_a_snapshot_of_committed_data(store):
    store.begin()
    store.add_query(b"one")
    store.commit()
    with store.reader() as reader:
        store.begin()
        store.add_query(b"two")
        store.commit()
        assert reader.usage().queries == 1
    with store.reader() as reader:
        assert reader.usage().queries == 2
        assert reader.secret == store.secret


def test_backup_is_complete_and_overwrites_nothing(store, tmp_path):
    store.begin()
    store.add_query(b"one")
    store.commit()
    store.backup(tmp_path / "copy.db")
    with open_reader(tmp_path / "copy.db") as copy:
        assert copy.usage().queries == 1
        assert copy.secret == store.secret
    with pytest.raises(StoreError, match="exists already"):
        store.backup(tmp_path / "copy.db")
    with pytest.raises(StoreError, match="cannot write"):
        store.backup(tmp_path / "nowhere" / "copy.db")
    assert sorted(path.name for path in tmp_path.iterdir() if "copy" in path.name) == ["copy.db"]


# --- stores in files -------------------------------------------------------------------------------------------------


def test_file_is_configured_for_durable_commits(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/s.db")
    assert store.one("PRAGMA journal_mode") == "wal"
    assert store.one("PRAGMA synchronous") == 2  # FULL
    store.close()
    assert stat.S_IMODE((tmp_path / "s.db").stat().st_mode) == 0o600  # it contains a secret
    assert not (tmp_path / "s.db-wal").exists()


def test_urls_name_files():
    assert str(locate("sqlite:///a/b.db")) == "a/b.db"
    assert str(locate("sqlite:////a/b.db")) == "/a/b.db"
    assert str(locate("b.db")) == "b.db"
    for wrong in ("postgresql://host/db", "sqlite:///", "http://x"):
        with pytest.raises(StoreError, match="expected sqlite:///PATH"):
            locate(wrong)


def test_lock_excludes_a_second_process_until_the_first_ends(tmp_path):
    path = tmp_path / "s.db"
    script = f"""
import sys
from mcfair.service.stores import open_store
store = open_store({str(path)!r})
print("open", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "open\n"
        assert read_lock_note(path) == b""
        with pytest.raises(StoreError, match="in use by another process"):
            open_store(path)
        with open_reader(path) as reader:  # readers are allowed
            assert reader.usage().queries == 0
    finally:
        process.kill()
        process.communicate()
    assert read_lock_note(path) is None
    open_store(path).close()


def test_foreign_files_are_refused_and_unchanged(tmp_path):
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    text = tmp_path / "text.db"
    text.write_text("not a database, but long enough to look like one" * 100)
    newer = tmp_path / "newer.db"
    open_store(newer).close()
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    for path, message in ((foreign, "another program"), (text, "not a database"), (newer, "newer mcfair")):
        before = path.read_bytes()
        with pytest.raises(StoreError, match=message):
            open_store(path)
        assert path.read_bytes() == before
        assert read_lock_note(path) is None


DAMAGED = r"s\.db.*(is damaged|malformed|is not a database|unsupported file format)"


def test_damage_is_detected_when_a_small_store_is_opened(tmp_path):
    path = tmp_path / "s.db"
    with Ranker(path, warm=False) as ranker:
        for i in range(30):
            ranker.rank(f"q{i}", [f"item{j}" for j in range(20)])
    whole = path.read_bytes()
    pages = len(whole) // 4096

    def check_opens(content):
        path.write_bytes(content)
        open_store(path).close()

    for page in range(1, pages, 3):
        damaged = bytearray(whole)
        damaged[page * 4096 : page * 4096 + 64] = os.urandom(64)
        check_opens(whole)  # the control: written in the same way, but undamaged
        with pytest.raises(StoreError, match=DAMAGED):
            check_opens(damaged)
    with pytest.raises(StoreError, match=r"malformed|is damaged"):
        check_opens(whole[: len(whole) // 2])


def test_older_files_are_migrated(tmp_path, monkeypatch):
    path = tmp_path / "s.db"
    with Ranker(path, warm=False) as ranker:
        ranker.rank("q", ["a"])
    monkeypatch.setattr(sqlite_module, "SCHEMA_VERSION", 4)
    monkeypatch.setattr(
        sqlite_module,
        "MIGRATIONS",
        {2: "CREATE TABLE extra (x); INSERT INTO extra VALUES (1)", 3: "ALTER TABLE extra ADD COLUMN y"},
    )
    with pytest.raises(StoreError, match="older mcfair"), open_reader(path):
        pass
    with Ranker(path, warm=False) as ranker:
        assert ranker.executor.store.one("SELECT x FROM extra") == 1
        assert ranker.executor.store.one("PRAGMA user_version") == 4
        assert ranker.query_state("q").visits == 1


def test_failed_migration_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "s.db"
    open_store(path).close()
    monkeypatch.setattr(sqlite_module, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(sqlite_module, "MIGRATIONS", {2: "CREATE TABLE extra (x); ALTER TABLE absent ADD COLUMN y"})
    with pytest.raises(StoreError, match="no such table: absent"):
        open_store(path)
    monkeypatch.undo()
    store = open_store(path)
    assert store.one("SELECT count(*) FROM sqlite_master WHERE name = 'extra'") == 0
    store.close()


MOUNTS = """22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /srv/far\\040away rw - nfs4 host:/x rw
31 22 0:41 / /srv rw - ext4 /dev/sdb1 rw"""


def test_network_file_systems_are_refused(tmp_path, monkeypatch):
    from pathlib import Path

    kind = sqlite_module.file_system
    assert kind(Path("/srv/far away/s.db"), lambda: MOUNTS) == "nfs4"
    assert kind(Path("/srv/s.db"), lambda: MOUNTS) == "ext4"
    assert kind(Path("/elsewhere/s.db"), lambda: MOUNTS) == "ext4"
    monkeypatch.setattr(sqlite_module, "file_system", lambda path: "cifs")
    with pytest.raises(StoreError, match="network file system"):
        open_store(tmp_path / "s.db")


def test_backup_under_load_is_consistent(tmp_path):
    stop = threading.Event()
    with Ranker(tmp_path / "s.db", policy="MCFair(beta=5)", warm=False) as ranker:

        def work():
            while not stop.is_set():
                answer = ranker.rank("q", list("abcdef"), k=3)
                ranker.feedback([{"impression": answer.impression, "item": answer.items[0].id}])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for i in range(5):
                with open_reader(tmp_path / "s.db") as reader:
                    reader.backup(tmp_path / f"copy{i}.db")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    for i in range(5):
        with open_reader(tmp_path / f"copy{i}.db") as copy:
            assert verify(copy) == []
            assert copy.usage().queries <= 1


def test_store_of_a_killed_process_can_be_read(tmp_path):
    live = SQLiteStore(tmp_path / "s.db")
    live.begin()
    live.add_query(b"one")
    live.commit()
    live.begin()
    live.add_query(b"two")
    for suffix in ("", "-wal"):
        shutil.copy(f"{tmp_path}/s.db{suffix}", f"{tmp_path}/dead.db{suffix}")
    live.close()
    with open_reader(tmp_path / "dead.db") as reader:
        assert reader.usage().queries == 1
