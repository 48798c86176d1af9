"""Restarts under load, through nginx with the configuration in deploy/: no request fails."""

import signal
import threading
import time

import httpx
import postgres_server
import pytest
from nginx_proxy import NGINX, proxied
from service_process import ServerProcess, free_port

import mcfair as mf
from mcfair.service.ranker import Ranker

ITEMS = [{"id": f"sku{i}", "prior": i / 20} for i in range(20)]
QUERIES = [f"query {i}" for i in range(8)]
SETTLE_SECONDS = 3.0
"""Pause between two restarts: nginx leaves out an instance that failed for two seconds."""

needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
needs_postgres = pytest.mark.skipif(postgres_server.missing() is not None, reason=str(postgres_server.missing()))


class Load:
    """Threads that rank and click until the block ends; each failure is recorded."""

    def __init__(self, work, threads=4):
        self.work, self.failures, self.done = work, [], 0
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(threads)]

    def run(self, number):
        turn = 0
        while not self.stopping.is_set():
            try:
                self.work(number, turn)
            except Exception as error:
                self.failures.append(repr(error))
            with self.lock:
                self.done += 1
            turn += 1
            time.sleep(0.02)

    def wait_for(self, more):
        """Wait until some more requests have been made."""
        target, until = self.done + more, time.monotonic() + 60
        while self.done < target:
            assert time.monotonic() < until
            time.sleep(0.02)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)


def ranked(client, key, number, turn):
    """Rank and report a click without any retry; raise if a response is not a success."""
    headers = {"Authorization": f"Bearer {key}"}
    body = {"query": QUERIES[turn % len(QUERIES)], "items": ITEMS, "k": 5}
    answer = client.post("/v1/rank", json=body, headers=headers | {"Idempotency-Key": f"{number}-{turn}"})
    assert answer.status_code == 200, f"rank: {answer.status_code} {answer.text}"
    event = {"impression": answer.json()["impression"], "item": answer.json()["items"][0]["id"]}
    answer = client.post("/v1/feedback", json={"events": [event]}, headers=headers)
    assert answer.status_code == 200, f"feedback: {answer.status_code} {answer.text}"
    assert answer.json()["results"][0]["status"] in ("applied", "duplicate"), answer.text


@needs_nginx
@needs_postgres
def test_rolling_restart_of_two_instances_fails_no_request(tmp_path):
    url = postgres_server.shared_server().new_database()
    with Ranker(url, warm=False) as ranker:
        key = ranker.add_key("any", ["admin"]).key
    ports = [free_port(), free_port()]
    servers = [ServerProcess(url, "--proxy-headers", port=port) for port in ports]
    try:
        for server in servers:
            server.ready()
        with proxied(tmp_path, *ports) as proxy, httpx.Client(base_url=proxy, timeout=30) as client:
            with Load(lambda number, turn: ranked(client, key, number, turn)) as load:
                load.wait_for(100)
                for i, port in enumerate(ports):
                    assert servers[i].terminate() == 0, servers[i].text
                    load.wait_for(50)  # the other instance alone
                    servers[i] = ServerProcess(url, "--proxy-headers", port=port).ready()
                    load.wait_for(50)
                    time.sleep(SETTLE_SECONDS)
            assert load.failures == []
            usage = client.get("/v1/usage", headers={"Authorization": f"Bearer {key}"}).json()
            assert usage["impressions"] == load.done  # what nginx sent to two instances counts once
    finally:
        for server in servers:
            server.kill()


@needs_nginx
def test_restart_of_a_single_instance_delays_the_requests_of_a_client_and_fails_none(tmp_path):
    """With SQLite there is a gap. The client bridges it: it repeats a request with the same Idempotency-Key."""
    store, port = tmp_path / "mcfair.db", free_port()
    with Ranker(store, warm=False) as ranker:
        key = ranker.add_key("any", ["admin"]).key
    server = ServerProcess(store, "--proxy-headers", port=port).ready()
    try:
        with proxied(tmp_path, port) as proxy, mf.Client(proxy, key, rank_deadline=60) as client:

            def work(number, turn):
                answer = client.rank(QUERIES[turn % len(QUERIES)], ITEMS, k=5)
                (result,) = client.feedback([{"impression": answer.impression, "item": answer.items[0].id}])
                assert result.status in ("applied", "duplicate"), result

            with Load(work) as load:
                load.wait_for(50)
                assert server.terminate() == 0, server.text
                server = ServerProcess(store, "--proxy-headers", port=port).ready()
                load.wait_for(50)
            assert load.failures == []
            assert client.usage().impressions == load.done
    finally:
        server.kill()


def test_sigterm_turns_readiness_off_first_finishes_requests_and_exits_with_0(tmp_path):
    begun = ServerProcess(tmp_path / "mcfair.db", "--drain", "2s", fresh=True)
    with begun as server, server.ready().connect() as connection:
        assert connection.get("/readyz").status == 200
        server.child.send_signal(signal.SIGTERM)
        while connection.get("/readyz").status == 200:
            time.sleep(0.01)
        answer = connection.post("/v1/rank", {"query": "q", "items": ITEMS})
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert server.wait() == 0, server.text
