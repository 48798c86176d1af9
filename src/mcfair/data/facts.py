"""The facts about a dataset that its representations show."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .dataset import Dataset

__all__ = ["html_table", "summary"]


def facts(data: Dataset) -> dict[str, str]:
    """Return what there is to know about a dataset, as texts."""
    n = data.sizes
    return {
        "queries": f"{data.queries:,}",
        "items": f"{data.items:,}",
        "items per query": f"{n.min()}-{n.max()}" if n.size else "0",
        "grades": f"0-{data.y_max}",
        "providers": "none" if data.providers is None else f"{np.unique(data.providers).size:,}",
        "features": "none" if data.X is None else str(data.X.shape[1]),
        "protocol": data.protocol.name or "none",
    }


def summary(data: Dataset) -> str:
    """Return the facts about a dataset in one line."""
    known = facts(data)
    parts = [f"{known[key]} {key}" for key in ("queries", "items")]
    parts += [f"{known['items per query']} per query", f"grades {known['grades']}"]
    parts += [f"{known[key]} {key}" for key in ("providers", "features") if known[key] != "none"]
    return ", ".join(parts + ["scores"] * (data.scores is not None))


def html_table(data: Dataset) -> str:
    """Return the facts about a dataset as a table, for notebooks."""
    rows = "".join(f"<tr><th>{key}</th><td>{escape(text)}</td></tr>" for key, text in facts(data).items())
    return f"<table><caption>{escape(data.name)}</caption><tbody>{rows}</tbody></table>"
