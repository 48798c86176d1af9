"""Real server processes: started, asked over real sockets, killed, and never left behind."""

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

START_SECONDS = 240.0
"""How long a start may take: the first one on a machine compiles."""

HOST = "127.0.0.1"
SERVE = (sys.executable, "-m", "mcfair")
CRASH_SERVER = (sys.executable, str(Path(__file__).with_name("crash_server.py")))

RUNNING = set()


@atexit.register
def kill_all():
    for each in list(RUNNING):
        each.kill()


def free_port():
    """Find a port below those that the system gives to clients: one of them could take it while a server is down."""
    with suppress(OSError):
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        for port in random.sample(range(min(10_000, first // 2), first), 100):
            with suppress(OSError), socket.socket() as tried:
                tried.bind((HOST, port))
                return port
    with socket.socket() as tried:
        tried.bind((HOST, 0))
        return tried.getsockname()[1]


def mcfair(*arguments, timeout=START_SECONDS, **options):
    """Run a command to its end."""
    command = [*SERVE, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)


# --- servers ---------------------------------------------------------------------------------------------------------


class ServerProcess:
    """`mcfair serve` in a process group of its own; as a context manager it ends with the block, however that ends."""

    def __init__(self, store, *options, port=0, command=SERVE, environment=None):
        words = [*command, "serve", "--store", f"sqlite:///{store}", "--port", str(port), *map(str, options)]
        self.begun = time.monotonic()
        self.child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True, env=os.environ | (environment or {}),
        )  # fmt: skip
        RUNNING.add(self)
        self.port = port or None
        self.lines = []
        self.said = threading.Condition()
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    def listen(self):
        """Take down what it says; a pipe that nobody reads would stop it."""
        for line in self.child.stderr:
            with self.said:
                self.lines.append(line)
                if found := re.match(r"mcfair: serving on http://127\.0\.0\.1:(\d+)", line):
                    self.port = int(found[1])
                self.said.notify_all()
        with self.said:
            self.said.notify_all()

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
        """Wait until `/readyz` says 200; return the seconds since the start. False if it ends before."""
        deadline = self.begun + START_SECONDS
        while self.alive:
            if self.port is not None:
                with suppress(LostError), Connection(self.port, patience=5.0) as connection:
                    if connection.ask("GET", "/readyz").status == 200:
                        return time.monotonic() - self.begun
            if time.monotonic() > deadline:
                raise TimeoutError(f"not ready after {START_SECONDS:g} s: {self.text}")
            with self.said:
                self.said.wait(0.01)
        return False

    def ready(self):
        """Wait until it is ready, and be returned."""
        assert self.wait_ready(), self.text
        return self

    def wait(self, seconds=60.0):
        """Wait for its end; return its exit status."""
        status = self.child.wait(seconds)
        self.ended()
        return status

    def kill(self):
        """End it and all it has started at once, by SIGKILL."""
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.ended()

    def terminate(self):
        """Ask it to stop; return its exit status."""
        self.child.terminate()
        return self.wait()

    def ended(self):
        RUNNING.discard(self)
        self.listener.join(10)
        self.child.stderr.close()

    def connect(self, **options):
        return Connection(self.port, **options)


# --- clients ---------------------------------------------------------------------------------------------------------


class LostError(Exception):
    """No whole answer came: whether anything was done is not known."""


class Reply(NamedTuple):
    status: int
    headers: dict
    content: bytes

    @property
    def json(self):
        return json.loads(self.content)


class Connection:
    """A connection that is kept alive, and made anew after it broke."""

    def __init__(self, port, patience=60.0):
        self.http = http.client.HTTPConnection(HOST, port, timeout=patience)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.close()

    def ask(self, method, path, body=None, key=None):
        """Ask once, and for nothing twice by itself."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            self.http.request(method, path, content, headers)
            answer = self.http.getresponse()
            reply = Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        except (OSError, http.client.HTTPException) as error:
            self.http.close()
            raise LostError(f"{type(error).__name__}: {error}") from error
        if reply.headers.get("connection") == "close":
            self.http.close()
        return reply

    def post(self, path, body, key=None):
        return self.ask("POST", path, body, key)

    def get(self, path):
        return self.ask("GET", path)
