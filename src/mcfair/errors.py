"""Exceptions and warnings of this package: each says what was wrong, what was got and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

import msgspec

__all__ = [
    "ConflictError",
    "DataError",
    "MCFairError",
    "MCFairWarning",
    "NotFoundError",
    "PolicyError",
    "RequestError",
    "SettingError",
    "StoreError",
    "TraceError",
    "UnavailableError",
    "checked",
    "choices",
    "unknown",
]


class MCFairError(Exception):
    """Base of every error this package raises on purpose; its text is one line a user can act on."""


class DataError(MCFairError):
    """A dataset cannot be found, read or used."""


class PolicyError(MCFairError):
    """A policy is unknown, has a wrong parameter, or gave something that is not a ranking."""


class SettingError(MCFairError):
    """A simulation was asked for that cannot be run."""


class TraceError(MCFairError):
    """A saved run cannot be written or read."""


class StoreError(MCFairError):
    """A store cannot be opened, or what is in it is not sound."""


class RequestError(MCFairError):
    """A request asks for something that is not allowed; `field` names the part of it at fault."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class NotFoundError(MCFairError):
    """There is no such query or impression."""


class ConflictError(MCFairError):
    """A request contradicts an earlier one, such as another request with the same key."""


class UnavailableError(MCFairError):
    """The service cannot answer now, nothing was done, and the same request may be sent again later."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class MCFairWarning(UserWarning):
    """Something was done that the user should know of, such as queries left out."""


def unknown(what: str, name: str, available: Iterable[str]) -> str:
    """Say that a name is unknown, which one was probably meant and which ones there are.

    Examples
    --------
    >>> unknown("policy", "MCFiar", ["MCFair", "TopK"])
    "unknown policy 'MCFiar'; did you mean 'MCFair'? available: MCFair, TopK"
    """
    names = list(available)
    by_lower = {each.lower(): each for each in names}
    close = get_close_matches(name.lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[close[0]]!r}? " if close else ""
    return f"unknown {what} {name!r}; {hint}available: {', '.join(names) or 'none'}"


def choices(hint: Any) -> tuple[Any, ...]:
    """Return the words a parameter may be, none if it is not a choice."""
    return get_args(hint) if get_origin(hint) is Literal else ()


def checked(what: str, hint: Any, value: Any, error: type[MCFairError]) -> Any:
    """Convert a value to its annotated type, or raise an error that says what is allowed.

    A number must be finite if its annotation carries bounds, and is never nan.

    Examples
    --------
    >>> checked("steps", int, "10", SettingError)
    10
    """
    if options := choices(hint):
        if value not in options:
            raise error(unknown(f"{what} =", str(value), map(str, options)))
        return value
    bounds = [each for each in get_args(hint) if isinstance(each, msgspec.Meta)]
    allowed = bounds[0].description if bounds else None
    try:
        converted = msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as refusal:
        allowed = allowed or str(refusal).split("`")[1]
    else:
        if not isinstance(converted, float) or math.isfinite(converted) or (math.isinf(converted) and not bounds):
            return converted
    raise error(f"{what} = {value!r} is not allowed: expected {allowed or 'a number'}")
