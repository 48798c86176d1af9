"""Calls of the methods that clients and `Ranker` share: what a call is, and how a declaration becomes a method."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Generic, TypeVar

from ..errors import RequestError
from ..service import wire

__all__ = [
    "Call",
    "check_options",
    "declared_by",
    "first",
    "given_order",
    "is_visible_ascii",
    "one_of",
    "report",
    "with_common_errors",
]

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A call of a method: its operation, its checked arguments, and how the result follows from that of the operation.

    A call with a `fallback` returns it instead of raising an error if the service is unavailable.
    """

    operation: str
    arguments: dict[str, Any]
    convert: Callable[[Any], T] = lambda result: result
    fallback: T | None = None


COMMON_ERRORS = """
RequestError
    If an argument is not allowed, or the API key of a client is missing or lacks the scope.
UnavailableError
    If the service is unavailable, for a client after its retries. The call may be repeated later.
"""


def with_common_errors(declared: Function) -> Function:
    """Append the errors that every operation may raise to a docstring."""
    text = inspect.getdoc(declared) or ""
    declared.__doc__ = text + ("" if "\nRaises\n------\n" in text else "\n\nRaises\n------") + COMMON_ERRORS.rstrip()
    return declared


def declared_by(declared: Callable[..., Any], returns: str = "{}") -> Callable[[Function], Function]:
    """Copy name, docstring and signature of a declaration to a method; `returns` formats the type of the result."""

    def copy(method: Function) -> Function:
        wraps(declared)(method)
        signature = inspect.signature(declared)
        result = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        method.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[own, *signature.parameters.values()], return_annotation=returns.format(result)
        )
        return method

    return copy


# --- checks and conversions of arguments ------------------------------------------------------------------------------

NO_IMPRESSION = wire.EventResult("no_impression", "the list was a fallback, so that there is nothing to report on")


def report(operation: str, events: Iterable[wire.Event | dict[str, Any]]) -> Call[list[wire.EventResult]]:
    """Build the call for some events; those of fallback rankings are left out and get the result `no_impression`."""
    given = [None if impression_of(event) is None else event for event in events]

    def merge(results: list[wire.EventResult]) -> list[wire.EventResult]:
        rest = iter(results)
        return [NO_IMPRESSION if event is None else next(rest) for event in given]

    return Call(operation, {"events": wire.as_events(event for event in given if event is not None)}, merge)


def impression_of(event: wire.Event | dict[str, Any]) -> str | None:
    """Return the impression of an event; a dict without one is refused later."""
    return event.get("impression", "") if isinstance(event, dict) else event.impression


def first(call: Call[list[wire.EventResult]]) -> Call[wire.EventResult]:
    """Return the call with the first of its results."""
    return Call(call.operation, call.arguments, lambda results: call.convert(results)[0])


def given_order(items: list[wire.Item], k: int) -> wire.Ranking:
    """Return the fallback of a ranking: the first k items in the given order."""
    ranked = [wire.Ranked(item.id, rank) for rank, item in enumerate(items[:k], start=1)]
    return wire.Ranking(
        impression=None, query_id=None, items=ranked, policy="fallback", version=0, expires_at=None, fallback=True
    )


def one_of(query: str | None, query_id: str | None) -> dict[str, Any]:
    """Check that a query is given by its text or by its id."""
    if (query is None) == (query_id is None):
        raise RequestError("expected a query or a query_id, one of the two", "query")
    if query is not None:
        wire.check_text("query", wire.convert(wire.QueryLookup, {"query": query}).query, wire.MAX_QUERY)
    return {"query": query, "query_id": query_id}


def is_visible_ascii(text: str) -> bool:
    """Return whether a text consists of visible ASCII characters and can be sent in a header."""
    return text.isascii() and text.isprintable() and bool(text) and " " not in text


def check_options(key: str | None, deadline: float | None) -> None:
    """Check an idempotency key and a deadline."""
    if key is not None and not (is_visible_ascii(key) and len(key) <= wire.MAX_KEY):
        raise RequestError(
            f"key = {key!r} is not allowed: expected 1 to {wire.MAX_KEY} visible ASCII characters", "key"
        )
    if deadline is not None and not (deadline > 0 and math.isfinite(deadline)):
        raise RequestError(f"deadline = {deadline!r} is not allowed: expected a positive number of seconds", "deadline")
