"""Reads of the engine for the dashboard that are no operations of the API."""

from __future__ import annotations

import datetime
from itertools import islice
from typing import NamedTuple

import msgspec

from ...core.engine import Engine
from ...core.ids import Position
from ...core.records import decode_impression
from ...core.reports import to_datetime
from ...core.rules import Version
from ...stores import KIND_IMPRESSION
from ...wire import Explanation, QueryState

__all__ = ["QueryReading", "RuleChange", "read_query", "rule_changes"]

SEARCHED_ENTRIES = 256
"""Log entries, from the newest, among which the last list of a query is searched."""


class QueryReading(NamedTuple):
    """The observations of a query, and the explanation of the last list; None if it has expired or was not found."""

    state: QueryState
    latest: Explanation | None


class RuleChange(NamedTuple):
    """A version of the rules: when it came into force, its policy, and how it differs from the one before."""

    number: int
    since: datetime.datetime
    policy: str
    changes: list[str]
    fits: int
    """How often the prior was fitted again under these rules."""


def read_query(engine: Engine, query: str | None = None, query_id: str | None = None) -> QueryReading:
    """Read the observations of a query, given by its text or its id, and explain its last list.

    Raises NotFoundError if there is no such query.
    """
    ledger = engine.find_ledger(query, query_id)
    state = engine.query_state(query_id=ledger.key.hex())
    for entry in islice(engine.store.log_descending(ledger.number, ledger.seq), SEARCHED_ENTRIES):
        if entry.kind == KIND_IMPRESSION and entry.seq > engine.store.base(ledger.number):
            position = Position(ledger.number, entry.seq, decode_impression(entry.body).epoch)
            return QueryReading(state, engine.explain(engine.ids.impression(ledger.key, position)))
    return QueryReading(state, None)


def rule_changes(engine: Engine, limit: int) -> list[RuleChange]:
    """Return the newest versions of the rules, newest first; fits of a prior are counted, not listed."""
    found: list[RuleChange] = []
    versions = list(engine.repository.versions.values())
    before: Version | None = None
    for version in versions:
        changes = differences(before, version)
        if before is None or changes:
            when = to_datetime(version.since)
            found.append(RuleChange(version.number, when, version.rules.policy, changes, 0))
        else:
            found[-1] = found[-1]._replace(fits=found[-1].fits + 1)
        before = version
    return found[-limit:][::-1]


def differences(before: Version | None, version: Version) -> list[str]:
    """Describe the rules that changed from one version to the next."""
    if before is None:
        return []
    old, new = msgspec.structs.asdict(before.rules), msgspec.structs.asdict(version.rules)
    return [f"{name}: {old[name]} → {new[name]}" for name in new if new[name] != old[name]]


# Where several instances share a store, these need no lock.
read_query.reading = rule_changes.reading = True  # type: ignore[attr-defined]
