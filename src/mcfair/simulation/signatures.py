"""Signatures that show every keyword argument of a TypedDict, for help, completion and error messages."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ForwardRef, ParamSpec, TypeVar

from ..errors import SettingError, renamed_keys, unknown

__all__ = ["RENAMED", "explicit_options"]

RENAMED = {"k_s": "k"}
"""Old names of options of a setting."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def written(annotation: Any) -> Any:
    """Return an annotation as it is written in the source."""
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation


def explicit_options(options: type) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorate a function whose last parameter is `**options` of a TypedDict.

    Type checkers check such options already. `inspect.signature` shows them one by one, and an unknown one is named
    with a suggestion.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=written(annotation))
            for name, annotation in options.__annotations__.items()
        ]
        allowed = [each.name for each in (*own, *more)]

        @functools.wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            kwargs = renamed_keys(kwargs, RENAMED)  # type: ignore[assignment]
            for name in kwargs:
                if name not in allowed:
                    raise SettingError(unknown(f"argument of {function.__name__}", name, allowed))
            given: Any = {name: value for name, value in kwargs.items() if not (value is None and name in omitted)}
            return function(*args, **given)

        omitted = {each.name for each in more}
        call.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return call

    return decorate
