"""The ranking service: fair rankings for live traffic, durable, idempotent and explainable."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .web.app import create_app

__all__ = ["create_app"]


def __getattr__(name: str) -> Any:
    """Import `create_app` on first use: a client or a ranker needs none of the packages that serve HTTP."""
    if name != "create_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .web.app import create_app

    return create_app
