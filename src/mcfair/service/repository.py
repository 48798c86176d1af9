"""Ledgers from stored logs: as they are, as they were before an entry, and the decisions taken on them."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Collection, Iterator

import msgspec

from ..errors import StoreError
from ..policies.ordering import top_k_scratch
from .blocks import Examinations
from .decision import Decision, decide
from .ledger import Ledger
from .records import (
    Candidates,
    Impression,
    RecordedImpression,
    decode_flips,
    decode_impression,
    decode_positions,
    decode_rows,
    decode_snapshot,
)
from .rules import Rules, Version
from .stores import KIND_FEEDBACK, KIND_IMPRESSION, LogEntry, Store, StoreCorruptError
from .wire import PolicyChange

__all__ = ["PAGE_SIZE", "UNREADABLE", "LedgerRepository"]

PAGE_SIZE = 256
"""Query numbers, or entries of a log, that are read from a store in one transaction.

Scans over a store hold no transaction between pages, so that a slow one does not keep the write-ahead log from being
checkpointed. What they report of a query is consistent in itself; different queries are read at different times.
"""

UNREADABLE = (
    msgspec.MsgspecError, zlib.error, ValueError, LookupError, TypeError, ArithmeticError, AttributeError,
    AssertionError, MemoryError,
)  # fmt: skip
"""Errors that decoding and applying damaged rows may end in."""

CACHED_POLICIES = 64
CACHED_SETS = 64
"""Maximum numbers of policies of single requests and of candidate sets that are kept decoded."""

decode_version = msgspec.msgpack.Decoder(Version).decode


class LedgerRepository:
    """Loads ledgers from snapshots and logs, and holds every version of the rules."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.versions: dict[int, Version] = {}
        self.longest_maturation = 0  # over all versions, in ms
        self.examinations = Examinations()
        self.scratch = top_k_scratch(0)
        self.named_policies: OrderedDict[tuple[int, str], Version] = OrderedDict()
        self.decoded_sets: OrderedDict[tuple[int, int], Candidates] = OrderedDict()
        self.read_versions()

    # --- versions ----------------------------------------------------------------------------------------------------

    def read_versions(self) -> None:
        """Read the versions that are not known yet."""
        for number, body in self.store.versions():
            if number not in self.versions:
                self.add_version(decode_version(body))

    def add_version(self, version: Version) -> None:
        """Add a version of the rules."""
        number = self.examinations.number(version.rules.examination)
        if number != version.examination:
            raise StoreError(
                f"version {version.number} of the rules refers to examination {version.examination}: expected {number}"
            )
        self.versions[version.number] = version
        self.longest_maturation = max(self.longest_maturation, version.maturation)

    @property
    def in_force(self) -> Version:
        """The latest version."""
        return self.versions[next(reversed(self.versions))]

    def new_version(self, rules: Rules, now: int) -> Version:
        """Build the next version."""
        before = self.in_force if self.versions else None
        decaying = before is not None and before.half_life and rules.half_life is not None
        return Version(
            number=1 + max(self.versions, default=0), since=now, rules=rules,
            examination=self.examinations.number(rules.examination),
            decaying_since=before.decaying_since if before is not None and decaying else now,
        )  # fmt: skip

    def with_policy(self, version: Version, text: str | None) -> Version:
        """Return a version of the rules with the policy of a single request; raise RequestError if it is not allowed.

        It is not stored: impressions name their policy themselves. The cache is keyed by the canonical text, because
        one policy has many spellings.
        """
        if text is None:
            return version
        found = self.named_policies.get((version.number, text))
        if found is None:
            rules = version.rules.changed(PolicyChange(policy=text))
            found = self.named_policies.get((version.number, rules.policy))
            if found is None:
                found = msgspec.structs.replace(version, rules=rules)
                self.named_policies[version.number, rules.policy] = found
                if len(self.named_policies) > CACHED_POLICIES:
                    self.named_policies.popitem(last=False)
        self.named_policies.move_to_end((version.number, found.rules.policy))
        return found

    # --- ledgers -----------------------------------------------------------------------------------------------------

    def empty(self, number: int, key: bytes) -> Ledger:
        """Return the ledger of a query without observations."""
        return Ledger(number, key, self.examinations, self.recorded)

    def ledger(self, number: int, before: LogEntry | None = None, *, from_base: bool = False) -> Ledger:
        """Load the ledger of a query, as it is, as it was before a log entry, or as it is in the base snapshot."""
        try:
            with self.store.read_transaction():
                return self.rebuild(number, before, from_base)
        except UNREADABLE as error:
            raise StoreCorruptError(f"query {number} cannot be read: {type(error).__name__}: {error}") from error

    def rebuild(self, number: int, before: LogEntry | None, from_base: bool) -> Ledger:
        """Rebuild a ledger from a snapshot and the log entries after it."""
        stored = self.store.load(number, self.store.base(number) if from_base else before.seq - 1 if before else None)
        if stored is None:
            raise StoreCorruptError(f"query {number} does not exist")
        ledger = self.empty(number, stored.key)
        ledger.base, ledger.revision = stored.base, stored.revision
        ledger.load_items(stored.items)
        if stored.snapshot is not None:
            ledger.restore(decode_snapshot(stored.snapshot))
        elif ledger.base > 0:
            raise StoreCorruptError(f"query {number} has no snapshot at its base, entry {ledger.base}")
        if not from_base:
            for entry in stored.entries:
                self.apply(ledger, entry)
        return ledger

    def apply(self, ledger: Ledger, entry: LogEntry) -> None:
        """Apply a log entry to a ledger."""
        if entry.seq != ledger.seq + 1:
            raise StoreCorruptError(
                f"the log of query {ledger.number} has a gap between entries {ledger.seq} and {entry.seq}"
            )
        version = self.versions[entry.version]
        if entry.kind == KIND_IMPRESSION:
            impression, candidates, version = self.impression(ledger, entry)
            ledger.admit(candidates, impression.reused, impression.newcomer_exposure, version, entry.time)
            rows = candidates.rows[decode_positions(impression.shown)]
            ledger.record_impression(entry.seq, entry.time, candidates, rows, impression.initial_bits(), version)
        elif entry.kind == KIND_FEEDBACK:
            ledger.record_feedback(entry.seq, entry.time, decode_flips(entry.body), version)
        else:
            ledger.record_deletion(entry.seq, entry.time, decode_rows(entry.body), version)

    def impression(self, ledger: Ledger, entry: LogEntry) -> tuple[Impression, Candidates, Version]:
        """Decode an impression, its candidates and its version of the rules."""
        assert entry.candidates is not None
        found = ledger.candidates.get(entry.candidates) or self.candidates(ledger.number, entry.candidates)
        impression = decode_impression(entry.body)
        return impression, found, self.with_policy(self.versions[entry.version], impression.policy)

    def candidates(self, number: int, candidates: int) -> Candidates:
        """Return a candidate set of a query."""
        found = self.decoded_sets.get((number, candidates))
        if found is None:
            n, body = self.store.candidates(number, candidates)
            found = self.decoded_sets[number, candidates] = Candidates.unpacked(body, n)
            if len(self.decoded_sets) > CACHED_SETS:
                self.decoded_sets.popitem(last=False)
        return found

    def evict_candidates(self, numbers: Collection[int]) -> None:
        """Evict the decoded candidate sets of some queries."""
        for each in [each for each in self.decoded_sets if each[0] in numbers]:
            del self.decoded_sets[each]

    def recorded(self, number: int, after: int | None, until: int) -> Iterator[RecordedImpression]:
        """Read the impressions of a query; see `mcfair.service.ledger.Recorded`."""
        entries = self.store.log_descending(number, until) if after is None else self.store.log(number, after, until)
        for entry in entries:
            if entry.kind == KIND_IMPRESSION and entry.candidates is not None:
                impression, version = decode_impression(entry.body), self.versions[entry.version]
                rows = self.candidates(number, entry.candidates).rows[decode_positions(impression.shown)]
                bits = bytes(impression.bits(entry.bits, until))
                yield RecordedImpression(
                    entry.seq, entry.time, version.examination, version.bucket(entry.time), rows, bits
                )

    # --- decisions ---------------------------------------------------------------------------------------------------

    def repeat_decision(self, ledger: Ledger, entry: LogEntry) -> tuple[Decision, Candidates, Version]:
        """Repeat the decision of an impression on the ledger as it was before it."""
        impression, candidates, version = self.impression(ledger, entry)
        ledger.admit(candidates, impression.reused, impression.newcomer_exposure, version, entry.time)
        return self.decide(ledger, candidates, version, entry.time, impression.ranks), candidates, version

    def decide(self, ledger: Ledger, candidates: Candidates, version: Version, now: int, k: int) -> Decision:
        """Rank k of the candidates with the policy of a version. Call `Ledger.admit` first."""
        n = candidates.rows.size
        if self.scratch.items.size <= n:
            self.scratch = top_k_scratch(2 * n)
        view, rng = ledger.view(candidates, version, now, k), ledger.draws(version.rules.seed)
        p = ledger.examinations.p(version.examination, k)
        return decide(version.policy, view, rng, version.theta, self.scratch, p)

    def all_ledgers(self) -> Iterator[Ledger]:
        """Load the ledger of every query, one at a time, except queries that are deleted meanwhile."""
        for number in self.numbers():
            with self.store.read_transaction():
                ledger = None if self.store.key_of(number) is None else self.ledger(number)
            if ledger is not None:
                yield ledger

    def numbers(self) -> Iterator[int]:
        """Iterate over the numbers of all queries."""
        last = 0
        while numbers := self.store.numbers(last, PAGE_SIZE):
            yield from numbers
            last = numbers[-1]
