"""Ledgers from stored logs: as they are, as they were before an entry, and the decisions taken on them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from ...errors import ConflictError, PolicyError, RequestError
from ...policies.selection import top_k_scratch
from ..stores import KIND_FEEDBACK, KIND_IMPORT, KIND_IMPRESSION, LogEntry, Store, StoreCorruptError, StoredDeletion
from ..wire import PolicyChange
from .blocks import Examinations
from .caching import BoundedCache
from .decision import Decision, decide
from .items import text_size
from .ledger import Ledger
from .records import (
    Candidates,
    Impression,
    RecordedImpression,
    decode_flips,
    decode_import,
    decode_impression,
    decode_positions,
    decode_rows,
    decode_snapshot,
    decoder,
)
from .rules import Kernels, NotCompiledError, Rules, Version

PAGE_SIZE = 256
"""Query numbers, or entries of a log, that are read from a store in one transaction.

Scans over a store hold no transaction between pages, so that a slow one does not keep the write-ahead log from being
checkpointed. What they report of a query is consistent in itself; different queries are read at different times.
"""

UNREADABLE = (
    msgspec.MsgspecError,
    zlib.error,
    ValueError,
    LookupError,
    TypeError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    MemoryError,
)
"""Errors that decoding and applying damaged rows may end in."""

CACHED_POLICIES, POLICY_BYTES = 256, 3_000
"""Maximum number of texts of policies of single requests that are kept with what they mean, and the size of that."""

CACHED_SETS = 64
"""Maximum number of candidate sets that are kept decoded."""

decode_version: Callable[[bytes], Version] = decoder(Version, "a version of the rules")


class LedgerRepository:
    """Loads ledgers from snapshots and logs, and holds every version of the rules.

    Parameters
    ----------
    store
        The store.
    compiled
        What is compiled, see `check_compiled`; None if a decision may wait until its policy has been compiled.
    """

    def __init__(self, store: Store, compiled: set[Kernels] | None = None) -> None:
        self.store, self.compiled = store, compiled
        self.versions: dict[int, Version] = {}
        self.longest: dict[int, int] = {}  # the longest maturation from each version on; empty if to be computed
        self.examinations = Examinations()
        self.scratch = top_k_scratch(0)
        self.named_policies: BoundedCache[tuple[int, str], Version] = BoundedCache(CACHED_POLICIES, 2 << 20)
        self.decoded_sets: BoundedCache[tuple[int, int], Candidates] = BoundedCache(CACHED_SETS, 4 << 20)
        self.read_versions()

    @property
    def nbytes(self) -> int:
        """Size of what is cached."""
        return self.named_policies.nbytes + self.decoded_sets.nbytes + self.examinations.tables.nbytes

    # --- versions ----------------------------------------------------------------------------------------------------

    def read_versions(self) -> None:
        """Read the versions that are not known yet, and drop those that are not stored any more."""
        stored = dict(self.store.versions())
        for number, body in stored.items():
            if number not in self.versions:
                self.add_version(decode_version(body))
        self.drop_versions(self.versions.keys() - stored.keys())

    def drop_versions(self, numbers: Collection[int]) -> None:
        """Drop versions that nothing refers to."""
        for number in numbers:
            del self.versions[number]
        self.longest = {}

    def add_version(self, version: Version) -> None:
        """Add a version of the rules."""
        number = self.examinations.number(version.rules.examination)
        if number != version.examination:
            raise StoreCorruptError(
                f"version {version.number} of the rules refers to examination {version.examination}: expected {number}"
            )
        self.versions[version.number] = version
        self.longest = {}

    def longest_maturation(self, first: Version) -> int:
        """Return the longest maturation of a version and all later ones, in ms.

        Decisions on a query depend on no other maturation if its first live entry has the version `first`: versions
        ascend along a log.
        """
        if not self.longest:
            longest = 0
            for number, version in reversed(self.versions.items()):
                longest = self.longest[number] = max(longest, version.maturation)
        return self.longest[first.number]

    def unreferenced_versions(self, oldest: int) -> list[int]:
        """Return the versions before the oldest one that log entries refer to.

        The first version of each examination is not among them: counts refer to examinations by the number that those
        versions define.
        """
        defined: set[int] = set()
        found = []
        for number, version in self.versions.items():
            if number < oldest and version.examination in defined:
                found.append(number)
            defined.add(version.examination)
        return found

    @property
    def in_force(self) -> Version:
        """The latest version."""
        return self.versions[next(reversed(self.versions))]

    def new_version(self, rules: Rules, now: int, fitted: str | None = None, visits: int = 0) -> Version:
        """Build the next version, with a newly fitted prior or with that of the version in force."""
        before = self.in_force if self.versions else None
        if fitted is None and before is not None:
            fitted, visits = before.fitted, before.fitted_visits
        decaying = before is not None and before.half_life and rules.half_life is not None
        number = 1 + max(self.versions, default=0)
        experiment = 0 if before is None else before.experiment
        if rules.experiment is not None and (before is None or not rules.continues(before.rules)):
            experiment = number
        return Version(
            number=number,
            since=now,
            rules=rules,
            examination=self.examinations.number(rules.examination),
            decaying_since=before.decaying_since if before is not None and decaying else now,
            fitted=fitted,
            fitted_visits=visits,
            experiment=experiment,
        )

    def with_policy(self, version: Version, text: str | None) -> Version:
        """Return a version of the rules with the policy of a single request; raise RequestError if it is not allowed.

        It is not stored: impressions name their policy themselves. Every spelling of a policy is cached, because
        parsing one costs as much as ranking, and all of them share one version.
        """
        if text is None:
            return version
        found = self.named_policies.get((version.number, text))
        if found is None:
            rules = version.rules.changed(PolicyChange(policy=text))
            found = self.named_policies.get((version.number, rules.policy))
            if found is None:
                found = msgspec.structs.replace(version, rules=rules)
            for each in {text, rules.policy}:
                self.named_policies.add((version.number, each), found, POLICY_BYTES + text_size(each))
        return found

    def check_compiled(self, version: Version) -> None:
        """Raise NotCompiledError if deciding by a version would compile something first."""
        if self.compiled is not None and version.policy.kernel is not None and version.kernels not in self.compiled:
            raise NotCompiledError(version, self.compiled)

    # --- ledgers -----------------------------------------------------------------------------------------------------

    def empty(self, number: int, key: bytes) -> Ledger:
        """Return the ledger of a query without observations."""
        return Ledger(number, key, self.examinations, self.recorded)

    def ledger(self, number: int, before: LogEntry | None = None, *, from_base: bool = False) -> Ledger:
        """Load the ledger of a query, as it is, as it was before a log entry, or as it is in the base snapshot."""
        try:
            with self.store.read_transaction():
                return self.rebuild(number, before, from_base)
        except StoreCorruptError as error:
            raise StoreCorruptError(f"query {number} cannot be read: {error}") from error
        except UNREADABLE as error:
            raise StoreCorruptError(f"query {number} cannot be read: {type(error).__name__}: {error}") from error

    def rebuild(self, number: int, before: LogEntry | None, from_base: bool) -> Ledger:
        """Rebuild a ledger from a snapshot and the log entries after it."""
        stored = self.store.load(number, self.store.base(number) if from_base else before.seq - 1 if before else None)
        if stored is None:
            raise StoreCorruptError("it does not exist")
        ledger = self.empty(number, stored.key)
        ledger.base, ledger.revision = stored.base, stored.revision
        ledger.load_items(stored.items)
        if stored.snapshot is not None:
            ledger.restore(decode_snapshot(stored.snapshot))
        elif ledger.base > 0:
            raise StoreCorruptError(f"there is no snapshot at its base, entry {ledger.base}")
        if not from_base:
            self.apply_all(ledger, stored.entries)
        if before is None and not from_base:
            ledger.check_items()
        return ledger

    def apply_all(self, ledger: Ledger, entries: Iterable[LogEntry]) -> None:
        """Apply log entries to a ledger; its sums are computed after the last one."""
        ledger.replaying = True
        for entry in entries:
            self.apply(ledger, entry)
        ledger.replaying = False

    def apply(self, ledger: Ledger, entry: LogEntry) -> None:
        """Apply a log entry to a ledger."""
        if entry.seq != ledger.seq + 1:
            raise StoreCorruptError(f"the log has a gap between entries {ledger.seq} and {entry.seq}")
        version = self.version(entry)
        if entry.kind == KIND_IMPRESSION:
            impression, candidates = self.impression(ledger, entry)
            ledger.admit(candidates, impression.reused, impression.newcomer_exposure, version, entry.time)
            rows = candidates.rows_at(decode_positions(impression.shown))
            ledger.record_impression(entry.seq, entry.time, candidates, rows, impression.initial_bits(), version)
        elif entry.kind == KIND_FEEDBACK:
            ledger.record_feedback(entry.seq, entry.time, decode_flips(entry.body), version)
        elif entry.kind == KIND_IMPORT:
            counted = decode_import(entry.body)
            candidates = counted.candidates()
            self.check_rows(ledger, candidates)
            ledger.admit(candidates, counted.reused, 0.0, version, entry.time)
            ledger.record_import(entry.seq, entry.time, counted, version)
        else:
            ledger.record_deletion(entry.seq, entry.time, decode_rows(entry.body), version)

    def version(self, entry: LogEntry) -> Version:
        """Return the version of the rules of a log entry."""
        if entry.version not in self.versions:
            self.read_versions()  # perhaps it is newer than this reader
        if entry.version not in self.versions:
            raise StoreCorruptError(f"version {entry.version} of the rules is missing")
        return self.versions[entry.version]

    def impression(self, ledger: Ledger, entry: LogEntry) -> tuple[Impression, Candidates]:
        """Decode an impression and its candidates."""
        return decode_impression(entry.body), self.candidates(ledger, entry)

    def candidates(self, ledger: Ledger, entry: LogEntry) -> Candidates:
        """Return the candidates of an impression."""
        if entry.candidates is None:
            raise StoreCorruptError(f"entry {entry.seq} of the log of query {ledger.number} has no candidate set")
        found = ledger.candidates.get(entry.candidates)
        key = (ledger.number, entry.candidates)
        if found is None and (found := self.decoded_sets.get(key)) is None:
            n, body = self.store.candidates(*key)
            found = Candidates.unpacked(body, n)
            self.check_rows(ledger, found)
            self.decoded_sets.add(key, found, found.nbytes)
        return found

    def check_rows(self, ledger: Ledger, candidates: Candidates) -> None:
        """Raise StoreCorruptError if candidates have rows that the query does not have, before any are allocated."""
        if candidates.rows_needed > len(ledger.ids):  # perhaps items were added since the ledger was loaded
            rows = max((row + 1 for row, _, _ in self.store.items(ledger.number)), default=0)
            if candidates.rows_needed > rows:
                raise StoreCorruptError(f"a candidate has row {candidates.rows_needed - 1}, but there are {rows} rows")

    def evict_candidates(self, numbers: Collection[int]) -> None:
        """Evict the decoded candidate sets of some queries."""
        self.decoded_sets.remove(lambda each: each[0] in numbers)

    def recorded(self, ledger: Ledger, after: int | None) -> Iterator[RecordedImpression]:
        """Read the impressions of a query; see `mcfair.service.core.ledger.Recorded`."""
        log, number, until = self.store, ledger.number, ledger.seq
        for entry in log.log_descending(number, until) if after is None else log.log(number, after, until):
            if entry.kind == KIND_IMPRESSION:
                version = self.version(entry)
                impression, candidates = self.impression(ledger, entry)
                rows = candidates.rows_at(decode_positions(impression.shown))
                bits = bytes(impression.bits(entry.bits, until))
                yield RecordedImpression(
                    entry.seq, entry.time, version.examination, version.bucket(entry.time), rows, bits
                )

    # --- decisions ---------------------------------------------------------------------------------------------------

    def repeat_decision(self, ledger: Ledger, entry: LogEntry) -> tuple[Decision, Candidates, Version]:
        """Repeat the decision of an impression on the ledger as it was before it.

        Raises ConflictError if its policy is not known here, which is no damage: counting does not depend on it.
        """
        impression, candidates = self.impression(ledger, entry)
        version = self.version(entry)
        text = version.rules.policy if impression.policy is None else impression.policy
        try:
            version = self.with_policy(version, impression.policy)
            version.theta  # noqa: B018 (parses the policy)
        except (RequestError, PolicyError) as error:
            raise ConflictError(
                f"this list cannot be repeated, because its policy {text} is not known: {error}"
            ) from error
        self.check_compiled(version)
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
        """Load the ledger of every query, one at a time, without items and queries whose deletion is under way."""
        for number in self.numbers():
            if (ledger := self.reported_ledger(number)) is not None:
                yield ledger

    def reported_ledger(self, number: int) -> Ledger | None:
        """Load the ledger of a query, without items whose deletion is under way; None if there is no such query."""
        with self.store.read_transaction():
            if self.store.key_of(number) is None:
                return None
            ledger = self.ledger(number)
            if rows := self.rows_to_delete(ledger):
                ledger.record_deletion(ledger.seq, ledger.time, rows, self.in_force)
        return ledger

    def rows_to_delete(self, ledger: Ledger) -> list[int]:
        """Return the rows of the items of a query whose deletion is under way."""
        found = (self.row_to_delete(ledger, deletion) for deletion in self.store.deletions())
        return [row for row in found if row is not None]

    def row_to_delete(self, ledger: Ledger, deletion: StoredDeletion) -> int | None:
        """Return the row of an item whose deletion is under way, None if the query does not have it."""
        row = ledger.index.get(deletion.item)
        return None if row is None or self.store.is_exempt(deletion.number, ledger.number) else row

    def numbers(self) -> Iterator[int]:
        """Iterate over the numbers of all queries."""
        last = 0
        while numbers := self.store.numbers(last, PAGE_SIZE):
            yield from numbers
            last = numbers[-1]
