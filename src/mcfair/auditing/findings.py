"""The result of an audit in three sentences."""

from __future__ import annotations

import numpy as np

from ..report.formatting import format_interval, format_number
from .result import Audit

__all__ = ["findings"]


def findings(audit: Audit) -> list[str]:
    """Return the result in sentences that need no knowledge of the measures."""
    return [distance(audit), *groups(audit), dependence(audit)]


def distance(audit: Audit) -> str:
    """Compare unfairness with its floor."""
    low, high = audit.intervals.measures["distance"]
    if not np.isfinite(audit.unfairness):
        return "No item has merit (there are no clicks, for example), so unfairness cannot be judged."
    if audit.floor > 0 and audit.unfairness > audit.floor * (1 + 1e-9):
        times = f"{format_number(audit.unfairness / audit.floor, 3)} times"
    elif audit.unfairness <= audit.floor * (1 + 1e-9) + 1e-12:
        return f"Exposure is as fair as it can be: unfairness {format_number(audit.unfairness)} is the lowest possible."
    else:
        times = "above"
    return (
        f"Unfairness is {format_number(audit.unfairness)}, {times} the lowest value that any ranking could have had "
        f"with the same visits, {format_number(audit.floor)}; the distance is {format_interval(low, high)} with 95 % "
        "confidence."
    )


def groups(audit: Audit) -> list[str]:
    """Name the group with the least exposure for its merit, if it is beyond chance."""
    if not audit.counts.group_names:
        return [
            "The log has no groups, so items are compared but not their providers. In a table, "
            "`--column group=NAME` names the column of the providers."
        ]
    table = audit.groups().filter(audit.groups()["ratio"].is_not_nan())
    if table.height < 2:
        return [f"{'Only one' if table.height else 'No'} group has merit, so groups cannot be compared."]
    row = table.sort("ratio").row(0, named=True)
    shares = f"{format_number(100 * row['exposure_share'], 3)} % of the exposure for "
    shares += f"{format_number(100 * row['merit_share'], 3)} % of the merit"
    if row["ratio_high"] is not None and row["ratio_high"] < 1:
        return [f"The group “{row['group']}” gets the least attention for its merit: {shares}, which is beyond chance."]
    return [
        f"No group gets less attention than it deserves beyond chance; the lowest is “{row['group']}” with {shares}."
    ]


def dependence(audit: Audit) -> str:
    """State the assumptions, and whether the least served group depends on them."""
    table = audit.sensitivity
    text = f"All figures assume the exposure model {audit.model.name} and merit {audit.merit_label}"
    if "least_served" not in table.columns:
        return f"{text}; {table.height} exposure models are compared."
    if table["least_served"].n_unique() == 1:
        return f"{text}; under {table.height} exposure models the same group is served least."
    return f"{text}; which group is served least differs among {table.height} exposure models."
