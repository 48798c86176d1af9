"""The commands that list what there is: parts of each kind, and data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .options import PluginOptions, with_option_groups
from .render import print_table

__all__ = ["PART_KINDS", "list_datasets", "list_parts"]

PART_KINDS = {
    "policies": ("Policy", "policies"),
    "clicks": ("ClickModel", "click models"),
    "estimators": ("Estimator", "relevance estimators"),
    "metrics": ("Metric", "metrics"),
}
"""For each command, the base class of the parts that it lists and what they are called."""


def list_parts(base_name: str, called: str) -> Callable[..., Any]:
    """Return a command that lists the registered parts of one kind."""

    def command(plugins: PluginOptions) -> None:
        from rich.table import Table

        import mcfair

        from ..parts import described_parameters, registered, summary

        plugins.load()
        base = getattr(mcfair, base_name)
        table = Table(base.kind.name, "parameters and defaults", "what it does")
        for name, cls in registered(base).items():
            table.add_row(name, "\n".join(described_parameters(cls)), summary(cls))
        print_table(table)

    command.__doc__ = f"List the {called} and their parameters."
    return with_option_groups(command)


def list_datasets() -> None:
    """List the data that --data knows by name, and where it was found."""
    from rich.table import Table

    from ..data.catalogue import available

    table = Table("name", "what it is", "where")
    for row in available():
        table.add_row(*row)
    print_table(table)
