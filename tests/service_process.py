"""Real server processes: started or forked, queried over real sockets, killed, and never left running."""

import atexit
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fork_server import ForkedProcess, run_forked

START_SECONDS = 240.0
"""Timeout of a start: the first one on a machine compiles."""

HOST = "127.0.0.1"
SERVE = (sys.executable, "-m", "mcfair")
CRASH_SERVER = (sys.executable, str(Path(__file__).with_name("crash_server.py")))

RUNNING = set()


@atexit.register
def kill_all():
    for each in list(RUNNING):
        each.kill()


def free_port():
    """Return a free port outside the ephemeral range: a client could take one of those while the server is down."""
    with suppress(OSError):
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        # Hypothesis seeds the common generator, by which two processes would choose the same port.
        for port in random.SystemRandom().sample(range(min(10_000, first // 2), first), 100):
            with suppress(OSError), socket.socket() as tried:
                tried.bind((HOST, port))
                return port
    with socket.socket() as tried:
        tried.bind((HOST, 0))
        return tried.getsockname()[1]


def mcfair(*arguments, timeout=START_SECONDS, env=os.environ, cwd=None):
    """Run a command in a forked process and wait for it."""
    return run_forked([*SERVE[1:], *map(str, arguments)], timeout=timeout, env=env, cwd=cwd)


# --- servers ---------------------------------------------------------------------------------------------------------


class ServerProcess:
    """`mcfair serve` in a process group of its own, which the context manager kills at the end of its block.

    It is forked from a process that has imported everything, or has a `fresh` interpreter.
    """

    def __init__(self, store, *options, port=0, command=SERVE, environment=None, fresh=False):
        where = store if "://" in str(store) else f"sqlite:///{store}"
        words = [*command, "serve", "--store", where, "--port", str(port), *map(str, options)]
        self.begun = time.monotonic()
        environment = os.environ | (environment or {})
        if fresh:
            streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            self.child = subprocess.Popen(words, **streams, start_new_session=True, env=environment)
        else:
            self.child = ForkedProcess(words[1:], env=environment)
        RUNNING.add(self)
        self.port = port or None
        self.lines = []
        self.output_changed = threading.Condition()
        self.readers = [
            threading.Thread(target=each, daemon=True) for each in (self.read_output, self.child.stdout.read)
        ]
        for each in self.readers:
            each.start()

    def read_output(self):
        """Collect stderr; a full pipe would block the process."""
        for line in self.child.stderr:
            with self.output_changed:
                self.lines.append(line)
                if found := re.match(r"mcfair: serving on http://127\.0\.0\.1:(\d+)", line):
                    self.port = int(found[1])
                self.output_changed.notify_all()
        with self.output_changed:
            self.output_changed.notify_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    @property
    def pid(self):
        return self.child.pid

    @property
    def text(self):
        return "".join(self.lines)

    @property
    def alive(self):
        return self.child.poll() is None

    def wait_ready(self):
        """Wait until `/readyz` responds with 200; return the seconds since the start; False if it exits first."""
        deadline = self.begun + START_SECONDS
        while self.alive:
            if self.port is not None:
                with suppress(NoResponseError), Connection(self.port, timeout=5.0) as connection:
                    if connection.request("GET", "/readyz").status == 200:
                        return time.monotonic() - self.begun
            if time.monotonic() > deadline:
                raise TimeoutError(f"not ready after {START_SECONDS:g} s: {self.text}")
            with self.output_changed:
                self.output_changed.wait(0.01)
        return False

    def ready(self):
        """Wait until the server is ready; return self."""
        assert self.wait_ready(), self.text
        return self

    def wait(self, seconds=60.0):
        """Wait for the process to exit; return its status."""
        status = self.child.wait(seconds)
        self.clean_up()
        return status

    def kill(self):
        """Kill the process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.clean_up()

    def terminate(self):
        """Send SIGTERM; return the exit status."""
        self.child.terminate()
        return self.wait()

    def clean_up(self):
        RUNNING.discard(self)
        for each in self.readers:
            each.join(10)
        self.child.stdout.close()
        self.child.stderr.close()

    def connect(self, **options):
        return Connection(self.port, **options)


# --- clients ---------------------------------------------------------------------------------------------------------


class NoResponseError(Exception):
    """There was no complete response: it is not known whether the request was executed."""


class Reply(NamedTuple):
    status: int
    headers: dict
    content: bytes

    @property
    def json(self):
        return json.loads(self.content)


class Connection:
    """A persistent connection, reopened after a failure."""

    def __init__(self, port, timeout=60.0):
        self.http = http.client.HTTPConnection(HOST, port, timeout=timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.close()

    def request(self, method, path, body=None, key=None):
        """Send a request once, without retries."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            self.http.request(method, path, content, headers)
            response = self.http.getresponse()
            reply = Reply(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )
        except (OSError, http.client.HTTPException) as error:
            self.http.close()
            raise NoResponseError(f"{type(error).__name__}: {error}") from error
        if reply.headers.get("connection") == "close":
            self.http.close()
        return reply

    def post(self, path, body, key=None):
        return self.request("POST", path, body, key)

    def get(self, path):
        return self.request("GET", path)
