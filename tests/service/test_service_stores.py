"""Stores: the interface in memory and in a file, and durability, locking and migration of files."""

import itertools
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from functools import partial

import pytest
from deliberate_faults import caught_by
from observing import observed

from mcfair.errors import MCFairError, StoreError, UnavailableError
from mcfair.service.core.engine import Engine
from mcfair.service.core.repository import LedgerRepository
from mcfair.service.core.rules import change_rules
from mcfair.service.core.verification import replay, verify
from mcfair.service.ranker import Ranker
from mcfair.service.stores import (
    SQLiteStore,
    StoreCorruptError,
    StoreUnavailableError,
    locate,
    open_reader,
    open_store,
    read_lock_note,
)
from mcfair.service.stores import files as files_module
from mcfair.service.stores import sqlite as sqlite_module
from mcfair.service.wire import Item, RankRequest, with_raw_items
from mcfair.testing import check_store


@pytest.fixture(params=["memory", "sqlite"])
def kind(request):
    return request.param


@pytest.fixture
def store(kind, tmp_path):
    made = open_store("memory:" if kind == "memory" else tmp_path / "s.db")
    yield made
    made.close()


# --- every store -----------------------------------------------------------------------------------------------------


def test_store_keeps_the_contract(kind, tmp_path):
    names = itertools.count()
    check_store(lambda: open_store("memory:" if kind == "memory" else tmp_path / f"{next(names)}.db"))


class AcceptsDuplicates(SQLiteStore):
    def append(self, number, entry, revision=None):
        if self.entry(number, entry.seq) is None:
            super().append(number, entry, revision)


class KeepsRolledBackRows(SQLiteStore):
    def rollback(self):
        if self.db.in_transaction:
            self.commit()


class LosesPages(SQLiteStore):
    def log(self, number, after, until=None):
        return itertools.islice(super().log(number, after, until), 256)


class ReusesNumbers(SQLiteStore):
    def delete_query(self, number):
        super().delete_query(number)
        self.db.execute("DELETE FROM sqlite_sequence")


class KeepsExpiredRequests(SQLiteStore):
    def expire_requests(self, before):
        return super().expire_requests(0)


class LosesFeedback(SQLiteStore):
    def set_bits(self, number, seq, bits):
        pass


BROKEN = {
    AcceptsDuplicates: "a sequence number that exists is not refused",
    KeepsRolledBackRows: "rollback keeps some rows",
    LosesPages: "the log is not complete and in order",
    ReusesNumbers: "the number of a deleted query is reused",
    KeepsExpiredRequests: "the oldest request left is not returned",
    LosesFeedback: "the feedback state is not set",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_contract_catches_a_broken_store(broken):
    caught_by(lambda faulty: check_store(lambda: (broken if faulty else SQLiteStore)(None)), BROKEN[broken])


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
    store.begin()
    store.commit()
    store.close()
    assert stat.S_IMODE((tmp_path / "s.db").stat().st_mode) == 0o600  # it contains a secret
    assert not (tmp_path / "s.db-wal").exists()


def test_a_power_failure_loses_no_list_and_compaction_is_repeated(tmp_path):
    """Cut the write-ahead log at, and leave gaps in, what no commit has waited for."""
    path, now = tmp_path / "s.db", 1_700_000_000_000
    store = SQLiteStore(path)

    def opened(store):
        rules = partial(change_rules, policy="MCFair", settings={"retention": 60.0})
        return Engine(store, rules, clock=lambda: now, compaction_step=8)

    def synced():
        """Return how much of the write-ahead log is on disk now, at the end of a durable commit."""
        return wal.stat().st_size

    def compacted(engine, durable):
        engine.store.begin(durable=durable)
        done = engine.compact_expired(0.0)
        engine.store.commit()
        return done

    wal, engine = path.with_name("s.db-wal"), opened(store)
    for _ in range(40):
        store.begin()
        engine.rank(ranking("q", 4))
        store.commit()
    now += 61_000
    lengths = {synced(): 40}
    assert compacted(engine, durable=False) == compacted(engine, durable=False) == 8
    middle = wal.stat().st_size
    store.begin()
    engine.rank(ranking("q", 4))
    store.commit()
    lengths[synced()] = 41
    assert compacted(engine, durable=False) == 8
    content, database, before = wal.read_bytes(), path.read_bytes(), observed(engine, "q")
    store.close()
    first, last = lengths
    assert first < middle < last < len(content)
    frame = 24 + sqlite_module.PAGE
    cuts = [*range(first, middle + 1, frame), *range(last, len(content) + 1, frame), middle - 100, last + 100]
    gaps = [content[:at] + bytes(frame) + content[at + frame :] for at in (first, last)]
    for i, left in enumerate([*(content[:cut] for cut in cuts), *gaps]):
        copy = tmp_path / f"{i}.db"
        copy.write_bytes(database)
        copy.with_name(copy.name + "-wal").write_bytes(left)
        with closing(SQLiteStore(copy)) as other:
            again = opened(other)
            lists = other.head(1)[2]
            assert lists >= (41 if left[:last] == content[:last] else 40)
            while compacted(again, durable=True):
                pass
            assert other.usage().impressions == lists - 40  # the last one has not expired
            assert verify(other) == []
            if lists == 41:
                assert observed(again, "q") == before


def test_urls_name_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert locate("sqlite:///a/b.db") == tmp_path / "a" / "b.db"
    assert str(locate("sqlite:////a/b.db")) == "/a/b.db"
    assert locate("b.db") == tmp_path / "b.db"
    for wrong in ("postgresql://host/db", "sqlite:///", "http://x"):
        with pytest.raises(StoreError, match="expected sqlite:///PATH"):
            locate(wrong)


HOLD = """
import sys
from mcfair.service.stores import open_store
store = open_store(sys.argv[1])
store.begin()
store.add_query(b"one")
store.commit()
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(path):
    """Open a store in another process, which is killed at the end."""
    command = [sys.executable, "-c", HOLD, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "open\n"
        yield
    finally:
        process.kill()
        process.communicate()


def create(path):
    """Create a store with one query."""
    store = open_store(path)
    store.begin()
    store.add_query(b"zero")
    store.commit()
    store.close()
    return path


def test_lock_excludes_a_second_process_until_the_first_ends(tmp_path):
    path = tmp_path / "s.db"
    with held(path):
        assert read_lock_note(path) == b""
        with pytest.raises(StoreError, match="in use by another process"):
            open_store(path)
        with open_reader(path) as reader:  # readers are allowed
            assert reader.usage().queries == 1
    assert read_lock_note(path) is None
    open_store(path).close()


def same(path):
    return path


def symbolic_link(path):
    link = path.parent / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    return link


def linked_folder(path):
    (path.parent / "folder").symlink_to(path.parent)
    return path.parent / "folder" / path.name


def hard_link(path):
    link = path.with_name("hard.db")
    os.link(path, link)
    return link


def removed_lock_file(path):
    path.with_name(path.name + ".lock").unlink()
    return path


def renamed(path):
    return path.rename(path.with_name("renamed.db"))


NAMES = {
    same: "in use by",
    symbolic_link: "in use by",
    linked_folder: "in use by",
    hard_link: "hard links|in use by",
    removed_lock_file: "in use by",
    renamed: "in use by",
}


@pytest.mark.parametrize("other_name", NAMES)
@pytest.mark.parametrize("where", ["this process", "another process"])
def test_second_writer_is_refused_under_any_name_of_the_file(tmp_path, other_name, where):
    path = create(tmp_path / "s.db")
    with held(path) if where == "another process" else closing(open_store(path)):
        name = other_name(path)
        with pytest.raises(StoreError, match=NAMES[other_name]) as refused:
            open_store(name)
        assert "\n" not in str(refused.value)
        assert read_lock_note(locate(name)) is not None


def test_second_writer_is_refused_on_the_path_of_a_replaced_file(tmp_path):
    path = create(tmp_path / "s.db")
    with held(path):
        shutil.copy(path, tmp_path / "new.db")
        (tmp_path / "new.db").replace(path)
        with pytest.raises(StoreError, match="in use by another process"):
            open_store(path)


def test_refused_writer_does_not_drop_the_locks_of_connections_of_its_process(tmp_path):
    """Closing any descriptor of a file drops its POSIX locks; then another process could remove the log in use."""
    path = create(tmp_path / "s.db")
    store = open_store(path)
    store.begin()
    store.add_query(b"one")
    store.commit()
    (tmp_path / "s.db.lock").unlink()
    with pytest.raises(StoreError, match="in use by this process"):
        open_store(path)
    assert read_lock_note(path) == b""
    script = f"import sqlite3; db = sqlite3.connect({str(path)!r}); db.execute('SELECT count(*) FROM log'); db.close()"
    subprocess.run([sys.executable, "-c", script], check=True)  # the last connection would remove the log
    store.check_attached()
    store.begin()
    store.add_query(b"two")
    store.commit()
    store.close()
    with open_reader(path) as reader:
        assert reader.usage().queries == 3


# --- files that vanish -----------------------------------------------------------------------------------------------


def deleted(path):
    path.unlink()


def renamed_over(path):
    shutil.copy(path, path.with_name("new.db"))
    path.with_name("new.db").rename(path)


def replaced_folder(path):
    path.parent.rename(path.parent.with_name("old"))
    shutil.copytree(path.parent.with_name("old"), path.parent)


def deleted_log(path):
    path.with_name(path.name + "-wal").unlink()


VANISHING = [deleted, renamed_over, replaced_folder, deleted_log]


@pytest.mark.parametrize("vanish", VANISHING)
def test_vanished_file_makes_the_ranker_not_ready_at_once_and_is_logged_once(tmp_path, vanish, caplog):
    path = tmp_path / "folder" / "s.db"
    path.parent.mkdir()
    with Ranker(path, warm=False) as ranker:
        ranker.rank("q", ["a", "b"])
        assert ranker.executor.store_error is None
        vanish(path)
        assert ranker.executor.store_error == "the store cannot be written"
        for _ in range(3):
            with pytest.raises(UnavailableError, match=r"^the store cannot be written, and nothing was changed$"):
                ranker.rank("q", ["a", "b"])
        assert ranker.executor.store_error == "the store cannot be written"
    causes = [each.getMessage() for each in caplog.records if "deleted or replaced" in each.getMessage()]
    assert len(causes) == 1
    assert str(path) in causes[0]


@pytest.mark.parametrize("vanish", VANISHING)
def test_commit_to_a_vanished_file_is_refused(tmp_path, vanish):
    path = create(tmp_path / "s.db") if vanish is not replaced_folder else None
    if path is None:
        (tmp_path / "folder").mkdir()
        path = create(tmp_path / "folder" / "s.db")
    store = open_store(path)
    store.begin()
    store.add_query(b"one")
    vanish(path)
    with pytest.raises(StoreUnavailableError, match="deleted or replaced"):
        store.commit()
    store.rollback()
    with pytest.raises(StoreUnavailableError, match="deleted or replaced"), store.reader():
        pass
    store.close()


def test_file_that_is_put_back_is_used_again(tmp_path):
    path = tmp_path / "s.db"
    with Ranker(path, warm=False) as ranker:
        ranker.rank("q", ["a", "b"])
        path.rename(tmp_path / "away.db")
        with pytest.raises(UnavailableError):
            ranker.rank("q", ["a", "b"])
        (tmp_path / "away.db").rename(path)
        ranker.rank("q", ["a", "b"])
        assert ranker.executor.store_error is None
        assert ranker.query_state("q").visits == 2


def test_closing_a_replaced_store_leaves_the_new_one_alone(tmp_path):
    path = tmp_path / "s.db"
    script = f"""
import os
from mcfair.service.stores import open_store
old = open_store({str(path)!r})
old.begin(); old.add_query(b"old"); old.commit()
for suffix in ("", "-wal", "-shm", ".lock"):
    os.unlink({str(path)!r} + suffix)
new = open_store({str(path)!r})
new.begin(); new.add_query(b"new"); new.commit()
old.close()
print(os.path.exists({str(path)!r} + "-wal"), flush=True)
os._exit(0)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"
    with open_reader(path) as reader:
        assert reader.find_query(b"new") == 1


def test_store_that_was_never_used_leaves_no_file(tmp_path):
    open_store(tmp_path / "s.db").close()
    with pytest.raises(MCFairError, match="did you mean"):
        Ranker(tmp_path / "s.db", policy="MCFiar", warm=False)
    assert list(tmp_path.iterdir()) == []


def test_foreign_files_are_refused_and_unchanged(tmp_path):
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    text = tmp_path / "text.db"
    text.write_text("not a database, but long enough to look like one" * 100)
    newer = tmp_path / "newer.db"
    create(newer)
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    for path, message in ((foreign, "another program"), (text, "not a database"), (newer, "newer mcfair")):
        before = path.read_bytes()
        with pytest.raises(StoreError, match=message):
            open_store(path)
        assert path.read_bytes() == before
        assert read_lock_note(path) is None


def test_opening_does_not_read_the_whole_file_and_damage_is_found_by_reading(tmp_path):
    path = tmp_path / "s.db"
    with Ranker(path, warm=False) as ranker:
        for i in range(60):
            ranker.rank(f"q{i}", [f"item{j}" for j in range(50)])
    with open_reader(path) as reader:
        first = reader.one("SELECT rootpage FROM sqlite_master WHERE name = 'log'")
        size = reader.one("PRAGMA page_size")
    with path.open("r+b") as file:
        file.seek((first - 1) * size)
        file.write(os.urandom(64))
    with closing(open_store(path)) as store:
        assert store.numbers(0, 1) == [1]
        with pytest.raises(StoreCorruptError) as found:
            list(store.log(1, 0))
        assert "\n" not in str(found.value)
        assert store.check()


def test_damage_after_the_first_row_is_an_error_of_the_store(tmp_path):
    store = open_store(create(tmp_path / "s.db"))
    store.begin()
    store.db.execute("INSERT INTO queries (key) VALUES (CAST(x'ff' AS TEXT))")
    with pytest.raises(StoreCorruptError, match="UTF-8"):
        store.db.execute("SELECT key FROM queries").fetchall()
    with pytest.raises(StoreCorruptError, match="UTF-8"):
        list(store.db.execute("SELECT key FROM queries"))
    store.rollback()
    store.close()


# --- readers and the write-ahead log ---------------------------------------------------------------------------------


def grow_log(ranker, rounds):
    """Write to a store in many batches, with the checkpoints of its maintenance; return the largest size of the log."""
    wal, largest = ranker.executor.store.path.with_name("s.db-wal"), 0
    for i in range(rounds):
        futures = [ranker.executor.submit(Engine.rank, ranking(f"busy {i % 3}", 20)) for _ in range(20)]
        for each in futures:
            each.result()
        ranker.executor.submit(lambda engine: None).result()
        largest = max(largest, wal.stat().st_size)
    return largest


def ranking(query, n):
    return with_raw_items(RankRequest(query=query, items=[Item(f"{query} {i}") for i in range(n)], k=10))


def stopped_export(ranker):
    lines = ranker.export()
    next(lines)
    yield next(lines)
    lines.close()


def stopped_scan(ranker):
    with ranker.executor.store.reader() as reader:
        scan = LedgerRepository(reader).all_ledgers()
        yield next(scan)


def stopped_verification(ranker):
    """Stop a verification within its second query."""
    with ranker.executor.store.reader() as reader:
        seen = threading.Event()
        proceed = threading.Event()

        def progress(number):
            seen.set()
            proceed.wait(60)

        thread = threading.Thread(target=verify, args=(reader, progress))
        thread.start()
        assert seen.wait(60)
        yield None
        proceed.set()
        thread.join()


def stopped_in_a_transaction(ranker):
    """Stop where a reader must not: the control of the others."""
    with ranker.executor.store.reader() as reader, reader.read_transaction():
        yield reader.numbers(0, 1)


@pytest.mark.parametrize(
    "stopped", [None, stopped_export, stopped_scan, stopped_verification, stopped_in_a_transaction]
)
def test_reader_that_stops_in_the_middle_does_not_grow_the_log(tmp_path, stopped):
    with Ranker(SQLiteStore(tmp_path / "s.db", checkpoint_pages=200), warm=False) as ranker:
        numbers = [0] * 300 + [1, 2, 3, 4]
        for each in [ranker.executor.submit(Engine.rank, ranking(f"q{i}", 10)) for i in numbers]:
            each.result()
        reading = iter(()) if stopped is None else stopped(ranker)
        next(reading, None)
        largest = grow_log(ranker, 150)
        next(reading, None)
    bounded = largest < 2 * 200 * 2_200  # the automatic checkpoint resets the log at 200 pages
    assert bounded == (stopped is not stopped_in_a_transaction)


def test_verification_and_replay_agree_with_a_busy_writer(tmp_path):
    """Pages of one query are read at different times, while feedback changes entries that were read before."""
    stop = threading.Event()
    with Ranker(tmp_path / "s.db", policy="MCFair(beta=5)", warm=False) as ranker:
        answers = [ranker.executor.submit(Engine.rank, ranking("q", 10)) for _ in range(600)]
        names = [(each.result().impression, each.result().items[0].id) for each in answers]

        def click():
            for impression, item in names:
                if stop.is_set():
                    return
                ranker.feedback([{"impression": impression, "item": item}])
                ranker.rank("q", ["q 1", "q 2"], k=1)

        thread = threading.Thread(target=click)
        thread.start()
        try:
            while thread.is_alive():
                with ranker.executor.store.reader() as reader:
                    assert verify(reader) == []
                    assert replay(reader)[2] == []
        finally:
            stop.set()
            thread.join()


def test_older_files_are_migrated(tmp_path, monkeypatch):
    path = tmp_path / "s.db"
    with Ranker(path, warm=False) as ranker:
        ranker.rank("q", ["a"])
    now = sqlite_module.SCHEMA_VERSION
    monkeypatch.setattr(sqlite_module, "SCHEMA_VERSION", now + 2)
    monkeypatch.setattr(
        sqlite_module,
        "MIGRATIONS",
        {now: "CREATE TABLE extra (x); INSERT INTO extra VALUES (1)", now + 1: "ALTER TABLE extra ADD COLUMN y"},
    )
    with pytest.raises(StoreError, match="older mcfair"), open_reader(path):
        pass
    with Ranker(path, warm=False) as ranker:
        assert ranker.executor.store.one("SELECT x FROM extra") == 1
        assert ranker.executor.store.one("PRAGMA user_version") == now + 2
        assert ranker.query_state("q").visits == 1


def test_failed_migration_changes_nothing(tmp_path, monkeypatch):
    path = create(tmp_path / "s.db")
    now = sqlite_module.SCHEMA_VERSION
    monkeypatch.setattr(sqlite_module, "SCHEMA_VERSION", now + 1)
    monkeypatch.setattr(sqlite_module, "MIGRATIONS", {now: "CREATE TABLE extra (x); ALTER TABLE absent ADD COLUMN y"})
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

    kind = files_module.file_system
    assert kind(Path("/srv/far away/s.db"), lambda: MOUNTS) == "nfs4"
    assert kind(Path("/srv/s.db"), lambda: MOUNTS) == "ext4"
    assert kind(Path("/elsewhere/s.db"), lambda: MOUNTS) == "ext4"
    monkeypatch.setattr(files_module, "file_system", lambda path: "cifs")
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
