"""References of code: the globals and imports of a function, and the members and fields of a class."""

from __future__ import annotations

import copyreg
import dis
import enum
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

__all__ = ["UNDEFINED", "is_of_enum", "lookup", "own_hints", "references"]

UNDEFINED = object()
"""Stands for a name that has no value."""

LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}


def references(code: types.CodeType) -> tuple[set[tuple[str, ...]], set[tuple[str, int, tuple[str, ...]]]]:
    """Return the globals that code refers to, each with the attributes read from it, and the imports in it."""
    chains: set[tuple[str, ...]] = set()
    imports: set[tuple[str, int, tuple[str, ...]]] = set()
    for block in nested_codes(code):
        chain: tuple[str, ...] = ()
        before: list[Any] = [None, None]
        for step in dis.get_instructions(block):
            if step.opname in ("EXTENDED_ARG", "CACHE", "NOP"):
                continue
            if chain and step.opname in ATTRIBUTES:
                chain = (*chain, str(step.argval))
            else:
                chains |= {chain} if chain and chain[0] != "__name__" else set()
                chain = (str(step.argval),) if step.opname in LOADS else ()
            if step.opname == "IMPORT_NAME":
                level, attributes = before
                imports.add((str(step.argval), int(level or 0), tuple(attributes or ())))
            before = [before[1], step.argval]
    return chains, imports


def nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those of the functions and classes defined in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from nested_codes(each)


def lookup(module: str, name: str) -> Any:
    """Return what a module has under a qualified name, or a value that is nothing else."""
    found: Any = sys.modules.get(module, UNDEFINED)
    for part in name.split("."):
        found = getattr(found, part, UNDEFINED)
    return found


def own_hints(cls: type) -> dict[str, Any]:
    """Return the types of the fields that a class itself declares, as objects where they can be resolved."""
    declared = inspect.get_annotations(cls)
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception:  # names that only a type checker knows
        return dict(declared)
    return {name: hints.get(name) for name in declared}


def is_of_enum(name: str, cls: type[enum.Enum]) -> bool:
    """Return whether a member of an enumeration is a value of it or belongs to the machinery of `enum`."""
    return name in cls.__members__ or (name[:1] == name[-1:] == "_" and not name.startswith("__"))


def reduce_meta(meta: msgspec.Meta) -> tuple[Any, ...]:
    """Return what the bounds of a parameter are rebuilt from."""
    return rebuild_meta, (dict(meta.__rich_repr__()),)


def rebuild_meta(options: dict[str, Any]) -> msgspec.Meta:
    """Build the bounds of a parameter from their content."""
    return msgspec.Meta(**options)


copyreg.pickle(msgspec.Meta, reduce_meta)  # msgspec cannot pickle them, and a user's policy travels with its bounds
