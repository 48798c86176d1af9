"""Exceptions and warnings of this package; their messages state what was wrong, what was got and what is allowed."""

from __future__ import annotations

import functools
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

PACKAGE = str(Path(__file__).parent)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
AnyType = TypeVar("AnyType", bound=type)


class MCFairError(Exception):
    """Base of every error this package raises on purpose; its text is one line a user can act on."""


class DataError(MCFairError):
    """A dataset cannot be found, read or used."""


class PartError(MCFairError):
    """A policy, click model, estimator or metric is unknown, has an invalid parameter, or failed."""


class PolicyError(PartError):
    """A policy is unknown, has an invalid parameter, or returned something that is not a ranking."""


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
    """Describe an unknown name: which one was probably meant and which ones there are.

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


# --- old names -------------------------------------------------------------------------------------------------------


def renamed(old: str, new: str) -> None:
    """Warn that an old name of a parameter, attribute, option or module attribute was used; once per line of use.

    The warning names the first line outside of this package, so that Python shows it once for each place to change.
    Old names are accepted for one release.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     renamed("k_s", "k")
    >>> str(seen[0].message)
    'k_s is now called k; the old name will not be understood from the next release on'
    """
    warn_user(f"{old} is now called {new}; the old name will not be understood from the next release on")


def warn_user(message: str) -> None:
    """Warn, naming the first line outside of this package: the one that a user wrote."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, MCFairWarning, stacklevel=level)


def renamed_parameters(**names: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorate a function that still accepts old names of keyword arguments, each given as `old="new"`."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            given: Any = kwargs if names.keys().isdisjoint(kwargs) else renamed_keys(kwargs, names)
            return function(*args, **given)

        return call

    return decorate


def renamed_keys(table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a table with new names in place of old ones, each given as `{old: new}`."""
    changed = {}
    for name, value in table.items():
        new = names.get(name, name)
        if new != name:
            if new in table:
                raise SettingError(f"{new} is given twice: also under its old name {name}")
            renamed(name, new)
        changed[new] = value
    return changed


def renamed_fields(**names: str) -> Callable[[AnyType], AnyType]:
    """Decorate a class whose constructor and instances still have old names of some fields, each as `old="new"`."""

    def decorate(cls: AnyType) -> AnyType:
        type.__setattr__(cls, "__renamed__", names)
        type.__setattr__(cls, "__init__", renamed_parameters(**names)(cls.__init__))  # type: ignore[misc]
        for old, new in names.items():
            type.__setattr__(cls, old, RenamedAttribute(old, new))
        return cls

    return decorate


class RenamedAttribute:
    """An old name of an attribute: reading it warns and returns what the new name has."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        renamed(self.old, self.new)
        return getattr(owner if instance is None else instance, self.new)


def needs_extra(module: str, extra: str) -> Any:
    """Import a module that an extra of this package installs; MCFairError says how to install it if it is missing.

    Examples
    --------
    >>> needs_extra("no_such_module", "report")
    Traceback (most recent call last):
    mcfair.errors.MCFairError: this needs no_such_module, which is not installed: pip install "mcfair[report]"
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = str(error.name).split(".", maxsplit=1)[0]
        install = f'pip install "mcfair[{extra}]"'
        raise MCFairError(f"this needs {missing}, which is not installed: {install}") from None


# --- values ----------------------------------------------------------------------------------------------------------


def choices(hint: Any) -> tuple[Any, ...]:
    """Return the words that a parameter may be, also beside numbers or in a list; empty if it is not a choice."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, UnionType, list):
        return tuple(word for each in get_args(hint) for word in choices(each))
    return ()


def field_names(hint: Any) -> tuple[str, ...]:
    """Return the names of the fields of a struct, also in a list or beside other types; empty if there is none."""
    structs = [each for each in nested_types(hint) if hasattr(each, "__struct_fields__")]
    return tuple(dict.fromkeys(name for each in structs for name in each.__struct_encode_fields__))


def hint_at(hint: Any, path: list[str]) -> Any:
    """Return the annotation of a field of nested structs; None if there is no such field.

    Parameters
    ----------
    hint
        The annotation of the whole.
    path
        Names of the fields that lead to it; numbers, positions in lists, are skipped.

    Examples
    --------
    >>> from mcfair.experiments.experiment import Experiment
    >>> choices(hint_at(Experiment, ["series", "mode"]))[1:]
    ('post-processing', 'online')
    >>> field_names(hint_at(Experiment, ["series"]))[:2]
    ('policies', 'label')
    """
    for name in (each for each in path if not each.isdigit()):
        types = (get_type_hints(each) for each in nested_types(hint) if isinstance(each, type))
        hint = next((fields[name] for fields in types if name in fields), None)
    return hint


def nested_types(hint: Any) -> list[Any]:
    """Return an annotation and those within it: members of unions, elements of lists."""
    return [hint, *(inner for each in get_args(hint) for inner in nested_types(each))]


def checked(what: str, hint: Any, value: Any, error: type[MCFairError]) -> Any:
    """Convert a value to its annotated type.

    A number must be finite if its annotation carries bounds, and is never nan.

    Parameters
    ----------
    what
        Name of the value in the message.
    hint
        Its annotation: a type, an `Annotated` type with bounds, a choice among words, or a union of these.
    error
        Exception to raise if the value is not allowed; the message states what is.

    Examples
    --------
    >>> checked("steps", int, "10", SettingError)
    10
    """
    if type(value).__module__ == "numpy":
        value = value.tolist()  # NumPy's numbers and arrays as Python's
    options = choices(hint)
    if isinstance(value, str) and value in options:
        return value
    others = [hint]
    if get_origin(hint) in (Union, UnionType):
        others = [each for each in get_args(hint) if get_origin(each) is not Literal]
        if value is None and type(None) in others:
            return None
    elif options:
        raise error(unknown(f"{what} =", str(value), map(str, options)))
    allowed = []
    # A value of one of the types stays of that type: 2.0 is not made a whole number where fractions are allowed.
    for each in sorted(others, key=lambda each: type(value) not in (each, *get_args(each))):
        if each is type(None):
            continue
        bounds = [meta for meta in get_args(each) if isinstance(meta, msgspec.Meta)]
        described = bounds[0].description if bounds else None
        try:
            converted = msgspec.convert(value, each, strict=False)
        except msgspec.ValidationError as refusal:
            described = described or str(refusal).split("`")[1]
        except UnicodeEncodeError:  # a lone surrogate
            described = described or "valid Unicode"
        else:
            if not isinstance(converted, float) or math.isfinite(converted) or (math.isinf(converted) and not bounds):
                return converted
        allowed.append(described or "a number")
    words = [*dict.fromkeys(allowed), *map(repr, options)]
    expected = f"{words[0]}, or {' or '.join(words[1:])}" if options and allowed else " or ".join(words)
    raise error(f"{what} = {value!r} is not allowed: expected {expected}")
