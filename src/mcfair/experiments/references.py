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
from typing import Any, NamedTuple

import msgspec

__all__ = [
    "DESCRIPTORS",
    "HEAP_TYPE",
    "NOT_CODE",
    "UNDEFINED",
    "Import",
    "is_of_enum",
    "lookup",
    "own_hints",
    "references",
]

UNDEFINED = object()
"""Stands for a name that has no value."""

NOT_CODE = {
    *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__firstlineno__", "__static_attributes__"),
    *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"),  # read by get_type_hints
    *("__slotnames__", "_abc_impl", "parameter_hints"),  # caches that are filled on first use
}
"""Members of a class that do not change what it computes, or are derived from the others."""

DESCRIPTORS = (
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)

HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: created at run time and not part of the interpreter

LOADS = {"LOAD_GLOBAL": "global", "LOAD_NAME": "global", "LOAD_FROM_DICT_OR_GLOBALS": "global"}
"""Instructions that load a variable; those not listed load one of a closure or, with FAST, a local one."""

Chain = tuple[str, ...]
"""The kind of a variable ("global", "free" or "local"), its name, and the attributes that are read from it."""


class Import(NamedTuple):
    """An import statement inside a function; `variable` is what `import name` binds."""

    name: str
    level: int
    attributes: tuple[str, ...]
    variable: str


def references(code: types.CodeType) -> tuple[set[Chain], set[Import]]:
    """Return the variables that code reads, each with the attributes read from it, and the imports in it."""
    chains: set[Chain] = set()
    imports: set[Import] = set()
    for block in nested_codes(code):
        chain: Chain = ()
        steps = [step for step in dis.get_instructions(block) if step.opname not in ("EXTENDED_ARG", "CACHE", "NOP")]
        for i, step in enumerate(steps):
            if chain and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                chain = (*chain, str(step.argval))
            else:
                chains.add(chain)
                chain = loaded(step)
            if step.opname == "IMPORT_NAME":
                level, attributes = steps[i - 2].argval, steps[i - 1].argval
                variable = str(steps[i + 1].argval) if steps[i + 1].opname.startswith("STORE") else ""
                imports.add(Import(str(step.argval), int(level or 0), tuple(attributes or ()), variable))
    return {each for each in chains if each and each[1] != "__name__"}, imports


def loaded(step: dis.Instruction) -> Chain:
    """Return the variable that an instruction loads, if it loads one; the last if it loads two."""
    if step.opname in LOADS:
        return (LOADS[step.opname], str(step.argval))
    if "LOAD_FAST" in step.opname:
        return ("local", str(step.argval[-1] if isinstance(step.argval, tuple) else step.argval))
    return ("free", str(step.argval)) if step.opname.startswith("LOAD") and step.opname.endswith("DEREF") else ()


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
    except Exception:  # names that exist for type checkers only
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
