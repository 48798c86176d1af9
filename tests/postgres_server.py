"""A real PostgreSQL server in a temporary folder, one for each process that asks for it.

It listens on a free port of the loopback interface. `initdb` and `postgres` refuse to run as root; there they run as
the user `postgres` or `nobody`.
"""

import atexit
import functools
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from service_process import free_port

START_SECONDS = 60.0
DATABASES = itertools.count()


class PostgresServer:
    """A server that can be stopped, killed with SIGKILL and started again on the same data.

    `settings` are given to `postgres -c`. Without `fsync` the server survives its own crash, but not that of the
    machine, which is all that tests need.
    """

    def __init__(self, *, fsync=False, **settings):
        self.bin = find_binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="mcfair-postgres-"))
        self.user = pwd.getpwuid(os.getuid()).pw_name if os.getuid() else unprivileged_user()
        if not os.getuid():
            shutil.chown(self.folder, self.user)
        self.port = free_port()
        self.data = self.folder / "data"
        self.settings = {
            "fsync": "on" if fsync else "off", "listen_addresses": "127.0.0.1", "port": self.port,
            "unix_socket_directories": "", "max_connections": 60, "shared_buffers": "64MB", **settings,
        }  # fmt: skip
        self.child = None
        atexit.register(self.close)
        words = ["-D", self.data, "-U", "mcfair", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        self.check(self.run("initdb", *words))
        self.start()

    def run(self, program, *words):
        return subprocess.run(
            [self.bin / program, *map(str, words)], capture_output=True, text=True, check=False, cwd=self.folder,
            **self.as_user(),
        )  # fmt: skip

    def as_user(self):
        return {} if os.getuid() else {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}

    def check(self, ran):
        if ran.returncode:
            raise RuntimeError(f"{ran.args[0]} failed: {ran.stderr}")

    def start(self):
        """Start the server and wait until it accepts connections; return the seconds that this took."""
        options = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        begun = time.monotonic()
        with (self.folder / "log").open("ab") as log:
            self.child = subprocess.Popen(
                [self.bin / "postgres", "-D", self.data, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, start_new_session=True, **self.as_user(),
            )  # fmt: skip
        while self.run("pg_isready", "-h", "127.0.0.1", "-p", self.port, "-t", 1).returncode:
            if self.child.poll() is not None or time.monotonic() > begun + START_SECONDS:
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)
        return time.monotonic() - begun

    def kill(self):
        """Kill the server and all of its processes with SIGKILL, as a crash of the machine would."""
        self.signal(signal.SIGKILL)
        self.child.wait()

    def signal(self, number):
        """Send a signal to the server and its processes; wait for those that it ends."""
        processes = [self.child.pid, *children(self.child.pid)]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, number)
        # A new server refuses to start while a process of the old one lives.
        while number == signal.SIGKILL and any(Path(f"/proc/{each}/stat").exists() for each in processes[1:]):
            time.sleep(0.01)

    def close(self):
        """Stop the server and remove its files."""
        if self.child is not None:
            self.child.send_signal(signal.SIGINT)  # a fast shutdown
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
            self.child = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database="postgres"):
        return f"postgresql://mcfair@127.0.0.1:{self.port}/{database}"

    def new_database(self):
        """Create an empty database; return its URL."""
        import psycopg

        name = f"test{next(DATABASES)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.url(name)


def children(pid):
    """Return the ids of the child processes of a process."""
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def find_binaries():
    """Return the folder of PostgreSQL's programs; None if there is none."""
    found = shutil.which("initdb")
    folders = list(Path("/usr/lib/postgresql").glob("*/bin"))
    folders.sort(key=lambda each: -float(each.parent.name))
    if found:
        folders.append(Path(os.path.realpath(found)).parent)
    usable = [each for each in folders if (each / "initdb").exists() and (each / "postgres").exists()]
    return usable[0] if usable else None


def unprivileged_user():
    """Return the user that runs the server if the tests run as root."""
    names = {each.pw_name for each in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


def missing():
    """Return why no server can be started; None if one can."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        return f"psycopg cannot be imported: {error}"
    if find_binaries() is None:
        return "PostgreSQL is not installed: there is no initdb"
    if not os.getuid() and unprivileged_user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres or nobody"
    return None


@functools.cache
def shared_server():
    """Return the server of this process, started by the first call; without fsync, which is faster."""
    return PostgresServer()
