"""The command that writes fair lists from a file of scores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SettingError
from .options import GivenTable, with_option_groups
from .parts import Plugins
from .render import status


@with_option_groups
def rank(
    scores: Annotated[Path, typer.Argument(metavar="SCORES", help="A CSV, TSV, Parquet or JSON-lines file.")],
    table: GivenTable,
    plugin: Plugins = None,
    policy: Annotated[
        str, typer.Option(metavar="POLICY", help="See mcfair policies  [default: MCFair, 90 % of the best DCG]")
    ] = "",
    k: Annotated[int, typer.Option(help="Length of a list.")] = 10,
    sessions: Annotated[int, typer.Option(help="Number of lists of each query.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of randomised policies.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A .csv or .parquet file  [default: CSV on the terminal]")] = None,
) -> None:
    """Write fair lists from a file of scores: for every query a list for each of many sessions.

    The file has columns query, item and score (or relevance, prior or grade), and optionally provider; see --column for
    other names. The lists have columns query, session, rank and item. Over its sessions, each item is exposed as its
    score deserves.
    """
    from ..data.frames import write_table
    from ..plugs.fair_lists import POLICY, fair_lists

    if out is not None and out.suffix.lower() not in (".csv", ".parquet"):
        raise SettingError(f"--out {out}: expected a file that ends in .csv or .parquet")
    if out is not None and out.exists() and scores.exists() and out.samefile(scores):
        raise SettingError(f"--out {out}: it is the file of scores, which the lists would overwrite")
    with status(f"ranking {scores}"):
        lists = fair_lists(scores, policy or POLICY, k=k, sessions=sessions, seed=seed, **table)
    if out is None:
        sys.stdout.write(lists.write_csv())
    else:
        write_table(lists, out)
