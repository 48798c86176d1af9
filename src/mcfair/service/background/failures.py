"""Errors as data: how they cross the border of a process."""

from __future__ import annotations

import msgspec

from ... import errors
from ...errors import MCFairError, RequestError, UnavailableError

__all__ = ["Failure", "failure_of"]


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


def failure_of(error: Exception) -> Failure:
    """Return an error as data; one that is not ours without its message, which may quote stored data."""
    for kind in type(error).__mro__:
        if isinstance(error, MCFairError) and getattr(errors, kind.__name__, None) is kind:
            field, retry_after = getattr(error, "field", None), getattr(error, "retry_after", 1.0)
            return Failure(kind.__name__, str(error), field, retry_after)
    return Failure("", type(error).__name__)
