"""Disks that are full, files that are damaged, servers too many, more load than allowed: refused clearly, nothing lost."""

import ctypes
import json
import os
import random
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from service_process import SERVE, LostError, ServerProcess, mcfair
from shoppers import Shopper, Street

from mcfair.service.ranker import Ranker

RANK = {"query": "red shoes", "items": [{"id": "a"}, {"id": "b"}, {"id": "c"}], "k": 2}


def refusal(ran, *words):
    """A command that was refused: exit status 1, one clear line, nothing else."""
    assert ran.returncode == 1, ran
    assert re.fullmatch(r"mcfair: error: [^\n]+\n", ran.stderr), ran.stderr
    assert ran.stdout == ""
    for word in words:
        assert re.search(word, ran.stderr), ran.stderr
    return ran.stderr


def problem(reply, status=503):
    """A refusal over HTTP, which says when to come again."""
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json["status"] == status
    assert len(reply.json["detail"]) > 10
    if status == 503:
        assert int(reply.headers["retry-after"]) >= 1
    return reply.json["detail"]


def shopper_of(server, number=0):
    """Somebody who uses a server and remembers what it has acknowledged."""
    street = Street(server.port)
    street.up.set()
    return Shopper(street, number, seed=7)


def check_ledger(shopper):
    """See that a server knows what it has acknowledged to the only one who uses it, and nothing else."""
    for impression in shopper.impressions:
        shopper.rank_again(impression)
        shopper.explain(impression)
    shopper.look()
    assert shopper.street.faults == []
    assert shopper.connection.get("/v1/usage").json["impressions"] == len(shopper.impressions)


# --- a full disk -----------------------------------------------------------------------------------------------------


@contextmanager
def file_size_limit(server, folder):
    """Let a process write nothing to any file, as if there were no room at all."""
    before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def filled_disk(server, folder):
    """Take all the room there is."""
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
    """Mount a file system of two megabytes, which only root can."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() or libc.mount(b"mcfair", bytes(folder), b"tmpfs", 0, b"size=2m"):
        pytest.skip("only root can mount a small file system")
    try:
        yield
    finally:
        libc.umount2(bytes(folder), 2)


def writes(shopper):
    """Everything that needs to be written down."""
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
    """The story of a disk that gets full and is made room on: what was answered, when."""
    folder = tmp_path_factory.mktemp("full")
    story = SimpleNamespace(kind=request.param)
    with small_disk(folder) if request.param == "disk" else suppress():
        store = folder / "store.db"
        with ServerProcess(store).ready() as server, server.connect() as connection:
            shopper = shopper_of(server)
            while len(shopper.impressions) < 20 or 1 not in shopper.impressions[-1].bits:
                shopper.visit()
            with (file_size_limit if request.param == "limit" else filled_disk)(server, folder):
                story.refused = [connection.ask(*each) for each in writes(shopper)]
                story.ready_then = connection.get("/readyz")
                story.alive_then = connection.get("/livez")
                story.reads = [connection.get(path) for path in READS]
                story.lookup = connection.post("/v1/queries/lookup", {"query": shopper.own})
                shopper.rank_again(shopper.impressions[0])
                shopper.explain(shopper.impressions[0])
                story.ready_after_reads = connection.get("/readyz")
                story.refused.append(connection.post("/v1/rank", RANK))
                time.sleep(2.5)
                story.ready_later = connection.get("/readyz")
                story.refused.append(connection.post("/v1/rank", RANK))
            story.ready_again = wait_until_ready(connection)
            story.accepted = connection.post("/v1/rank", RANK, "not-yet")
            story.usage = connection.get("/v1/usage").json["impressions"] - 1
            for _ in range(20):
                shopper.visit()
            for impression in shopper.impressions:
                shopper.rank_again(impression)
                shopper.explain(impression)
            shopper.look()
            shopper.connection.http.close()
            story.shopper = shopper
            story.acknowledged = len(shopper.impressions)
            story.usage_later = connection.get("/v1/usage").json["impressions"] - 1
            story.status = server.terminate()
        story.verify, story.replay = (mcfair(command, "--store", store) for command in ("verify", "replay"))
    return story


def wait_until_ready(connection, seconds=20.0):
    """Return the seconds it takes until a service is ready, by itself."""
    begun = time.monotonic()
    while connection.get("/readyz").status != 200 and time.monotonic() < begun + seconds:
        time.sleep(0.05)
    return time.monotonic() - begun


def test_full_disk_acknowledges_nothing(full_disk):
    for reply in full_disk.refused:
        assert "could not be written down" in problem(reply)
    assert full_disk.usage == 20


def test_full_disk_is_told_and_the_process_lives(full_disk):
    problem(full_disk.ready_then)
    assert full_disk.alive_then.status == 200


def test_full_disk_can_still_be_read(full_disk):
    assert [reply.status for reply in full_disk.reads] == [200] * len(READS)
    assert full_disk.lookup.status == 200


def test_full_disk_stays_told_as_long_as_it_lasts(full_disk):
    problem(full_disk.ready_after_reads)
    problem(full_disk.ready_later)


def test_room_on_the_disk_is_used_at_once_and_nothing_was_lost(full_disk):
    assert full_disk.ready_again < 10
    assert full_disk.accepted.status == 200
    assert full_disk.shopper.street.faults == []
    assert full_disk.usage_later == full_disk.acknowledged
    assert full_disk.status == 0
    assert full_disk.verify.returncode == 0, full_disk.verify
    assert full_disk.replay.returncode == 0, full_disk.replay


# --- a folder that cannot be written ---------------------------------------------------------------------------------

NOBODY = 65_534

AS_NOBODY = f"""
import os
from mcfair.cli import main
import mcfair.service.ranker, mcfair.service.server  # Python itself may lie where nobody else can read
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
main()
"""


@pytest.mark.parametrize("existing", [False, True], ids=["no store", "a store"])
def test_folder_that_cannot_be_written(existing):
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


# --- files that are damaged, or are something else -------------------------------------------------------------------

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
    damage_page: "damaged|malformed",
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
    """Make a store with something in it."""
    with Ranker(path, warm=False) as ranker:
        futures = [
            ranker.submit(type(ranker.engine).rank, ranker_request(f"query {i}", items), f"key {i}")
            for i in range(queries)
        ]
        for each in futures:
            each.result()


def ranker_request(query, items):
    from mcfair.service.wire import Item, RankRequest

    return RankRequest(query=query, items=[Item(f"item {i} of {query}") for i in range(items)], k=10)


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """What `mcfair serve` says to each damage, and what it leaves of the file."""
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
        return dict(zip(DAMAGES, pool.map(attempt, DAMAGES), strict=True))


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_is_refused_and_left_alone(damage, refusals):
    ran, before, after, path = refusals[damage]
    refusal(ran, DAMAGES[damage], re.escape(str(path)))
    assert after == before
    assert not path.with_name("store.db-wal").exists()


CONTENTS = {"ones": b"\xff" * PAGE, "zeros": b"\0" * PAGE, "noise": random.Random(3).randbytes(PAGE)}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_damage_while_serving_is_answered_by_503(content, tmp_path):
    store = tmp_path / "store.db"
    fill(store, queries=40, items=1_000)
    pages = store.stat().st_size // PAGE
    assert pages * PAGE > 2_500_000  # more than SQLite keeps in memory
    with ServerProcess(store).ready() as server, server.connect() as connection:
        for page in range(pages // 4, pages):
            overwrite(store, page * PAGE, content)
        statuses = []
        for i in range(40):
            reply = connection.post("/v1/queries/lookup", {"query": f"query {i}"})
            statuses.append(reply.status)
            if reply.status != 200:
                problem(reply)
            reply = connection.post("/v1/rank", RANK | {"query": f"query {i}"})
            statuses.append(reply.status)
        assert set(statuses) <= {200, 503}, statuses
        assert 503 in statuses
        assert connection.get("/livez").status == 200
        assert server.alive
