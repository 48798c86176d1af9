"""The background process of `mcfair serve`: it is killed and started again, and ends with the server."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from postgres_server import missing, shared_server
from service_process import Connection, NoResponseError, ServerProcess

import mcfair as mf
from mcfair.service.core.verification import replay, verify
from mcfair.service.stores import open_reader

BUSY = (sys.executable, str(Path(__file__).parents[1] / "busy_server.py"))

ITEMS = [{"id": each, "group": each} for each in "abcde"]
READS = ("/v1/fairness", "/v1/history", "/v1/queries", "/v1/items", "/v1/usage", "/v1/experiment", "/", "/items")


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "mcfair.db")
    if missing() is not None:
        pytest.skip(str(missing()))
    return shared_server().new_database()


def children(pid):
    """Return the background processes of a server."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((each / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == pid and b"mcfair.service.background" in (each / "cmdline").read_bytes():
                found.append(int(each.name))
    return found


def background(server):
    """Wait for the background process of a server; return its pid."""
    return eventually(lambda: children(server.pid))[0]


def eventually(what, seconds=30.0):
    """Return what is true at last."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)
    return found


def gauge(connection, name):
    lines = connection.get("/metrics").content.decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


def rank(connection, query="q", key=None):
    reply = connection.post("/v1/rank", {"query": query, "items": ITEMS, "k": 3}, key)
    assert reply.status == 200, reply
    return reply.json


def check(store):
    """Verify the store, and repeat every decision of it."""
    with open_reader(store) as reader:
        assert (verify(reader), replay(reader)[2]) == ([], [])


def is_running(pid):
    """Return whether a process runs; one that nobody has waited for does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def test_reads_are_refused_until_the_process_is_started_again_and_rankings_go_on(store):
    with ServerProcess(store).ready() as server, server.connect() as shop:
        impression = rank(shop)["impression"]
        before = {path: shop.get(path).status for path in READS}
        assert set(before.values()) == {200, 404}  # there is no experiment
        assert (gauge(shop, "mcfair_background_up"), gauge(shop, "mcfair_background_starts_total")) == (1, 1)
        os.kill(background(server), signal.SIGKILL)
        eventually(lambda: gauge(shop, "mcfair_background_up") == 0)
        refused = shop.get("/v1/fairness")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        page = shop.get("/")
        assert (page.status, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
        impression = rank(shop)["impression"]
        clicked = shop.post("/v1/feedback", {"events": [{"impression": impression, "item": "a"}]})
        assert clicked.json["results"][0]["status"] in ("applied", "not_in_impression")
        assert shop.get("/readyz").status == 200
        eventually(lambda: shop.get("/v1/fairness").status == 200)
        assert shop.get("/v1/fairness").json["visits"] == 2
        assert shop.get(f"/v1/impressions/{impression}/explain").json["visits"] == 1
        assert (gauge(shop, "mcfair_background_up"), gauge(shop, "mcfair_background_starts_total")) == (1, 2)
        assert {path: shop.get(path).status for path in READS} == before
        assert server.terminate() == 0
        assert "the background process has ended" in server.text
    check(store)


def test_a_read_sees_what_was_acknowledged_before(store):
    with ServerProcess(store).ready() as server, server.connect() as shop:
        for visits in range(1, 20):
            answer = rank(shop)
            assert shop.post("/v1/queries/lookup", {"query": "q"}).json["visits"] == visits
            assert shop.get("/v1/fairness").json["visits"] == visits
            explained = shop.get(f"/v1/impressions/{answer['impression']}/explain").json
            assert [each["id"] for each in explained["items"]] == [each["id"] for each in answer["items"]]
        lines = [json.loads(line) for line in shop.get("/v1/export").content.splitlines()]
        assert sum("impression" in line for line in lines) == 19


def summarised(store):
    """Return how far each query is summarised."""
    with open_reader(store) as reader:
        return [each.seq for _, _, each in reader.summaries(0, 9) if each is not None]


def kill_in_a_loop(store, kills):
    """Kill background processes beside rankings and reads, of two servers in turn where they share a store."""
    stopped, faults, lists = threading.Event(), [], []

    def shop(server, number):
        with server.connect() as connection:
            while not stopped.is_set():
                answer = rank(connection, f"query {number % 3}")
                lists.append(answer["impression"])
                event = {"impression": answer["impression"], "item": answer["items"][0]["id"]}
                assert connection.post("/v1/feedback", {"events": [event]}).json["results"] == [{"status": "applied"}]

    def read(server):
        with server.connect() as connection:
            while not stopped.is_set():
                for path in (*READS, "/v1/export"):
                    with suppress(NoResponseError):  # an export was aborted
                        status = connection.get(path).status
                        if status not in (200, 404, 503):
                            faults.append((path, status))

    with ExitStack() as stack:
        instances = [
            ServerProcess(store, "--policy", "BayesFair", command=BUSY) for _ in range(2 if "://" in store else 1)
        ]
        servers = [stack.enter_context(each).ready() for each in instances]
        with ThreadPoolExecutor(8) as threads:
            work = [threads.submit(shop, servers[i % len(servers)], i) for i in range(4)]
            work += [threads.submit(read, each) for each in servers]
            try:
                with ExitStack() as connections:
                    connected = [connections.enter_context(each.connect()) for each in servers]
                    for i in range(kills):
                        at = i % len(servers)
                        eventually(lambda at=at: connected[at].get("/v1/usage").status == 200)
                        before = summarised(store)
                        eventually(lambda before=before: summarised(store) != before)
                        time.sleep(0.3 * random.random())
                        os.kill(background(servers[at]), signal.SIGKILL)
            finally:
                stopped.set()
            for each in work:
                each.result()
        for each in servers:
            with each.connect() as connection:
                eventually(lambda connection=connection: connection.get("/v1/usage").status == 200)
                assert connection.get("/v1/fairness").json["visits"] == len(lists)
                points = connection.get("/v1/history").json["points"]
                assert [sum(point[name] for point in points) for name in ("lists", "clicks")] == [len(lists)] * 2
            assert each.terminate() == 0
        assert faults == []
    check(store)
    return len(lists)


def test_kills_in_a_loop_beside_traffic_lose_nothing(store):
    """Reads, and installs of summaries and priors, are under way all the time; an answer is complete, or a refusal."""
    assert kill_in_a_loop(store, kills=6) > 0
    assert len(summarised(store)) == 3
    with open_reader(store) as reader:
        assert len(reader.versions()) > 2, "no prior was fitted"


def test_the_process_ends_with_the_server(store):
    with ServerProcess(store, fresh=True).ready() as server, server.connect() as shop:
        rank(shop)
        assert shop.get("/v1/usage").status == 200
        child = background(server)
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        eventually(lambda: not is_running(child), seconds=1.0)
    with ServerProcess(store, fresh=True).ready() as server:  # while it starts
        child = background(server)
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        eventually(lambda: not is_running(child), seconds=1.0)
    with ServerProcess(store).ready() as server, server.connect() as shop:
        assert shop.get("/v1/usage").json["impressions"] == 1
        child = background(server)
        assert server.terminate() == 0
        assert not is_running(child)
    check(store)


def test_a_process_that_hangs_is_killed_and_started_again(tmp_path):
    with ServerProcess(tmp_path / "s.db").ready() as server, server.connect() as shop:
        rank(shop)
        assert shop.get("/v1/usage").status == 200
        os.kill(background(server), signal.SIGSTOP)
        rank(shop)
        eventually(lambda: gauge(shop, "mcfair_background_starts_total") == 2, seconds=60.0)
        eventually(lambda: shop.get("/v1/usage").status == 200)
        assert server.terminate() == 0
        assert "has not answered for 20 s and is killed" in server.text


def test_viewers_shut_out_no_ranking(tmp_path):
    """There are more of them than requests are admitted at a time, from the start."""
    with ServerProcess(tmp_path / "s.db").ready() as server, server.connect() as shop:
        statuses, stopped = [], threading.Event()

        def view():
            with server.connect() as connection:
                while not stopped.is_set():
                    statuses.append(connection.get("/").status)
                    stopped.wait(0.5)

        viewers = [threading.Thread(target=view) for _ in range(140)]
        for each in viewers:
            each.start()
        time.sleep(0.5)  # the background process is still being started
        for i in range(60):
            rank(shop, f"query {i % 20}")
        stopped.set()
        for each in viewers:
            each.join()
        assert set(statuses) <= {200, 503}


def test_no_read_is_answered_from_a_file_that_has_replaced_the_store(tmp_path):
    with mf.Ranker(tmp_path / "other.db", warm=False) as other:
        for _ in range(5):
            other.rank("q", ["a"])
    with ServerProcess(tmp_path / "s.db").ready() as server, server.connect() as shop:
        rank(shop)
        assert shop.get("/v1/usage").json["impressions"] == 1
        (tmp_path / "s.db").rename(tmp_path / "moved.db")
        (tmp_path / "other.db").rename(tmp_path / "s.db")
        assert [shop.get(path).status for path in ("/v1/usage", "/readyz", "/")] == [503] * 3
        (tmp_path / "s.db").rename(tmp_path / "other.db")
        (tmp_path / "moved.db").rename(tmp_path / "s.db")
        eventually(lambda: shop.get("/v1/usage").status == 200)
        assert shop.get("/v1/usage").json["impressions"] == 1


def test_no_secret_is_in_a_command_line():
    if missing() is not None:
        pytest.skip(str(missing()))
    url = shared_server().new_database()
    with ServerProcess(url).ready() as server, server.connect() as shop:
        assert shop.get("/v1/usage").status == 200
        for name in ("cmdline", "environ"):
            assert url.encode() not in Path(f"/proc/{background(server)}/{name}").read_bytes()


PLUGIN = """
import mcfair as mf

@mf.register
class Theirs(mf.Policy):
    w: float = 1.0

    def score(self, q, rng):
        return q.R * self.w
"""


def test_parts_of_users_are_known_there(tmp_path):
    plugin = tmp_path / "their_parts.py"
    plugin.write_text(PLUGIN)
    options = ("--plugin", plugin, "--policy", "Theirs(w=2)")
    with ServerProcess(tmp_path / "s.db", *options).ready() as server, server.connect() as shop:
        answer = rank(shop)
        explained = shop.get(f"/v1/impressions/{answer['impression']}/explain")
        assert (explained.status, explained.json["policy"]) == (200, "Theirs(w=2.0)")


def test_summaries_and_fits_come_from_there(tmp_path):
    path = tmp_path / "s.db"
    with ServerProcess(path, "--policy", "BayesFair").ready() as server, server.connect() as shop:
        for _ in range(30):
            answer = rank(shop)
            event = {"impression": answer["impression"], "item": answer["items"][0]["id"]}
            assert shop.post("/v1/feedback", {"events": [event]}).status == 200
        eventually(lambda: shop.get("/v1/policy").json["fitted"] is not None)
        eventually(lambda: b"mcfair_unfairness " in shop.get("/metrics").content)
    with open_reader(path) as reader:
        assert reader.summaries(0, 9)[0][2] is not None
        assert reader.periods(3_600_000, 0, 2**62, 9)
    check(path)


def test_a_program_may_choose_the_process(tmp_path):
    """The application starts it with its first read if the program does not pass on the lifespan."""
    text = """
        import asyncio, sys
        from mcfair.service import create_app
        from mcfair.service.ranker import Ranker

        async def main():
            with Ranker(sys.argv[1], warm=False, background="process") as ranker:
                ranker.rank("q", ["a", "b"])
                app = create_app(ranker)
                reply = await app.background.ask("usage", {})
                print(reply.status, reply.body.decode(), ranker.usage().impressions)

        asyncio.run(main())
    """
    program = tmp_path / "program.py"
    program.write_text("\n".join(line[8:] for line in text.splitlines()))
    found = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "s.db")], capture_output=True, text=True, timeout=120, check=True
    )
    assert found.stdout.startswith("200 {")
    assert found.stdout.endswith("1\n")


def test_clients_read_through_it(tmp_path):
    with ServerProcess(tmp_path / "s.db").ready() as server, mf.Client(f"http://127.0.0.1:{server.port}") as client:
        client.rank("q", ["a", "b"])
        assert client.query_state("q").visits == 1
        assert client.fairness().visits == 1
        assert len(list(client.export())) >= 3
        assert client.compare(["TopK"]).lists == 1
        with Connection(server.port) as connection:
            assert connection.post("/v1/compare", {"policies": ["Nothing"]}).status == 400
