"""The live demonstration: a real service in memory, simulated shoppers in front of it, and its dashboard."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from ..errors import UnavailableError
from .render import status

__all__ = ["live_demo"]

PAUSE_SECONDS = 0.03
"""Time between two shoppers, so that the demonstration leaves the machine to other work."""

CALL_SECONDS = 10.0
"""Timeout of a shopper's request: the machine of a demonstration may be busy."""

RETRY_SECONDS = 1.0


def live_demo(seconds: float | None, browser: bool) -> None:
    """Serve a simulated shop until Ctrl-C, or for some seconds; open its dashboard if there is a display."""
    import webbrowser

    from ..service.ranker import Ranker
    from ..service.shop import FIRST
    from ..service.web.server import serve

    stopped = threading.Event()
    threads: list[threading.Thread] = []

    def open_shop(url: str) -> None:
        print_line(f"the shop is open: {url}/ (Ctrl-C closes it)")
        threads.append(threading.Thread(target=send_shoppers, args=(url, stopped, seconds), daemon=True))
        if browser and has_display():
            threads.append(threading.Thread(target=webbrowser.open, args=(f"{url}/",), daemon=True))
        for each in threads:
            each.start()

    with status("opening the shop; the first start on a machine compiles for about a minute"):
        ranker = Ranker("memory:", policy=FIRST)
    try:
        serve(ranker, port=0, on_ready=open_shop)
    except KeyboardInterrupt:  # the server has shut down gracefully before it passes the signal on
        pass
    finally:
        stopped.set()
        if threads:
            threads[0].join(CALL_SECONDS)
    print_line("the shop is closed")


def send_shoppers(url: str, stopped: threading.Event, seconds: float | None) -> None:
    """Send one shopper after the other; after some seconds, end the process as Ctrl-C does."""
    from ..service.client import Client
    from ..service.shop import Shop

    end = float("inf") if seconds is None else time.monotonic() + seconds
    with Client(url, timeout=CALL_SECONDS, rank_deadline=CALL_SECONDS, retry_timeout=RETRY_SECONDS) as client:
        shop = Shop(client, report=print_line)
        while not stopped.wait(PAUSE_SECONDS):
            if time.monotonic() >= end:
                os.kill(os.getpid(), signal.SIGINT)
                return
            try:
                shop.visit()
            except UnavailableError as error:
                if stopped.wait(RETRY_SECONDS):  # the server is shutting down
                    return
                print_line(f"a shopper was not served: {error}")


def has_display() -> bool:
    """Return whether a browser could open a window; without one, some systems would start one in the terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def print_line(sentence: str) -> None:
    """Print a line on stderr at once."""
    sys.stderr.write(f"mcfair: {sentence}\n")
    sys.stderr.flush()
