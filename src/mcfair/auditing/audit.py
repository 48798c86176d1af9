"""The function that audits a log: how fair its rankings are, to whom, and how far from what was possible."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
import numpy as np
import polars as pl

from ..arrays import BoolArray, FloatArray
from ..errors import SettingError, unknown
from ..estimators.base import Estimator
from ..options import explicit_options
from ..policies.base import Policy
from . import Reading, ReadingOptions
from .assumptions import (
    ALTERNATIVES,
    ExposureModel,
    chosen_model,
    exposure_model,
    load_log,
    merit_of,
    merit_source,
)
from .counts import LogCounts, sums_at
from .intervals import behind, bootstrap, intervals
from .measures import LEAST_SHARE, Assumptions, LogMeasures, Summary, unfairness_over_time

if TYPE_CHECKING:
    from .what_if import Estimate


@explicit_options(Reading, ReadingOptions)
def audit(
    log: Any,
    *,
    items: Any = None,
    merit: str | Estimator | None = None,
    examination: str | float | Sequence[float] | FloatArray = "log2",
    top: int = 3,
    k: int | None = None,
    target: Mapping[str, float] | None = None,
    policies: Sequence[Policy | str] = (),
    resamples: int = 200,
    seed: int = 0,
    **reading: Unpack[ReadingOptions],
) -> Audit:
    """Audit the rankings of a log: exposure against merit, by item and by group, and the distance to the floor.

    Parameters
    ----------
    log
        A file, a folder, the URL of a store, or a pandas, Polars or Arrow table; see `format`.
    items
        A file or table with the group of items, or with the candidates of each query and their relevance or grade.
    merit
        Merit of items: "given" (relevance or grade of the log), "uniform", or an estimator such as "IPS", which reads
        the clicks. By default what the log states, else the clicks. A pooled estimator is fitted to the log.
    examination
        Exposure of each rank: log2, rbp(0.8), 1/rank, equal, fitted, a severity, or probabilities.
    top
        An item is selected if it is shown among so many ranks; impact ratios compare the rates of groups.
    k
        The last rank that counts in NDCG; by default all count.
    target
        Share of attention that each group should have, for AWRF.
    policies
        Policies to estimate: what they would have shown with the same candidates.
    resamples
        Resamples for the 95 % intervals; 0 for figures without intervals.
    seed
        Seed of the resamples.
    **reading
        How the log is read. `format` is flat, lists, ubi, metarank, open-bandit, store or simulation; by default it is
        guessed from the content. `columns` has columns by role, such as {"query": "q_text"}, where they do not have
        their usual names. `separator` is what separates the columns of a CSV file, by default guessed. `first_rank` is
        the number of the first rank, 0 or 1; by default it is 1, and a log with a rank of 0 is refused.
        `missing_click` is "exclude" (the default) if a row without a click is left out, "0" if it was not clicked.
        `cluster` is the address of a Dask scheduler whose workers read and count the log, for a table in files that all
        of them can read.

    Returns
    -------
    Audit

    Raises
    ------
    DataError
        If the log cannot be read or used.
    SettingError, PartError
        If an option is not allowed.

    Examples
    --------
    >>> found = audit(
    ...     pl.DataFrame({"query": ["q"] * 2, "item": ["a", "b"], "rank": [1, 2], "clicked": [1, 0]}), merit="uniform"
    ... )
    >>> found.figures.E.round(3).tolist()
    [1.0, 0.631]
    """
    for name, value, least in (
        ("top", top, 1),
        ("k", 1 if k is None else k, 1),
        ("resamples", resamples, 0),
        ("seed", seed, 0),
    ):
        if value < least:
            raise SettingError(f"{name} = {value} is not allowed: expected a whole number of at least {least}")
    opened, counts = load_log(log, items, **reading)
    source = merit_source(opened, counts, merit)
    model = chosen_model(counts, examination, seed)
    aims = checked_target(target, counts.group_names)

    def measured(other: LogCounts, p: FloatArray) -> LogMeasures:
        return LogMeasures.of(other, Assumptions(p=p, R=merit_of(other, p, source), top=top, target=aims, k=k))

    figures = measured(counts, model.p)
    drawn, resampled = None, "nothing"
    if resamples:
        drawn, resampled = bootstrap(figures, lambda other: measured(other, model.p), resamples, seed)
    values = figures.summary()
    others = [exposure_model(each, counts.ranks) for each in ALTERNATIVES if each != model.name]
    compared = [(model, values), *((each, measured(counts, each.p).summary()) for each in others)]
    estimates = []
    if policies:
        from .what_if import estimate_policies

        estimates = estimate_policies(figures, policies, seed)
    return Audit(
        name=opened.name,
        format=opened.format,
        notes=opened.notes,
        files=opened.files,
        counts=counts,
        model=model,
        merit=source if isinstance(source, str) else repr(source),
        estimator="" if isinstance(source, str) else source.label,
        figures=figures,
        values=values,
        intervals=intervals(drawn, values),
        behind=behind(drawn, values),
        resampled=resampled,
        resamples=resamples,
        sensitivity=sensitivity_table(compared, counts.group_names),
        over_time=unfairness_over_time(figures),
        policies=estimates,
    )


def checked_target(target: Mapping[str, float] | None, groups: tuple[str, ...]) -> FloatArray | None:
    """Validate shares by group; scale them to sum to 1."""
    if not target:
        return None
    for name, share in target.items():
        if name not in groups:
            raise SettingError(unknown("group", name, groups[:40]))
        if not 0 <= share < np.inf:
            raise SettingError(f"target of {name!r} = {share} is not allowed: expected a share of at least 0")
    shares = np.array([float(target.get(name, 0.0)) for name in groups])
    if not shares.sum() > 0:
        raise SettingError("target is not allowed: expected a share above 0 for at least one group")
    return np.asarray(shares / shares.sum())


def sensitivity_table(compared: Sequence[tuple[ExposureModel, Summary]], groups: tuple[str, ...]) -> pl.DataFrame:
    """Return the main figures under each exposure model, the chosen one first."""
    rows = []
    several = bool(groups) and all(np.isfinite(found.groups["ratio"]).sum() > 1 for _, found in compared)
    for model, found in compared:
        row: dict[str, Any] = {"exposure_model": model.name, "formula": model.formula}
        for name in ("unfairness", "floor", "distance", "relative_unfairness", "disparate_treatment", "ndcg"):
            if name in found.measures:
                row[name] = float(found.measures[name])
        if several:  # one group alone, or none, is not served least
            least = int(np.nanargmin(found.groups["ratio"]))
            row |= {"least_served": groups[least], "its_ratio": float(found.groups["ratio"][least])}
        rows.append(row)
    return pl.DataFrame(rows)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Audit:
    """The result of an audit.

    Attributes
    ----------
    name, format, notes, files
        The log, the format that it was read as, and how it was understood.
    counts : LogCounts
        All that was counted.
    model : ExposureModel
        The exposure that each rank is assumed to have.
    merit, estimator : str
        Where the merit of items comes from, and the short name of the estimator, "" for another source.
    figures : LogMeasures
        Sums of each query.
    values : Summary
        Measures, figures of groups and of ranks.
    intervals : Summary
        Their 95 % intervals, low and high along the first axis.
    behind : (groups,) bool array
        Groups that get less exposure than their merit is worth, beyond chance; corrected for the number of groups.
    resampled, resamples
        What was resampled for them, queries or sessions, and how often.
    sensitivity : polars.DataFrame
        The main figures under other exposure models.
    over_time : polars.DataFrame or None
        Unfairness and floor at the end of each period, since the beginning, and in the period alone; see `time_unit`.
    policies : list of Estimate
        What other policies would have done with the same candidates, by estimate.

    Examples
    --------
    >>> import mcfair as mf
    >>> log = pl.DataFrame(
    ...     {
    ...         "impression": [1, 1, 2, 2],
    ...         "query": ["shoes"] * 4,
    ...         "item": ["a", "b", "a", "b"],
    ...         "rank": [1, 2, 1, 2],
    ...         "clicked": [1, 0, 0, 1],
    ...         "group": ["large", "small"] * 2,
    ...     }
    ... )
    >>> found = mf.audit(log, merit="uniform")
    >>> found
    Audit(4 rows, 2 impressions, 1 query: unfairness 0.5449, floor 0)
    >>> found.groups().select("group", "exposure_share", "merit_share").rows()
    [('large', 0.6131471927654584, 0.5), ('small', 0.38685280723454163, 0.5)]
    """

    name: str
    format: str
    notes: tuple[str, ...]
    files: tuple[Path, ...]
    counts: LogCounts
    model: ExposureModel
    merit: str
    estimator: str
    figures: LogMeasures
    values: Summary
    intervals: Summary
    behind: BoolArray
    resampled: str
    resamples: int
    sensitivity: pl.DataFrame
    over_time: pl.DataFrame | None
    policies: list[Estimate]

    @property
    def unfairness(self) -> float:
        """Mean unfairness (Eq. 8) over the queries in which any item has merit."""
        return float(self.values.measures["unfairness"])

    @property
    def floor(self) -> float:
        """The lowest unfairness that lists with the same visits and places could have reached."""
        return float(self.values.measures["floor"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes all figures doubtful, such as rows that were left out."""
        return self.counts.warnings

    @property
    def time_unit(self) -> str:
        """The unit of `over_time`: hour, day, week, month or year; "" for a log without times."""
        return self.counts.timed.periods.unit if self.counts.timed is not None else ""

    @property
    def merit_label(self) -> str:
        """The source of merit in words."""
        if self.merit == "given":
            return "stated by the log or by the table of items"
        if self.merit == "uniform":
            return "the same for all items"
        return f"estimated from the clicks by {self.estimator}"

    def __repr__(self) -> str:
        counts = self.counts
        return (
            f"Audit({counts.rows:,} rows, {int(counts.visits.sum()):,} impressions, "
            f"{counts.queries:,} {'query' if counts.queries == 1 else 'queries'}: unfairness {self.unfairness:.4g}, "
            f"floor {self.floor:.4g})"
        )

    def groups(self) -> pl.DataFrame:
        """Return a table of the groups, with the ends of the intervals of their shares; without groups it is empty.

        Returns
        -------
        polars.DataFrame
        """
        counts, values = self.counts, self.values.groups
        if not counts.group_names:
            return pl.DataFrame(schema={"group": pl.String})
        items = (
            pl.DataFrame({"group": counts.groups, "item": counts.item_ids})
            .group_by("group").agg(pl.col("item").n_unique()).sort("group")
        )  # fmt: skip
        table: dict[str, Any] = {
            "group": list(counts.group_names),
            "items": items["item"],
            "exposure": values["exposure"],
            "merit": values["merit"],
            "clicks": values["clicks"].astype(np.int64),
        }
        names = ("exposure_share", "merit_share", "size_share", "ratio", "selection_rate", "impact_ratio")
        table |= with_ends({name: values[name] for name in names}, self.intervals.groups)
        compared = values["size_share"] >= LEAST_SHARE
        flagged = compared & (values["impact_ratio"] < 0.8)
        return pl.DataFrame(table | {"compared": compared, "flagged": flagged, "beyond_chance": self.behind})

    def measures(self) -> pl.DataFrame:
        """Return a table of the measures with their intervals.

        Returns
        -------
        polars.DataFrame
        """
        rows = [(name, float(value), *self.intervals.measures[name]) for name, value in self.values.measures.items()]
        schema = {"measure": pl.String} | dict.fromkeys(("value", "low", "high"), pl.Float64)
        return pl.DataFrame(rows, schema=schema, orient="row")

    def ranks(self) -> pl.DataFrame:
        """Return a table of the ranks: impressions, clicks, click rates, and the exposure that is assumed.

        Returns
        -------
        polars.DataFrame
        """
        counts, p = self.counts, self.model.p
        shown, clicks = (
            sums_at(counts.cell_rank - 1, x, counts.ranks).astype(np.int64) for x in (counts.shown, counts.clicks)
        )
        assumed = np.append(p, np.zeros(counts.ranks))[: counts.ranks]
        table = {"rank": np.arange(1, counts.ranks + 1), "shown": shown, "clicks": clicks, "assumed": assumed}
        return pl.DataFrame(table | with_ends(self.values.ranks, self.intervals.ranks))

    def queries(self) -> pl.DataFrame:
        """Return a table of the queries, the greatest distance from the floor first.

        Returns
        -------
        polars.DataFrame
        """
        counts, figures = self.counts, self.figures
        query = counts.item_query[counts.cell_item]
        return pl.DataFrame(
            {
                "query": counts.query_ids,
                "impressions": counts.visits,
                "items": counts.sizes,
                "clicks": sums_at(query, counts.clicks, counts.queries).astype(np.int64),
                "unfairness": figures.unfairness,
                "floor": figures.floor,
                "distance": figures.unfairness - figures.floor,
                "judged": figures.judged > 0,
            }
        ).sort(["distance", "query"], descending=[True, False])

    def items(self) -> pl.DataFrame:
        """Return a table of the items of all queries, the greatest lack of exposure first.

        The fair share is the query's exposure in proportion to merit.

        Returns
        -------
        polars.DataFrame
        """
        counts, figures = self.counts, self.figures
        query, R = counts.item_query, figures.assumed.R
        total, merit = (sums_at(query, x, counts.queries) for x in (figures.E, R))
        fair = np.divide(total, merit, out=np.zeros(total.size), where=merit > 0)[query] * R
        table: dict[str, Any] = {"query": counts.query_ids.gather(query), "item": counts.item_ids}
        if counts.group_names:
            table["group"] = pl.Series(counts.group_names).gather(counts.groups)
        table |= {"exposure": figures.E, "fair_exposure": fair, "difference": figures.E - fair, "merit": R}
        return pl.DataFrame(table | {"clicks": counts.C}).sort(["difference", "query", "item"])

    def quality(self) -> dict[str, Any]:
        """Return what was found of the quality of the log, by name.

        Returns
        -------
        dict
        """
        excluded = self.counts.excluded
        left_out = {"rows left out": sum(excluded.values()), "duplicates": excluded.get("rows logged twice", 0)}
        return left_out | self.counts.quality

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return every table by name.

        Returns
        -------
        dict
        """
        quality = {name: str(value) for name, value in (self.quality() | self.counts.excluded).items()}
        tables = {
            "groups": self.groups(),
            "measures": self.measures(),
            "ranks": self.ranks(),
            "queries": self.queries(),
            "items": self.items(),
            "sensitivity": self.sensitivity,
            "quality": pl.DataFrame({"found": list(quality), "number": list(quality.values())}),
        }
        if self.over_time is not None:
            tables["over_time"] = self.over_time
        if self.policies:
            from .what_if import policy_table

            tables["policies"] = policy_table(self.policies)
        return tables

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data, as `--json` prints them.

        Returns
        -------
        dict
        """
        counts, groups = self.counts, list[dict[str, Any]]()
        for row in self.groups().iter_rows(named=True):
            pairs = {
                name: [row.pop(f"{name}_low"), row.pop(f"{name}_high")] for name in list(row) if f"{name}_low" in row
            }
            groups.append(row | {f"{name}_interval": ends for name, ends in pairs.items()})
        found = {
            "log": self.name,
            "format": self.format,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "period": counts.period,
            "rows": counts.rows,
            "impressions": int(counts.visits.sum()),
            "queries": counts.queries,
            "items": counts.items,
            "clicks": int(counts.clicks.sum()),
            "exposure_model": self.model.name,
            "examination": self.model.p.tolist(),
            "merit": self.merit,
            "k": self.figures.assumed.k,
            "unfairness": self.unfairness,
            "floor": self.floor,
            "groups": groups,
            "measures": {
                row["measure"]: {"value": row["value"], "interval": [row["low"], row["high"]]}
                for row in self.measures().iter_rows(named=True)
            },
            "ranks": self.ranks().to_dicts(),
            "sensitivity": self.sensitivity.to_dicts(),
            "over_time": {
                "unit": self.time_unit or None,
                "periods": [] if self.over_time is None else self.over_time.to_dicts(),
            },
            "worst_queries": self.queries().head(20).to_dicts(),
            "policies": [each.to_dict() for each in self.policies],
            "resampled": self.resampled,
            "quality": self.quality(),
            "excluded": counts.excluded,
        }
        text = msgspec.json.encode(found, enc_hook=methodcaller("item"))  # nan is null there
        return dict(msgspec.json.decode(text))


def with_ends(values: dict[str, FloatArray], ends: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Return columns of figures, each followed by the ends of its intervals."""
    found: dict[str, FloatArray] = {}
    for name, value in values.items():
        found |= {name: value, f"{name}_low": ends[name][0], f"{name}_high": ends[name][1]}
    return found
