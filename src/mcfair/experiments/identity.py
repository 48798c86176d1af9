"""Identity of code: a hash of all that the code of an object executes, so that no stale result is ever reused.

Objects are walked, not pickled: pickles of classes defined at a prompt differ from one process to the next. Two
processes with the same version of Python compute the same hash of the same code, wherever its files are.
"""

from __future__ import annotations

import builtins
import copyreg
import dataclasses
import enum
import functools
import hashlib
import importlib
import pickle
import sys
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from .._jit import Kernel
from .origins import (
    NOT_IN_A_RUN,
    file_of,
    imported_modules,
    installed_version,
    is_ours,
    is_ours_file,
    resolved,
    source_hash,
    spec_of,
)
from .references import DESCRIPTORS, HEAP_TYPE, NOT_CODE, UNDEFINED, Import, is_of_enum, lookup, own_hints, references

__all__ = ["UnidentifiedCodeError", "identify", "user_modules"]

OPAQUE = (eval, exec, compile, open, input, globals, locals, __import__, importlib.import_module)
"""Code that calls one of these depends on text that cannot be seen before it runs."""


class UnidentifiedCodeError(Exception):
    """The code of an object refers to something whose content cannot be determined."""


def identify(obj: Any) -> str:
    """Return a hash of the code and the values that an object consists of and refers to.

    Functions count with their bytecode, constants, defaults, closures and the globals they refer to, classes with their
    members and bases, modules with their files and those of the modules they import, values by content, all of it
    recursively. Installed packages count by name and version. Line numbers, file names and positions do not count.

    Parameters
    ----------
    obj
        A class, a function, or an object of any kind.

    Returns
    -------
    str

    Raises
    ------
    UnidentifiedCodeError
        If the object refers to something that cannot be identified, such as an open file; the error names it.

    Examples
    --------
    >>> identify(lambda x: x + 1) == identify(lambda x: x + 1) != identify(lambda x: x + 2)
    True
    """
    walk = Walk()
    try:
        walk.visit(obj)
    except RecursionError:
        raise UnidentifiedCodeError("it is nested too deeply") from None
    return walk.digest.hexdigest()


def user_modules(objects: Iterable[Any]) -> set[str]:
    """Return the names of the modules outside installed packages that the code of some objects refers to."""
    walk = Walk()
    for each in objects:
        try:
            walk.visit(each)
        except (UnidentifiedCodeError, RecursionError):
            continue
    return {name for name in walk.modules if name in sys.modules}


class Walk:
    """Depth-first walk over an object and all it refers to, which feeds a hash.

    Objects that can be part of a cycle are numbered when first met; later they count as their number. Constants are
    never numbered: whether two equal ones are the same object depends on how the code was loaded.
    """

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.numbers: dict[int | str, int] = {}  # by id, or by path for the file of a module
        self.alive: list[Any] = []  # an id is unique only as long as its object exists
        self.modules: set[str] = set()

    def put(self, kind: str, *content: str | bytes) -> None:
        """Feed one item to the hash; lengths keep different items from running into each other."""
        for each in (kind, *content):
            text = each if isinstance(each, bytes) else each.encode("utf-8", "surrogatepass")
            self.digest.update(b"%d:" % len(text) + text)

    def is_known(self, key: int | str) -> bool:
        """Return whether an object was met before, and feed its number to the hash if so; else number it."""
        if key in self.numbers:
            self.put("again", str(self.numbers[key]))
            return True
        self.numbers[key] = len(self.numbers)
        return False

    def visit(self, obj: Any) -> None:
        """Feed an object to the hash."""
        kind = type(obj)
        if obj is None or obj is Ellipsis or obj is NotImplemented or kind in PLAIN:
            self.put(kind.__name__, PLAIN.get(kind, repr)(obj))
        elif kind is tuple:
            self.put("tuple", str(len(obj)))
            self.visit_all(obj)
        elif kind is frozenset:
            self.visit_set(obj)
        elif kind is types.CodeType:
            self.visit_code(obj)
        elif isinstance(obj, types.ModuleType):
            self.visit_module(obj.__name__, obj)
        elif kind is np.ndarray and not obj.dtype.hasobject:
            self.put("array", repr(obj.dtype), str(obj.shape), obj.tobytes())
        elif any(obj is each for each in OPAQUE):
            raise UnidentifiedCodeError(f"{obj.__name__}() brings in what is known only at run time")
        elif not self.is_known(id(obj)):
            self.alive.append(obj)
            kinds = (method for types_, method in VISITORS if isinstance(obj, types_))
            method = CONTAINERS.get(kind) or next(kinds, Walk.visit_object)
            method(self, obj)

    def visit_all(self, objects: Iterable[Any]) -> None:
        """Feed objects one after the other."""
        for each in objects:
            self.visit(each)

    def visit_named(self, name: str, obj: Any) -> None:
        """Feed an object with the name it has; an error names the path to what could not be identified."""
        self.put("name", name)
        try:
            self.visit(obj)
        except UnidentifiedCodeError as error:
            raise UnidentifiedCodeError(f"{name}: {error}") from None

    # --- containers --------------------------------------------------------------------------------------------------

    def visit_list(self, obj: list[Any]) -> None:
        """Feed a list."""
        self.put("list", str(len(obj)))
        self.visit_all(obj)

    def visit_dict(self, obj: Any) -> None:
        """Feed a dictionary in its order."""
        self.put("dict", str(len(obj)))
        for key, value in obj.items():
            self.visit(key)
            self.visit(value)

    def visit_set(self, obj: Any) -> None:
        """Feed the elements of a set in the order of their hashes: its own order differs between processes."""
        hashes = []
        for each in obj:
            branch = Walk()
            branch.numbers, branch.alive, branch.modules = dict(self.numbers), self.alive, self.modules
            branch.visit(each)
            hashes.append(branch.digest.digest())
        self.put(type(obj).__name__, *sorted(hashes))

    # --- functions ---------------------------------------------------------------------------------------------------

    def visit_function(self, obj: types.FunctionType) -> None:
        """Feed a function: code, defaults, closure, attributes and the globals it refers to."""
        package = self.package_of(obj.__module__)
        name = obj.__qualname__
        file = obj.__code__.co_filename
        if package is not None:
            if lookup(obj.__module__, name) is obj:
                self.put("installed", package, obj.__module__, name)
                return
            if is_ours_file(file) or installed_version(obj.__module__, file) is not None:
                self.put("installed", package, obj.__module__, name)  # one of its inner functions
            else:
                package = None
        if package is None:
            self.put("function")
            self.visit_code(obj.__code__)
        self.visit_all((obj.__defaults__, obj.__kwdefaults__ and sorted(obj.__kwdefaults__.items())))
        for variable, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True):
            try:
                self.visit_named(variable, cell.cell_contents)
            except ValueError:
                self.put("empty", variable)
        self.visit_dict(obj.__dict__)
        if package is None:
            self.visit_references(obj)

    def visit_code(self, obj: types.CodeType) -> None:
        """Feed a code object without its positions in a file; nested ones are among its constants."""
        self.put("code", obj.co_code, getattr(obj, "co_exceptiontable", b""))
        shape = (obj.co_argcount, obj.co_posonlyargcount, obj.co_kwonlyargcount, obj.co_flags)
        self.visit_all((shape, obj.co_names, obj.co_varnames, obj.co_freevars, obj.co_cellvars, obj.co_consts))

    def visit_references(self, obj: types.FunctionType) -> None:
        """Feed the globals of a function, its imports, and what it reads from modules in its other variables."""
        chains, imports = references(obj.__code__)
        closure = dict(zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True))
        modules: dict[str, Any] = {}
        for each in sorted(imports):
            self.visit_import(each, obj.__globals__.get("__package__") or "", modules)
        for kind, name, *attributes in sorted(chains):
            value: Any = UNDEFINED
            if kind == "global":
                value = obj.__globals__.get(name, getattr(builtins, name, UNDEFINED))
            elif kind == "local":
                value = modules.get(name, UNDEFINED)
            elif name in closure:
                with suppress(ValueError):
                    value = closure[name].cell_contents
            if kind == "global" or isinstance(value, types.ModuleType):
                self.visit_chain(name, value, attributes)

    def visit_chain(self, name: str, value: Any, attributes: list[str]) -> None:
        """Feed a variable; if it is a module, also the value at the end of the attributes that are read from it."""
        for attribute in attributes:
            if not isinstance(value, types.ModuleType):
                break
            if not is_ours(value.__name__):
                self.visit_module(value.__name__, value)
                if self.package_of(value.__name__) is not None:
                    return
            name, value = f"{name}.{attribute}", getattr(value, attribute, UNDEFINED)
        self.visit_named(name, None if value is UNDEFINED else value)

    def visit_import(self, each: Import, package: str, modules: dict[str, Any]) -> None:
        """Feed what an import statement inside a function imports; note the module that it binds to a variable."""
        for name in resolved(each.name, each.level, list(each.attributes), package):
            if self.package_of(name) is None and spec_of(name) is not None:
                with suppress(Exception):  # an import that fails here fails in the run, too
                    importlib.import_module(name)  # as the run will: its values count, not only its file
            self.visit_module(name)
        module = sys.modules.get(resolved(each.name, each.level, [], package)[0])
        if module is not None and self.package_of(module.__name__) is None:
            self.visit_all(getattr(module, attribute, None) for attribute in each.attributes)
            top = each.name.partition(".")[0]  # what `import a.b` binds; `import a.b as c` binds the module itself
            modules[each.variable] = sys.modules.get(top) if each.variable == top else module

    def visit_builtin(self, obj: Any) -> None:
        """Feed a function or a bound method written in C."""
        owner = obj.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            module = obj.__module__ or getattr(owner, "__name__", "builtins")
            self.put("builtin", self.package_of(module) or module, obj.__qualname__)
        else:
            self.put("method", obj.__name__)
            self.visit(owner)

    # --- classes -----------------------------------------------------------------------------------------------------

    def visit_class(self, obj: type) -> None:
        """Feed a class: bases, members and the types of its fields."""
        package = self.package_of(obj.__module__)
        if package is not None and (lookup(obj.__module__, obj.__qualname__) is obj or not obj.__flags__ & HEAP_TYPE):
            self.put("installed", package, obj.__module__, obj.__qualname__)
            return
        self.put("class", obj.__name__)
        self.visit_all((type(obj), *obj.__bases__))
        members = {name: value for name, value in vars(obj).items() if name not in NOT_CODE}
        if issubclass(obj, enum.Enum):
            self.visit_all((name, member._value_) for name, member in obj.__members__.items())
            members = {name: each for name, each in members.items() if not is_of_enum(name, obj)}
        for name in sorted(members):
            self.visit_named(name, members[name])
        self.visit_dict(own_hints(obj))

    # --- modules -----------------------------------------------------------------------------------------------------

    def package_of(self, name: str | None) -> str | None:
        """Return name and version of the installed package of a module; None, and note it, if it is a user's."""
        if name is None:
            return None
        if is_ours(name):
            part = [*name.split("."), "__init__"][1]
            used = part not in NOT_IN_A_RUN and f"{part}.py" not in NOT_IN_A_RUN
            return "mcfair" if used else f"mcfair {source_hash(whole=True)}"  # a run's key holds the rest of it
        version = installed_version(name, file_of(name))
        if version is not None:
            return f"{name.partition('.')[0]} {version}"
        self.modules.add(name)
        return None

    def visit_module(self, name: str, module: types.ModuleType | None = None) -> None:
        """Feed a module: name and version of its package, or its file and those of the modules it imports."""
        package = self.package_of(name)
        if package is not None:
            self.put("installed", package, name)
            return
        path = file_of(name, module)
        if path is None:
            spec = spec_of(name)
            if module is not None and getattr(module, "__path__", None) is None:
                raise UnidentifiedCodeError(f"module {name} has no file")
            self.put("absent" if spec is None else "namespace", name)
            return
        if self.is_known(path):
            return
        try:
            content = Path(path).read_bytes()
            self.put("file", name, content)
            package = name if Path(path).stem == "__init__" else name.rpartition(".")[0]
            imported = set(imported_modules(content, package)) if path.endswith(".py") else set()
        except (OSError, SyntaxError, ValueError):
            raise UnidentifiedCodeError(f"the file of module {name} cannot be read") from None
        for each in sorted(imported):
            self.visit_module(each)

    # --- other objects -----------------------------------------------------------------------------------------------

    def visit_object(self, obj: Any) -> None:
        """Feed an object by its fields if it is a frozen dataclass, else by what it would be pickled from."""
        kind = type(obj)
        if dataclasses.is_dataclass(obj) and kind.__dataclass_params__.frozen:
            self.visit(kind)
            for field in dataclasses.fields(obj):
                self.visit_named(field.name, getattr(obj, field.name, None))
            return
        if isinstance(getattr(obj, "py_func", None), types.FunctionType):  # compiled by Numba; its pickle is random
            self.put("compiled")
            self.visit_all((kind, obj.py_func, getattr(obj, "targetoptions", None)))
            return
        try:
            reduce = copyreg.dispatch_table.get(kind)
            reduced: Any = obj.__reduce_ex__(4) if reduce is None else reduce(obj)
        except Exception:
            raise UnidentifiedCodeError(f"an object of type {kind.__qualname__} has no content to identify") from None
        if isinstance(reduced, str):
            self.visit_global(obj, reduced)
            return
        create, arguments, state, items, pairs = (list(reduced) + [None] * 3)[:5]
        self.put("object")
        self.visit_all((create, arguments, state, items and list(items), pairs and list(pairs)))

    def visit_global(self, obj: Any, name: str) -> None:
        """Feed an object that is pickled as a name: a wrapper of a function, or a part of an installed package."""
        if hasattr(obj, "__wrapped__"):
            self.visit_all((type(obj), obj.__wrapped__))
            return
        module = pickle.whichmodule(obj, name)  # type: ignore[attr-defined]  # in every version, not in its stubs
        package = self.package_of(module)
        if package is None or lookup(module, name) is not obj:
            raise UnidentifiedCodeError(f"{name} of type {type(obj).__qualname__} has no content to identify")
        self.put("installed", package, module, name)


PLAIN: dict[type, Callable[[Any], str | bytes]] = {
    bool: repr, int: hex, str: str, bytes: bytes, bytearray: bytes, float: float.hex,
    complex: lambda z: f"{z.real.hex()} {z.imag.hex()}",
}  # fmt: skip

CONTAINERS: dict[type, Callable[[Walk, Any], None]] = {
    list: Walk.visit_list,
    dict: Walk.visit_dict,
    types.MappingProxyType: Walk.visit_dict,
    set: Walk.visit_set,
}

VISITORS: tuple[tuple[Any, Callable[[Walk, Any], None]], ...] = (
    (type, Walk.visit_class),
    (types.FunctionType, Walk.visit_function),
    (types.BuiltinFunctionType, Walk.visit_builtin),
    (types.MethodType, lambda walk, each: walk.visit_all(("method", each.__func__, each.__self__))),
    (Kernel, lambda walk, each: walk.visit_all(("kernel", each.interpreted, each.inline, each.allocates))),
    ((staticmethod, classmethod), lambda walk, each: walk.visit_all((type(each).__name__, each.__func__))),
    (property, lambda walk, each: walk.visit_all(("property", each.fget, each.fset, each.fdel))),
    (functools.cached_property, lambda walk, each: walk.visit_all(("cached_property", each.func))),
    (DESCRIPTORS, lambda walk, each: walk.put("descriptor", each.__qualname__)),
    (enum.Enum, lambda walk, each: walk.visit_all(("member", type(each), each._name_, each._value_))),
)
