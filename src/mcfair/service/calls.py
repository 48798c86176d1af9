"""Calls of operations, as the methods of clients and `Ranker` make them, and the checks of their arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Generic, TypeVar

from ..errors import RequestError, unknown
from . import wire

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A call of an operation: its checked arguments, and the conversion of its result, perhaps to a further call.

    A call with a `fallback` returns it instead of raising an error if the service is unavailable. The `deadline` is in
    seconds from when the call was `begun`.
    """

    operation: str
    arguments: dict[str, Any] = field(default_factory=dict)
    convert: Callable[[Any], T | Call[T]] = lambda result: result
    fallback: T | None = None
    deadline: float | None = None
    begun: float = field(default_factory=monotonic)


class Caller(ABC):
    """Base of the classes whose methods are calls."""

    @abstractmethod
    def _run(self, call: Call[T]) -> T:
        """Execute a call."""


NO_IMPRESSION = wire.EventResult("no_impression", "the list was a fallback, so that there is nothing to report on")


def report(operation: str, events: Iterable[wire.Event | dict[str, Any]]) -> Call[list[wire.EventResult]]:
    """Build the call for some events; those of fallback rankings are left out and get the result `no_impression`."""
    given = wire.as_events(events)

    def merge(response: wire.FeedbackResults) -> list[wire.EventResult]:
        rest = iter(response.results)
        return [NO_IMPRESSION if event is None else next(rest) for event in given]

    return Call(operation, {"body": wire.Feedback(events=[event for event in given if event is not None])}, merge)


def first(call: Call[list[wire.EventResult]]) -> Call[wire.EventResult]:
    """Return the call with the first of its results."""
    return Call(call.operation, call.arguments, lambda response: call.convert(response)[0])  # type: ignore[index]


def given_order(items: list[wire.Item], k: int) -> wire.Ranking:
    """Return the fallback of a ranking: the first k items in the given order."""
    ranked = [wire.Ranked(item.id, rank) for rank, item in enumerate(items[:k], start=1)]
    return wire.Ranking(
        impression=None, query_id=None, items=ranked, policy="fallback", version=0, expires_at=None, fallback=True
    )


def is_visible_ascii(text: str) -> bool:
    """Return whether a text consists of visible ASCII characters and can be sent in a header."""
    return text.isascii() and text.isprintable() and bool(text) and " " not in text


def check_options(key: str | None, deadline: float | None) -> None:
    """Check an idempotency key and a deadline."""
    if key is not None and not (isinstance(key, str) and is_visible_ascii(key) and len(key) <= wire.MAX_KEY):
        raise RequestError(
            f"key = {key!r} is not allowed: expected 1 to {wire.MAX_KEY} visible ASCII characters", "key"
        )
    if deadline is not None and not (wire.is_finite(deadline) and deadline > 0):
        raise RequestError(f"deadline = {deadline!r} is not allowed: expected a positive number of seconds", "deadline")


def key_request(name: str, scopes: Iterable[wire.Scope]) -> wire.KeyRequest:
    """Build the request for an API key; raise RequestError if its name or a scope is not allowed."""
    chosen = wire.as_list("scopes", scopes)
    for scope in chosen:
        if scope not in wire.SCOPES:
            raise RequestError(unknown("scope", str(scope), wire.SCOPES), "scopes")
    return wire.convert(wire.KeyRequest, {"name": name, "scopes": chosen})
