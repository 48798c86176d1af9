"""Full disks, damaged files, a second server, overload: refused clearly, and nothing is lost."""

import ctypes
import json
import os
import random
import re
import resource
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from service_process import NoResponseError, ServerProcess, mcfair
from shoppers import LoadRun, Shopper

from mcfair.service.ranker import Ranker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are Linux's")

RANK = {"query": "red shoes", "items": [{"id": "a"}, {"id": "b"}, {"id": "c"}], "k": 2}


def refusal(ran, *words):
    """Check that a command was refused: exit status 1, one line on stderr, nothing else."""
    assert ran.returncode == 1, ran
    assert re.fullmatch(r"mcfair: error: [^\n]+\n", ran.stderr), ran.stderr
    assert ran.stdout == ""
    for word in words:
        assert re.search(word, ran.stderr), ran.stderr
    return ran.stderr


def problem(reply, status=503):
    """Check a problem response; return its detail."""
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json["status"] == status
    assert len(reply.json["detail"]) > 10
    if status == 503:
        assert int(reply.headers["retry-after"]) >= 1
    return reply.json["detail"]


def shopper_of(server, number=0):
    """Return a shopper that uses a server."""
    run_state = LoadRun(server.port)
    run_state.up.set()
    return Shopper(run_state, number, seed=7)


def check_state(shopper):
    """Check that a server has everything that it acknowledged to its only client, and nothing else."""
    for impression in shopper.impressions:
        shopper.rank_again(impression)
        shopper.explain(impression)
    shopper.check_own_query()
    assert shopper.run_state.faults == []
    assert shopper.connection.get("/v1/usage").json["impressions"] == len(shopper.impressions)


# --- a full disk -----------------------------------------------------------------------------------------------------


@contextmanager
def file_size_limit(server, folder):
    """Prevent a process from writing to any file, as if the disk were full."""
    before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def filled_disk(server, folder):
    """Fill the disk."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def small_disk(folder):
    """Mount a file system of two megabytes; requires root."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() or libc.mount(b"mcfair", bytes(folder), b"tmpfs", 0, b"size=2m"):
        pytest.skip("only root can mount a small file system")
    try:
        yield
    finally:
        libc.umount2(bytes(folder), 2)


def writes(shopper):
    """Return a request of every operation that writes."""
    event = {"impression": shopper.impressions[-1].name, "type": "click"}
    fresh = next(item for j, item in enumerate(shopper.impressions[-1].items) if shopper.impressions[-1].bits[j] == 1)
    return [
        ("POST", "/v1/rank", RANK, None),
        ("POST", "/v1/rank", RANK, "not-yet"),
        ("POST", "/v1/feedback", {"events": [event | {"item": fresh}]}, None),
        ("POST", "/v1/retract", {"events": [event | {"item": fresh}]}, None),
        ("PUT", "/v1/policy", {"retention": 86_400.0}, None),
        ("POST", "/v1/keys", {"name": "shop", "scopes": ["rank"]}, None),
        ("POST", "/v1/items/delete", {"item": "item0"}, None),
        ("POST", "/v1/reset", {"confirm": "reset"}, None),
    ]


READS = ["/v1/usage", "/v1/policy", "/v1/fairness", "/v1/export", "/metrics", "/openapi.json"]


@pytest.fixture(scope="module", params=["limit", "disk"])
def full_disk(request, tmp_path_factory):
    """The responses of a service before, during and after its disk is full."""
    folder = tmp_path_factory.mktemp("full")
    observed = SimpleNamespace(kind=request.param)
    with small_disk(folder) if request.param == "disk" else nullcontext():
        store = folder / "store.db"
        with ServerProcess(store).ready() as server, server.connect() as connection:
            shopper = shopper_of(server)
            while len(shopper.impressions) < 20 or 1 not in shopper.impressions[-1].bits:
                shopper.visit()
            observed.before = len(shopper.impressions)
            with (file_size_limit if request.param == "limit" else filled_disk)(server, folder):
                use_up_last_block(connection)
                observed.refused = [connection.request(*each) for each in writes(shopper)]
                observed.ready_then = connection.get("/readyz")
                observed.alive_then = connection.get("/livez")
                observed.reads = [connection.get(path) for path in READS]
                observed.lookup = connection.post("/v1/queries/lookup", {"query": shopper.own})
                shopper.rank_again(shopper.impressions[0])
                shopper.explain(shopper.impressions[0])
                observed.ready_after_reads = connection.get("/readyz")
                observed.refused.append(connection.post("/v1/rank", RANK))
                time.sleep(2.5)
                observed.ready_later = connection.get("/readyz")
                observed.refused.append(connection.post("/v1/rank", RANK))
            observed.ready_again = wait_until_ready(connection)
            observed.accepted = connection.post("/v1/rank", RANK, "not-yet")
            observed.usage = connection.get("/v1/usage").json["impressions"] - 1
            for _ in range(20):
                shopper.visit()
            for impression in shopper.impressions:
                shopper.rank_again(impression)
                shopper.explain(impression)
            shopper.check_own_query()
            shopper.connection.http.close()
            observed.shopper = shopper
            observed.acknowledged = len(shopper.impressions)
            observed.usage_later = connection.get("/v1/usage").json["impressions"] - 1
            observed.status = server.terminate()
        observed.verify, observed.replay = (mcfair(command, "--store", store) for command in ("verify", "replay"))
    return observed


def use_up_last_block(connection):
    """Write until nothing more fits: a change of one page may still fit into the last block of a full disk."""
    retention = 90_000.0
    while connection.request("PUT", "/v1/policy", {"retention": retention}, None).status == 200:
        retention += 1.0


def wait_until_ready(connection, seconds=20.0):
    """Return the seconds until a service is ready again."""
    begun = time.monotonic()
    while connection.get("/readyz").status != 200 and time.monotonic() < begun + seconds:
        time.sleep(0.05)
    return time.monotonic() - begun


def test_full_disk_acknowledges_nothing(full_disk):
    for reply in full_disk.refused:
        assert "the store cannot be written" in problem(reply)
    assert full_disk.usage == full_disk.before


def test_full_disk_is_not_ready_but_alive(full_disk):
    problem(full_disk.ready_then)
    assert full_disk.alive_then.status == 200


def test_full_disk_still_serves_reads(full_disk):
    assert [reply.status for reply in full_disk.reads] == [200] * len(READS)
    assert full_disk.lookup.status == 200


def test_full_disk_stays_not_ready_while_it_lasts(full_disk):
    problem(full_disk.ready_after_reads)
    problem(full_disk.ready_later)


def test_service_recovers_when_there_is_space_and_nothing_was_lost(full_disk):
    assert full_disk.ready_again < 10
    assert full_disk.accepted.status == 200
    assert full_disk.shopper.run_state.faults == []
    assert full_disk.usage_later == full_disk.acknowledged
    assert full_disk.status == 0
    assert full_disk.verify.returncode == 0, full_disk.verify
    assert full_disk.replay.returncode == 0, full_disk.replay


# --- a read-only folder ----------------------------------------------------------------------------------------------

NOBODY = 65_534

AS_NOBODY = f"""
import os
from mcfair.cli.app import main
from mcfair.service import ranker
from mcfair.service.web import server

def as_nobody(where, open_store=ranker.open_store):
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid({NOBODY})
        os.setuid({NOBODY})
    return open_store(where)

ranker.open_store = as_nobody  # not before: Python itself may be unreadable for that user
main()
"""


@pytest.mark.parametrize("existing", [False, True], ids=["no store", "a store"])
def test_read_only_folder_is_refused(existing):
    with tempfile.TemporaryDirectory() as name:  # tmp_path is closed to other users
        folder, store = Path(name), Path(name) / "store.db"
        if existing:
            Ranker(store, warm=False).close()
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        if os.geteuid() == 0:
            for path in folder.iterdir():
                os.chown(path, NOBODY, NOBODY)
        folder.chmod(0o555)
        try:
            command = [sys.executable, "-c", AS_NOBODY, "serve", "--store", str(store), "--port", "0"]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        finally:
            folder.chmod(0o755)
        refusal(ran, "cannot (write|open|use)", re.escape(str(store)))
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# --- damaged and foreign files ---------------------------------------------------------------------------------------

PAGE = 4_096


def damage_header(path):
    overwrite(path, 0, random.Random(1).randbytes(100))


def damage_page(path):
    middle = path.stat().st_size // PAGE // 2
    overwrite(path, middle * PAGE, random.Random(2).randbytes(PAGE))


def truncate(path):
    os.truncate(path, path.stat().st_size // 2 // PAGE * PAGE)


def truncate_within_page(path):
    os.truncate(path, path.stat().st_size - PAGE // 2)


def write_text(path):
    path.write_text("red shoes\n" * 1_000)


def make_other(path):
    path.unlink()
    with sqlite_of(path) as db:
        db.execute("CREATE TABLE shoes (size INTEGER)")


def make_newer(path):
    with sqlite_of(path) as db:
        db.execute("PRAGMA user_version = 99")


def make_folder(path):
    path.unlink()
    path.mkdir()


DAMAGES = {
    damage_header: "not a database|damaged|malformed",
    truncate: "damaged|malformed",
    truncate_within_page: "damaged|malformed",
    write_text: "not a database",
    make_other: "another program",
    make_newer: "newer mcfair .*99.*update mcfair",
    make_folder: "cannot",
}


def overwrite(path, place, content):
    with path.open("r+b") as file:
        file.seek(place)
        file.write(content)


@contextmanager
def sqlite_of(path):
    db = sqlite3.connect(path, isolation_level=None)
    try:
        yield db
    finally:
        db.close()


def fill(path, queries=20, items=100):
    """Create a store with some data."""
    with Ranker(path, warm=False) as ranker:
        futures = [
            ranker.executor.submit(type(ranker.executor.engine).rank, ranker_request(f"query {i}", items), f"key {i}")
            for i in range(queries)
        ]
        for each in futures:
            each.result()


def ranker_request(query, items):
    from mcfair.service.wire import Item, RankRequest, with_raw_items

    return with_raw_items(RankRequest(query=query, items=[Item(f"item {i} of {query}") for i in range(items)], k=10))


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """The output of `mcfair serve` for each kind of damage, and the file before and after."""
    folder = tmp_path_factory.mktemp("damaged")
    fill(folder / "sound.db")
    sound = (folder / "sound.db").read_bytes()

    def attempt(damage):
        path = folder / damage.__name__ / "store.db"
        path.parent.mkdir()
        path.write_bytes(sound)
        damage(path)
        before = None if path.is_dir() else path.read_bytes()
        ran = mcfair("serve", "--store", path, "--port", 0)
        return ran, before, None if path.is_dir() else path.read_bytes(), path

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(DAMAGES, pool.map(attempt, DAMAGES), strict=True)) | {"sound": sound}


def test_undamaged_copy_is_accepted(refusals):
    """The control of the damages below: the same bytes, copied in the same way."""
    path = refusals[make_newer][3].with_name("copy.db")
    path.write_bytes(refusals["sound"])
    assert mcfair("verify", "--store", path).returncode == 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_is_refused_and_unchanged(damage, refusals):
    ran, before, after, path = refusals[damage]
    refusal(ran, DAMAGES[damage], re.escape(str(path)))
    assert after == before
    assert not path.with_name("store.db-wal").exists()


def test_damage_that_only_reading_can_find_is_answered_with_503_and_logged(refusals, tmp_path):
    store = tmp_path / "store.db"
    store.write_bytes(refusals["sound"])
    damage_page(store)
    refusal(mcfair("verify", "--store", store), "store.db")
    with ServerProcess(store).ready() as server, server.connect() as connection:
        replies = [connection.post("/v1/rank", RANK | {"query": f"query {i}"}) for i in range(20)]
        refused = [reply for reply in replies if reply.status != 200]
        assert 0 < len(refused) < len(replies)
        for reply in refused:
            assert "store.db" not in problem(reply)
        assert connection.get("/readyz").status == 200
    assert "stored data cannot be read" in server.text


VANISHING = {
    "deleted": lambda store: store.unlink(),
    "replaced": lambda store: store.with_name("backup.db").rename(store),
}


@pytest.mark.parametrize("vanish", VANISHING)
def test_vanished_store_is_not_ready_at_once_and_named_in_the_log_only(tmp_path, vanish):
    store = tmp_path / "store.db"
    with ServerProcess(store).ready() as server, server.connect() as connection:
        assert connection.post("/v1/rank", RANK).status == 200
        assert mcfair("backup", tmp_path / "backup.db", "--store", store).returncode == 0
        VANISHING[vanish](store)
        assert "store.db" not in problem(connection.get("/readyz"))
        for _ in range(3):
            assert problem(connection.post("/v1/rank", RANK)).startswith("the store cannot be written, and nothing was")
        problem(connection.get("/readyz"))
        assert connection.get("/livez").status == 200
        assert server.terminate() == 0
    assert server.text.count("was deleted or replaced") == 1
    assert f"{store} was deleted or replaced" in server.text
    if vanish == "replaced":
        assert mcfair("verify", "--store", store).returncode == 0


@pytest.fixture(scope="module")
def damaged_while_serving(tmp_path_factory):
    """The responses of a service whose file is damaged while it runs."""
    store = tmp_path_factory.mktemp("damaged") / "store.db"
    fill(store, queries=40, items=1_000)
    pages = store.stat().st_size // PAGE
    assert pages * PAGE > 2_500_000  # more than SQLite's cache
    with ServerProcess(store).ready() as server, server.connect() as connection:
        for page in range(pages // 4, pages):
            overwrite(store, page * PAGE, random.Random(page).randbytes(PAGE))
        observed = SimpleNamespace(through=[], beside=[])
        for i in range(40):
            observed.through.append(connection.post("/v1/queries/lookup", {"query": f"query {i}"}))
            observed.through.append(connection.post("/v1/rank", RANK | {"query": f"query {i}"}))
        observed.beside = [connection.get("/v1/fairness"), connection.get("/v1/export")]
        observed.alive = connection.get("/livez")
        observed.lives = server.alive
    return observed


def test_damage_while_serving_is_answered_with_503(damaged_while_serving):
    refused = [reply for reply in damaged_while_serving.through if reply.status != 200]
    assert refused
    for reply in refused:
        problem(reply)


def test_damage_while_serving_does_not_stop_the_process(damaged_while_serving):
    assert damaged_while_serving.alive.status == 200
    assert damaged_while_serving.lives


def test_damage_while_serving_is_answered_with_503_for_scans(damaged_while_serving):
    for reply in damaged_while_serving.beside:
        problem(reply)


# --- several servers, overload, shutdown -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A running server, shared by several tests, with a low limit of concurrent requests."""
    with ServerProcess(tmp_path_factory.mktemp("running") / "store.db", "--max-in-flight", 4).ready() as server:
        server.store = Path(re.search(r"store (.+)", server.text)[1])
        yield server


def works(server):
    with server.connect() as connection:
        return [connection.get("/readyz").status, connection.post("/v1/rank", RANK).status] == [200, 200]


def test_second_server_on_the_same_store_is_refused(running):
    refusal(mcfair("serve", "--store", running.store, "--port", 0), "in use by another process", str(running.store))
    link = running.store.with_name("link.db")
    link.symlink_to(running.store)
    running.store.with_name("store.db.lock").unlink()
    refusal(mcfair("serve", "--store", link, "--port", 0), "in use by another process", str(running.store))
    assert works(running)


def test_port_in_use_is_refused(running, tmp_path):
    store = tmp_path / "other.db"
    refusal(mcfair("serve", "--store", store, "--port", running.port), f"port {running.port} of .* is in use")
    assert works(running)
    assert list(tmp_path.iterdir()) == []


def test_overload_refuses_some_requests_and_serves_the_others(running):
    with running.connect() as connection:
        before = connection.get("/v1/usage").json["impressions"]
    request = json.dumps(RANK | {"query": "crowd", "items": [{"id": f"item {i}"} for i in range(500)]}).encode()
    together = threading.Barrier(32)

    def press(number):
        with running.connect() as connection:
            together.wait(30)
            health = connection.get("/livez").status
            return health, [connection.post("/v1/rank", request, f"{number}-{i}") for i in range(25)]

    with ThreadPoolExecutor(32) as pool:
        pressed = list(pool.map(press, range(32)))
    replies = [reply for _, those in pressed for reply in those]
    refused = [reply for reply in replies if reply.status != 200]
    assert {health for health, _ in pressed} == {200}
    assert refused
    for reply in refused:
        problem(reply)
    assert len(refused) < len(replies)
    with running.connect() as connection:
        assert connection.get("/v1/usage").json["impressions"] == before + len(replies) - len(refused)
        for number, (_, those) in enumerate(pressed):
            for i, reply in enumerate(those[:2]):
                again = connection.post("/v1/rank", request, f"{number}-{i}")
                assert again.status == 200
                if reply.status == 200:
                    assert again.json == reply.json
    assert works(running)


def test_concurrent_requests_with_the_same_key_count_once(running):
    together = threading.Barrier(16)

    def ask(_):
        with running.connect() as connection:
            together.wait(30)
            while (reply := connection.post("/v1/rank", RANK | {"query": "once"}, "once")).status == 503:
                time.sleep(0.01)
            return reply.status, reply.content

    with ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(ask, range(16)))
    assert [status for status, _ in answers] == [200]
    with running.connect() as connection:
        assert connection.post("/v1/queries/lookup", {"query": "once"}).json["visits"] == 1


def test_killed_server_leaves_no_lock_and_no_valid_note(tmp_path):
    store = tmp_path / "store.db"
    note = store.with_name("store.db.lock")
    with ServerProcess(store).ready() as server:
        shopper = shopper_of(server)
        while len(shopper.impressions) < 10:
            shopper.visit()
        server.kill()
    shopper.connection.http.close()
    assert note.stat().st_size > 0
    assert mcfair("keys", "list", "--store", store).returncode == 0
    with ServerProcess(store, "--drain", "0.3s", port=server.port).ready() as server:
        assert json.loads(note.read_bytes())["url"].endswith(f":{server.port}")
        check_state(shopper)
        finish_under_load(server, store, shopper)


def finish_under_load(server, store, first):
    """Send SIGTERM to a server under load: it exits with 0, and everything it acknowledged is in its file."""
    others = [shopper_of(server, number) for number in (1, 2, 3)]
    acknowledged = []

    def use(shopper):
        with suppress(NoResponseError):
            while (reply := shopper.connection.post("/v1/rank", RANK)).status == 200:
                acknowledged.append(reply.json["impression"])
            problem(reply)
        shopper.connection.http.close()

    with ThreadPoolExecutor(3) as pool:
        users = [pool.submit(use, each) for each in others]
        while len(acknowledged) < 50:
            time.sleep(0.01)
        assert server.terminate() == 0
        for each in users:
            each.result(30)
    first.connection.http.close()
    assert sorted(path.name for path in store.parent.iterdir()) == ["store.db", "store.db.lock"]
    with Ranker(store, warm=False) as ranker:
        for impression in acknowledged:
            ranker.explain(impression)
        assert ranker.usage().impressions == len(first.impressions) + len(acknowledged)
    assert mcfair("verify", "--store", store).returncode == 0


def test_stale_lock_note_is_ignored_when_another_process_has_the_store(tmp_path):
    store = tmp_path / "store.db"
    store.with_name("store.db.lock").write_text('{"url": "http://127.0.0.1:9", "token": "of a killed server"}')
    with Ranker(store, warm=False):
        refusal(
            mcfair("keys", "add", "shop", "--scope", "rank", "--store", store),
            "in use by a process that is not `mcfair serve`",
        )
