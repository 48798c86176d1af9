"""Requests to send, their outcomes, and the parts of them that need parsing or building."""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...errors import MCFairError
from .. import wire

if TYPE_CHECKING:
    import httpcore

__all__ = [
    "ClientRequest",
    "ClientResponse",
    "LineDecoder",
    "TransportError",
    "batches",
    "excerpt",
    "possibly_done",
    "retry_after",
]


class ClientRequest(NamedTuple):
    """A request to send to one instance within `timeout` seconds.

    With `stream` the body of a successful response is left to be read later.
    """

    method: str
    path: str
    content: bytes | None = None
    headers: Mapping[str, str] = {}
    stream: bool = False
    address: str = ""
    timeout: float = 0.0

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class ClientResponse(NamedTuple):
    """A received response; `response` is set only if its body is still to be read."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    response: httpcore.Response | None = None

    def problem(self) -> wire.Problem | None:
        """Return the problem in the body; None if the response does not come from the service itself."""
        try:
            return msgspec.json.decode(self.content, type=wire.Problem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def __str__(self) -> str:
        problem = self.problem()
        return f"{self.status}, {problem.detail if problem else excerpt(self.content)}"


class TransportError(NamedTuple):
    """The outcome of a request without a response; if it was `sent`, it may have been executed."""

    reason: str
    sent: bool

    def __str__(self) -> str:
        return self.reason


def possibly_done(outcome: ClientResponse | TransportError) -> bool:
    """Return whether a request may have been executed; a 503 of the service itself means that it was not."""
    if isinstance(outcome, TransportError):
        return outcome.sent
    return not (outcome.status in (408, 429) or (outcome.status == 503 and outcome.problem() is not None))


def retry_after(text: str) -> float:
    """Parse a Retry-After header, in seconds or as a date.

    Examples
    --------
    >>> retry_after("3"), retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), retry_after("soon")
    (3.0, 0.0, 0.0)
    """
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except ValueError:
            return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def batches(events: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Split events into batches within the limits of the service."""
    batch: list[bytes] = []
    size, room = 0, wire.MAX_BODY - 100
    for event in events:
        if batch and (len(batch) == wire.MAX_EVENTS or size + len(event) + 1 > room):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += len(event) + 1
    if batch:
        yield batch


def excerpt(content: bytes) -> str:
    """Return the beginning of a body in one line."""
    text = " ".join(content[:300].decode(errors="replace").split())
    return repr(text[:80]) if text else "an empty body"


class LineDecoder:
    """Decode JSON lines from a stream.

    Only a line feed ends a line: `str.splitlines` would also split at U+2028, which JSON does not escape.
    """

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, chunk: bytes) -> Iterator[Any]:
        """Add a chunk; iterate over the lines that are complete now."""
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        for line in filter(None, lines):
            try:
                yield msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise MCFairError(f"the export has a line that is not JSON ({error}): {excerpt(line)}") from None
