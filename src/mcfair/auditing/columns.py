"""Columns of a log: which column holds the query, the item, the rank and the click, and what else may be there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from ..data.frames import listed
from ..errors import DataError, SettingError, unknown

__all__ = ["REQUIRED", "ROLES", "check_mapping", "find_columns"]

ROLES = {
    "query": ("query", "query_text", "user_query", "search_term", "keyword", "qid", "query_id"),
    "item": ("item", "item_id", "doc", "docid", "doc_id", "document_id", "product_id", "object_id", "sku"),
    "rank": ("rank", "position", "pos", "ordinal"),
    "clicked": ("clicked", "click", "is_click", "is_clicked", "clicks"),
    "impression": ("impression", "impression_id", "list_id", "request_id"),
    "session": ("session", "session_id"),
    "time": ("time", "timestamp", "datetime", "date"),
    "group": ("group", "group_id", "provider", "provider_id", "seller", "seller_id"),
    "relevance": ("relevance",),
    "grade": ("grade", "label", "rel"),
    "propensity": ("propensity", "propensity_score", "pscore"),
}
"""The names that the column of each role may have, the preferred one first; case is ignored."""

REQUIRED = ("query", "item", "rank", "clicked")


def check_mapping(columns: Mapping[str, str]) -> dict[str, str]:
    """Validate the roles of a mapping from roles to columns; return a copy."""
    for role in columns:
        if role not in ROLES:
            raise SettingError(unknown("role of a column", role, ROLES))
    return dict(columns)


def find_columns(
    available: Iterable[str], given: Mapping[str, str], name: str, required: Iterable[str] = REQUIRED
) -> dict[str, str]:
    """Find the column of each role, by the mapping that was given or by its name.

    Parameters
    ----------
    available
        Names of the columns of the log.
    given
        Columns by role, as the user named them.
    name
        What error messages call the log.
    required
        Roles that must be found.

    Returns
    -------
    dict
        Columns by role.

    Raises
    ------
    DataError
        If a column does not exist, a required one is missing, or several may be meant.

    Examples
    --------
    >>> find_columns(["q_text", "item_id", "position", "click"], {"query": "q_text"}, "log.csv")
    {'query': 'q_text', 'item': 'item_id', 'rank': 'position', 'clicked': 'click'}
    """
    names = list(available)
    found: dict[str, str] = {}
    for role, usual in ROLES.items():
        if role in given:
            if given[role] not in names:
                raise DataError(f"{name}: {unknown('column', given[role], names[:40])}")
            found[role] = given[role]
            continue
        taken = set(given.values())
        matches = [each for each in names if each.strip().lower() in usual and each not in taken]
        preferred = [each for each in matches if each.strip().lower() == usual[0]]
        if len(preferred or matches) > 1:
            raise DataError(
                f"{name}: columns {listed(preferred or matches)} may all be the {role}; choose one with "
                f"--column {role}=COLUMN"
            )
        if matches:
            found[role] = (preferred or matches)[0]
    for role in required:
        if role not in found:
            raise DataError(missing(role, names, name))
    return found


def missing(role: str, names: list[str], name: str) -> str:
    """Describe a missing column: how it may be named, what there is, and which one was probably meant."""
    by_lower = {each.strip().lower(): each for each in names}
    close = [match for usual in ROLES[role] for match in get_close_matches(usual, by_lower, n=1)]
    hint = f"did you mean {by_lower[close[0]]!r}? " if close else ""
    return (
        f"{name}: no column for the {role} (such as {', '.join(ROLES[role][:3])}); {hint}"
        f"name it with --column {role}=COLUMN; got {listed(names)}"
    )
