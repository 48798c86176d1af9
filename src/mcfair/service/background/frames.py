"""Messages between the process that serves and its background process: frames over a socket that both inherit.

A frame is its length in 4 bytes and a message in MessagePack. Nothing secret is in a command line or an environment:
the URL of the store is the first message.
"""

from __future__ import annotations

import socket
import threading
from typing import Any, TypeAlias

import msgspec

from ... import errors
from ...errors import MCFairError, RequestError, UnavailableError

HEADER = 4
"""Size of the length before a frame, in bytes."""


class Failure(msgspec.Struct, array_like=True):
    """An error that crosses the border of a process."""

    kind: str
    message: str
    field: str | None = None
    retry_after: float = 1.0

    def error(self) -> Exception:
        """Return the error."""
        kind = getattr(errors, self.kind, None)
        if kind is RequestError:
            return RequestError(self.message, self.field)
        if kind is UnavailableError:
            return UnavailableError(self.message, self.retry_after)
        if isinstance(kind, type) and issubclass(kind, MCFairError):
            return kind(self.message)
        return RuntimeError(self.message)


class Hello(msgspec.Struct, tag="hello", array_like=True):
    """Begin work on a store: its URL, modules with parts of users, and the intervals of the repeated work."""

    url: str
    plugins: list[str]
    intervals: tuple[float, float, float]


class Ask(msgspec.Struct, tag="ask", array_like=True):
    """Execute a read; `stream` asks for the first chunk of it."""

    id: int
    name: str
    now: int
    arguments: dict[str, Any]
    stream: bool = False


class NextChunk(msgspec.Struct, tag="next", array_like=True):
    """Send the next chunk of a stream, or close it."""

    id: int
    close: bool = False


class Ping(msgspec.Struct, tag="ping", array_like=True):
    """Answer at once: a process that hangs does not."""

    id: int


class Done(msgspec.Struct, tag="done", array_like=True):
    """The result of a request or of a read, or why it failed."""

    id: int
    result: Any = None
    failure: Failure | None = None


class Ready(msgspec.Struct, tag="ready", array_like=True):
    """Reads are executed from now on."""


class Request(msgspec.Struct, tag="request", array_like=True):
    """A call of the writer: `turn`, `install` or `install_rules`, with what is to be installed."""

    id: int
    name: str
    body: bytes = b""


class Publish(msgspec.Struct, tag="publish", array_like=True):
    """The figures of all queries, encoded."""

    figures: bytes


ToBackground: TypeAlias = Hello | Ask | NextChunk | Ping | Done
FromBackground: TypeAlias = Ready | Request | Done | Publish

encoder = msgspec.msgpack.Encoder()


def encode_frame(message: ToBackground | FromBackground) -> bytes:
    """Return a message with its length."""
    body = encoder.encode(message)
    return len(body).to_bytes(HEADER, "big") + body


def failure_of(error: Exception) -> Failure:
    """Return an error as data; one that is not ours without its message, which may quote stored data."""
    for kind in type(error).__mro__:
        if isinstance(error, MCFairError) and getattr(errors, kind.__name__, None) is kind:
            field, retry_after = getattr(error, "field", None), getattr(error, "retry_after", 1.0)
            return Failure(kind.__name__, str(error), field, retry_after)
    return Failure("", type(error).__name__)


class Channel:
    """The end of the socket in the background process. Any thread may send; one receives."""

    def __init__(self, handle: int) -> None:
        self.socket = socket.socket(fileno=handle)
        self.stream = self.socket.makefile("rb")
        self.lock = threading.Lock()
        self.decoder: msgspec.msgpack.Decoder[ToBackground] = msgspec.msgpack.Decoder(ToBackground)

    def send(self, message: FromBackground) -> None:
        """Send a message."""
        frame = encode_frame(message)
        with self.lock:
            self.socket.sendall(frame)

    def receive(self) -> ToBackground | None:
        """Wait for a message; return None at the end, however the server has ended."""
        try:
            header = self.stream.read(HEADER)
            size = int.from_bytes(header, "big")
            body = self.stream.read(size) if len(header) == HEADER else b""
        except ConnectionError:  # it was killed before it had read everything
            return None
        return self.decoder.decode(body) if body and len(body) == size else None
