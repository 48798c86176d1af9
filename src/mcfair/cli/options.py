"""Groups of options that several commands share, each declared once."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from ..data.folds import Loading, open_data
from ..errors import SettingError
from ..simulation.setting import Setting
from .render import status

if TYPE_CHECKING:
    from ..data.dataset import Dataset


DATA = "A LETOR fold folder or file, a CSV or Parquet table, a built-in profile or a catalogue name."

Data = Annotated[str, typer.Option(help=DATA)]
Seeds = Annotated[int, typer.Option(min=1, max=100_000, help="Run seeds 0 to N-1.")]

# Options that a dataclass of the library declares: a command gets a dictionary of those that were given.
GivenSetting = Annotated[dict[str, Any], Setting]
GivenLoading = Annotated[dict[str, Any], Loading]
GivenTable = Annotated[dict[str, Any], Loading, "separator", "columns"]  # these fields alone


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where experiments run and where their results go."""

    out: Annotated[Path, typer.Option(help="Folder for runs and report; finished runs in it are not repeated.")] = Path(
        "mcfair-results"
    )
    fresh: Annotated[bool, typer.Option("--fresh", help="Make runs again that the folder has.")] = False
    jobs: Annotated[int | None, typer.Option(help="Processes to use  [default: one per processor]")] = None
    cluster: Annotated[str, typer.Option(help="Use the workers of this Dask scheduler: tcp://HOST:8786.")] = ""


def with_option_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command: a parameter whose annotation is a group of options becomes these options.

    A group is a dataclass whose fields are annotated as options, or a dictionary as above.
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, tuple[list[str], Callable[..., Any]]] = {}
    shown: list[inspect.Parameter] = []
    for name, own in inspect.signature(function).parameters.items():
        if (group := option_group(hints[name])) is None:
            shown.append(own.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
        else:
            parameters, make = group
            groups[name] = [each.name for each in parameters], make
            shown += parameters

    def command(**values: Any) -> Any:
        for name, (words, make) in groups.items():
            values[name] = make(**{word: values.pop(word) for word in words})
        return function(**values)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in shown}
    return command


def option_group(hint: Any) -> tuple[list[inspect.Parameter], Callable[..., Any]] | None:
    """Return the options of a group and the function that makes its value of them; None if it is no group."""
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        return [parameter(each.name, hints[each.name], each.default) for each in dataclasses.fields(hint)], hint  # type: ignore[return-value]
    declaration, *only = get_args(hint)[1:] or (None,)
    if not dataclasses.is_dataclass(declaration):
        return None
    fields = {
        each.metadata["word"] or each.name: each
        for each in dataclasses.fields(declaration)
        if each.metadata.get("help") and (not only or each.name in only)
    }

    def given(**values: Any) -> dict[str, Any]:
        found = {}
        for word, value in values.items():
            if value is not None:
                metavar = fields[word].metadata["metavar"]
                found[fields[word].name] = pairs(word, value, metavar) if "=" in metavar else value
        return found

    return [parameter(word, declared(field), None) for word, field in fields.items()], given


def parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    """Return a parameter of a command."""
    default = inspect.Parameter.empty if default is dataclasses.MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def declared(field: dataclasses.Field[Any]) -> Any:
    """Return the annotation of a command's parameter for an option that the library declares."""
    default, about = field.default, field.metadata
    shown: Any = getattr(default, "label", "") or (f"{default:g}" if isinstance(default, float) else default)
    text = about["help"] + (f"  [default: {shown}]" if shown else "")
    kind = about["kind"]
    return Annotated[kind | None, typer.Option(help=text, metavar=about["metavar"] or None, show_default=False)]


def pairs(option: str, given: list[str] | None, form: str) -> dict[str, str]:
    """Parse options of the form NAME=VALUE."""
    found = {}
    for each in given or []:
        name, equals, value = each.partition("=")
        if not (name and equals and value):
            raise SettingError(f"{option} = {each!r} is not allowed: expected {form}")
        found[name] = value
    return found


def opened(source: str, loading: dict[str, Any], *, features: bool) -> Dataset:
    """Open data, and show meanwhile what is read."""
    with status(f"reading {source}"):
        return open_data(source, features=features, **loading)
