"""Audit: the result of an audit as tables, as plain data and as a page."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ..estimators.base import parse_estimator
from .exposure_models import ExposureModel
from .log_counts import LogCounts, sums_at
from .log_measures import LogMeasures, Summary

if TYPE_CHECKING:
    from .what_if import Estimate

__all__ = ["Audit"]


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
    merit : str
        Where the merit of items comes from.
    figures : LogMeasures
        Sums of each query.
    values : Summary
        Measures, figures of groups and of ranks.
    intervals : Summary
        Their 95 % intervals, low and high along the first axis.
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
    figures: LogMeasures
    values: Summary
    intervals: Summary
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
        return f"estimated from the clicks by {parse_estimator(self.merit).label}"

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
        counts, values, ends = self.counts, self.values.groups, self.intervals.groups
        if not counts.group_names:
            return pl.DataFrame(schema={"group": pl.String})
        items = (
            pl.DataFrame({"group": counts.groups, "item": counts.item_ids})
            .group_by("group")
            .agg(items=pl.col("item").n_unique())
        )
        table: dict[str, Any] = {
            "group": list(counts.group_names),
            "items": items.sort("group")["items"],
            "exposure": values["exposure"],
            "merit": values["merit"],
            "clicks": values["clicks"].astype(np.int64),
        }
        for name in ("exposure_share", "merit_share", "size_share", "ratio", "selection_rate", "impact_ratio"):
            table |= {name: values[name], f"{name}_low": ends[name][0], f"{name}_high": ends[name][1]}
        compared = values["size_share"] >= self.figures.assumed.least_share
        table["compared"] = compared
        table["flagged"] = compared & (values["impact_ratio"] < 0.8)
        return pl.DataFrame(table)

    def measures(self) -> pl.DataFrame:
        """Return a table of the measures with their intervals.

        Returns
        -------
        polars.DataFrame
        """
        names = list(self.values.measures)
        ends = [self.intervals.measures[name] for name in names]
        return pl.DataFrame(
            {
                "measure": names,
                "value": [float(self.values.measures[name]) for name in names],
                "low": [float(each[0]) for each in ends],
                "high": [float(each[1]) for each in ends],
            }
        )

    def ranks(self) -> pl.DataFrame:
        """Return a table of the ranks: impressions, clicks, click rates, and the exposure that is assumed.

        Returns
        -------
        polars.DataFrame
        """
        counts = self.counts
        assumed = np.append(self.model.p, np.zeros(max(counts.ranks - self.model.p.size, 0)))[: counts.ranks]
        shown, clicks = (
            sums_at(counts.cell_rank - 1, x, counts.ranks).astype(np.int64) for x in (counts.shown, counts.clicks)
        )
        table = {"rank": np.arange(1, counts.ranks + 1), "shown": shown, "clicks": clicks, "assumed": assumed}
        for name, values in self.values.ranks.items():
            low, high = self.intervals.ranks[name]
            table |= {name: values, f"{name}_low": low, f"{name}_high": high}
        return pl.DataFrame(table)

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
        rate = np.divide(total, merit, out=np.zeros(total.size), where=merit > 0)
        fair = rate[query] * R
        table: dict[str, Any] = {"query": counts.query_ids.gather(query), "item": counts.item_ids}
        if counts.group_names:
            table["group"] = pl.Series(counts.group_names).gather(counts.groups)
        table |= {
            "exposure": figures.E,
            "fair_exposure": fair,
            "difference": figures.E - fair,
            "merit": R,
            "clicks": counts.C,
        }
        return pl.DataFrame(table).sort(["difference", "query", "item"])

    def quality(self) -> dict[str, Any]:
        """Return what was found of the quality of the log, by name.

        Returns
        -------
        dict
        """
        counts = self.counts
        duplicates = counts.excluded.get("rows logged twice", 0)
        return {"rows left out": sum(counts.excluded.values()), "duplicates": duplicates, **counts.quality}

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

            tables["policies"] = policy_table(self.policies, self.counts.group_names)
        return tables

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data, as `--json` prints them.

        Returns
        -------
        dict
        """
        counts = self.counts
        groups = []
        for row in self.groups().iter_rows(named=True):
            pairs = {
                name: [row.pop(f"{name}_low"), row.pop(f"{name}_high")] for name in list(row) if f"{name}_low" in row
            }
            groups.append(row | {f"{name}_interval": ends for name, ends in pairs.items()})
        found: dict[str, Any] = plain(
            {
                "log": self.name,
                "format": self.format,
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
                "policies": [each.to_dict(counts.group_names) for each in self.policies],
                "resampled": self.resampled,
                "quality": self.quality(),
                "excluded": counts.excluded,
            }
        )
        return found


def plain(value: Any) -> Any:
    """Return data in which numbers that do not exist are None."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
