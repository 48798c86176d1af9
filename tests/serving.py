"""A service on a real socket, in a thread of the test."""

import threading
from contextlib import contextmanager

import httpx

from mcfair.service.app import make_app
from mcfair.service.server import Server, bind, url_of


@contextmanager
def serving(ranker, *, drain_seconds=0.0, **options):
    """Serve a ranker while the block runs; gives a client that knows where, and the server as its `server`."""
    started = threading.Event()
    app = make_app(ranker, **options)
    listener = bind("127.0.0.1", 0)
    url = url_of("127.0.0.1", listener)
    server = Server(app, ranker, url, drain_seconds=drain_seconds, on_ready=lambda _: started.set())
    thread = threading.Thread(target=server.run, args=(listener,))
    thread.start()
    try:
        assert started.wait(10)
        with httpx.Client(base_url=url, timeout=20) as client:
            client.server = server
            yield client
    finally:
        server.drain_seconds = 0.0
        server.drain()
        thread.join(20)
        assert not thread.is_alive()
