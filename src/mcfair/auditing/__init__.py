"""Audits of click logs: who got the exposure, who deserved it, and how far from the best possible that is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypedDict

from ..options import option

__all__ = ["Reading", "ReadingOptions"]


class ReadingOptions(TypedDict, total=False):
    """The fields of `Reading`, as keyword arguments of `audit` and `fit_examination`; all are optional."""

    format: str | None
    columns: Mapping[str, str] | None
    separator: str | None
    first_rank: int | None
    missing_click: str
    cluster: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """How a log is read; see `audit` for what each field means."""

    format: str | None = option(
        None, "flat, lists, ubi, metarank, open-bandit, store or simulation  [default: guessed]"
    )
    columns: Mapping[str, str] | None = option(
        None, "Column of a role, such as query=q_text; repeat for several.", list[str], "column", "ROLE=COLUMN"
    )
    separator: str | None = option(None, "What separates the columns of a CSV file  [default: guessed]")
    first_rank: int | None = option(None, "Number of the first rank, 0 or 1  [default: 1, and rank 0 is refused]", int)
    missing_click: str = option(
        "exclude", "Whether an empty value of clicked is no click, or left out.", metavar="0|exclude"
    )
    cluster: str | None = option(None)
