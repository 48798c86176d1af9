"""Options declared once, as fields of a dataclass: signatures, the command line and files follow from them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, ForwardRef, ParamSpec, TypeVar

from .errors import SettingError, renamed_keys, unknown

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def option(default: Any, help: str = "", kind: Any = str, word: str = "", metavar: str = "") -> Any:
    """Declare a field of a dataclass as an option.

    Parameters
    ----------
    default
        Its value if it is not given.
    help
        What the command line says of it; "" for an option that only Python has.
    kind
        What the command line reads.
    word, metavar
        The word of the option on the command line, if it is not the name of the field, and of its value in help.
    """
    return dataclasses.field(default=default, metadata={"help": help, "kind": kind, "word": word, "metavar": metavar})


def explicit_options(
    declaration: type, options: type
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorate a function whose last parameter is `**options` of a TypedDict, whose keys are fields of a dataclass.

    Type checkers check such options already. `inspect.signature` shows them one by one with the defaults of the fields;
    an unknown one is named with a suggestion, and None stands for the default.

    Parameters
    ----------
    declaration, options
        The dataclass, whose old names of fields are understood as well, and the TypedDict.
    """
    renamed: dict[str, str] = getattr(declaration, "__renamed__", {})
    defaults = {field.name: field.default for field in dataclasses.fields(declaration)}
    shown = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=written(annotation))
        for name, annotation in options.__annotations__.items()
    ]

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        allowed = [each.name for each in (*own, *shown)]

        @functools.wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            given: Any = renamed_keys(kwargs, renamed)
            for name in given:
                if name not in allowed:
                    raise SettingError(unknown(f"argument of {function.__name__}", name, allowed))
            return function(*args, **{name: each for name, each in given.items() if each is not None or name in mine})

        mine = {each.name for each in own}
        call.__signature__ = signature.replace(parameters=[*own, *shown])  # type: ignore[attr-defined]
        return call

    return decorate


def written(annotation: Any) -> Any:
    """Return an annotation as it is written in the source."""
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
