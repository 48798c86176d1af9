"""Reads of the store for the dashboard that are no operations of the API, each bounded like one."""

from __future__ import annotations

import datetime
from contextlib import suppress
from itertools import islice, pairwise
from typing import NamedTuple

import msgspec

from ....errors import ConflictError, PolicyError
from ....policies.base import Policy, parse_policy
from ...background.worker import Reading
from ...core.explanations import explain_entry
from ...core.ids import IdSigner, Position
from ...core.ledger import Ledger
from ...core.records import decode_impression
from ...core.reports import find_number, find_query, query_state, to_datetime
from ...core.repository import LedgerRepository
from ...core.rules import Version
from ...stores import KIND_IMPRESSION, Store
from ...wire import Explanation, QueryState

SEARCHED_ENTRIES = 256
"""Log entries, from the newest, among which the last list of a query is searched."""


class QueryReading(NamedTuple):
    """The observations of a query, and the explanation of its last list, None if that was not found."""

    state: QueryState
    latest: Explanation | None


class RuleChange(NamedTuple):
    """A version of the rules: since when it is in force, its policy, how it differs from the one before, and fits."""

    number: int
    since: datetime.datetime
    policy: str
    changes: list[str]
    fits: int
    """How often the prior of the estimator was fitted under these rules."""


def find_query_id(store: Store, query: str | None = None, query_id: str | None = None) -> str:
    """Return the id of an existing query, given by its text or its id; raise NotFoundError if there is none."""
    return (store.key_of(find_number(store, query, query_id)) or b"").hex()


def read_query(reading: Reading, query_id: str) -> QueryReading:
    """Read the observations of a query and explain its last list; raise NotFoundError if there is no such query."""
    with reading.store.read_transaction():
        ledger, version = find_query(reading.store, query_id=query_id)
        return QueryReading(query_state(ledger, version, reading.now), explain_latest(reading.store, ledger))


def read_reasons(store: Store, query_id: str) -> dict[str, str]:
    """Return why the items of the last list of a query, and those left out of it, are where they are, by item."""
    with store.read_transaction():
        latest = explain_latest(store, find_query(store, query_id=query_id)[0])
    if latest is None:
        return {}
    listed = {item.id: item.sentence for item in latest.items if item.id is not None}
    return listed | {item.id: item.sentence for item in latest.omitted if item.id is not None}


def explain_latest(store: Store, ledger: Ledger) -> Explanation | None:
    """Explain the last list of a query; return None if it has expired, was followed by many events, or is not known.

    The policy of a list is not known if it is of a plugin that is not loaded now.
    """
    for entry in islice(store.log_descending(ledger.number, ledger.seq), SEARCHED_ENTRIES):
        if entry.kind == KIND_IMPRESSION and entry.seq > ledger.base:
            position = Position(ledger.number, entry.seq, decode_impression(entry.body).epoch)
            impression = IdSigner(store.secret).impression(ledger.key, position)
            with suppress(ConflictError):
                return explain_entry(LedgerRepository(store), ledger.number, entry, impression)
            break
    return None


def rule_changes(store: Store, limit: int) -> list[RuleChange]:
    """Return the newest versions of the rules, newest first; fits of a prior are counted, not listed."""
    found: list[RuleChange] = []
    fits = 0
    for version, before in pairwise([*reversed(LedgerRepository(store).versions.values()), None]):
        if version is None or len(found) == limit:
            break
        if before is not None and before.rules == version.rules:
            fits += 1
            continue
        changes = [] if before is None else differences(before, version)
        label = policy_label(version.rules.policy)
        found.append(RuleChange(version.number, to_datetime(version.since), label, changes, fits))
        fits = 0
    return found


def differences(before: Version, version: Version) -> list[str]:
    """Describe the rules that changed from one version to the next, of a policy its parameters."""
    old, new = msgspec.structs.asdict(before.rules), msgspec.structs.asdict(version.rules)
    texts = []
    for name in new:
        if name == "policy" and new[name] != old[name]:
            texts += policy_differences(old[name], new[name])
        elif new[name] != old[name]:
            texts.append(f"{name}: {old[name]} → {new[name]}")
    return texts


def policy_differences(before: str, after: str) -> list[str]:
    """Describe a change of the policy: its parameters if it is the same one, else both policies."""
    old, new = known_policy(before), known_policy(after)
    if old is None or new is None or type(old) is not type(new):
        return [f"policy: {policy_label(before)} → {policy_label(after)}"]
    names = dict.fromkeys([*old.changed_parameters, *new.changed_parameters])
    values = {name: (getattr(old, name), getattr(new, name)) for name in names}
    return [f"{name} of {new.name()}: {a} → {b}" for name, (a, b) in values.items() if a != b]


def policy_label(text: str) -> str:
    """Return the label of a stored policy; its text if it is of a plugin that is not loaded now.

    Examples
    --------
    >>> policy_label("TopK()"), policy_label("Mine(weight=2)")
    ('TopK', 'Mine(weight=2)')
    """
    policy = known_policy(text)
    return text if policy is None else policy.label


def known_policy(text: str) -> Policy | None:
    """Return a stored policy, None if it is not known here."""
    try:
        return parse_policy(text)
    except PolicyError:
        return None
