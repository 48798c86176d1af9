"""The former place of `mcfair.tables`."""

from ..tables import Table, latex, markdown

__all__ = ["Table", "latex", "markdown"]
