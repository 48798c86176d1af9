"""HTTP over real sockets: pipelining, partial input, timeouts, disconnects."""

import json
import re
import socket
import threading
import time

import pytest
from serving import serving

from mcfair.service.http import parse_path
from mcfair.service.ranker import Ranker
from mcfair.service.wire import MAX_BODY

BODY = json.dumps({"query": "red shoes", "items": [{"id": f"sku{i}"} for i in range(5)], "k": 2}).encode()


def post(body=BODY, *lines, path=b"/v1/rank"):
    """Return a request with a body."""
    size = b"" if any(b"transfer-encoding" in line for line in lines) else b"content-length: %d" % len(body)
    head = [b"POST %s HTTP/1.1" % path, b"host: localhost", b"content-type: application/json", size, *lines]
    return b"\r\n".join(line for line in head if line) + b"\r\n\r\n" + body


def get(path=b"/livez", *lines, version=b"1.1"):
    """Return a request without a body."""
    return b"\r\n".join([b"GET %s HTTP/%s" % (path, version), b"host: localhost", *lines, b"", b""])


@pytest.fixture(scope="module")
def client():
    with Ranker("memory:") as ranker, serving(ranker) as client:
        yield client


class Wire:
    """A socket, and the responses received over it."""

    def __init__(self, client):
        self.socket = socket.create_connection((client.base_url.host, client.base_url.port), timeout=10)
        self.received = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *pieces):
        for piece in pieces:
            self.socket.sendall(piece)
            if len(pieces) > 1:
                time.sleep(0.002)

    def answer(self, body=True):
        """Return the next response: status, headers, body."""
        while b"\r\n\r\n" not in self.received:
            self.more()
        head, _, self.received = self.received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        size = int(headers.get("content-length", 0)) if body else 0
        while len(self.received) < size:
            self.more()
        content, self.received = self.received[:size], self.received[size:]
        return int(first.split()[1]), headers, content

    def more(self):
        piece = self.socket.recv(65_536)
        assert piece, f"closed after {self.received!r}"
        self.received += piece

    def closed(self):
        """Return whether the server has closed the connection."""
        return self.socket.recv(65_536) == b""


def visits(client, query="red shoes"):
    answer = client.post("/v1/queries/lookup", json={"query": query})
    return answer.json()["visits"] if answer.status_code == 200 else 0


def test_responses_keep_the_order_of_requests(client):
    bodies = [json.dumps({"query": "pipeline", "items": [{"id": str(i)}], "k": 1}).encode() for i in range(20)]
    with Wire(client) as wire:
        wire.send(b"".join(post(body) + get() for body in bodies))
        for i in range(20):
            status, _, content = wire.answer()
            assert (status, json.loads(content)["items"][0]["id"]) == (200, str(i))
            assert wire.answer()[2] == b'{"status":"alive"}'
    assert visits(client, "pipeline") == 20


def test_excess_pipelined_requests_wait_in_the_socket(client):
    count = 20_000
    with Wire(client) as wire:
        sender = threading.Thread(target=wire.send, args=(get() * count,))
        sender.start()
        assert [wire.answer()[0] for _ in range(count)] == [200] * count
        sender.join()
        assert client.server.app.in_flight == 0


def test_reading_pauses_under_backpressure():
    count = 50_000
    with Ranker("memory:") as ranker, serving(ranker) as client, Wire(client) as wire:
        sender = threading.Thread(target=wire.send, args=(get(b"/v1/usage") + get() * count,))
        with ranker.executor.store.transaction_lock:  # blocks the writer, but not the event loop
            sender.start()
            time.sleep(1)
            assert client.get("/livez").status_code == 200
            assert 1 < max(len(each.requests) for each in client.server.registry.connections) < count / 4
        assert [wire.answer()[0] for _ in range(count + 1)] == [200] * (count + 1)
        sender.join()


def test_request_may_arrive_byte_by_byte(client):
    before = visits(client)
    with Wire(client) as wire:
        wire.send(*(bytes([byte]) for byte in post()))
        assert wire.answer()[0] == 200
    assert visits(client) == before + 1


def test_chunked_body(client):
    pieces = [BODY[i : i + 7] for i in range(0, len(BODY), 7)]
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    with Wire(client) as wire:
        wire.send(post(chunked, b"transfer-encoding: chunked"))
        assert wire.answer()[0] == 200
        wire.send(post(b"%x\r\n" % (MAX_BODY + 1), b"transfer-encoding: chunked"))
        wire.send(b" " * (MAX_BODY + 1) + b"\r\n0\r\n\r\n")
        assert wire.answer()[0] == 413
        wire.send(get())  # the rest of the body was discarded
        assert wire.answer()[0] == 200


def test_expect_100_continue(client):
    head, body = post(BODY, b"expect: 100-continue")[: -len(BODY)], BODY
    with Wire(client) as wire:
        wire.send(head)
        assert wire.answer()[0] == 100
        wire.send(body)
        assert wire.answer()[0] == 200
    with Wire(client) as wire:
        wire.send(head.replace(b"/v1/rank", b"/v1/nothing"))
        status, headers, _ = wire.answer()
        assert (status, headers["connection"]) == (404, "close")
        assert wire.closed()


def test_keep_alive_and_connection_close(client):
    with Wire(client) as wire:
        wire.send(get(b"/livez", b"connection: close") + get())
        status, headers, _ = wire.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert wire.closed()
    for lines in ((), (b"connection: keep-alive",)):  # keep-alive is not supported for HTTP/1.0
        with Wire(client) as wire:
            wire.send(get(b"/livez", *lines, version=b"1.0"))
            assert wire.answer()[1]["connection"] == "close"
            assert wire.closed()
    with Wire(client) as wire:
        for _ in range(3):
            wire.send(get())
            assert "connection" not in wire.answer()[1]


def test_pipelined_requests_after_connection_close_are_dropped():
    with Ranker("memory:") as ranker, serving(ranker, drain_seconds=30.0) as client, Wire(client) as wire:
        client.server.drain()
        wire.send(post() * 5)
        assert wire.answer()[1]["connection"] == "close"
        assert wire.closed()
        assert client.server.app.in_flight == 0
        assert visits(client) == 1
        with Wire(client) as other:
            other.send(get() + post())
            assert other.answer()[1]["connection"] == "close"
            assert other.closed()
        assert visits(client) == 1  # a request without a response is not executed


def test_closed_service_refuses_requests():
    with Ranker("memory:") as ranker, serving(ranker) as client:
        client.server.app.closed = True
        answer = client.post("/v1/rank", json=json.loads(BODY))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "stopping" in answer.json()["detail"]
        assert client.get("/livez").status_code == 200
        assert client.server.app.in_flight == 0


def test_response_to_head_has_no_body(client):
    with Wire(client) as wire:
        wire.send(get().replace(b"GET", b"HEAD"))
        status, headers, _ = wire.answer(body=False)
        assert (status, headers["allow"]) == (405, "GET, OPTIONS")
        assert int(headers["content-length"]) > 0
        wire.send(get())
        assert wire.answer()[0] == 200  # and not the body of the previous response


def test_upgrade_is_ignored(client):
    lines = (b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAMAAABkAAQAAP__")
    with Wire(client) as wire:
        wire.send(get(b"/livez", *lines))
        status, headers, _ = wire.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert wire.closed()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nhost: localhost\r\nno colon here\r\n\r\n",
        post(BODY, b"content-length: 1"),
        post(BODY, b"transfer-encoding: chunked", b"content-length: 3"),
        post(b"zz\r\n", b"transfer-encoding: chunked"),
        b"GET  HTTP/1.1\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
    ],
)
def test_malformed_http_is_refused_after_earlier_requests(client, sent):
    with Wire(client) as wire:
        wire.send(get() + sent + get())
        assert wire.answer()[0] == 200
        status, headers, content = wire.answer()
        assert (status, headers["connection"], json.loads(content)["status"]) == (400, "close", 400)
        assert wire.closed()
    assert client.server.app.in_flight == 0


def test_error_response_does_not_wait_for_the_body(client):
    with Wire(client) as wire:
        wire.send(post(BODY, path=b"/nowhere")[:-10])
        assert wire.answer()[0] == 404
        wire.send(BODY[-10:] + get())
        assert wire.answer()[0] == 200


def test_disconnected_clients_are_cleaned_up(client):
    for sent in (post(), post() + post(), post()[:-5], b"GET /li", post(BODY, path=b"/nowhere")[:-5]):
        with Wire(client) as wire:
            wire.send(sent)
    with Wire(client) as wire:  # ensures that the earlier connections were accepted
        wire.send(get())
        wire.answer()
    until = time.monotonic() + 10
    while client.server.app.in_flight or len(client.server.registry.connections) > 1:
        assert time.monotonic() < until
        time.sleep(0.001)


def test_client_that_disconnects_during_its_request():
    with Ranker("memory:") as ranker, serving(ranker) as client:
        with ranker.executor.store.transaction_lock, Wire(client) as wire:
            wire.send(get(b"/v1/usage"))
            while not client.server.app.in_flight:
                time.sleep(0.001)
            wire.socket.close()
            while client.server.registry.connections:
                time.sleep(0.001)
            assert client.server.app.in_flight == 1
        until = time.monotonic() + 10
        while client.server.app.in_flight:
            assert time.monotonic() < until
            time.sleep(0.001)


def test_responses_have_a_date(client):
    with Wire(client) as wire:
        wire.send(get())
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", wire.answer()[1]["date"])


def test_export_over_http_1_0(client):
    client.post("/v1/rank", json=json.loads(BODY))
    whole = client.get("/v1/export").content
    with Wire(client) as wire:
        wire.send(get(b"/v1/export", version=b"1.0"))
        status, headers, _ = wire.answer()
        assert (status, headers["connection"], "transfer-encoding" in headers) == (200, "close", False)
        while not wire.closed():
            pass
    with Wire(client) as wire:
        wire.send(get(b"/v1/export", version=b"1.0"))
        received = b""
        while piece := wire.socket.recv(65_536):
            received += piece
    assert received.partition(b"\r\n\r\n")[2] == whole


@pytest.mark.parametrize(
    ("url", "path"),
    [(b"/", "/"), (b"/a?b=/c", "/a"), (b"/a%2Fb", "/a/b"), (b"http://x:1/livez", "/livez"), (b"*", "*"), (b"a:1", "")],
)
def test_parse_path(url, path):
    assert parse_path(url) == path


def test_requests_in_flight_are_answered_during_shutdown():
    with Ranker("memory:") as ranker, serving(ranker) as client, Wire(client) as wire, Wire(client) as idle:
        idle.send(get())
        idle.answer()
        with ranker.executor.store.transaction_lock:  # blocks the writer
            wire.send(get(b"/v1/usage"))
            while not client.server.app.in_flight:
                time.sleep(0.001)
        client.server.drain()
        assert wire.answer()[0] == 200
        assert wire.closed()
        assert idle.closed()
        with pytest.raises(OSError, match="refused"):
            Wire(client)
