"""The commands that list what there is: parts of each kind, and data."""

from __future__ import annotations

from .options import PluginOptions, with_option_groups
from .render import print_table

__all__ = ["list_clicks", "list_datasets", "list_estimators", "list_metrics", "list_policies"]


def show_parts(base_name: str) -> None:
    """Print a table of the registered parts of one kind, with their parameters."""
    from rich.table import Table

    import mcfair

    from ..parts import described_parameters, registered, summary

    base = getattr(mcfair, base_name)
    table = Table(base.kind.name, "parameters and defaults", "what it does")
    for name, cls in registered(base).items():
        table.add_row(name, "\n".join(described_parameters(cls)), summary(cls))
    print_table(table)


@with_option_groups
def list_policies(plugins: PluginOptions) -> None:
    """List the policies and their parameters."""
    plugins.load()
    show_parts("Policy")


@with_option_groups
def list_clicks(plugins: PluginOptions) -> None:
    """List the click models and their parameters."""
    plugins.load()
    show_parts("ClickModel")


@with_option_groups
def list_estimators(plugins: PluginOptions) -> None:
    """List the relevance estimators and their parameters."""
    plugins.load()
    show_parts("Estimator")


@with_option_groups
def list_metrics(plugins: PluginOptions) -> None:
    """List the metrics and their parameters."""
    plugins.load()
    show_parts("Metric")


def list_datasets() -> None:
    """List the datasets that --data accepts by name, and where each was found."""
    from rich.table import Table

    from ..data.catalogue import available

    table = Table("name", "what it is", "where")
    for row in available():
        table.add_row(*row)
    print_table(table)
