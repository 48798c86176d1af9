"""Reads on their way to background work, and their replies on the way back, encoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from ..wire import encoder
from .worker import Worker

__all__ = ["Read", "Reply", "answer"]


class Read(NamedTuple):
    """A function of a `Reading` and arguments of some types."""

    function: Callable[..., Any]
    types: Mapping[str, Any]

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments in their types, from plain data."""
        return {name: msgspec.convert(value, self.types.get(name, Any)) for name, value in arguments.items()}


class Reply(msgspec.Struct, array_like=True):
    """A response, encoded; without headers it is JSON that must not be stored."""

    status: int
    headers: list[tuple[bytes, bytes]] | None
    body: bytes


def answer(worker: Worker, read: Read, now: int, arguments: dict[str, Any]) -> Reply:
    """Execute a read, and encode its result."""
    result = worker.read(read.function, now, arguments)
    return result if isinstance(result, Reply) else Reply(200, None, encoder.encode(result))
