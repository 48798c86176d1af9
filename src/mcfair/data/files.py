"""Files of LETOR folds: names of the parts, and lookups that ignore case."""

from __future__ import annotations

from pathlib import Path

from ..errors import DataError
from .protocols import PARTS

__all__ = ["check_exists", "file_names", "find_child", "find_part", "find_parts", "path_exists", "short_name"]

STEMS = {"train": ("train",), "validation": ("vali", "valid", "validation"), "test": ("test",)}


def file_names(part: str) -> list[str]:
    """List the names that the file of a part may have."""
    return [stem + suffix for stem in STEMS[part] for suffix in (".txt", ".txt.gz")]


def find_part(folder: Path, part: str) -> Path:
    """Return the file of a part of a fold; raise DataError, which suggests a subfolder, if there is none."""
    file = find_child(folder, *file_names(part))
    if file is None:
        folds = [each for each in children(folder) if find_child(each, *file_names(part))]
        hint = f"; did you mean {folds[0]}?" if folds else ""
        raise DataError(f"no {part} part ({' or '.join(file_names(part))}) in {folder}{hint}")
    return file


def find_parts(folder: Path) -> dict[str, Path]:
    """Find the files of all parts of a fold that there are."""
    found = {part: find_child(folder, *file_names(part)) for part in PARTS}
    return {part: file for part, file in found.items() if file is not None}


def find_child(folder: Path, *names: str) -> Path | None:
    """Find the first of some names in a folder, case ignored."""
    entries = {each.name.lower(): each for each in children(folder)}
    return next((entries[name.lower()] for name in names if name.lower() in entries), None)


def children(folder: Path) -> list[Path]:
    """List the content of a folder; nothing if it cannot be read or is no folder."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def path_exists(path: Path) -> bool:
    """Return whether a path leads to a file or folder; raise DataError if that cannot be found out."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    return True


def check_exists(path: Path) -> None:
    """Raise DataError if a path leads to nothing."""
    if not path_exists(path):
        raise DataError(f"no such file or folder: {path}")


def short_name(path: Path) -> str:
    """Return the last two parts of the path of a folder, and of a file its folder and its stem: MQ2008/Fold1/test."""
    path = path.resolve()
    if path.is_dir():
        return "/".join(path.relative_to(path.anchor).parts[-2:])
    return f"{short_name(path.parent)}/{path.name.removesuffix('.gz').removesuffix('.txt')}"
