"""The background process: `python -m mcfair.service.background HANDLE`, where the handle is of an inherited socket.

It does what `Worker` does, for the process at the other end, and ends as soon as the socket is closed there: the main
thread does nothing but receive, from before anything large is imported.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import suppress

from .frames import Channel, Hello


def main() -> None:
    """Receive messages until the other process has ended."""
    for each in (signal.SIGINT, signal.SIGTERM):  # sent to all processes of a service; the other one drains first
        signal.signal(each, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with suppress(OSError):  # a sandbox may forbid it
        os.nice(NICENESS)
    channel = Channel(int(sys.argv[1]))
    process = None
    started = threading.Event()

    def start(hello: Hello) -> None:
        nonlocal process
        from .child import ChildProcess

        process = ChildProcess(channel, hello)
        started.set()
        process.start()

    while (message := channel.receive()) is not None:
        if isinstance(message, Hello):
            threading.Thread(target=start, args=(message,), daemon=True).start()
        elif started.wait() and process is not None:
            process.handle(message)
    os._exit(0)  # whatever other threads do


NICENESS = 10
"""Rankings go first where processors are short."""

if __name__ == "__main__":
    main()
