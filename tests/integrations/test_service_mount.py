"""The service as an ASGI application: mounted in other programs, and with or without the lifespan protocol."""

import asyncio
import socket
import threading
import time
from contextlib import contextmanager
from functools import partial

import httpx
import hypercorn.asyncio
import pytest
import uvicorn
from fastapi import FastAPI
from hypercorn.config import Config as HypercornConfig
from starlette.applications import Starlette
from starlette.routing import Mount

from mcfair.service import create_app
from mcfair.service.ranker import Ranker
from mcfair.service.web.server import bind, url_of

RANK = {"query": "red shoes", "items": [{"id": "a"}, {"id": "b"}], "k": 1}


@pytest.fixture
def ranker():
    with Ranker("memory:") as ranker:
        yield ranker


def in_starlette(app, **options):
    return Starlette(routes=[Mount("/outer", routes=[Mount("/ranking", app=app)])], **options)


def in_fastapi(app, **options):
    program, inner = FastAPI(**options), FastAPI()
    program.mount("/outer", inner)
    inner.mount("/ranking", app)
    return program


def by_itself(app, **_):
    return app


def session(client):
    """Rank, click and explain; yield the requests and check the responses, for clients of either kind."""
    ranking = (yield client.post("v1/rank", json=RANK)).json()
    click = {"impression": ranking["impression"], "item": ranking["items"][0]["id"]}
    results = (yield client.post("v1/feedback", json={"events": [click]})).json()
    assert results == {"results": [{"status": "applied"}]}
    explanation = yield client.get(f"v1/impressions/{ranking['impression']}/explain")
    assert explanation.json()["items"][0]["clicked"]
    assert (yield client.get("v1/nothing")).headers["content-type"] == "application/problem+json"
    assert (yield client.get("readyz")).json() == {"status": "ready"}
    assert 'href="openapi.json"' in (yield client.get("docs")).text
    document = (yield client.get("openapi.json")).json()
    assert document["servers"] == [{"url": client.base_url.path.rstrip("/") or "/"}]


async def run_async(client):
    steps = session(client)
    request = next(steps)
    try:
        while True:
            request = steps.send(await request)
    except StopIteration:
        pass


def run_sync(client):
    steps = session(client)
    response = next(steps)
    try:
        while True:
            response = steps.send(response)
    except StopIteration:
        pass


PROGRAMS = pytest.mark.parametrize(
    ("program", "path"), [(in_starlette, "/outer/ranking/"), (in_fastapi, "/outer/ranking/"), (by_itself, "/")]
)


@PROGRAMS
def test_mounted_without_a_lifespan(ranker, program, path):
    async def run():
        transport = httpx.ASGITransport(program(create_app(ranker)))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://localhost{path}") as client:
            await run_async(client)

    asyncio.run(run())
    assert ranker.executor.attached is None  # nobody would detach it


@contextmanager
def running(app):
    """Run a program on plain uvicorn while the block runs; yield its URL."""
    listener = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        until = time.monotonic() + 10
        while not server.started:
            assert time.monotonic() < until
            time.sleep(0.01)
        yield url_of("127.0.0.1", listener)
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive()


@PROGRAMS
def test_mounted_with_the_lifespan_of_the_service(ranker, program, path):
    app = create_app(ranker)
    with running(program(app, lifespan=app.lifespan)) as url, httpx.Client(base_url=f"{url}{path}") as client:
        assert ranker.executor.attached is not None
        run_sync(client)
    assert ranker.executor.attached is None
    assert ranker.rank("red shoes", ["a"]).items[0].id == "a"  # it is not closed


def test_another_server(ranker):
    """Hypercorn has another parser, another lifespan and other errors than uvicorn."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = url_of("127.0.0.1", listener)
    config = HypercornConfig.from_mapping(bind=[f"fd://{listener.detach()}"])
    stop = threading.Event()
    trigger = partial(asyncio.to_thread, stop.wait)
    served = hypercorn.asyncio.serve(create_app(ranker), config, shutdown_trigger=trigger)
    thread = threading.Thread(target=lambda: asyncio.run(served))
    thread.start()
    try:
        with httpx.Client(base_url=url) as client:
            run_sync(client)
            assert client.get("v1/export").text.count("\n") > 1
            for key, status in ((None, 200), ("203.0.113.7", 403)):
                assert client.get("v1/usage", headers={"via": key} if key else {}).status_code == status
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()
    assert ranker.executor.attached is None


def test_plain_root_path(ranker):
    """A proxy that removes the prefix, and a server that is told of it."""

    async def run():
        for prefix in ("", "/service"):  # some servers add the root path to the path
            transport = httpx.ASGITransport(create_app(ranker), root_path="/service")
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                assert (await client.get(f"{prefix}/livez")).status_code == 200
                document = (await client.get(f"{prefix}/openapi.json")).json()
                assert document["servers"] == [{"url": "/service"}]
                assert (await client.get("/services/livez")).status_code == 404

    asyncio.run(run())


def test_store_is_opened_and_closed_with_the_application(tmp_path):
    app = create_app(f"sqlite:///{tmp_path / 'store.db'}")
    with running(app) as url:
        assert httpx.post(f"{url}/v1/rank", json=RANK).status_code == 200
    assert app.ranker.executor.closing
    with Ranker(tmp_path / "store.db") as ranker:
        assert ranker.usage().impressions == 1


def test_websockets_are_refused(ranker):
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message["type"])

    asyncio.run(create_app(ranker)({"type": "websocket", "path": "/v1/rank", "headers": []}, receive, send))
    assert sent == ["websocket.close"]
