"""Plugins: files and modules of users that register parts."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from ..errors import MCFairError, SettingError

__all__ = ["import_plugin"]


def import_plugin(name: str) -> None:
    """Import a user's file or module, which registers its parts.

    Parameters
    ----------
    name
        Path of a .py file, or name of a module.

    Raises
    ------
    SettingError
        If it cannot be imported.
    """
    path = Path(name)
    try:
        if path.suffix != ".py":
            importlib.import_module(name)
            return
        if not path.is_file():
            raise SettingError(f"cannot import {name}: there is no such file")
        if is_installed(path.stem):  # it would replace that module for everyone who imports it later
            raise SettingError(f"cannot import {name}: {path.stem} is the name of an installed module; rename the file")
        module_spec = importlib.util.spec_from_file_location(path.stem, path)
        assert module_spec is not None
        assert module_spec.loader is not None
        module = importlib.util.module_from_spec(module_spec)
        sys.modules[path.stem] = module
        sys.path.insert(0, str(path.parent.resolve()))  # a plugin may import files beside it
        module_spec.loader.exec_module(module)
    except MCFairError:
        raise
    except (Exception, SystemExit) as error:  # a script that ends with sys.exit() is no plugin
        raise SettingError(f"cannot import {name}: {type(error).__name__}: {error}") from error


def is_installed(name: str) -> bool:
    """Return whether a module of this name belongs to Python or to an installed package."""
    from ..experiments.keys import file_of
    from ..experiments.keys import is_installed as lies_in_an_installed_folder

    file = file_of(name)
    return name in sys.stdlib_module_names or (file is not None and lies_in_an_installed_folder(file))
