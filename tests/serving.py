"""A service on a real socket, in a thread of the test."""

import threading
from contextlib import contextmanager

import httpx

from mcfair.service import create_app
from mcfair.service.background.summaries import SummaryWalk
from mcfair.service.web.connections import DEFAULT_LIMITS
from mcfair.service.web.server import RankingServer, bind, url_of


@contextmanager
def serving(ranker, *, limits=DEFAULT_LIMITS, drain_seconds=0.0, trusted_proxies=None, **options):
    """Serve a ranker while the block runs; yield a client of it, with the server as its `server`."""
    started = threading.Event()
    listener = bind("127.0.0.1", 0)
    url = url_of("127.0.0.1", listener)
    server = RankingServer(
        create_app(ranker, **options),
        url,
        limits=limits,
        drain_seconds=drain_seconds,
        trusted_proxies=trusted_proxies,
        on_ready=lambda _: started.set(),
    )
    thread = threading.Thread(target=server.run, args=([listener],))
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


@contextmanager
def held(ranker):
    """Keep the engine busy while the block runs, so that requests stay in flight."""
    begun, done = threading.Event(), threading.Event()

    def wait(engine):
        begun.set()
        assert done.wait(60)

    future = ranker.executor.submit(wait)
    assert begun.wait(10)
    try:
        yield
    finally:
        done.set()
        future.result(10)


def figures(store, now):
    """Return the figures of all queries of a store, computed now; write nothing."""

    def refuse(error):
        raise error

    walk = SummaryWalk(store, now, 0, refuse)
    for _ in walk.steps():
        pass
    return walk.present().figures
