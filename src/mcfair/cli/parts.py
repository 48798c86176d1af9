"""Parts on the command line: plugins that register a user's own, and the commands that list what there is."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..errors import MCFairError, SettingError
from ..parts import PLUGINS
from .options import PluginOptions, with_option_groups

__all__ = ["PART_KINDS", "import_plugin", "list_datasets", "list_parts"]

PART_KINDS = {
    "policies": ("Policy", "policies"),
    "clicks": ("ClickModel", "click models"),
    "estimators": ("Estimator", "relevance estimators"),
    "metrics": ("Metric", "metrics"),
}
"""For each command, the base class of the parts that it lists and what they are called."""


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
            PLUGINS.append(name)
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
        PLUGINS.append(path.stem)
    except MCFairError:
        raise
    except (Exception, SystemExit) as error:  # a script that ends with sys.exit() is no plugin
        raise SettingError(f"cannot import {name}: {type(error).__name__}: {error}") from error


def is_installed(name: str) -> bool:
    """Return whether a module of this name belongs to Python or to an installed package."""
    from ..experiments import keys

    file = keys.file_of(name)
    return name in sys.stdlib_module_names or (file is not None and keys.is_installed(file))


def list_parts(base_name: str, called: str) -> Callable[..., Any]:
    """Return a command that lists the registered parts of one kind."""

    def command(plugins: PluginOptions) -> None:
        import mcfair

        from ..parts import described_parameters, registered, summary

        plugins.load()
        base = getattr(mcfair, base_name)
        parts = registered(base).items()
        rows = ((name, "\n".join(described_parameters(cls)), summary(cls)) for name, cls in parts)
        show_list((base.kind.name, "parameters and defaults", "what it does"), rows)

    command.__doc__ = f"List the {called} and their parameters."
    return with_option_groups(command)


def list_datasets() -> None:
    """List the data that --data knows by name, and where it was found."""
    from ..data.catalogue import available

    show_list(("name", "what it is", "where"), available())


def show_list(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows of text."""
    from ..tables import Table

    Table(caption="", columns=columns, rows=tuple(rows), text_columns=len(columns)).print()
