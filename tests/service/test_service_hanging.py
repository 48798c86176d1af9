"""The service over HTTP while its disk hangs, and while a client leaves: everything else goes on."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from serving import serving

from mcfair.service.core.engine import Engine
from mcfair.service.ranker import Ranker
from mcfair.service.stores import SQLiteStore

RANK = {"query": "red shoes", "items": [{"id": "a"}, {"id": "b"}], "k": 1}


class HangingStore(SQLiteStore):
    """A store in a real file, whose next call of the method `hangs` hangs until it is released."""

    hangs = None

    def __init__(self, path):
        super().__init__(path)
        self.reached, self.released = threading.Event(), threading.Event()

    def hang(self, method):
        if self.hangs == method:
            self.hangs = None
            self.reached.set()
            assert self.released.wait(60), "the test did not release the store"

    def commit(self):
        self.hang("commit")
        super().commit()

    def items(self, number):
        self.hang("items")
        return super().items(number)


@pytest.mark.parametrize("hangs", ["commit", "items"], ids=["commit", "read of a query that is not cached"])
def test_probes_and_refusals_are_answered_while_the_disk_hangs(tmp_path, hangs):
    store = HangingStore(tmp_path / "store.db")
    with Ranker(store) as ranker, serving(ranker, max_in_flight=2) as client, ThreadPoolExecutor(2) as pool:
        assert client.post("/v1/rank", json=RANK).status_code == 200
        ranker.executor.submit(Engine.drop_cache).result()
        store.hangs = hangs
        first = pool.submit(httpx.post, f"{client.base_url}/v1/rank", json=RANK, timeout=60)
        try:
            assert store.reached.wait(20)
            for _ in range(3):
                assert client.get("/livez", timeout=10).status_code == 200
            second = pool.submit(httpx.post, f"{client.base_url}/v1/rank", json=RANK, timeout=60)
            while client.server.app.lifecycle.in_flight < 2:
                assert client.get("/livez", timeout=10).status_code == 200
            assert client.post("/v1/rank", json=RANK, timeout=10).status_code == 503
            assert not any(each.done() for each in (first, second))  # nothing is acknowledged before it is durable
        finally:
            store.released.set()
        assert [first.result().status_code, second.result().status_code] == [200, 200]
        assert client.post("/v1/queries/lookup", json={"query": RANK["query"]}).json()["visits"] == 3


def test_client_that_leaves_an_export_early_is_not_logged(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    with Ranker(tmp_path / "store.db") as ranker:
        for i in range(100):
            ranker.rank(f"query {i}", [f"item {j:0200d}" for j in range(500)], k=1)
        with serving(ranker) as client:
            with client.stream("GET", "/v1/export") as answer:
                assert next(answer.iter_bytes())
            client.close()  # the export is far larger than what the socket buffers hold
            with httpx.Client(base_url=client.base_url, timeout=20) as other:
                assert len(other.get("/v1/export").text.splitlines()) > 100  # the reader of exports is free again
    assert [each.getMessage() for each in caplog.records] == []
