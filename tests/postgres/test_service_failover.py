"""Instances that keep running while their database is replaced, by a standby that was behind or by another store."""

import time
from contextlib import closing

import psycopg
import pytest
from postgres_server import missing, shared_server

from mcfair.errors import UnavailableError
from mcfair.service.core.verification import replay, verify
from mcfair.service.ranker import Ranker
from mcfair.service.stores import open_reader, open_store

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture
def url():
    return shared_server().new_database()


class Failover:
    """A copy of a database at one moment, which can take its place: what was committed since is lost."""

    def __init__(self, url):
        self.name = url.rpartition("/")[2]
        closed, opened = (f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS {allowed}" for allowed in (False, True))
        copy = f"CREATE DATABASE {self.name}_behind TEMPLATE {self.name} STRATEGY file_copy"
        self.execute(closed, self.terminate(self.name), copy, opened)

    def promote(self):
        """Replace the database by the copy; all of its connections end."""
        lost = f"{self.name}_lost"
        self.execute(
            f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS false", self.terminate(self.name),
            f"ALTER DATABASE {self.name} RENAME TO {lost}", f"ALTER DATABASE {self.name}_behind RENAME TO {self.name}",
        )  # fmt: skip

    def terminate(self, name):
        return f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'"

    def execute(self, *statements):
        with psycopg.connect(shared_server().url(), autocommit=True) as db:
            for each in statements:
                db.execute(each)


def patiently(work):
    """Repeat a call while the service is unavailable."""
    end = time.monotonic() + 10.0
    while True:
        try:
            return work()
        except UnavailableError:
            assert time.monotonic() < end
            time.sleep(0.02)


def assert_sound(url):
    with open_reader(url) as reader:
        assert [verify(reader), replay(reader)[2]] == [[], []]


def test_an_impression_that_was_lost_in_a_failover_stays_unknown_to_an_instance_that_kept_running(url):
    with Ranker(url, warm=False) as ranker:
        ranker.rank("q", ["a", "b"])
        failover = Failover(url)
        lost = patiently(lambda: ranker.rank("q", ["a", "b"], key="lost"))
        failover.promote()
        newer = patiently(lambda: ranker.rank("q", ["a", "b"], key="newer"))
        assert newer.impression != lost.impression
        click = {"impression": lost.impression, "item": lost.items[0].id}
        assert patiently(lambda: ranker.feedback([click]))[0].status == "unknown_impression"
    assert_sound(url)


def test_query_numbers_that_were_lost_in_a_failover_are_not_used_twice(url):
    """An instance keeps no numbers that the database, as it is now, hands out to another one."""
    with Ranker(url, warm=False) as first:
        failover = Failover(url)
        patiently(lambda: first.rank("lost", ["a"], key="lost"))
        failover.promote()
        patiently(first.policy)
        with Ranker(url, warm=False) as second:
            second.rank("deleted", ["a"])
            found = []
            first.executor.conflict_listeners.append(found.append)
            for i in range(5):
                first.rank(f"new {i}", ["a"])
                second.rank(f"other {i}", ["a"])
            assert found == [], "two instances number queries alike"
    assert_sound(url)


def recreate(url):
    """Replace the store in a database by a new one with other data, without ending any connection."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("ALTER SCHEMA mcfair RENAME TO replaced")  # dropping it could deadlock with an instance
    with Ranker(url, warm=False) as other:
        other.rank("q", ["a", "b"])


def test_a_store_that_was_replaced_by_another_one_is_not_written_to(url):
    """The query ids and impression ids of a store belong to its secret: two secrets would make two stores in one."""
    with Ranker(url, warm=False) as ranker:
        ranker.rank("q", ["a", "b"])
        recreate(url)
        with pytest.raises(UnavailableError):
            ranker.rank("another", ["a", "b"])
        assert not ranker.ready()
    with open_reader(url) as reader:
        assert len(reader.numbers(0, 9)) == 1


def test_a_store_that_a_newer_version_has_migrated_is_not_written_to(url):
    with Ranker(url, warm=False) as ranker:
        ranker.rank("q", ["a", "b"])
        with closing(open_store(url)) as store:  # as a migration does it
            store.begin(exclusive=True)
            store.write_meta("schema", b"99")
            store.announce()
            store.commit()
        with pytest.raises(UnavailableError):
            ranker.rank("q", ["a", "b"])
        assert not ranker.ready()
