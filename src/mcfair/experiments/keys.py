"""Keys of runs: hashes of everything that a result depends on.

What ships with the package counts with a hash of its sources. A user's part counts with its file, with the local
modules that this file imports, followed by their import statements, with the versions of the installed packages among
them, and with the files that its class declares in `depends`. What a file cannot show has no key: a class that was
typed at a prompt, or code that asks the clock, the environment or global random state.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import hashlib
import platform
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path, PurePath
from typing import Any

import msgspec
import numpy as np

from ..data.dataset import Dataset
from ..errors import SettingError
from ..policies.base import Policy
from ..simulation.setting import Setting

PACKAGE = Path(__file__).parent.parent

NOT_IN_A_RUN = {
    *("__init__.py", "__main__.py", "testing.py"),
    *("analysis", "auditing", "cli", "experiments", "plugs", "report", "service"),
}
"""Parts of the package that no run depends on: a change there leaves finished runs valid."""


class NoKeyError(Exception):
    """A user's part depends on something that no file shows; the text states what it is."""


def key_of(content: str, policy: Policy, setting: Setting, seed: int) -> str:
    """Return the key of a run on a dataset with this fingerprint.

    Raises
    ------
    NoKeyError
        If a user's part among policy and setting depends on what no file shows.
    SettingError
        If a file in `depends` of a part cannot be read.
    """
    code = set()
    for cls in parts_of([policy, setting.for_policy(policy)]):
        try:
            code.add(code_key(cls))
        except NoKeyError as error:
            raise NoKeyError(f"runs with {cls.__name__} are not kept: {error}") from None
    configuration = {
        "code": sorted(code),
        "data": content,
        "policy": repr(policy),
        "seed": seed,
        "setting": setting.for_policy(policy).to_dict(),
        "sources": source_hash(whole=bool(code)),  # a user's code may call any of our functions
    }
    return hashlib.sha256(msgspec.json.encode(configuration, order="sorted")).hexdigest()[:32]


@cache
def source_hash(*, whole: bool = False) -> str:
    """Return the hash of every source file of this package that a run depends on, or of all files."""
    digest = hashlib.sha256()
    for source in sorted(PACKAGE.rglob("*.py")):
        name = source.relative_to(PACKAGE)
        if whole or name.parts[0] not in NOT_IN_A_RUN:
            digest.update(name.as_posix().encode() + source.read_bytes())
    return digest.hexdigest()


def fingerprint(data: Dataset) -> str:
    """Return a hash of the content of a dataset, and for a protocol that draws from all parts of a fold of all of them.

    The arrays count besides the fingerprint that the dataset carries: that one survives `dataclasses.replace`.
    """
    pool, judged = data.pool()
    digest = hashlib.sha256(f"{pool.fingerprint} {pool.protocol!r}".encode() + judged.tobytes())
    digest.update("\0".join(pool.query_ids or ()).encode())
    for field in dataclasses.fields(Dataset):
        value = getattr(pool, field.name)
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            digest.update(f"{field.name} {value.dtype} {value.shape}".encode())
            digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()


# --- users' parts ----------------------------------------------------------------------------------------------------


def parts_of(value: Any) -> Iterator[type]:
    """Yield the classes of the objects in the fields of a policy or a setting that are not part of this package."""
    if isinstance(value, tuple | list | set | frozenset):
        for each in value:
            yield from parts_of(each)
    elif isinstance(value, dict):
        yield from parts_of([*value, *value.values()])
    elif not isinstance(value, bool | int | float | complex | str | bytes | PurePath | None):
        if not is_ours(type(value)):
            yield type(value)
        if dataclasses.is_dataclass(value):
            yield from parts_of([getattr(value, field.name) for field in dataclasses.fields(value)])


def is_ours(cls: type) -> bool:
    """Return whether a class is part of this package, whatever its `__module__` is called."""
    return cls.__module__.partition(".")[0] == PACKAGE.name and named(cls) is cls


def named(cls: type) -> Any:
    """Return what has the name of a class in its module; None if there is nothing."""
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found


def code_key(cls: type) -> str:
    """Return a hash of all files that a user's class is known to depend on.

    Raises
    ------
    NoKeyError
        If it depends on what no file shows.
    SettingError
        If a file that it declares cannot be read.
    """
    digest = hashlib.sha256(platform.python_version().encode())
    for each in cls.__mro__:
        top = each.__module__.partition(".")[0]
        if is_ours(each) or top in sys.stdlib_module_names:
            continue
        file = file_of_class(each)
        if is_installed(file):
            digest.update(" ".join(versions_of([top])).encode())
            continue
        declared = declared_files(each, file)
        for path, source in sorted(closure(file).items()):
            name = each.__qualname__ if path == file.resolve() else ""
            check_steady(path, source, name, declares=bool(declared))
            if path.stat().st_mtime_ns > getattr(cls, "defined_at", sys.maxsize):
                raise NoKeyError(f"{path.name} was edited after it was imported; start Python again")
            digest.update(path.name.encode() + source)
            digest.update(" ".join(versions_of(name for level, name in imported(source) if not level)).encode())
        for path in declared:
            try:
                digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
            except OSError as error:
                raise SettingError(
                    f"{each.__name__} depends on {path}, which cannot be read: {error.strerror}"
                ) from None
    return digest.hexdigest()


def file_of_class(cls: type) -> Path:
    """Return the file that defines a class; an error if it was typed at a prompt or made by a function."""
    path = getattr(sys.modules.get(cls.__module__), "__file__", None)
    functions = [getattr(each, "interpreted", each) for each in vars(cls).values()]  # what a kernel is made of
    names = {each.__code__.co_filename for each in functions if hasattr(each, "__code__")}
    own = {Path(name) for name in names - {"<string>"}}  # what makes a class a dataclass has no file
    if path is None or not Path(path).is_file() or any(not each.is_file() for each in own):
        raise NoKeyError("it was defined at a prompt; put it into a file")
    if named(cls) is not cls:
        raise NoKeyError("it was made by a function, or defined again; define it once, at the top of its file")
    return Path(path)


def declared_files(cls: type, file: Path) -> list[Path]:
    """Return the files in `depends` of a class, whose paths are relative to the file that defines it."""
    names = vars(cls).get("depends", ())
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise SettingError(f"{cls.__name__}: depends = {names!r}: expected a tuple of paths, such as ('weights.npy',)")
    return [file.parent / name for name in names]


# --- files -----------------------------------------------------------------------------------------------------------


def closure(file: Path) -> dict[Path, bytes]:
    """Return a file and the local modules that it imports, directly or not, with their content."""
    found: dict[Path, bytes] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop().resolve()
        if path not in found:
            found[path] = path.read_bytes()
            files = (file_of(level, name, path) for level, name in imported(found[path]))
            waiting += [each for each in files if each is not None and not is_installed(each)]
    return found


@cache
def syntax(source: bytes) -> ast.Module:
    """Parse a source file; one that is none, such as a compiled module, imports nothing."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def imported(source: bytes) -> Iterator[tuple[int, str]]:
    """Yield the modules that a source file may import, anywhere in it, as leading dots and name; some may not exist.

    Examples
    --------
    >>> sorted(set(imported(b"import os.path; from . import helper")))
    [(0, 'os'), (0, 'os.path'), (1, ''), (1, 'helper')]
    """
    for node in ast.walk(syntax(source)):
        if isinstance(node, ast.Import):
            level, names = 0, [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            level, names = node.level, [".".join([*base, each.name]) for each in node.names]
            if level:
                yield level, ""  # the package that the dots stand for
        else:
            continue
        for name in names:  # the packages around a module are imported with it
            places = name.split(".")
            yield from ((level, ".".join(places[:i])) for i in range(1, len(places) + 1))


def file_of(level: int, name: str, importer: Path) -> Path | None:
    """Return the file of a module without importing it, which may lie beside the one that imports it; or None."""
    if not level and name in sys.modules:
        path = getattr(sys.modules[name], "__file__", None)
        return None if path is None else Path(path)
    head, _, last = name.rpartition(".")
    if level:
        place = importer.parents[level - 1].joinpath(*filter(None, head.split(".")))
        files = (place / f"{last}.py", place / last / "__init__.py")
        return next((each for each in files if each.is_file()), None)
    package = file_of(0, head, importer) if head else None
    if head and package is None:
        return None
    places = [*sys.path, str(importer.parent)] if package is None else [str(package.parent)]
    spec = PathFinder.find_spec(name, places)
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None


@cache
def installed_folders() -> frozenset[Path]:
    """Return the folders of this package, of the standard library and of installed packages."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths: list[str | Path | None] = [PACKAGE, *map(sysconfig.get_path, names)]
    paths += [*site.getsitepackages(), site.getusersitepackages()]
    return frozenset(form for path in paths if path for form in (Path(path), Path(path).resolve()))


def is_installed(path: Path) -> bool:
    """Return whether a file belongs to Python, to an installed package or to this one."""
    forms = (path.absolute(), path.resolve())
    return any(not installed_folders().isdisjoint(each.parents) for each in forms)


def versions_of(modules: Iterable[str]) -> list[str]:
    """Return the installed distributions that some modules belong to, with their versions."""
    tops = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {PACKAGE.name}
    names = {each for top in tops for each in distributions().get(top, ())}
    return sorted(f"{each} {metadata.version(each)}" for each in names)


@cache
def distributions() -> dict[str, list[str]]:
    """Return the distributions that install each top-level module."""
    return {name: sorted(set(each)) for name, each in metadata.packages_distributions().items()}


def local_modules() -> list[str]:
    """Return the names of the loaded modules that users' classes may need elsewhere, which lacks their files."""
    loaded = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    return [name for name, path in loaded if path and name != "__main__" and not is_installed(Path(path))]


# --- what no file shows ----------------------------------------------------------------------------------------------

SEEDED = {"Generator", "RandomState", "SeedSequence", "PCG64", "PCG64DXSM", "Philox", "MT19937", "SFC64", "Random"}
SEEDED |= {"default_rng", "BitGenerator"}
"""What modules of random numbers offer that holds its own state; without arguments, its seed is drawn."""

UNSTEADY = ("os.environ", "os.getenv", "os.urandom", "time.time", "time.time_ns", "datetime.datetime.now", "uuid.uuid4")
"""What differs from run to run, or between machines."""

READERS = {"open", "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "read_text", "read_bytes", "read_csv"}
READERS |= {"read_parquet", "read_json", "read_ndjson", "read_table", "scan_csv", "scan_parquet", "read_pickle"}
"""Functions that read files, by their last name."""


@cache
def check_steady(path: Path, source: bytes, name: str, *, declares: bool) -> None:
    """Raise an error if a source file uses global random state, the environment, the clock or undeclared files.

    A simple, conservative look at the names in it, or if a class is named, at those that the class leads to.
    """
    tree = syntax(source)
    meaning: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            meaning |= {each.asname: each.name for each in node.names if each.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            meaning |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    nodes = [node for statement in reached(tree, name) for node in ast.walk(statement)]
    called = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        used = dotted(node, meaning)
        module, _, last = used.rpartition(".")
        where = f"({used} in {path.name}, line {node.lineno})"
        if module in ("random", "numpy.random", "secrets"):
            seeded = last in SEEDED and (id(node) not in called or called[id(node)].args or called[id(node)].keywords)
            if not seeded:
                raise NoKeyError(f"it draws random numbers that no seed of the run determines {where}")
        if used in UNSTEADY:
            raise NoKeyError(f"it uses what may change from run to run {where}")
        reads = last in READERS and (isinstance(node, ast.Attribute) or module or used in vars(builtins))
        if reads and id(node) in called and not declares:
            raise NoKeyError(f'it reads a file {where}; declare it, as in depends = ("weights.npy",)')


def dotted(node: ast.expr, meaning: dict[str, str]) -> str:
    """Return the full name of an attribute of a module, such as numpy.random.normal."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, meaning)}.{node.attr}"
    return meaning.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def reached(tree: ast.Module, name: str) -> list[ast.stmt]:
    """Return the statements of a module that a name in it leads to, and all of them if there is no such name."""
    makers: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        stored = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        for each in (getattr(statement, "name", ""), *stored):
            makers.setdefault(each, []).append(statement)
    found: dict[int, ast.stmt] = {}
    waiting = list(makers.get(name.partition(".")[0], tree.body))
    while waiting:
        statement = waiting.pop()
        if id(statement) not in found:
            found[id(statement)] = statement
            names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            waiting += [each for used in names for each in makers.get(used, ())]
    return list(found.values())
