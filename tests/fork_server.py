"""Commands in processes forked from one that has imported the package and loaded its kernels.

A new interpreter takes two seconds of processor time to import Numba and load the kernels of a server; a forked one
takes a few milliseconds. Apart from that it is a process like any other: it has its own arguments, environment and
standard streams, can be killed at any moment, and leaves nothing in the process that started it.
"""

import atexit
import functools
import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from fork_client import receive_status, send_command

PRELOADED = ("mcfair.cli.app", "mcfair.service.web.server", "psycopg")
"""Modules that the template imports, apart from those of a server that ranks."""

MESSAGE_BYTES = 1 << 17


class ForkedProcess:
    """A command of `mcfair`, or a script, in a forked process; used like `subprocess.Popen`.

    `words` are the arguments of the interpreter: `-m mcfair ...`, `-c CODE ...`, or a script and its arguments.
    Standard input is empty; standard output and error are pipes, which somebody must read.
    """

    def __init__(self, words, *, env, cwd=None):
        (output, written), (error, also_written) = os.pipe(), os.pipe()
        streams = [os.open(os.devnull, os.O_RDONLY), written, also_written]
        self.pid, self.status = send_command(template(), words, env=env, cwd=cwd or Path.cwd(), streams=streams)
        for each in streams:
            os.close(each)
        self.stdout, self.stderr = os.fdopen(output, errors="replace"), os.fdopen(error, errors="replace")
        self.returncode = None

    def poll(self):
        return self.wait(0, strict=False)

    def wait(self, timeout=None, strict=True):
        """Wait for the process to exit; return its status, the negative number of the signal if one killed it."""
        if self.returncode is None:
            if select.select([self.status], [], [], timeout)[0]:
                self.returncode = receive_status(self.status)
                self.status.close()
            elif strict:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)


def run_forked(words, *, timeout, env, cwd=None):
    """Run a command in a forked process; return what `subprocess.run` would."""
    child = ForkedProcess(words, env=env, cwd=cwd)
    texts = {}
    threads = [
        threading.Thread(target=lambda name=name: texts.update({name: getattr(child, name).read()}))
        for name in ("stdout", "stderr")
    ]
    for each in threads:
        each.start()
    try:
        status = child.wait(timeout)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
        raise
    finally:
        for each in threads:
            each.join()
        child.stdout.close()
        child.stderr.close()
    return subprocess.CompletedProcess(words, status, texts["stdout"], texts["stderr"])


# --- the process that is forked --------------------------------------------------------------------------------------


@functools.cache
def template():
    """Start the process that is forked, one for this process; return the path of the socket that takes commands."""
    folder = tempfile.mkdtemp(prefix="mcfair-fork-")
    path = f"{folder}/socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as commands:
        commands.bind(path)
        commands.listen(128)
        number = commands.fileno()
        child = subprocess.Popen(
            [sys.executable, __file__, str(number)], stdin=subprocess.PIPE, pass_fds=[number], start_new_session=True
        )
    atexit.register(stop_template, folder, child)
    return path


def stop_template(folder, child):
    child.stdin.close()
    child.wait(20)
    shutil.rmtree(folder)


def preload():
    """Import what commands import, and load the kernels of a server; leave no thread behind."""
    import importlib

    import mcfair as mf

    with mf.Ranker("memory:"):
        pass
    for name in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    until = time.monotonic() + 10
    while threading.active_count() > 1 and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() == 1, threading.enumerate()  # a fork copies only one thread, but all locks
    gc.freeze()


def fork_on_command(commands):
    """Fork a process for each command until standard input ends; return the command in the forked process."""
    running = {}
    ended, wakeup = socket.socketpair()
    for each in (ended, wakeup):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup.fileno())
    while True:
        ready = select.select([sys.stdin, commands, ended, *running.values()], [], [])[0]
        if sys.stdin in ready:
            sys.exit()
        if ended in ready:
            ended.recv(4096)
            report_ended(running)
        for pid in [pid for pid, connection in running.items() if connection in ready]:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # nobody waits for it any more
            running.pop(pid).close()
        if commands in ready:
            connection, _ = commands.accept()
            message, streams, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 3)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (commands, ended, wakeup, *running.values()):
                    each.close()
                return json.loads(message), streams, connection
            for each in streams:
                os.close(each)
            running[pid] = connection


def report_ended(running):
    """Send the status of the processes that have ended to those who wait for them."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if connection := running.pop(pid, None):
                with suppress(BrokenPipeError):
                    connection.send(b"%d" % status)
                connection.close()


def main():
    """Be the process that is forked, and in a forked process the command."""
    preload()
    command, streams, connection = fork_on_command(socket.socket(fileno=int(sys.argv[1])))
    os.setsid()
    connection.send(b"%d" % os.getpid())  # not before it has a session, which can be killed as a whole
    connection.close()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(command["env"])
    os.chdir(command["cwd"])
    execute(*command["words"])


def execute(first, *others):
    """Execute the arguments of the interpreter."""
    sys.path[0] = str(Path.cwd())
    if first == "-m":
        sys.argv = list(others)
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *others[1:]]
        exec(compile(others[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = [first, *others], str(Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main()
