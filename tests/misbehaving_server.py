"""A server on a real socket that misbehaves as a test demands, and calls of one method by either client."""

import asyncio
import datetime
import socket
import ssl
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import msgspec

from mcfair.service import wire
from mcfair.service.client import AsyncClient, Client

NOW = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
RANKING = wire.Ranking(
    impression="i1", query_id="q1", items=[wire.Ranked("a", 1, 0.5)], policy="MCFair", version=1, expires_at=NOW
)
CERTIFICATES = ssl.create_default_context()
HTML = b"<html><body>\n<h1>502 Bad Gateway</h1>\n</body></html>"


def answer(body, status=200, **headers):
    """Return a behaviour that sends a response; a value that is not bytes is sent as JSON."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    def behave(connection, request):
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + content)

    return behave


def problem(status, detail="no", field=None, **headers):
    return answer(wire.Problem(title="x", status=status, detail=detail, field=field), status, **headers)


def drop(connection, request):
    """Close the connection without a response: the client cannot know whether the request was executed."""
    connection.shutdown(socket.SHUT_RDWR)


def stall(connection, request):
    time.sleep(0.5)
    connection.shutdown(socket.SHUT_RDWR)


def cut(connection, request):
    """Send less than the declared content length."""
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"a":1}\n')
    connection.shutdown(socket.SHUT_RDWR)


def results_of_events(connection, request):
    count = len(msgspec.json.decode(request["body"])["events"])
    answer({"results": [{"status": "applied"}] * count})(connection, request)


class Server:
    """A server that reacts to each request with the next of some behaviours, and repeats the last one."""

    def __init__(self, *behaviours, tls=None):
        self.behaviours, self.requests, self.tls = list(behaviours), [], tls
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"{'https' if tls else 'http'}://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=[connection], daemon=True).start()

    def talk(self, connection):
        with suppress(OSError), ExitStack() as stack:  # a client may leave at any time
            connection = stack.enter_context(connection)
            if self.tls is not None:
                connection = stack.enter_context(self.tls.wrap_socket(connection, server_side=True))
            stream = stack.enter_context(connection.makefile("rb"))
            while line := stream.readline().decode().split():
                request = {"method": line[0], "path": line[1]}
                while header := stream.readline().decode().strip():
                    name, _, value = header.partition(": ")
                    request[name.lower()] = value
                request["body"] = stream.read(int(request.get("content-length", 0)))
                self.requests.append(request)
                behave = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
                behave(connection, request)

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


@contextmanager
def server(*behaviours, tls=None):
    running = Server(*behaviours, tls=tls)
    try:
        yield running
    finally:
        running.close()


SETTINGS = {"backoff": 0.01, "rank_deadline": 10.0, "verify": CERTIFICATES}
"""Short waits, and no time spent on loading certificates for each client."""


def ask_blocking(address, method, *args, settings=None, **options):
    with Client(address, **SETTINGS | (settings or {})) as client:
        result = getattr(client, method)(*args, **options)
        return list(result) if method == "export" else result


def ask_async(address, method, *args, settings=None, **options):
    async def ask():
        async with AsyncClient(address, **SETTINGS | (settings or {})) as client:
            result = getattr(client, method)(*args, **options)
            return [line async for line in result] if method == "export" else await result

    return asyncio.run(ask())
