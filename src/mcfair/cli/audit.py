"""The commands on logs: audit and examination."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..auditing import Reading
from ..errors import DataError, SettingError
from ..tables import printable
from .options import pairs, with_option_groups
from .parts import Plugins
from .render import encoded, status

if TYPE_CHECKING:
    from ..auditing.audit import Audit


GivenReading = Annotated[dict[str, Any], Reading]

LOG = Annotated[str, typer.Argument(metavar="LOG", help="A file, a folder, or the URL of a store.")]


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
    k: Annotated[int | None, typer.Option("--k", help="The last rank that counts in NDCG  [default: all]")] = None
    target: Annotated[
        list[str] | None, typer.Option(metavar="GROUP=SHARE", help="Exposure that a group should have; repeat.")
    ] = None


@with_option_groups
def audit_log(
    log: LOG,
    reading: GivenReading,
    assumed: AssumptionOptions,
    plugin: Plugins = None,
    policy: Annotated[
        list[str] | None, typer.Option(metavar="POLICY", help="Estimate what a policy would have shown; repeat.")
    ] = None,
    resamples: Annotated[int, typer.Option(help="Resamples for the intervals; 0 for none.")] = 200,
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
    """Audit a click log: who gets the exposure, who deserves it, and how far from the best possible it is."""
    from ..auditing.audit import audit

    chosen = {field.name: getattr(assumed, field.name) for field in dataclasses.fields(assumed)}
    chosen["target"] = parse_target(assumed.target)
    with status(f"reading {log}"):
        how = reading | {"cluster": cluster}
        found = audit(log, policies=policy or (), resamples=resamples, seed=seed, **chosen, **how)
    folder = out if out is not None or json else Path("mcfair-audit")
    page = None
    if folder is not None:
        from ..auditing.page import write_audit

        with status("drawing the page"):
            page = write_audit(found, folder, shlex.join(["mcfair", *sys.argv[1:]]))
    if json:
        sys.stdout.write(encoded(found.to_dict()))
        return
    show(found)
    print(f"\n{page}")


def show(found: Audit) -> None:
    """Print the result in sentences, and a table of the groups."""
    from ..auditing.page import findings, table_of

    counts = found.counts
    sentences = [printable(each) for each in findings(found)]
    for warning in sentences[: len(found.warnings)]:
        print(f"{warning}\n")
    print(f"{printable(found.name)}: read as {found.format}, {found!r}")
    for note in found.notes:
        print(printable(note))
    for reason, rows in counts.excluded.items():
        print(f"left out: {rows:,} rows ({reason})")
    print("", *sentences[len(found.warnings) :], sep="\n")
    if counts.group_names:
        columns = {"group": "group", "items": "items,", "share of exposure": "exposure_share%"}
        columns |= {"share of merit": "merit_share%", "ratio": "ratio.3", "95 % interval": "ratio±3"}
        frame = found.groups().sort("ratio", nulls_last=True).head(20)
        title = f"exposure by {found.model.name}, merit {found.merit_label}"
        print()
        table_of("groups", title, frame, columns).print()


@with_option_groups
def examination(
    log: LOG,
    reading: GivenReading,
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
    from ..auditing.assumptions import fit_examination
    from ..auditing.page import examination_picture, table_of

    with status(f"reading {log}"):
        found = fit_examination(log, method, ranks=ranks, resamples=resamples, seed=seed, **reading)
    picture = out if out is not None or json else Path("examination.png")
    if picture is not None:
        try:
            picture.parent.mkdir(parents=True, exist_ok=True)
            picture.write_bytes(examination_picture(found).png)
        except OSError as error:
            raise DataError(f"cannot write {picture}: {error.strerror or error}") from None
    if json:
        sys.stdout.write(encoded(found.to_dict()))
        return
    print(f"Examination of each rank, relative to rank 1, by {found.method}. It assumes:")
    for sentence in found.assumptions:
        print(f"- {sentence}")
    columns = {"rank": "rank", "p": "p.4", "95 % interval": "p±4", "never rising": "falling.4"}
    columns |= {"shown": "shown,", "clicks": "clicks,"}
    print()
    table_of("examination", log, found.ranks(), columns, text_columns=0).print()
    print(f"\nUse it in simulate, serve and audit: --examination {found.text}")
    print(f"\n{picture}")
