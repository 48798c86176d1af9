"""State machines over PostgreSQL: one instance, and two instances that share a database, agree with the naive model."""

from concurrent.futures import Future

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from postgres_server import missing, shared_server
from service_machine import SECRET, Machine

from mcfair.service.shared_commit import SharedGroupCommit
from mcfair.service.stores.postgres import PostgresStore
from mcfair.service.work_items import WorkItem

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def empty_database():
    """Return the URL of the shared server's own database, without a store."""
    url = shared_server().url()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP SCHEMA IF EXISTS mcfair CASCADE")
    return url


class PostgresMachine(Machine):
    """One instance."""

    store_class = PostgresStore

    def __init__(self):
        super().__init__()
        self.url = empty_database()

    def open_store(self):
        return self.store_class(self.url)

    def write_secret(self, store):
        store.write("UPDATE meta SET value = %s WHERE name = 'secret'", SECRET)

    @rule()
    def crash(self):
        """Lose the connection and start again, without closing anything."""
        self.stores[-1].disconnect()
        self.start(self.open_store())


class InlineExecutor(SharedGroupCommit):
    """Executes on the thread of the test: its writer thread ends at once, so nothing happens by itself."""

    def run_writer(self):
        pass


class TwoInstances(PostgresMachine):
    """Two instances, each with its own cache. Only the one that executed an operation is compared with the model after
    it, so that the cache of the other one stays out of date."""

    conflicts = 0
    executor_class = InlineExecutor

    def __init__(self):
        super().__init__()
        self.instances = []
        self.active = 0

    def start(self, store):
        super().start(store)
        executor = self.executor_class(store, self.engine)
        executor.conflict_listeners.append(self.count_conflicts)
        executor.end_episode()
        if len(self.instances) < 2:
            self.instances.append((self.engine, executor))
        else:
            self.instances[self.active] = self.engine, executor
        if len(self.instances) == 1:
            self.start(self.open_store())
        self.engine = self.instances[self.active][0]  # the one that executes operations

    def count_conflicts(self, lost):
        type(self).conflicts += lost

    @rule(instance=st.integers(0, 1))
    def switch(self, instance):
        self.active = instance
        self.engine = self.instances[instance][0]

    def do(self, work, *args, **kwargs):
        """Execute one operation as the writer thread does."""
        item = WorkItem(work, args, kwargs, Future(), None)
        executor = self.instances[self.active][1]
        executor.run_batch(iter([item]), [item])
        while item.needs_more():  # feedback, of which a slice was executed
            executor.run_batch(iter([item]), [item])
        assert executor.write_error is None, executor.write_error
        if item.error is not None:
            raise item.error
        return item.result

    @rule()
    def crash(self):
        """Lose the connection of one instance and start it again."""
        self.engine.store.disconnect()
        self.start(self.open_store())

    def teardown(self):
        try:
            if self.instances:
                self.switch(0)
                self.compare_with_the_model("on the first instance: ")
                self.switch(1)
                self.compare_with_the_model("on the second instance: ")
        finally:
            super().teardown()


QUICK = settings(
    max_examples=settings().max_examples // 2,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
"""Shrinking an example would take minutes: every step is several round trips."""


@pytest.mark.parametrize("machine", [PostgresMachine, TwoInstances], ids=["one instance", "two instances"])
def test_engine_on_postgresql_agrees_with_the_model(machine):
    run_state_machine_as_test(machine, settings=QUICK)
    assert machine is PostgresMachine or machine.conflicts > 0, "the two instances never conflicted"
