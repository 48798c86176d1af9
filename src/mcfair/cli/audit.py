"""The commands on logs: audit and examination."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import DataError, SettingError
from .options import PluginOptions, with_option_groups
from .render import encoded, print_table, printable, status

if TYPE_CHECKING:
    from ..analysis.propensities import FittedExamination
    from ..auditing.result import Audit

__all__ = ["audit_log", "examination"]

LOG = Annotated[str, typer.Argument(metavar="LOG", help="A file, a folder, or the URL of a store.")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogOptions:
    """How a log is read."""

    format: Annotated[
        str | None,
        typer.Option(help="flat, lists, ubi, metarank, open-bandit, store or simulation  [default: guessed]"),
    ] = None
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=COLUMN", help="Column of a role, such as query=q_text; repeat for several."),
    ] = None
    first_rank: Annotated[
        int | None, typer.Option(help="Number of the first rank, 0 or 1  [default: 1, and rank 0 is refused]")
    ] = None

    def columns(self) -> dict[str, str]:
        """Return the columns by role."""
        return pairs("column", self.column, "ROLE=COLUMN")


def pairs(option: str, given: list[str] | None, form: str) -> dict[str, str]:
    """Parse options of the form NAME=VALUE."""
    found = {}
    for each in given or []:
        name, equals, value = each.partition("=")
        if not (name and equals and value):
            raise SettingError(f"{option} = {each!r} is not allowed: expected {form}")
        found[name] = value
    return found


def parse_target(given: list[str] | None) -> dict[str, float] | None:
    """Parse the shares of groups."""
    try:
        return {name: float(share) for name, share in pairs("target", given, "GROUP=SHARE").items()} or None
    except ValueError:
        raise SettingError(f"target = {given} is not allowed: expected GROUP=SHARE, such as small=0.4") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AssumptionOptions:
    """Assumptions and comparisons of an audit."""

    items: Annotated[
        str | None, typer.Option(help="Table of items: group, or candidates of each query with relevance or grade.")
    ] = None
    merit: Annotated[
        str | None,
        typer.Option(help="given, uniform, or an estimator such as IPS  [default: given if the log states it, or IPS]"),
    ] = None
    examination: Annotated[
        str, typer.Option(help="Exposure: log2, rbp(0.8), 1/rank, equal, fitted, a severity, or 1,0.6,0.4.")
    ] = "log2"
    top: Annotated[int, typer.Option(help="Ranks that count as a selection, for impact ratios.")] = 3
    target: Annotated[
        list[str] | None, typer.Option(metavar="GROUP=SHARE", help="Attention that a group should have; repeat.")
    ] = None


@with_option_groups
def audit_log(
    log: LOG,
    reading: LogOptions,
    assumed: AssumptionOptions,
    plugins: PluginOptions,
    policy: Annotated[
        list[str] | None, typer.Option(metavar="POLICY", help="Estimate what a policy would have shown; repeat.")
    ] = None,
    resamples: Annotated[int, typer.Option(help="Resamples for the intervals.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of resamples and randomised policies.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the page, figures and tables  [default: mcfair-audit; none with --json]"),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Dask scheduler whose workers read the files of the log.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a summary.")] = False,
) -> None:
    """Audit a click log: who gets the attention, who deserves it, and how far from the best possible it is."""
    from ..auditing.audit import audit
    from ..auditing.page import write_audit

    plugins.load()
    aims = parse_target(assumed.target)
    with status(f"reading {log}"):
        found = audit(
            log,
            format=reading.format,
            columns=reading.columns(),
            items=assumed.items,
            merit=assumed.merit,
            examination=assumed.examination,
            first_rank=reading.first_rank,
            top=assumed.top,
            target=aims,
            policies=policy or (),
            resamples=resamples,
            seed=seed,
            cluster=cluster,
        )
    folder = out if out is not None or json else Path("mcfair-audit")
    page = None
    if folder is not None:
        with status("drawing the page"):
            page = write_audit(found, folder, shlex.join(["mcfair", *sys.argv[1:]]))
    if json:
        sys.stdout.write(encoded(found.to_dict()))
        return
    show(found)
    print(f"\n{page}")


def show(found: Audit) -> None:
    """Print the result in sentences, and a table of the groups."""
    from rich.table import Table

    from ..auditing.findings import findings
    from ..report.formatting import NOTHING

    counts = found.counts
    print(f"{printable(found.name)}: read as {found.format}, {found!r}")
    for reason, number in counts.excluded.items():
        print(f"left out: {number:,} rows ({reason})")
    print()
    for sentence in findings(found):
        print(printable(sentence))
    if not counts.group_names:
        return
    table = Table(title=f"exposure by {found.model.name}, merit {found.merit_label}", title_justify="left")
    for name in ("group", "items", "share of exposure", "share of merit", "ratio", "95 % interval"):
        table.add_column(name, justify="left" if name == "group" else "right")
    for row in found.groups().sort("ratio", nulls_last=True).head(20).iter_rows(named=True):
        table.add_row(
            printable(row["group"]),
            f"{row['items']:,}",
            f"{100 * row['exposure_share']:.2f} %",
            f"{100 * row['merit_share']:.2f} %",
            NOTHING if isnan(row["ratio"]) else f"{row['ratio']:.3f}",
            NOTHING if isnan(row["ratio_low"]) else f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}",
        )
    print()
    print_table(table)


@with_option_groups
def examination(
    log: LOG,
    reading: LogOptions,
    method: Annotated[
        str | None,
        typer.Option(help="ctr (random lists or logged propensities), harvesting or em  [default: ctr or harvesting]"),
    ] = None,
    ranks: Annotated[int | None, typer.Option(min=1, help="The last rank to fit  [default: that of the log]")] = None,
    resamples: Annotated[int, typer.Option(min=1, help="Resamples for the intervals.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Picture to write  [default: examination.png; none with --json]")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Estimate from a click log how likely users are to examine each rank."""
    from ..auditing.fitting import fit_examination

    with status(f"reading {log}"):
        found = fit_examination(
            log,
            method,
            ranks=ranks,
            format=reading.format,
            columns=reading.columns(),
            first_rank=reading.first_rank,
            resamples=resamples,
            seed=seed,
        )
    picture = out if out is not None or json else Path("examination.png")
    if picture is not None:
        write_picture(found, picture)
    if json:
        sys.stdout.write(encoded(found.to_dict()))
        return
    show_examination(found, log)
    print(f"\n{picture}")


def write_picture(found: FittedExamination, path: Path) -> None:
    """Write the figure of fitted probabilities."""
    from ..auditing.pictures import examination_picture

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(examination_picture(found).png)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from None


def show_examination(found: FittedExamination, log: str) -> None:
    """Print the assumptions, a table of the ranks, and how to use the result."""
    from rich.table import Table

    print(f"Examination of each rank, relative to rank 1, by {found.method}. It assumes:")
    for sentence in found.assumptions:
        print(f"- {sentence}")
    table = Table(title=log, title_justify="left")
    for name in ("rank", "p", "95 % interval", "never rising", "shown", "clicks"):
        table.add_column(name, justify="right")
    for row in found.to_dict()["ranks"]:
        low, high = row["interval"]
        table.add_row(
            f"{row['rank']}",
            f"{row['p']:.4f}",
            f"{low:.4f} to {high:.4f}",
            f"{row['falling']:.4f}",
            f"{row['shown']:,}",
            f"{row['clicks']:,}",
        )
    print()
    print_table(table)
    print(f"\nUse it in simulate, serve and audit: --examination {found.text}")
