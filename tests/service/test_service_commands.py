"""The commands of the service."""

import datetime
import os
import random
import re
import shutil
import socket
import sqlite3
import stat
from contextlib import closing, suppress

import pytest
from hypothesis import settings
from service_process import ServerProcess, mcfair
from typer.testing import CliRunner

import mcfair as mf
from mcfair.cli.app import app
from mcfair.cli.serve import describe_key, parse_duration
from mcfair.errors import MCFairError, SettingError, StoreError
from mcfair.service.stores import read_lock_note, restore
from mcfair.service.web.server import serve
from mcfair.service.wire import KeyInfo


def run(*words):
    """Run a command in this process; return its result."""
    return CliRunner().invoke(app, [str(word) for word in words])


def failure(*words):
    """Run a command that must fail with one of our errors; return the message."""
    result = run(*words)
    assert isinstance(result.exception, MCFairError), result.output
    return str(result.exception)


@pytest.fixture
def path(tmp_path):
    """A store with two queries and a click."""
    path = tmp_path / "s.db"
    with mf.Ranker(path, policy="MCFair(beta=5)", warm=False) as ranker:
        for query in ("p", "q"):
            answer = ranker.rank(query, list("abc"), k=2)
        ranker.feedback([{"impression": answer.impression, "item": "a"}])
    return path


def test_verify_and_replay_accept_a_consistent_store(path):
    assert run("verify", "--store", path).stdout == "2 queries, 2 impressions, 1 other log entries: consistent\n"
    output = run("replay", "--store", f"sqlite:///{path}").stdout
    assert output == "2 queries, 2 lists: all reproduced, counters included\n"


def test_verify_and_replay_report_faults(path):
    with sqlite3.connect(path) as db:
        first = db.execute("SELECT body FROM log WHERE query = 1 AND seq = 1").fetchone()[0]
        db.execute("UPDATE log SET bits = x'0101' WHERE query = 2 AND seq = 1")
        db.execute("UPDATE log SET body = ? WHERE query = 1 AND seq = 1", (first.replace(b"\0\0\1\0", b"\2\0\1\0"),))
    db.close()
    result = mcfair("verify", "--store", path)
    assert result.returncode == 1
    assert result.stderr == (
        f"mcfair: error: {path} is inconsistent: query 2: the feedback state of impression 1 does not follow from its "
        "feedback entries\n"
    )
    assert "cannot be reproduced" in failure("replay", "--store", path)


def test_missing_store_is_not_created(tmp_path):
    for command in ("verify", "replay"):
        assert "does not exist" in failure(command, "--store", tmp_path / "none.db")
    assert "does not exist" in failure("backup", tmp_path / "copy.db", "--store", tmp_path / "none.db")
    assert "does not exist" in failure("restore", tmp_path / "none.db", "--store", tmp_path / "s.db")
    assert "does not exist" in failure("keys", "list", "--store", tmp_path / "none.db")
    assert "does not exist" in failure("keys", "revoke", "id", "--store", tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


def test_keys_list_reads_and_changes_nothing(path):
    before = path.read_bytes()
    assert run("keys", "list", "--store", path).exit_code == 0
    assert path.read_bytes() == before
    with mf.Ranker(path, warm=False):  # no server, but the store is in use
        assert run("keys", "list", "--store", path).exit_code == 0


def test_backup_is_a_store(path, tmp_path):
    assert "bytes" in run("backup", tmp_path / "copy.db", "--store", path).stdout
    assert "consistent" in run("verify", "--store", tmp_path / "copy.db").stdout
    assert "exists already" in failure("backup", tmp_path / "copy.db", "--store", path)
    with mf.Ranker(tmp_path / "copy.db", warm=False) as ranker:
        assert ranker.query_state("q").visits == 1


def test_keys_without_a_server(path):
    added = run("keys", "add", "shop", "--scope", "rank", "--scope", "feedback", "--store", path)
    key = added.stdout.strip()
    listed = run("keys", "list", "--store", path).stdout
    assert "shop: rank, feedback" in listed
    assert key.split("_", 2)[2] not in listed
    id = listed.split()[0]
    assert "revoked" in run("keys", "revoke", id, "--store", path).stdout
    assert "no such key" in failure("keys", "revoke", "nobody", "--store", path)
    assert "unknown scope 'all'" in failure("keys", "add", "shop", "--scope", "all", "--store", path)


def test_a_key_that_is_refused_creates_no_store(tmp_path):
    assert "unknown scope 'all'" in failure("keys", "add", "shop", "--scope", "all", "--store", tmp_path / "new.db")
    assert "name" in failure("keys", "add", "", "--scope", "read", "--store", tmp_path / "new.db")
    assert not list(tmp_path.iterdir())


def test_keys_alone_prints_its_help():
    alone, top = run("keys"), run()
    assert alone.exit_code == top.exit_code
    for result, commands in ((alone, ("add", "list", "revoke")), (top, ("serve", "verify", "keys"))):
        assert result.output.startswith("Usage: ")
        assert all(command in result.output for command in commands)


def test_keys_through_a_running_server_take_effect_at_once(path):
    with ServerProcess(path) as server:
        with server.ready().connect() as connection:
            assert connection.request("GET", "/v1/policy").status == 200
            added = mcfair("keys", "add", "reader", "--scope", "read", "--store", path)
            key = added.stdout.strip()
            assert connection.request("GET", "/v1/policy").status == 401
            with mf.Client(f"http://127.0.0.1:{server.port}", key, rank_deadline=30.0) as client:
                assert client.policy().policy == repr(mf.MCFair(beta=5))
            id = mcfair("keys", "list", "--store", path).stdout.split()[0]
            assert "revoked" in mcfair("keys", "revoke", id, "--store", path).stdout
            with (
                pytest.raises(MCFairError),
                mf.Client(f"http://127.0.0.1:{server.port}", key, rank_deadline=30.0) as client,
            ):
                client.policy()
        assert server.terminate() == 0
    assert read_lock_note(path) is None
    assert path.with_name(path.name + ".lock").read_bytes() == b""


def test_serve_keeps_stored_rules_unless_given(path):
    for words, policy, version in ((("--policy", "TopK"), "TopK", 2), ((), "TopK", 2)):
        with ServerProcess(path, *words) as server:
            with mf.Client(f"http://127.0.0.1:{server.ready().port}", rank_deadline=30.0) as client:
                found = client.policy()
            assert (found.policy, found.version) == (repr(mf.parse_policy(policy)), version)
            assert f"{mf.parse_policy(policy)!r}, version {version}" in server.text
            assert "there are no API keys" in server.text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "MCFiar"), "did you mean 'MCFair'"),
        (("--policy", "LP"), "LP cannot serve"),
        (("--retention", "soon"), "a duration such as 45s"),
        (("--examination", "1,x"), "probabilities such as"),
        (("--examination", "0,0"), "at least one rank"),
        (("--newcomer-exposure", "late"), "newcomer_exposure"),
        (("--host", "0.0.0.0"), "mcfair keys add"),
        (("--drain", "9" * 400), "a duration such as 45s"),
        (("--proxy-headers", "--trusted-proxies", "bogus"), "trusted_proxies = 'bogus' is not allowed: expected addr"),
        (("--proxy-headers", "--trusted-proxies", ""), "trusted_proxies = '' is not allowed"),
        (("--prior-mean", "2"), "prior_mean"),
        (("--store", "redis://x"), "expected sqlite:///PATH"),
        (("--plugin", "nowhere.py"), "cannot import nowhere.py"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_serve_refuses_invalid_options(tmp_path, words, message):
    store = () if "--store" in words else ("--store", tmp_path / "s.db")
    assert message in failure("serve", *store, "--port", "0", *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("--max-in-flight", "0"),
        ("--max-connections", "0"),
        ("--max-connections", "-3"),
        ("--cache", "-5"),
        ("--port", "-1"),
    ],
    ids=" ".join,
)
def test_serve_refuses_limits_that_would_refuse_every_request(tmp_path, words):
    result = run("serve", "--store", tmp_path / "s.db", *words)
    assert result.exit_code == 2
    assert f"Invalid value for '{words[0]}'" in result.output
    assert list(tmp_path.iterdir()) == []


def test_serve_function_refuses_limits_that_would_refuse_every_request():
    for options in ({"max_in_flight": 0}, {"max_connections": 0}, {"trusted_proxies": "localhost"}):
        with mf.Ranker("memory:", warm=False) as ranker, pytest.raises(SettingError, match="is not allowed"):
            serve(ranker, port=0, **options)
    for options in ({"cache": -1}, {"max_queued": 0}, {"max_items": 0}, {"cache": 1.5}):
        with pytest.raises(SettingError, match="is not allowed: expected a whole number"):
            mf.Ranker("memory:", **options)


@pytest.mark.parametrize("name", ["fit_interval", "guard_interval", "summary_interval"])
def test_intervals_that_are_not_allowed_leave_the_store_alone(tmp_path, name):
    for value in (None, "5", -1.0, float("nan"), float("inf")):
        with pytest.raises(SettingError, match=f"{name} = .* is not allowed: expected seconds"):
            mf.Ranker(tmp_path / "s.db", warm=False, **{name: value})
    assert list(tmp_path.iterdir()) == []


def test_names_of_keys_in_a_store_are_escaped_when_listed():
    now = datetime.datetime.now(datetime.UTC)
    forged = KeyInfo(id="a", name="x\nb  y\x1b[2J", scopes=["rank"], created=now, revoked=None)
    assert describe_key(forged).isprintable()
    assert r"'x\nb  y\x1b[2J'" in describe_key(forged)


def test_errors_name_the_cause_and_not_a_store_that_can_be_read(path, tmp_path):
    assert mcfair("backup", tmp_path / "b.db", "--store", path).returncode == 0
    assert "cannot be read" not in failure("backup", tmp_path / "b.db", "--store", path)
    assert "cannot be read" not in failure("restore", tmp_path / "b.db", "--store", path)
    with mf.Ranker(path, warm=False):
        message = failure("restore", tmp_path / "b.db", "--store", path, "--force")
    assert "is in use" in message
    assert "cannot be read" not in message


def test_serve_on_a_port_in_use_creates_no_store(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        message = failure("serve", "--store", tmp_path / "s.db", "--port", other.getsockname()[1])
    assert "is in use" in message
    assert list(tmp_path.iterdir()) == []


# --- damage ----------------------------------------------------------------------------------------------------------

EXAMPLES = settings().max_examples // 2
"""Number of examples of each kind of damage: few, or many in the soak."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The bytes of a store with several queries, feedback, snapshots and a base."""
    path = tmp_path_factory.mktemp("sound") / "s.db"
    now = [10_000_000]
    with mf.Ranker(path, policy="MCFair(beta=5)", retention=1000.0, warm=False, clock=lambda: now[0]) as ranker:
        for i in range(150):
            now[0] += 10_000
            answer = ranker.rank(f"q{i % 3}", [f"item {j}" for j in range(20)], k=5, key=f"key-{i}")
            ranker.feedback([{"impression": answer.impression, "item": answer.items[0].id}])
        ranker.executor.submit(type(ranker.executor.engine).compact_expired).result()
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM")  # without free pages, whose damage is none
    return path.read_bytes()


def flip(content, rng):
    for _ in range(rng.choice([1, 10, 100])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def flip_header(content, rng):
    content[rng.randrange(100)] ^= 1 << rng.randrange(8)


def cut(content, rng):
    del content[rng.randrange(len(content)) :]


def overwrite_page(content, rng):
    page = rng.randrange(len(content) // 2_048)
    content[page * 2_048 : (page + 1) * 2_048] = rng.randbytes(2_048)


def zero_page(content, rng):
    page = rng.randrange(len(content) // 2_048)
    content[page * 2_048 : (page + 1) * 2_048] = bytes(2_048)


def swap_pages(content, rng):
    pages = len(content) // 2_048
    p, q = (slice(2_048 * i, 2_048 * i + 2_048) for i in rng.sample(range(pages), 2))
    content[p], content[q] = content[q], content[p]


def check_verification(path, detected):
    """Verify a damaged store: a failure is one line; some damage must be found."""
    for command in ("verify", "replay"):
        result = run(command, "--store", path)
        if result.exit_code == 0:
            assert result.exception is None
            assert not detected or command == "replay"
        else:
            assert result.exit_code == 1
            assert isinstance(result.exception, MCFairError), result.exception
            assert "\n" not in str(result.exception)
            assert str(path) in str(result.exception)


@pytest.mark.parametrize("damage", [flip, flip_header, cut, overwrite_page, zero_page, swap_pages])
def test_verify_ends_in_one_line_for_any_damage(damage, sound, tmp_path):
    for seed in range(EXAMPLES):
        content = bytearray(sound)
        damage(content, random.Random(seed))
        path = tmp_path / f"{seed}.db"
        path.write_bytes(content)
        changed = content != sound  # the pages of two empty tables are alike
        check_verification(path, changed and damage in (overwrite_page, zero_page, swap_pages))


def test_verify_ends_in_one_line_for_rows_and_tables_that_are_wrong(sound, tmp_path):
    path = tmp_path / "s.db"
    path.write_bytes(sound)
    with closing(sqlite3.connect(path)) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = [(table, row[1]) for table in tables for row in db.execute(f"PRAGMA table_info({table})")]
    statements = [f"DELETE FROM {table}" for table in tables]
    statements += [f"DELETE FROM {table} WHERE rowid = 2" for table in ("queries", "versions", "requests")]
    for table, column in columns:
        for value in ("x'00'", "'text'", "-1", "NULL", "1e300", "9223372036854775807", "zeroblob(100000)"):
            statements.append(f"UPDATE OR IGNORE {table} SET {column} = {value}")
    statements = random.Random(1).sample(statements, min(3 * EXAMPLES, len(statements)))
    statements += [f"DROP TABLE {table}" for table in tables if not table.startswith("sqlite_")]
    for i, statement in enumerate(statements):
        path = tmp_path / f"{i}.db"
        path.write_bytes(sound)
        with closing(sqlite3.connect(path, isolation_level=None)) as db, suppress(sqlite3.Error):
            db.execute(statement)
        check_verification(path, statement.startswith("DROP") and not statement.endswith(("keys", "requests")))


def test_verify_of_a_damaged_store_prints_one_line_and_exits_with_1(sound, tmp_path):
    path = tmp_path / "s.db"
    content = bytearray(sound)
    content[2_048 * 3 : -2_048] = random.Random(1).randbytes(len(content) - 2_048 * 4)
    path.write_bytes(content)
    for command in ("verify", "replay"):
        result = mcfair(command, "--store", path)
        assert result.returncode == 1
        assert result.stdout == ""
        assert re.fullmatch(r"mcfair: error: [^\n]+\n", result.stderr), result.stderr


# --- restoring -------------------------------------------------------------------------------------------------------


def contents(path):
    """Return the export of a store."""
    with mf.Ranker(path, warm=False) as ranker:
        return list(ranker.export())


def test_restore_creates_a_store(path, tmp_path):
    run("backup", tmp_path / "copy.db", "--store", path)
    new = tmp_path / "new" / "s.db"
    assert "folder does not exist" in failure("restore", tmp_path / "copy.db", "--store", new)
    new.parent.mkdir()
    assert run("restore", tmp_path / "copy.db", "--store", new).stdout.startswith(f"{new}: restored")
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert contents(new) == contents(path)
    assert sorted(each.name for each in new.parent.iterdir()) == ["s.db", "s.db.lock"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may change owners")
@pytest.mark.parametrize("destroyed", [False, True])
def test_root_restores_a_store_for_its_owner(path, tmp_path, destroyed):
    """Otherwise the service, which runs as another user, could not open what was restored."""
    run("backup", tmp_path / "copy.db", "--store", path)
    folder = tmp_path / "service"
    folder.mkdir()
    store = folder / "s.db"
    if not destroyed:
        shutil.copy(path, store)
        os.chown(store, 4321, 4321)
    os.chown(folder, 4321, 4321)
    run("restore", tmp_path / "copy.db", "--store", store, "--force")
    assert {each.stat().st_uid for each in folder.iterdir()} == {4321}


def test_restore_replaces_a_store_only_by_force_and_keeps_it(path, tmp_path):
    run("backup", tmp_path / "copy.db", "--store", path)
    with mf.Ranker(path, warm=False) as ranker:
        ranker.rank("later", ["a"])
    old = contents(path)
    before = path.read_bytes()
    assert "--force" in failure("restore", tmp_path / "copy.db", "--store", path)
    assert path.read_bytes() == before
    result = run("restore", tmp_path / "copy.db", "--store", path, "--force")
    assert len(contents(path)) == len(old) - 2
    (kept,) = tmp_path.glob("s.db.replaced-*")
    assert str(kept) in result.stdout
    assert contents(kept) == old


def test_restore_does_not_apply_the_log_of_the_old_store(path, tmp_path):
    """The log that a killed process left would be applied to the restored file, which would corrupt it."""
    run("backup", tmp_path / "copy.db", "--store", path)
    with mf.Ranker(path, warm=False) as ranker:
        for i in range(50):
            ranker.rank(f"later {i}", [f"item {j}" for j in range(20)])
        crashed = tmp_path / "crashed"
        crashed.mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{crashed}/s.db{suffix}")
        old = len(list(ranker.export()))
    assert (crashed / "s.db-wal").stat().st_size > 100_000
    assert run("restore", tmp_path / "copy.db", "--store", crashed / "s.db", "--force").exit_code == 0
    assert "2 queries" in run("verify", "--store", crashed / "s.db").stdout
    (kept,) = crashed.glob("s.db.replaced-*")
    assert len(contents(kept)) == old
    (crashed / "s.db").unlink()
    (crashed / "s.db-wal").write_bytes(b"of another database")
    assert "s.db-wal exists already" in failure("restore", tmp_path / "copy.db", "--store", crashed / "s.db")
    assert run("restore", tmp_path / "copy.db", "--store", crashed / "s.db", "--force").exit_code == 0
    assert "2 queries" in run("verify", "--store", crashed / "s.db").stdout


def test_restore_replaces_a_damaged_store(path, tmp_path):
    run("backup", tmp_path / "copy.db", "--store", path)
    damaged = b"not a database" * 1_000
    path.write_bytes(damaged)
    assert run("restore", tmp_path / "copy.db", "--store", path, "--force").exit_code == 0
    assert "2 queries" in run("verify", "--store", path).stdout
    (kept,) = tmp_path.glob("s.db.replaced-*")
    assert kept.read_bytes() == damaged


def test_restore_is_refused_while_a_process_writes_or_the_backup_is_damaged(path, tmp_path):
    run("backup", tmp_path / "copy.db", "--store", path)
    with mf.Ranker(path, warm=False) as ranker:
        assert "in use" in failure("restore", tmp_path / "copy.db", "--store", path, "--force")
        ranker.rank("q", ["a"])
    before = path.read_bytes()
    with (tmp_path / "copy.db").open("r+b") as file:
        file.seek(2_048 * 6)
        file.write(os.urandom(2_048 * 3))
    assert "copy.db is damaged" in failure("restore", tmp_path / "copy.db", "--store", path, "--force")
    assert "is the store itself" in failure("restore", path, "--store", path, "--force")
    assert path.read_bytes() == before
    assert list(tmp_path.glob("*replaced*")) + list(tmp_path.glob(".*")) == []


def test_durations_have_units():
    assert [parse_duration("x", text) for text in ("90", "45s", "30m", "12h", "7d", "2w")] == [
        90, 45, 1800, 43_200, 604_800, 1_209_600,
    ]  # fmt: skip


@pytest.mark.parametrize("fails_at", [1, 2])
def test_restore_that_fails_changes_nothing(path, tmp_path, fails_at):
    run("backup", tmp_path / "copy.db", "--store", path)
    before, names = path.read_bytes(), {each.name for each in tmp_path.iterdir()}
    checked = []

    def check(store):
        checked.append(str(store))
        return ["a fault"] if len(checked) == fails_at else []

    with pytest.raises(StoreError, match=r"copy\.db is damaged \(a fault\): nothing was restored"):
        restore(tmp_path / "copy.db", path, force=True, check=check)
    assert len(checked) == fails_at
    assert path.read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} == names
    assert restore(tmp_path / "copy.db", path, force=True, check=lambda store: []) is not None
