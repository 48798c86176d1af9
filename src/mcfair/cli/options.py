"""Groups of options that several commands share, each declared once."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ..errors import SettingError

if TYPE_CHECKING:
    from ..data.dataset import Dataset
    from ..simulation.setting import Setting

__all__ = ["DataOptions", "PluginOptions", "RunOptions", "SettingCommandOptions", "with_option_groups"]

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
        from .plugins import import_plugin

        for each in self.plugin or []:
            import_plugin(each)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Which data, and how it is loaded."""

    data: Annotated[str, typer.Option(help=DATA)]
    preset: Annotated[
        str | None, typer.Option(help="paper or wsdm23: the protocol as published, or as the released code runs it.")
    ] = None
    split: Annotated[str, typer.Option(help="Part of a fold: train, validation or test.")] = "test"
    min_items: Annotated[int | None, typer.Option(help="Leave out queries with fewer items.")] = None
    max_items: Annotated[int | None, typer.Option(help="Leave out queries with more items.")] = None
    epsilon: Annotated[float, typer.Option(help="Relevance of an item of grade 0.")] = 0.1

    def open(self, *, features: bool) -> Dataset:
        """Open the data."""
        from ..data.sources import open_data
        from .render import status

        with status(f"reading {self.data}"):
            return open_data(
                self.data,
                split=self.split,
                features=features,
                epsilon=self.epsilon,
                preset=self.preset,
                min_items=self.min_items,
                max_items=self.max_items,
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SettingCommandOptions:
    """The setting of a simulation."""

    setting: Annotated[
        str, typer.Option(help="post-processing (relevance is given) or online (it is learnt from clicks).")
    ] = "post-processing"
    steps: Annotated[int | None, typer.Option(help="Steps  [default: 10,000 post-processing, 100,000 online]")] = None
    k: Annotated[
        int | None, typer.Option(help="Ranks that are shown  [default: as many as --examination has, or 5]")
    ] = None
    examination: Annotated[
        str,
        typer.Option(help="What exposure assumes: a severity of position bias, or probabilities: 1,0.6,0.4."),
    ] = "1"
    gamma: Annotated[float, typer.Option(help="Discount of cNDCG.")] = 0.995
    clicks: Annotated[str, typer.Option(help="How users click, such as 'Cascade(stop=0.7)'; see mcfair clicks.")] = (
        "PositionBased"
    )
    estimator: Annotated[
        str,
        typer.Option(
            help="How relevance is estimated, such as 'IPS(prior_strength=5)'; auto is the policy's own, IPS for "
            "most; see mcfair estimators."
        ),
    ] = "auto"
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC", help="A further metric, such as gini; see mcfair metrics; repeat for several."),
    ] = None

    def make(self) -> Setting:
        """Build the setting."""
        from ..simulation.setting import make_setting

        fields: dict[str, Any] = {
            "steps": self.steps,
            "k": self.k,
            "examination": self.examination,
            "gamma": self.gamma,
            "clicks": self.clicks,
            "estimator": self.estimator,
            "metrics": tuple(self.metric or ()),
        }
        return make_setting(self.setting, fields)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where experiments run and where their results go."""

    out: Annotated[Path, typer.Option(help="Folder for runs and report; finished runs in it are not repeated.")] = Path(
        "mcfair-results"
    )
    jobs: Annotated[int | None, typer.Option(help="Processes to use  [default: one per processor]")] = None
    cluster: Annotated[str, typer.Option(help="Use the workers of this Dask scheduler: tcp://HOST:8786.")] = ""

    def processes(self) -> int:
        """Return how many processes to use."""
        from .render import processors

        jobs = processors() if self.jobs is None else self.jobs
        if jobs < 1:
            raise SettingError(f"jobs = {jobs} is not allowed: expected how many processes to use, at least 1")
        return jobs


def check_seeds(seeds: int) -> None:
    """Validate the number of seeds."""
    if not 1 <= seeds <= MOST_SEEDS:
        raise SettingError(f"seeds = {seeds} is not allowed: expected how many seeds to run, 1 to {MOST_SEEDS:,}")


def with_option_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command: a parameter whose annotation is a group above becomes the options of that group."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        own = get_type_hints(groups[name], include_extras=True)
        for field in dataclasses.fields(groups[name]):
            default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(field.name, kind, default=default, annotation=own[field.name]))

    @functools.wraps(function)
    def command(**values: Any) -> Any:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        return function(**made, **values)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    del command.__wrapped__  # its annotations are not those of the command
    return command
