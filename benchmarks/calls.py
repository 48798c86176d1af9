"""How many of the package's own functions a command calls once everything is loaded and compiled.

    python benchmarks/calls.py audit|simulate|table1|rank     # two numbers
    python benchmarks/calls.py audit --list                   # and the functions, file by file

A command is given to the command line in this process twice, with the output in a new folder each time; the functions
of the second time are counted, in all threads. A function counts once, however often it is called. The first number is
of functions that have a name, the second includes lambdas and, before Python 3.12, comprehensions. Compiled kernels and
templates are not counted. `rank` is a ranking over HTTP, in the process of the service, whose candidates are known.
"""

import argparse
import contextlib
import io
import os
import socket
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from unittest import mock

import polars as pl

import mcfair
from mcfair.cli.app import main

PACKAGE = str(Path(mcfair.__file__).parent) + os.sep

COMMANDS = {
    "audit": ("audit", "clicks.csv"),
    "simulate": ("simulate", "--data", "mq2008-like", "--policy", "MCFair", "--steps", "1000"),
    "table1": ("reproduce", "table1", "--data", "mq2008-like", "--quick", "--jobs", "1"),
}

WARM = 50
"""Rankings before the one that is counted."""


def write_clicks(path):
    """Write a small log: two sellers, three queries, a list a day."""
    rows = [
        {
            "impression": number,
            "time": f"2024-01-{1 + number % 28:02d} 12:00:00",
            "query": f"query {number % 3}",
            "item": f"item {(number + rank) % 5}",
            "rank": rank,
            "clicked": int((number * 7 + rank) % 4 == 0),
            "group": "large" if (number + rank) % 5 < 3 else "small",
        }
        for number in range(60)
        for rank in range(1, 4)
    ]
    pl.DataFrame(rows).write_csv(path)


def run(words):
    """Run a command in a new folder; what it prints is dropped."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out:
        os.chdir(folder)
        try:
            write_clicks("clicks.csv")
            with mock.patch.object(sys, "argv", ["mcfair", *words]):
                main()
        except SystemExit as end:
            if end.code:
                raise SystemExit(f"{out.getvalue()}the command failed: {end.code}") from None
        finally:
            os.chdir(before)


@contextlib.contextmanager
def profiled():
    """Yield a set that gets the functions of the package that are called while its `active` is set, in new threads."""
    found, active = set(), threading.Event()

    def note(frame, event, _):
        code = frame.f_code
        ours = code.co_filename.startswith(PACKAGE) and code.co_filename.endswith(".py")
        if event == "call" and ours and active.is_set():
            found.add(code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found, active
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def called(words):
    """Return the functions that a command calls the second time."""
    run(words)
    with profiled() as (found, active):
        active.set()
        run(words)
    return found


def called_by_rank():
    """Return the functions that the service calls from the arrival of a ranking to its response."""
    from load import body_of_query

    from mcfair.service.group_commit import GroupCommit
    from mcfair.service.ranker import Ranker
    from mcfair.service.web.app import create_app
    from mcfair.service.web.server import RankingServer, bind, url_of

    alone = {"fit_interval": 0, "guard_interval": 0, "summary_interval": 0}  # no background work meanwhile
    alone["executor_class"] = partial(GroupCommit, compaction_interval=3600.0)
    body, listener, ready = body_of_query(1, 100, 10), bind("127.0.0.1", 0), threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        profiled() as (found, active),
        Ranker(Path(folder) / "store.db", **alone) as ranker,
    ):
        server = RankingServer(create_app(ranker), url_of("127.0.0.1", listener), on_ready=lambda _: ready.set())
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        ready.wait()
        with socket.create_connection(listener.getsockname()) as connection:
            for i in range(WARM):
                ask(connection, body, i)
            active.set()
            ask(connection, body, WARM)
            active.clear()
        server.drain()
        thread.join()
    return found


def ask(connection, body, key):
    """Send a request for a list, and receive the response."""
    head = f"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: {key}"
    connection.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = b""
    while not answer.endswith(b"}"):
        answer += connection.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 200"), answer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=[*COMMANDS, "rank"])
    parser.add_argument("--list", action="store_true", help="print the functions as well")
    given = parser.parse_args()
    codes = called_by_rank() if given.command == "rank" else called(COMMANDS[given.command])
    functions = sorted(
        (each.co_filename.removeprefix(PACKAGE), each.co_firstlineno, each.co_qualname) for each in codes
    )
    if given.list:
        print(*(f"{file}:{line} {name}" for file, line, name in functions), sep="\n")
    named = [name for _, _, name in functions if not name.endswith(">")]
    modules = len({file for file, _, _ in functions})
    print(f"{len(named)} functions, {len(functions)} with lambdas and comprehensions, in {modules} modules")
