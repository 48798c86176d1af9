"""The dashboard: HTML pages about what the service does, rendered on the server."""

from .pages import Dashboard

__all__ = ["Dashboard"]
