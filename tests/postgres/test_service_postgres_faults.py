"""Faults of a database that runs: no space left, tables that vanish. Nothing is lost, and operators are told once."""

import time

import psycopg
import pytest
from postgres_server import missing, shared_server

from mcfair.errors import UnavailableError
from mcfair.service.ranker import Ranker

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture
def url():
    return shared_server().new_database()


def execute(url, *statements):
    with psycopg.connect(url, autocommit=True) as db:
        for each in statements:
            db.execute(each)


def fill_disk(url, *tables):
    """Refuse new rows in some tables as a server does that cannot extend a file: updates in place still succeed."""
    execute(
        url,
        """CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$""",
        *(f"CREATE TRIGGER full_disk BEFORE INSERT ON mcfair.{each} EXECUTE FUNCTION refuse()" for each in tables),
    )


def free_disk(url, *tables):
    execute(url, *(f"DROP TRIGGER full_disk ON mcfair.{each}" for each in tables))


def wait_for(condition):
    end = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_full_disk_is_one_episode_until_there_is_space(url, caplog):
    tables = ("meta", "queries", "log", "items")
    with Ranker(url, warm=False) as ranker:
        ranker.rank("q", ["a", "b"])
        fill_disk(url, *tables)
        for i in range(5):
            with pytest.raises(UnavailableError, match="nothing was changed"):
                ranker.rank(f"q{i}", ["a", "b"])
            time.sleep(ranker.executor.compaction_interval)  # in which the store is tested again
            assert not ranker.ready()
        assert ranker.query_state("q").visits == 1, "what is stored can be read"
        free_disk(url, *tables)
        wait_for(ranker.ready)
        ranker.rank("q", ["a", "b"])
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("mcfair")]
    assert len(messages) == 2, messages
    assert "could not extend file" in messages[0]
    assert messages[1] == "the store can be written again"


def test_a_commit_that_the_server_refuses_has_a_known_end(url):
    """Only if the connection was lost is it not known whether a batch was committed."""
    with Ranker(url, warm=False) as ranker:
        fill_disk(url, "items")
        with pytest.raises(UnavailableError, match="nothing was changed"):
            ranker.rank("q", ["a", "b"])
        free_disk(url, "items")
        wait_for(ranker.ready)
        assert ranker.rank("q", ["a", "b"]).items


def test_a_store_whose_tables_vanish_is_not_ready(url):
    with Ranker(url, warm=False) as ranker:
        ranker.rank("q", ["a", "b"])
        execute(url, "ALTER SCHEMA mcfair RENAME TO vanished")  # dropping it could deadlock with the instance
        with pytest.raises(UnavailableError):
            ranker.rank("q", ["a", "b"])
        wait_for(lambda: not ranker.ready())
