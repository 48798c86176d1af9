"""HTTP over real sockets against the server of `mcfair serve`: nothing that is sent can reach another request."""

import json
import re
import socket
import struct
import time
from contextlib import suppress

import pytest
from serving import serving

from mcfair.service.ranker import Ranker
from mcfair.service.web.connections import ARRIVAL_SECONDS, DEFAULT_LIMITS, Lane
from mcfair.service.wire import MAX_BODY

IMPATIENT = DEFAULT_LIMITS._replace(head_seconds=0.5, read_seconds=0.5)


def rank_body(query):
    return json.dumps({"query": query, "items": [{"id": query}], "k": 1}).encode()


BODY = rank_body("own")


def head(*lines, start=b"POST /v1/rank HTTP/1.1", host=b"host: localhost"):
    return b"\r\n".join([start, *([host] if host else []), b"content-type: application/json", *lines, b"", b""])


def post(body=BODY, *lines, **options):
    """Return a rank request with a Content-Length."""
    return head(b"content-length: %d" % len(body), *lines, **options) + body


def chunks(*pieces, end=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + end


def chunked(body, **options):
    """Return a rank request with a chunked body, which is given as it is sent."""
    return head(b"transfer-encoding: chunked", **options) + body


def get(path=b"/livez", *lines, version=b"1.1"):
    return b"\r\n".join([b"GET %s HTTP/%s" % (path, version), b"host: localhost", *lines, b"", b""])


@pytest.fixture(scope="module")
def client():
    with Ranker("memory:") as ranker, serving(ranker, io_timeout=1.0, limits=IMPATIENT) as client:
        yield client


class Wire:
    """A socket, and the responses received over it."""

    def __init__(self, client, buffer=None):
        self.socket = socket.socket()
        self.socket.settimeout(10)
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        try:
            self.socket.connect((client.base_url.host, client.base_url.port))
        except OSError:
            self.socket.close()
            raise
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
        start, _, self.received = self.received.partition(b"\r\n\r\n")
        first, *lines = start.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        size = int(headers.get("content-length", 0)) if body else 0
        while len(self.received) < size:
            self.more()
        content, self.received = self.received[:size], self.received[size:]
        return int(first.split()[1]), headers, content

    def answers(self):
        """Return all responses until the server closes the connection."""
        with suppress(ConnectionResetError):
            while piece := self.socket.recv(65_536):
                self.received += piece
        found = []
        while self.received:
            found.append(self.answer())
        return found

    def more(self):
        piece = self.socket.recv(65_536)
        assert piece, f"closed after {self.received!r}"
        self.received += piece

    def closed(self):
        """Return whether the server has closed the connection."""
        try:
            return self.socket.recv(65_536) == b""
        except ConnectionResetError:
            return True


def impressions(client):
    return client.get("/v1/usage").json()["impressions"]


def ranked(answers):
    """Return the queries of the rank requests that were acknowledged: each is the id of its only item."""
    return [
        json.loads(content)["items"][0]["id"] for status, _, content in answers if status == 200 and b"items" in content
    ]


def wait_until(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


def is_idle(client):
    return not client.server.app.lifecycle.in_flight and len(client.server.server_state.connections) <= 1


# --- framing ---------------------------------------------------------------------------------------------------------

SMUGGLED = post(rank_body("smuggled"))
SIZE = b"content-length: %d" % len(BODY)
WHOLE = chunks(BODY)

REFUSED = {
    "Content-Length and Transfer-Encoding": head(
        b"content-length: %d" % (5 + len(SMUGGLED)), b"transfer-encoding: chunked"
    ) + b"0\r\n\r\n" + SMUGGLED,
    "Transfer-Encoding and Content-Length": head(b"transfer-encoding: chunked", b"content-length: 4") + WHOLE,
    "Content-Length twice": head(SIZE, SIZE) + BODY,
    "two Content-Lengths": head(SIZE, b"content-length: 0") + SMUGGLED,
    "list of Content-Lengths": head(SIZE + b", %d" % len(BODY)) + BODY,
    "Content-Length with a sign": head(b"content-length: +%d" % len(BODY)) + BODY,
    "negative Content-Length": head(b"content-length: -1") + BODY,
    "hexadecimal Content-Length": head(b"content-length: 0x10") + BODY,
    "Content-Length of two numbers": head(b"content-length: 1 0") + BODY,
    "Content-Length with an underscore": head(b"content-length: 1_0") + BODY,
    "empty Content-Length": head(b"content-length: ") + SMUGGLED,
    "Content-Length beyond 64 bits": head(b"content-length: 18446744073709551617") + b"{" + SMUGGLED,
    "identity": head(b"transfer-encoding: identity") + WHOLE,
    "xchunked": head(b"transfer-encoding: xchunked") + WHOLE,
    "gzip, chunked": head(b"transfer-encoding: gzip, chunked") + WHOLE,
    "chunked, identity": head(b"transfer-encoding: chunked, identity") + WHOLE,
    "chunked twice": head(b"transfer-encoding: chunked", b"transfer-encoding: chunked") + WHOLE,
    "chunked after a vertical tab": head(b"transfer-encoding:\x0bchunked") + WHOLE,
    "chunked in HTTP/1.0": chunked(WHOLE, start=b"POST /v1/rank HTTP/1.0"),
    "folded header": head(b"x-a: b\r\n c", SIZE) + BODY,
    "folded Content-Length": head(b"content-length:\r\n %d" % len(BODY)) + BODY,
    "bare LF": post().replace(b"\r\n", b"\n"),
    "bare LF in a header": head(b"x: y\ncontent-length: 0", SIZE) + SMUGGLED,
    "bare CR in a header": head(b"x: y\rcontent-length: 0", SIZE) + SMUGGLED,
    "space before a colon": head(b"content-length : %d" % len(BODY)) + BODY,
    "space before the colon of Transfer-Encoding": head(b"transfer-encoding : chunked", SIZE) + WHOLE,
    "NUL in a header": head(b"x: a\x00b", SIZE) + BODY,
    "chunk size with 0x": chunked(b"0x" + WHOLE),
    "negative chunk size": chunked(b"-" + WHOLE),
    "chunk size beyond 64 bits": chunked(b"1%016x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"),
    "chunk size with a space": chunked(b"%x \r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"),
    "chunk size with a bare LF": chunked(b"%x\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"),
    "bare LF in a chunk extension": chunked(b"%x;a\nb\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"),
    "chunk longer than its size": chunked(b"%x\r\n" % (len(BODY) - 2) + BODY + b"\r\n0\r\n\r\n"),
    "no chunk size": chunked(b"zz\r\n" + SMUGGLED),
    "Content-Length as a trailer": chunked(chunks(BODY, end=b"0\r\ncontent-length: 3\r\n\r\n")),
    "no Host": post(host=None),
    "two Hosts": post(BODY, b"host: localhost"),
    "Upgrade: websocket with a body": post(BODY, b"connection: Upgrade", b"upgrade: websocket"),
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2.0": post(start=b"POST /v1/rank HTTP/2.0"),
    "HTTP/1.2": post(start=b"POST /v1/rank HTTP/1.2"),
    "HTTP/0.9": b"GET /livez\r\n\r\n",
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no colon": head(b"no colon here", SIZE) + BODY,
    "no path": b"GET  HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
def test_ambiguous_requests_are_refused_and_nothing_after_them_is_executed(client, sent):
    before = impressions(client)
    with Wire(client) as wire:
        wire.send(sent + post(rank_body("marker")))
        answers = wire.answers()
    assert [status for status, _, _ in answers] in ([400], [505])
    assert answers[0][1]["connection"] == "close"
    assert impressions(client) == before
    with Wire(client) as wire:  # and another connection gets its own response
        wire.send(post(rank_body("other")))
        assert ranked([wire.answer()]) == ["other"]


ANSWERED = {
    "Content-Length": (post(), True),
    "chunks": (chunked(chunks(*(BODY[i : i + 3] for i in range(0, len(BODY), 3)))), True),
    "Chunked": (head(b"Transfer-Encoding: Chunked") + WHOLE, True),
    "chunked after a tab": (head(b"transfer-encoding:\tchunked") + WHOLE, True),
    "leading zeros of a chunk size": (chunked(b"%032x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"), True),
    "chunk extension": (chunked(b'%x;a=b;c="d"\r\n' % len(BODY) + BODY + b"\r\n0\r\n\r\n"), True),
    "trailers": (chunked(chunks(BODY, end=b"0\r\nhost: evil.example\r\nforwarded: for=x\r\n\r\n")), True),
    "empty lines before a request": (b"\r\n\r\n" + post(), True),
    "absolute form": (post(start=b"POST http://localhost/v1/rank HTTP/1.1"), True),
    "HTTP/1.0": (post(start=b"POST /v1/rank HTTP/1.0"), False),
    "keep-alive in HTTP/1.0": (post(BODY, b"connection: keep-alive", start=b"POST /v1/rank HTTP/1.0"), False),
    "Connection: close": (post(BODY, b"connection: close"), False),
    "offer of HTTP/2": (
        post(BODY, b"connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"http2-settings: AAE"),
        True,
    ),
}


@pytest.mark.parametrize(("sent", "stays_open"), ANSWERED.values(), ids=ANSWERED)
def test_unusual_requests_get_their_own_responses_and_count_once(client, sent, stays_open):
    before = impressions(client)
    with Wire(client) as wire:
        wire.send(sent + post(rank_body("marker")))
        answers = wire.answers()
    assert ranked(answers) == (["own", "marker"] if stays_open else ["own"])
    assert impressions(client) == before + len(answers)


ALIKE = {
    "ranking": (200, post()),
    "idempotency key": (200, post(BODY, b"idempotency-key: same")),
    "bad idempotency key": (400, post(BODY, b"idempotency-key: \xe4")),
    "no JSON": (400, post(b"{")),
    "unknown field": (400, post(b'{"query":"q","items":[{"id":"a"}],"k":1,"x":1}')),
    "no body": (400, post(b"")),
    "no media type": (415, post().replace(b"content-type", b"x-content-type")),
    "compressed": (415, post(BODY, b"content-encoding: gzip")),
    "unknown policy": (400, post(b'{"query":"q","items":[{"id":"a"}],"k":1,"policy":"Nope"}')),
    "other host": (403, post(host=b"host: evil.example")),
    "from a proxy": (403, post(BODY, b"x-forwarded-for: 1.2.3.4")),
    "closed afterwards": (200, post(BODY, b"connection: close")),
    "feedback": (200, post(b'{"events":[{"impression":"x"}]}', start=b"POST /v1/feedback HTTP/1.1")),
    "other method": (405, post(start=b"PUT /v1/rank HTTP/1.1")),
}


@pytest.mark.parametrize(("status", "sent"), ALIKE.values(), ids=ALIKE)
def test_requests_are_answered_alike_however_they_arrive(client, status, sent):
    """What arrives at once is answered by a call, what arrives in pieces by a task of uvicorn."""
    found = []
    cut = sent.index(b"\r\n\r\n") + 4
    for pieces, rest in (([sent], 0.0), ([sent[:cut]], 0.0), ([sent[: cut + 3]], 3 * ARRIVAL_SECONDS)):
        with Wire(client) as wire:
            wire.send(*pieces)
            time.sleep(rest)
            wire.send(sent[len(pieces[0]) :])
            got, headers, content = wire.answer()
        assert got == status
        answer = json.loads(content)
        for varying in ("impression", "expires_at"):
            answer.pop(varying, None)
        for item in answer.get("items", []):
            item.pop("score")
        found.append((answer, headers.keys() - {"content-length"}, headers.get("connection")))
    assert found[0] == found[1] == found[2]
    wait_until(lambda: is_idle(client))


def test_plain_requests_are_answered_by_a_call():
    with Ranker("memory:", warm=False) as ranker, serving(ranker) as client, Wire(client) as wire:
        for sent, called in ((post(), True), (chunked(WHOLE), True), (get(b"/v1/usage"), False)):
            wire.send(sent)
            assert wire.answer()[0] == 200
            (connection,) = client.server.server_state.connections
            assert isinstance(connection.cycle, Lane) == called


def test_trailers_are_not_headers(client):
    with Ranker("memory:") as ranker:
        ranker.add_key("any", ["read"])
        with serving(ranker, admin_token="token") as keyed, Wire(keyed) as wire:
            wire.send(chunked(chunks(BODY, end=b"0\r\nauthorization: Bearer token\r\n\r\n")))
            assert wire.answer()[0] == 401
            wire.send(post(BODY, b"authorization: Bearer token"))
            assert ranked([wire.answer()]) == ["own"]


def test_body_of_a_request_that_needs_none_is_not_the_next_request(client):
    before = impressions(client)
    with Wire(client) as wire:
        wire.send(get(b"/livez", b"content-length: %d" % len(SMUGGLED)) + SMUGGLED + post(rank_body("marker")))
        answers = wire.answers()
    assert [status for status, _, _ in answers] == [200, 200]
    assert ranked(answers) == ["marker"]
    assert impressions(client) == before + 1


@pytest.mark.parametrize("lines", [(b"upgrade: h2c",), (b"connection: Upgrade", b"upgrade: websocket")])
def test_upgrade_without_a_body_is_ignored_and_the_connection_closed(client, lines):
    before = impressions(client)
    with Wire(client) as wire:
        wire.send(get(b"/livez", *lines) + SMUGGLED)
        answers = wire.answers()
    assert [(status, headers["connection"]) for status, headers, _ in answers] == [(200, "close")]
    assert impressions(client) == before


def test_request_may_arrive_byte_by_byte():
    with Ranker("memory:") as ranker, serving(ranker) as client, Wire(client) as wire:
        wire.send(*(bytes([byte]) for byte in post()))
        assert ranked([wire.answer()]) == ["own"]
        assert impressions(client) == 1


def test_expect_100_continue(client):
    expecting = head(SIZE, b"expect: 100-continue")
    with Wire(client) as wire:
        wire.send(expecting)
        assert wire.answer()[0] == 100
        wire.send(BODY)
        assert ranked([wire.answer()]) == ["own"]
    before = impressions(client)
    with Wire(client) as wire:  # whether the body follows a refusal is unknown, so the connection is closed
        wire.send(expecting.replace(b"/v1/rank", b"/v1/nothing") + SMUGGLED)
        assert [(status, headers["connection"]) for status, headers, _ in wire.answers()] == [(404, "close")]
    assert impressions(client) == before


def test_large_chunked_body_is_refused_and_discarded(client):
    with Wire(client) as wire:
        wire.send(chunked(b"%x\r\n" % (MAX_BODY + 1) + b" " * (MAX_BODY + 1) + b"\r\n0\r\n\r\n"))
        assert wire.answer()[0] == 413
        wire.send(post())
        assert ranked([wire.answer()]) == ["own"]


def test_refusal_does_not_wait_for_the_body(client):
    with Wire(client) as wire:
        wire.send(post(BODY, start=b"POST /nowhere HTTP/1.1")[:-10])
        assert wire.answer()[0] == 404
        wire.send(BODY[-10:] + post(rank_body("marker")))
        assert ranked([wire.answer()]) == ["marker"]


def test_response_to_head_has_no_body(client):
    with Wire(client) as wire:
        for target, expected in ((b"/livez", 200), (b"/v1/export", 200), (b"/", 200), (b"/nowhere", 404)):
            wire.send(get().replace(b"GET /livez", b"HEAD " + target))
            status, headers, _ = wire.answer(body=False)
            assert status == expected
            assert target != b"/livez" or headers["content-length"] == str(len(b'{"status":"alive"}'))
        wire.send(get())
        assert wire.answer()[2] == b'{"status":"alive"}'  # and not the body of the previous response


def test_responses_have_a_date_and_no_server(client):
    with Wire(client) as wire:
        wire.send(get())
        headers = wire.answer()[1]
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers["date"])
    assert "server" not in headers


# --- pipelining ------------------------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order_and_none_is_lost(client):
    queries = [f"pipelined{i}" for i in range(20)]
    before = impressions(client)
    with Wire(client) as wire:
        wire.send(b"".join(post(rank_body(query)) + get() for query in queries))
        answers = [wire.answer() for _ in range(40)]
    assert ranked(answers) == queries
    assert [content for _, _, content in answers[1::2]] == [b'{"status":"alive"}'] * 20
    assert impressions(client) == before + 20


def test_excess_pipelined_requests_are_not_executed():
    with Ranker("memory:") as ranker, serving(ranker) as client, Wire(client) as wire:
        wire.send(b"".join(post(rank_body(str(i))) for i in range(100)))  # few enough to be read at once
        answers = wire.answers()
        assert DEFAULT_LIMITS.pipelined <= len(answers) < 100
        assert ranked(answers) == [str(i) for i in range(len(answers))]
        assert impressions(client) == len(answers)


def test_request_before_a_malformed_head_gets_its_response(client):
    before = impressions(client)
    with Wire(client) as wire:
        wire.send(post(rank_body("first")) + b"GET / HTTP/1.1\r\nno colon\r\n\r\n" + SMUGGLED)
        answers = wire.answers()
    assert (len(answers), ranked(answers)) == (1, ["first"])
    assert impressions(client) == before + 1


def test_refusal_of_a_malformed_body_is_not_taken_for_an_earlier_response(client):
    before = impressions(client)
    with Wire(client) as wire:
        wire.send(post(rank_body("first")) + chunked(b"zz\r\n") + SMUGGLED)
        answers = wire.answers()
    assert [status for status, _, _ in answers] in ([], [200])  # the connection is closed; nothing is out of order
    assert impressions(client) - before in (0, 1)  # a client repeats the first request with its Idempotency-Key


def test_pipelined_requests_after_the_last_response_are_dropped():
    with Ranker("memory:") as ranker, serving(ranker, drain_seconds=30.0) as client:
        client.server.drain()
        with Wire(client) as wire:
            wire.send(post() * 5)
            assert [headers["connection"] for _, headers, _ in wire.answers()] == ["close"]
        assert client.get("/v1/usage").json()["impressions"] == 1


# --- time and memory -------------------------------------------------------------------------------------------------


def test_connections_without_a_complete_head_are_closed(client):
    for sent in (b"", b"GET /livez HT", get()[:-2] + b"x: "):
        with Wire(client) as wire:
            wire.send(sent)
            assert wire.closed()
    with Wire(client) as wire, suppress(OSError):  # even if something arrives all the time
        wire.send(*[b"GET /livez HTTP/1.1\r\n"], *(b"x: y\r\n" for _ in range(500)))
        assert wire.closed()
    wait_until(lambda: is_idle(client))


def test_body_timeout(client):
    for sent in (post()[:-1], chunked(b"1\r\n{\r\n")):
        with Wire(client) as wire:
            wire.send(sent)
            ((status, headers, content),) = wire.answers()
        assert (status, headers["connection"]) == (408, "close")
        assert b"within 1 s" in content
    wait_until(lambda: is_idle(client))


def test_rest_of_a_refused_body_must_arrive_in_time(client):
    with Wire(client) as wire:
        wire.send(head(b"content-length: 9999999") + b"{")
        assert wire.answer()[0] == 413
        assert wire.closed()


@pytest.mark.parametrize(
    "begin",
    [b"GET /livez HTTP/1.1\r\nx: ", b"GET /", b"GET /livez HTTP/1.1\r\n", chunked(b"0\r\n"), chunked(b"1;")],
    ids=["header", "path", "headers", "trailers", "chunk extension"],
)
def test_endless_heads_and_trailers_are_refused(client, begin):
    line = b"a: " + b"b" * 1000 + b"\r\n" if begin.endswith(b"\n") else b"y" * 1000
    sent = 0
    with Wire(client) as wire, suppress(OSError):
        wire.send(begin)
        while sent < 100_000_000:
            wire.socket.sendall(line * 100)
            sent += 100 * len(line)
    assert sent < 20_000_000  # what the buffers of the sockets hold
    wait_until(lambda: is_idle(client))


def test_slow_reader_of_an_export_is_disconnected():
    limits = DEFAULT_LIMITS._replace(read_seconds=0.5)
    with Ranker("memory:") as ranker, serving(ranker, io_timeout=0.5, limits=limits) as client:
        items = [{"id": f"{i:0200d}"} for i in range(1000)]
        for i in range(60):
            client.post("/v1/rank", json={"query": str(i), "items": items})
        with client.stream("GET", "/v1/export") as answer:
            assert answer.headers["content-type"] == "application/x-ndjson"
            assert next(answer.iter_bytes())  # a client that leaves early
        wait_until(lambda: is_idle(client))
        whole = client.get("/v1/export").content
        assert len(whole) > 10_000_000  # more than the socket buffers hold
        assert sum("visits" in json.loads(line) for line in whole.splitlines()) == 60
        with Wire(client, buffer=4096) as wire:
            wire.send(get(b"/v1/export"))
            wait_until(lambda: client.server.app.lifecycle.in_flight)
            wait_until(lambda: is_idle(client))


def test_export_needs_http_1_1(client):
    """A stream of unknown length needs chunks, which HTTP/1.0 does not have."""
    with Wire(client) as wire:
        wire.send(get(b"/v1/export", version=b"1.0"))
        assert [status for status, _, _ in wire.answers()] == [505]
    wait_until(lambda: is_idle(client))


def test_client_that_does_not_read_is_disconnected(client):
    with Wire(client, buffer=4096) as wire:
        for _ in range(20):
            with suppress(OSError):
                wire.send(get(b"/openapi.json") * 60)
        wait_until(lambda: is_idle(client))


def test_connections_are_bounded_and_idle_ones_make_room():
    with Ranker("memory:") as ranker, serving(ranker, limits=DEFAULT_LIMITS._replace(connections=10)) as client:
        idle = [Wire(client) for _ in range(50)]
        for i in range(5):
            with Wire(client) as wire:
                wire.send(post(rank_body(str(i))))
                assert ranked([wire.answer()]) == [str(i)]
        assert len(client.server.server_state.connections) <= 10
        for each in idle:
            each.socket.close()


def test_requests_without_a_key_hold_no_place_and_their_bodies_are_not_read():
    with Ranker("memory:") as ranker:
        key = ranker.add_key("shop", ["rank"]).key
        with serving(ranker, max_in_flight=1, io_timeout=30.0) as client:
            strangers = [Wire(client) for _ in range(20)]
            for each in strangers:
                each.send(head(b"content-length: 1000000") + b"{")
                assert each.answer()[0] == 401
            assert client.server.app.lifecycle.in_flight == 0
            answer = client.post("/v1/rank", content=BODY, headers={
                "authorization": f"Bearer {key}", "content-type": "application/json"
            })  # fmt: skip
            assert answer.status_code == 200
            for each in strangers:
                each.socket.close()


def test_probes_are_answered_while_all_places_are_taken():
    with Ranker("memory:") as ranker, serving(ranker, max_in_flight=2) as client:
        waiting = [Wire(client) for _ in range(2)]
        for each in waiting:
            each.send(post()[:-1])
        wait_until(lambda: client.server.app.lifecycle.in_flight == 2)
        assert client.post("/v1/rank", json=json.loads(BODY)).status_code == 503
        for path in ("/livez", "/readyz", "/metrics", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200
        for each in waiting:
            each.send(post()[-1:])
            assert ranked([each.answer()]) == ["own"]
            each.socket.close()


def slow_readers(client, number):
    """Open connections without a key that request more than their socket buffers hold, and do not read it."""
    opened = []
    for _ in range(number):
        opened.append(Wire(client, buffer=2048))
        opened[-1].send(get(b"/docs") * 60)
    return opened


def test_slow_readers_without_a_key_cannot_starve_the_probes():
    with Ranker("memory:") as ranker:
        ranker.add_key("shop", ["rank"])
        with serving(ranker, max_in_flight=2) as client:
            slow = slow_readers(client, 40)
            wait_until(lambda: len(client.server.config.table.stalled) == len(slow))
            assert client.server.app.lifecycle.in_flight == 0
            for path in ("/livez", "/readyz", "/docs", "/openapi.json"):
                assert client.get(path).status_code == 200
            for each in slow:
                each.socket.close()


def test_slow_reader_of_a_complete_response_holds_no_place():
    with Ranker("memory:") as ranker, serving(ranker, max_in_flight=1) as client:
        state = ranker.rank("q", [f"{i:0200d}" for i in range(1000)])
        with Wire(client, buffer=2048) as wire:
            wire.send(get(b"/v1/queries/" + state.query_id.encode()) * 60)
            wait_until(lambda: client.server.config.table.stalled)
            wait_until(lambda: client.post("/v1/rank", json=json.loads(BODY)).status_code == 200)
            assert client.server.config.table.stalled


def test_slow_readers_make_room_for_new_connections():
    with Ranker("memory:") as ranker, serving(ranker, limits=DEFAULT_LIMITS._replace(connections=10)) as client:
        slow = slow_readers(client, 10)
        wait_until(lambda: len(client.server.config.table.stalled) == 10)
        for _ in range(20):
            with Wire(client) as wire:
                wire.send(get())
                assert wire.answer()[0] == 200
        assert len(client.server.server_state.connections) <= 10
        for each in slow:
            each.socket.close()


def test_large_head_is_refused_also_if_it_arrives_at_once(client):
    limit = DEFAULT_LIMITS.head_bytes
    for size, status in ((limit // 2, 200), (limit + 1, 400)):
        with Wire(client) as wire:
            wire.send(get(b"/livez", *([b"a: " + b"b" * 96] * (size // 97 + 1)), b"connection: close"))
            assert [found for found, _, _ in wire.answers()] == [status]
    with Wire(client) as wire:
        wire.send(get(b"/livez?" + b"x" * limit))
        assert [status for status, _, _ in wire.answers()] == [400]


# --- disconnects and shutdown ----------------------------------------------------------------------------------------


def test_disconnected_clients_are_cleaned_up(client):
    for sent in (post(), post() + post(), post()[:-5], b"GET /li", post(start=b"POST /nowhere HTTP/1.1")[:-5]):
        with Wire(client) as wire:
            wire.send(sent)
    wait_until(lambda: is_idle(client))


def test_clients_that_leave_before_they_have_read_their_response_are_not_logged(caplog):
    with Ranker("memory:") as ranker, serving(ranker) as client:
        slow = slow_readers(client, 20)
        wait_until(lambda: len(client.server.config.table.stalled) == len(slow))
        for each in slow:
            each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
            each.socket.close()
        wait_until(lambda: is_idle(client))
    assert not caplog.records


def test_half_closed_connection_gets_its_response(client):
    with Wire(client) as wire:
        wire.send(get(b"/livez", b"connection: close"))
        wire.socket.shutdown(socket.SHUT_WR)
        assert [status for status, _, _ in wire.answers()] == [200]


@pytest.mark.parametrize("sent", [b"", b"GET /livez HT", post()[:-1], post(), post() * 3, get(b"/v1/export")])
def test_reset_at_any_point_of_a_request_leaves_nothing_behind(client, caplog, sent):
    for _ in range(10):
        with Wire(client) as wire:
            wire.send(sent)
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: is_idle(client))
    assert not caplog.records


def test_key_that_is_revoked_while_the_body_arrives_is_refused():
    with Ranker("memory:") as ranker:
        made = ranker.add_key("shop", ["rank"])
        with serving(ranker) as client, Wire(client) as wire:
            sent = post(BODY, b"authorization: Bearer " + made.key.encode())
            wire.send(sent[:-1])
            wait_until(lambda: client.server.app.lifecycle.in_flight)
            ranker.revoke_key(made.info.id)
            wire.send(sent[-1:])
            assert wire.answer()[0] == 401
        assert ranker.usage().impressions == 0


def test_client_that_disconnects_during_its_request_keeps_its_place_until_the_end():
    with Ranker("memory:") as ranker, serving(ranker) as client:
        with ranker.executor.store.transaction_lock, Wire(client) as wire:
            wire.send(get(b"/v1/usage"))
            wait_until(lambda: client.server.app.lifecycle.in_flight)
            wire.socket.close()
            wait_until(lambda: not client.server.server_state.connections)
            assert client.server.app.lifecycle.in_flight == 1
        wait_until(lambda: is_idle(client))


def test_stopped_service_refuses_requests():
    with Ranker("memory:") as ranker, serving(ranker) as client:
        client.server.app.lifecycle.phase = "stopped"
        answer = client.post("/v1/rank", json=json.loads(BODY))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "stopping" in answer.json()["detail"]
        assert client.get("/livez").status_code == 200
        assert client.server.app.lifecycle.in_flight == 0


def test_requests_in_flight_are_answered_during_shutdown():
    with Ranker("memory:") as ranker, serving(ranker) as client, Wire(client) as wire, Wire(client) as idle:
        idle.send(get())
        idle.answer()
        with ranker.executor.store.transaction_lock:  # blocks the writer
            wire.send(get(b"/v1/usage"))
            wait_until(lambda: client.server.app.lifecycle.in_flight)
            client.server.drain()
            wait_until(lambda: client.server.should_exit)
        assert wire.answer()[0] == 200
        assert wire.closed()
        assert idle.closed()
        with pytest.raises(OSError, match="refused"):
            Wire(client)
