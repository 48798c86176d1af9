"""Groups of options that several commands share, each declared once."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer

from ..data.folds import Loading, open_data
from ..errors import SettingError
from ..simulation.setting import Setting

if TYPE_CHECKING:
    from ..data.dataset import Dataset

__all__ = [
    "DataOptions",
    "PluginOptions",
    "RunOptions",
    "SettingCommandOptions",
    "TableOptions",
    "pairs",
    "with_option_groups",
]

MOST_SEEDS = 100_000

DATA = "A LETOR fold folder or file, a CSV or Parquet table, a built-in profile or a catalogue name."


@dataclasses.dataclass(frozen=True, kw_only=True)
class PluginOptions:
    """Modules to import before anything is parsed."""

    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="PLUGIN", help="A .py file or module with parts of your own; repeat for several."),
    ] = None

    def load(self) -> None:
        """Import the plugins."""
        from .parts import import_plugin

        for each in self.plugin or []:
            import_plugin(each)


class Declared:
    """Options that a dataclass of the library declares, those of its fields that have a help text.

    What is not given is left out of `values`, so that defaults are those of the fields.
    """

    declaration: ClassVar[type]
    only: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, data: str = "", **given: Any) -> None:
        self.data, fields = data, self.declared()
        self.values = {fields[word].name: value for word, value in given.items() if value is not None}
        if columns := self.values.get("columns"):
            self.values["columns"] = pairs("column", columns, "ROLE=COLUMN")

    @classmethod
    def declared(cls) -> dict[str, dataclasses.Field[Any]]:
        """Return the fields by the words of the options."""
        fields = [each for each in dataclasses.fields(cls.declaration) if each.metadata.get("help")]
        return {each.metadata["word"] or each.name: each for each in fields if not cls.only or each.name in cls.only}

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return the options as parameters of a command."""
        return [parameter(word, field) for word, field in cls.declared().items()]


def parameter(word: str, field: dataclasses.Field[Any]) -> inspect.Parameter:
    """Return the parameter of a command for a declared option."""
    default, about = field.default, field.metadata
    shown: Any = getattr(default, "label", "") or (f"{default:g}" if isinstance(default, float) else default)
    text = about["help"] + (f"  [default: {shown}]" if shown else "")
    option = typer.Option(help=text, metavar=about["metavar"] or None, show_default=False)
    kind: Any = Annotated[about["kind"] | None, option]
    return inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


class TableOptions(Declared):
    """How a table is read."""

    declaration = Loading
    only: ClassVar[tuple[str, ...]] = ("separator", "columns")


def pairs(option: str, given: list[str] | None, form: str) -> dict[str, str]:
    """Parse options of the form NAME=VALUE."""
    found = {}
    for each in given or []:
        name, equals, value = each.partition("=")
        if not (name and equals and value):
            raise SettingError(f"{option} = {each!r} is not allowed: expected {form}")
        found[name] = value
    return found


class DataOptions(TableOptions):
    """Which data, and how it is loaded."""

    only = ()

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return the options as parameters of a command."""
        kind: Any = Annotated[str, typer.Option(help=DATA)]
        return [inspect.Parameter("data", inspect.Parameter.KEYWORD_ONLY, annotation=kind), *super().parameters()]

    def open(self, *, features: bool, source: str = "") -> Dataset:
        """Open the data, or another source in the same way."""
        from .render import status

        with status(f"reading {source or self.data}"):
            return open_data(source or self.data, features=features, **self.values)


class SettingCommandOptions(Declared):
    """The setting of a simulation."""

    declaration = Setting

    def make(self) -> Setting:
        """Build the setting."""
        return Setting(**self.values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where experiments run and where their results go."""

    out: Annotated[Path, typer.Option(help="Folder for runs and report; finished runs in it are not repeated.")] = Path(
        "mcfair-results"
    )
    fresh: Annotated[bool, typer.Option("--fresh", help="Make runs again that the folder has.")] = False
    jobs: Annotated[int | None, typer.Option(help="Processes to use  [default: one per processor]")] = None
    cluster: Annotated[str, typer.Option(help="Use the workers of this Dask scheduler: tcp://HOST:8786.")] = ""


def check_seeds(seeds: int) -> None:
    """Validate the number of seeds."""
    if not 1 <= seeds <= MOST_SEEDS:
        raise SettingError(f"seeds = {seeds} is not allowed: expected how many seeds to run, 1 to {MOST_SEEDS:,}")


def with_option_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command: a parameter whose annotation is a group above becomes the options of that group."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {
        name: hint
        for name, hint in hints.items()
        if dataclasses.is_dataclass(hint) or (isinstance(hint, type) and issubclass(hint, Declared))
    }
    words: dict[str, list[str]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        own = parameters_of(groups[name])
        words[name] = [each.name for each in own]
        parameters += own

    @functools.wraps(function)
    def command(**values: Any) -> Any:
        made = {name: group(**{word: values.pop(word) for word in words[name]}) for name, group in groups.items()}
        return function(**made, **values)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    del command.__wrapped__  # its annotations are not those of the command
    return command


def parameters_of(group: Any) -> list[inspect.Parameter]:
    """Return the options of a group as parameters of a command."""
    if issubclass(group, Declared):
        declared: list[inspect.Parameter] = group.parameters()
        return declared
    hints, kind = get_type_hints(group, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    defaults = {
        field.name: inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        for field in dataclasses.fields(group)
    }
    return [
        inspect.Parameter(name, kind, default=default, annotation=hints[name]) for name, default in defaults.items()
    ]
