"""Databases and roles as administrators set them up: rights, encodings, settings, limits, sockets."""

from contextlib import closing, contextmanager, suppress

import psycopg
import pytest
from postgres_server import PostgresServer, missing, shared_server
from service_process import mcfair

from mcfair.errors import StoreError, UnavailableError
from mcfair.service.core.verification import replay, verify
from mcfair.service.ranker import Ranker
from mcfair.service.stores import StoreUnavailableError, open_reader, open_store, restore
from mcfair.service.stores.postgres import PostgresStore
from mcfair.service.stores.postgres_connection import connect

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

ODD = ["a\0b", "\U0001f600", "é", "e\u0301", "\u202e\ufffe", "'; DROP SCHEMA mcfair; --", "%s", "\\x00", " ", "x" * 256]
"""Ids that a database could change, refuse or take for something else."""


@pytest.fixture
def url():
    return shared_server().new_database()


def execute(url, *statements):
    with psycopg.connect(url, autocommit=True) as db:
        for each in statements:
            db.execute(each)


@contextmanager
def role(url):
    """Create a role without rights; yield the URL of a database for it."""
    name = f"low_{url.rpartition('/')[2]}"
    execute(url, f"CREATE ROLE {name} LOGIN")
    yield url.replace("mcfair@", f"{name}@")


def assert_served(url):
    """Rank, click, restart and verify with ids that are hard to store."""
    with Ranker(url, warm=False) as ranker:
        key = ranker.add_key("shöp \U0001f600", ["rank", "admin"])
        items = [{"id": each, "group": each} for each in ODD]
        for query in (*ODD, "q"):
            answer = ranker.rank(query, items, k=10, key="key")
            ranker.feedback([{"impression": answer.impression, "item": each} for each in ODD])
            assert ranker.rank(query, items, k=10, key="key") == answer
    with Ranker(url, warm=False) as ranker:
        assert ranker.authenticate(key.key) == {"rank", "admin"}
        assert {each.name for each in ranker.keys()} == {"shöp \U0001f600"}  # noqa: SIM118
        ranker.revoke_key(key.info.id)
        assert ranker.authenticate(key.key) is None
        for query in (*ODD, "q"):
            assert {item.id: item.clicks for item in ranker.query_state(query).items} == dict.fromkeys(ODD, 1)
        ranker.delete_item(ODD[0])
        assert [item.id for item in ranker.query_state("q").items] == ODD[1:]
    with open_reader(url) as reader:
        assert [verify(reader), replay(reader)[2]] == [[], []]


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "UTF8"])
def test_every_encoding_of_a_database_holds_every_text(encoding):
    name = f"encoded_{encoding.lower()}"
    options = f"ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C' STRATEGY file_copy"
    execute(shared_server().url(), f"CREATE DATABASE {name} {options}")
    assert_served(shared_server().url(name))


def test_settings_of_a_database_do_not_change_what_the_store_does(url):
    name = url.rpartition("/")[2]
    settings = {
        "default_transaction_isolation": "serializable", "statement_timeout": "2s", "lock_timeout": "1ms",
        "search_path": "public", "client_encoding": "LATIN1", "bytea_output": "escape", "synchronous_commit": "off",
        "standard_conforming_strings": "off", "DateStyle": "German", "idle_session_timeout": "5s",
    }  # fmt: skip
    execute(url, *(f"ALTER DATABASE {name} SET {key} = '{value}'" for key, value in settings.items()))
    assert_served(url)


def test_a_read_only_database_is_refused_for_writing_and_can_be_verified(url):
    with Ranker(url, warm=False) as ranker:
        ranker.rank("q", ["a", "b"])
    execute(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailableError, match="session is read-only"):
        open_store(url)
    with open_reader(url) as reader:
        assert [verify(reader), replay(reader)[2]] == [[], []]


def test_a_role_without_rights_is_refused_with_the_right_that_it_lacks(url):
    with role(url) as low:
        with pytest.raises(StoreUnavailableError, match="permission denied for database"):
            open_store(low)
        open_store(url).close()
        with pytest.raises(StoreUnavailableError, match="permission denied for schema mcfair"):
            open_store(low)
        ran = mcfair("verify", "--store", low)
        assert ran.returncode == 1
        assert "permission denied for schema mcfair" in ran.stderr
        assert "damaged" not in ran.stderr
        assert ran.stderr.count("postgresql://") == 1, "the store is named once"


def test_a_role_that_may_not_create_a_schema_can_use_one_that_exists(url):
    with role(url) as low:
        execute(url, f"CREATE SCHEMA mcfair AUTHORIZATION {low.split('://')[1].split('@')[0]}")
        with closing(open_store(low)) as store:
            store.begin()
            store.probe()
            store.commit()


def test_a_schema_with_tables_of_somebody_else_is_refused_and_unchanged(url):
    execute(url, "CREATE SCHEMA mcfair", "CREATE TABLE mcfair.keys (theirs int)")
    with pytest.raises(StoreError, match=r'relation "keys" already exists'):
        open_store(url)
    with psycopg.connect(url) as db:
        assert db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'mcfair'").fetchall() == [("keys",)]


def test_a_server_that_is_too_old_is_refused(url):
    with closing(connect(url, reading=False)) as db:
        version = db.info.server_version
    with pytest.raises(StoreError, match=f"runs PostgreSQL {version // 10_000}: expected 99 or newer"):
        connect(url, reading=False, oldest=990_000)


def test_a_backup_of_sqlite_is_not_restored_into_postgresql(url, tmp_path):
    with pytest.raises(StoreError, match="pg_restore"):
        restore(tmp_path / "backup.db", url, force=True, check=verify)


def test_a_server_without_free_connections_is_reported_and_used_again(tmp_path):
    server = PostgresServer(max_connections=5, superuser_reserved_connections=0, unix_socket_directories="")
    with closing(server):
        url = server.new_database()
        with Ranker(url, warm=False) as ranker:
            ranker.rank("q", ["a", "b"])
            others = []
            with suppress(psycopg.OperationalError):
                while len(others) < 5:
                    others.append(psycopg.connect(url))
            assert len(others) == 4
            with pytest.raises(StoreUnavailableError, match="too many clients"):
                open_store(url)
            with pytest.raises(UnavailableError, match="cannot be read"):
                ranker.usage()
            ranker.rank("q", ["a", "b"])
            assert ranker.ready()
            for each in others:
                each.close()
            assert ranker.usage().impressions == 2


# --- counting --------------------------------------------------------------------------------------------------------


def fill(url, queries):
    """Write queries with an impression, an event and two items each; every tenth query was deleted."""
    open_store(url).close()
    series = f"generate_series(1::bigint, {queries}) AS i"
    execute(
        url, f"INSERT INTO mcfair.queries SELECT i, int8send(i) FROM {series} WHERE i % 10 <> 0",
        f"INSERT INTO mcfair.orphans SELECT i FROM {series} WHERE i % 10 = 0",
        f"INSERT INTO mcfair.log SELECT i, k + 1, 0, k, 1, NULL, '', NULL FROM {series}, generate_series(0, 1) AS k",
        f"INSERT INTO mcfair.items SELECT i, row, '\\x61', NULL, NULL FROM {series}, generate_series(0, 1) AS row",
        f"INSERT INTO mcfair.items SELECT i, 2, NULL, NULL, 1 FROM {series}",
    )  # fmt: skip


def test_counting_does_not_take_longer_than_its_rows_however_little_memory_there_is(url):
    """A server with little memory compared every row with every query: beyond some 250,000 queries it gave up."""
    fill(url, 10_000)
    execute(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET work_mem = '64kB'")
    with closing(PostgresStore(url, reading=True, timeout=10.0)) as reader:
        counted = reader.usage()
    assert counted._replace(bytes=0) == (9_000, 18_000, 9_000, 9_000, 0, 5_000, 0)


def test_counting_block_by_block_counts_every_row_once(url):
    fill(url, 1_000)
    with closing(PostgresStore(url, reading=True, counted_blocks=1)) as reader:
        assert reader.usage()._replace(bytes=0) == (900, 1_800, 900, 900, 0, 500, 0)
