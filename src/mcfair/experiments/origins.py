"""Origin of modules: installed packages are identified by name and version, other code by its content."""

from __future__ import annotations

import ast
import hashlib
import platform
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

__all__ = [
    "file_of",
    "imported_modules",
    "installed_version",
    "is_ours",
    "is_ours_file",
    "resolved",
    "source_hash",
    "spec_of",
]

PACKAGE = Path(__file__).parent.parent

NOT_IN_A_RUN = {
    *("__init__.py", "__main__.py", "testing.py"),
    *("analysis", "auditing", "cli", "experiments", "plugs", "report", "service"),
}
"""Parts of the package that no run depends on: a change there leaves finished runs valid."""


@cache
def source_hash(*, whole: bool = False) -> str:
    """Return the hash of every source file of this package that a run depends on, or of all files."""
    digest = hashlib.sha256()
    for source in sorted(PACKAGE.rglob("*.py")):
        name = source.relative_to(PACKAGE)
        if whole or name.parts[0] not in NOT_IN_A_RUN:
            digest.update(name.as_posix().encode() + source.read_bytes())
    return digest.hexdigest()


def is_ours(name: str) -> bool:
    """Return whether a module belongs to this package."""
    return name.partition(".")[0] == PACKAGE.name


def is_ours_file(path: str) -> bool:
    """Return whether a source file belongs to this package."""
    return PACKAGE in Path(path).parents


def spec_of(name: str) -> ModuleSpec | None:
    """Find a module without importing anything; None if there is no such module."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    parent, _, last = name.rpartition(".")
    try:
        if not parent:
            return find_spec(last)
        above = spec_of(parent)
        locations = None if above is None else above.submodule_search_locations
        return None if locations is None else PathFinder.find_spec(name, locations)
    except (ImportError, ValueError, AttributeError):
        return None


def file_of(name: str, module: ModuleType | None = None) -> str | None:
    """Return the path of a module's file; None for modules that have none, such as `sys` or a namespace package."""
    loaded = module or sys.modules.get(name)
    path = getattr(loaded, "__file__", None)
    if path is None and loaded is None:
        spec = spec_of(name)
        path = spec.origin if spec is not None and spec.has_location else None
    return path


def installed_version(name: str, path: str | None) -> str | None:
    """Return the version of the installed package that a module belongs to, or None if it belongs to none.

    Modules of the standard library have the version of Python. A file in site-packages that no package lists is not
    installed in this sense: nothing but its content identifies it.
    """
    top = name.partition(".")[0]
    if top == "__main__":  # python -m TOOL: the file is the tool's, the code in the namespace is the user's
        return None
    if path is None:
        if top in sys.builtin_module_names:
            return platform.python_version()
        above = file_of(top) if "." in name else None  # created by its package, such as six.moves
        return None if above is None else installed_version(top, above)
    folders = [Path(path).parent, Path(path).resolve().parent]
    if any(is_below(folder, site_folders()) for folder in folders):
        return distribution_version(top)
    return platform.python_version() if any(is_below(folder, library_folders()) for folder in folders) else None


def is_below(folder: Path, roots: frozenset[Path]) -> bool:
    """Return whether a folder is one of the roots or lies below one."""
    return folder in roots or not roots.isdisjoint(folder.parents)


@cache
def site_folders() -> frozenset[Path]:
    """Return the folders that packages are installed to."""
    paths = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    return both_forms([*paths, site.getusersitepackages()])


@cache
def library_folders() -> frozenset[Path]:
    """Return the folders of the standard library."""
    return both_forms([sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")])


def both_forms(paths: list[str]) -> frozenset[Path]:
    """Return paths as they are written and with symbolic links resolved."""
    return frozenset(form for path in paths for form in (Path(path), Path(path).resolve()))


@cache
def distribution_version(top: str) -> str | None:
    """Return name and version of the distributions that install a top-level module."""
    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:
        names = sorted(set(metadata.packages_distributions().get(top, ())))
        return " ".join(f"{each} {metadata.version(each)}" for each in names) or None


def imported_modules(source: bytes, package: str) -> Iterator[str]:
    """Yield the names of the modules that a source file may import, anywhere in it; some may not exist.

    Examples
    --------
    >>> sorted(imported_modules(b"import os.path; from . import helper", "plugin"))
    ['os.path', 'plugin', 'plugin.helper']
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from resolved(node.module or "", node.level, [each.name for each in node.names], package)


def resolved(name: str, level: int, attributes: list[str], package: str) -> list[str]:
    """Return the modules that `from name import attributes` may import; each attribute may be one itself."""
    if level:
        above = package.split(".")[: len(package.split(".")) - level + 1]
        name = ".".join([*above, *([name] if name else [])])
    return [each for each in (name, *(f"{name}.{each}" for each in attributes if each != "*")) if each]
