"""A command in a process forked from the template of fork_server.py; alone, a program that stands for its command.

`python -I -S fork_client.py SOCKET WORDS...` starts in milliseconds. The forked process has its arguments, environment,
folder and standard streams; signals are forwarded to it, and its exit status is that of the program.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path


def send_command(path, words, *, env, cwd, streams):
    """Start a command in a forked process; return its process id and the connection that receives its status.

    The process is killed if the connection is closed before it ends.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    command = {"words": [str(word) for word in words], "env": dict(env), "cwd": str(cwd)}
    socket.send_fds(connection, [json.dumps(command).encode()], streams)
    return int(connection.recv(100)), connection


def receive_status(connection):
    """Wait until the command has ended; return its status, the negative number of the signal if one killed it."""
    return os.waitstatus_to_exitcode(int(connection.recv(100)))


def main(path, *words):
    """Be the command; see the text at the top."""
    forwarded = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)  # until it is known where to
    pid, connection = send_command(path, words, env=os.environ, cwd=Path.cwd(), streams=[0, 1, 2])
    for number in forwarded:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
    status = receive_status(connection)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
