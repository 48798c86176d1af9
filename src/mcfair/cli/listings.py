"""The commands that list what there is: parts of each kind, and data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .options import PluginOptions, with_option_groups

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
        import mcfair

        from ..parts import described_parameters, registered, summary
        from ..tables import Table

        plugins.load()
        base = getattr(mcfair, base_name)
        columns = (base.kind.name, "parameters and defaults", "what it does")
        parts = registered(base).items()
        rows = tuple((name, "\n".join(described_parameters(cls)), summary(cls)) for name, cls in parts)
        Table(caption="", columns=columns, rows=rows, text_columns=3).print()

    command.__doc__ = f"List the {called} and their parameters."
    return with_option_groups(command)


def list_datasets() -> None:
    """List the data that --data knows by name, and where it was found."""
    from ..data.catalogue import available
    from ..tables import Table

    Table(caption="", columns=("name", "what it is", "where"), rows=tuple(available()), text_columns=3).print()
