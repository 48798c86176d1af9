"""Parts on the command line: plugins that register a user's own, and the commands that list what there is."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import MCFairError, SettingError
from ..estimators import Estimator
from ..metrics import Metric
from ..parts import PLUGINS, Part, described_parameters, registered, summary
from ..policies.base import Policy
from ..tables import Table
from ..users import ClickModel

PART_KINDS: dict[type[Part], str] = {
    Policy: "policies",
    ClickModel: "click models",
    Estimator: "relevance estimators",
    Metric: "metrics",
}
"""The plural of the name of each kind."""


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

    file = keys.file_of(0, name, Path(f"{name}.py"))
    return name in sys.stdlib_module_names or (file is not None and keys.is_installed(file))


def import_plugins(names: list[str] | None) -> list[str] | None:
    """Import plugins."""
    for name in names or []:
        import_plugin(name)
    return names


Plugins = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PLUGIN",
        help="A .py file or module with parts of your own; repeat for several.",
        callback=import_plugins,
        is_eager=True,  # before anything else is parsed
    ),
]
"""An option of every command that reads parts."""


def list_parts(base: type[Part]) -> Callable[..., Any]:
    """Return a command that lists the registered parts of one kind."""

    def command(plugin: Plugins = None) -> None:
        parts = registered(base).items()
        rows = ((name, "\n".join(described_parameters(cls)), summary(cls)) for name, cls in parts)
        show_list((base.kind.name, "parameters and defaults", "what it does"), rows)

    command.__doc__ = f"List the {PART_KINDS[base]} and their parameters."
    return command


def list_datasets() -> None:
    """List the data that --data knows by name, and where it was found."""
    from ..data.catalogue import available

    show_list(("name", "what it is", "where"), available())


def show_list(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows of text."""
    Table(caption="", columns=columns, rows=tuple(rows), text_columns=len(columns)).print()
