"""The operations of the service: rank, feedback, explain, change rules, delete, compact.

The caller runs operations one at a time, inside a transaction of the store. Every operation reads and decides first and
writes last, so an operation that raises one of our errors has written nothing and the transaction can go on.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

from ..arrays import IntArray
from ..errors import ConflictError, NotFoundError, RequestError
from ..policies.base import parse_policy
from .decision import WEIGHTS, Decision, counterfactual, sentence
from .history import (
    LedgerRepository,
    decode_impression,
    decode_positions,
    encode,
    encode_positions,
    query_state,
    to_datetime,
)
from .ids import IdSigner
from .ledger import (
    CLICKED,
    SHOWN,
    UNCLICKED,
    UNSHOWN,
    BitChanges,
    Candidates,
    Impression,
    Ledger,
    is_clicked,
    is_exposed,
)
from .rules import DAY, Rules, Version, check_servable
from .stores import KIND_DELETION, KIND_FEEDBACK, KIND_IMPRESSION, LogEntry, Store, StoredKey
from .wire import (
    MAX_KEY,
    SCOPES,
    ActivePolicy,
    CreatedKey,
    Event,
    EventResult,
    ExplainedItem,
    Explanation,
    FeedbackResults,
    Inputs,
    Item,
    KeyInfo,
    PolicyChange,
    QueryState,
    Ranked,
    Ranking,
    RawRankRequest,
    Scope,
    Usage,
    check_cells,
    check_rank_request,
    check_text,
    fields_besides_items,
    read_items,
)

__all__ = ["Engine"]

SNAPSHOT_INTERVAL, SNAPSHOT_SPACING = 64, 256
"""Log entries between snapshots of a ledger (more if it is large), which bound the cost of loading it; and the spacing
at which old snapshots are kept, which bounds the cost of explaining an old list."""

MAX_VERSIONS = 10_000
MAX_ROWS = 100_000
"""Maximum number of distinct items of one query."""

CACHE = 256 << 20
KEY_PREFIX = "mcfair"


class Engine:
    """The service without threads and without a network.

    The engine caches ledgers, versions and keys in memory. The cache is updated while a transaction is open, so after
    a rollback it must be dropped: see `drop_cache`.

    Parameters
    ----------
    store
        The store; the engine never begins or commits a transaction itself.
    rules
        Computes the new rules from the stored ones; the stored rules stay if left out.
    clock
        Returns the time in ms.
    cache
        Memory for cached ledgers, in bytes; ledgers that do not fit are evicted and loaded again when needed.
    """

    def __init__(
        self, store: Store, rules: Callable[[Rules], Rules] | None = None, *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000, cache: int = CACHE,
    ) -> None:  # fmt: skip
        self.store, self.clock, self.cache_limit = store, clock, cache
        self.ids = IdSigner(store.secret)
        self.latest = 0
        self.compaction_cursor = 0
        self.drop_cache()
        stored = self.version.rules if self.repository.versions else Rules()
        wanted = stored if rules is None else rules(stored)
        if not self.repository.versions or wanted != stored:
            self.activate(wanted)

    def drop_cache(self) -> None:
        """Drop all cached state. After a failed commit only the store is authoritative."""
        self.ledgers: OrderedDict[int, Ledger] = OrderedDict()
        self.sizes: dict[int, int] = {}
        self.cached_bytes = 0
        self.by_key: dict[bytes, int] = {}
        self.by_policy: dict[str, Version] = {}
        self.repository = LedgerRepository(self.store)
        if self.repository.versions:
            self.version = self.repository.in_force
        self.api_keys = {key.id: key for key in self.store.all_keys()}
        self.reset_expiry_schedule()

    def now(self) -> int:
        """Return the time in ms; it never decreases, even if the clock does."""
        self.latest = max(self.latest, self.clock())
        return self.latest

    # --- ledgers -----------------------------------------------------------------------------------------------------

    def ledger(self, number: int) -> Ledger | None:
        """Return the ledger of a query number, from the cache or the store."""
        ledger = self.ledgers.get(number)
        if ledger is None:
            if self.store.key_of(number) is None:
                return None
            ledger = self.repository.ledger(number)
            self.cache_ledger(ledger)
        self.ledgers.move_to_end(number)
        return ledger

    def ledger_of(self, key: bytes) -> Ledger | None:
        """Return the ledger of a query id."""
        number = self.by_key.get(key) or self.store.find_query(key)
        return None if number is None else self.ledger(number)

    def cache_ledger(self, ledger: Ledger) -> None:
        """Add a ledger to the cache or update its size; evict the least recently used ones beyond the limit."""
        size, before = ledger.nbytes, self.sizes.get(ledger.number, 0)
        if size == before:
            return  # cached already, and of the same size
        self.ledgers[ledger.number] = ledger
        self.by_key[ledger.key] = ledger.number
        self.cached_bytes += size - before
        self.sizes[ledger.number] = size
        while self.cached_bytes > self.cache_limit and len(self.ledgers) > 1:
            self.evict(next(iter(self.ledgers)))

    def evict(self, number: int) -> None:
        """Evict a ledger from the cache."""
        ledger = self.ledgers.pop(number, None)
        if ledger is not None:
            self.cached_bytes -= self.sizes.pop(number)
            del self.by_key[ledger.key]

    # --- rank --------------------------------------------------------------------------------------------------------

    def rank(self, request: RawRankRequest, key: str | None = None) -> Ranking:
        """Rank the candidates, record the impression and credit its exposure.

        A repeated request with the same idempotency key, byte for byte in its items, returns the same ranking and
        changes nothing.
        """
        check_rank_request(request)
        items = digest16(request.items)
        if key is not None:
            check_text("key", key, MAX_KEY)
            name = digest16(key.encode())
            digest = digest16(items + encode(fields_besides_items(request)))
            if (earlier := self.earlier_ranking(name, digest, request.explain)) is not None:
                return earlier
        query = self.ids.query(request.query)
        ledger = self.ledger_of(query) or self.repository.empty(0, query)
        fresh = not ledger.number
        known = ledger.candidate_numbers.get(items)
        read = read_items(request.items) if known is None else []
        n = len(read) if known is None else ledger.candidates[known].rows.size
        k = min(request.k, n)
        check_cells(n, k)
        version = self.version if request.policy is None else self.version_with_policy(request.policy)
        try:
            now = max(self.now(), ledger.time)
            if fresh:
                ledger.number = self.store.add_query(query)
            number, candidates, newcomers, moved = self.candidates(ledger, known, read)
            first = ledger.rows
            ledger.admit(candidates, version, now)
            decision = self.repository.decide(ledger, candidates, version, now, k)
        except BaseException:
            if fresh and ledger.number:
                self.store.delete_query(ledger.number)
            self.evict(ledger.number)
            raise
        positions = np.arange(k) if request.shadow else decision.pi
        rows = candidates.rows[positions]
        wanted = encode_positions(decision.pi) if request.shadow else None
        impression = Impression(encode_positions(positions), wanted, request.defer_exposure)
        seq = ledger.seq + 1
        if newcomers:
            self.store.add_items(ledger.number, first, newcomers)
        for row, group in moved:
            self.store.set_group(ledger.number, row, group)
        if number not in ledger.candidates:
            self.store.add_candidates(ledger.number, number, candidates.rows.size, candidates.packed())
            ledger.cache_candidates(number, candidates, items)
        self.store.append(
            ledger.number, LogEntry(seq, now, KIND_IMPRESSION, version.number, number, encode(impression), None)
        )
        if key is not None:
            self.store.add_request(name, digest, ledger.number, seq, now)
        # Build the response before recording the impression: a score may depend on the visits, which that changes.
        answer = self.ranking(ledger, seq, now, version, decision, positions, rows, request.explain)
        ledger.record_impression(seq, now, rows, impression.initial_bits(), version)
        self.cache_ledger(ledger)
        self.take_snapshot(ledger)
        return answer

    def ranking(
        self, ledger: Ledger, seq: int, time: int, version: Version, decision: Decision, positions: IntArray,
        rows: IntArray, explain: bool,
    ) -> Ranking:  # fmt: skip
        """Build the response from positions among the candidates and their rows in the ledger."""
        ids = [ledger.ids[row] for row in rows.tolist()]
        return Ranking(
            impression=self.ids.impression(ledger.key, ledger.number, seq),
            query_id=ledger.key.hex(),
            items=ranked_items(ids, positions, version, decision, explain),
            policy=version.rules.policy,
            version=version.number,
            expires_at=to_datetime(time + version.retention),
        )

    def candidates(self, ledger: Ledger, known: int | None, items: list[Item]) -> ResolvedCandidates:
        """Resolve candidates to ledger rows and assign rows to newcomers; a cached set is returned as it is."""
        if known is not None:
            return ResolvedCandidates(known, ledger.candidates[known], [], [])
        index = ledger.index
        newcomers = [(item.id, item.group) for item in items if item.id not in index]
        if newcomers:
            if len(ledger.ids) + len(newcomers) > MAX_ROWS:
                raise RequestError(f"this query would have more than {MAX_ROWS:,} distinct items", "items")
            ledger.add_items(newcomers)
        priors = np.array([np.nan if item.prior is None else item.prior for item in items])
        rows = np.array([index[item.id] for item in items], np.int64)
        ledger.candidate_number += 1
        return ResolvedCandidates(
            ledger.candidate_number, Candidates.of(rows, priors), newcomers, self.regrouped(ledger, items)
        )

    def regrouped(self, ledger: Ledger, items: list[Item]) -> list[tuple[int, str]]:
        """Update the groups of items in the ledger; return the rows that changed."""
        moved = [
            (row, item.group)
            for item in items
            if item.group is not None and ledger.groups[row := ledger.index[item.id]] != item.group
        ]
        for row, group in moved:
            ledger.groups[row] = group
        if moved:
            ledger.evict_candidates()  # a cached set would skip this check and keep the old groups
        return moved

    def earlier_ranking(self, name: bytes, digest: bytes, explain: bool) -> Ranking | None:
        """Return the response to an earlier request with this idempotency key, rebuilt from the log; None if new."""
        found = self.store.find_request(name)
        if found is None:
            return None
        earlier, number, seq = found
        entry = self.store.entry(number, seq)
        if entry is None or self.now() >= entry.time + self.idempotency_window(
            self.repository.versions[entry.version or 0]
        ):
            return None  # the key has expired, or the query was deleted together with the response
        if not hmac.compare_digest(earlier, digest):
            raise ConflictError("this Idempotency-Key was used for another request: use a new one for each request")
        ledger = self.repository.ledger(number, entry)
        decision, candidates, version = self.repository.repeat_decision(ledger, entry)
        positions = decode_positions(decode_impression(entry.body).shown)
        return self.ranking(ledger, seq, entry.time, version, decision, positions, candidates.rows[positions], explain)

    def idempotency_window(self, version: Version) -> int:
        """Return how long an idempotency key is valid under a version of the rules, in ms."""
        return min(round(DAY * 1000), version.retention)

    def take_snapshot(self, ledger: Ledger) -> None:
        """Write a snapshot of a ledger if enough entries were logged since the last one."""
        if ledger.since_snapshot >= SNAPSHOT_INTERVAL and ledger.since_snapshot * 256 >= ledger.nbytes // 8:
            snapshot, last = ledger.snapshot(), ledger.seq - ledger.since_snapshot
            self.store.add_snapshot(ledger.number, snapshot.seq, snapshot.time, encode(snapshot))
            if last // SNAPSHOT_SPACING == snapshot.seq // SNAPSHOT_SPACING and last != self.store.base(ledger.number):
                self.store.delete_snapshot(ledger.number, last)
            ledger.since_snapshot = 0

    # --- feedback ----------------------------------------------------------------------------------------------------

    def feedback(self, events: list[Event], retract: bool = False) -> FeedbackResults:
        """Apply events, or retract them; return one result per event."""
        now = self.now()
        opened: dict[str, OpenImpression | EventResult] = {}
        pinned: dict[int, Ledger] = {}
        results = []
        for event in events:
            position = opened.get(event.impression)
            if position is None:
                position = opened[event.impression] = self.open_impression(event.impression, now, pinned)
            results.append(position if isinstance(position, EventResult) else position.apply(event, retract))
        for each in opened.values():
            if isinstance(each, OpenImpression) and each.bits != each.before:
                self.write_feedback(each, now)
        return FeedbackResults(results)

    def open_impression(self, impression: str, now: int, pinned: dict[int, Ledger]) -> OpenImpression | EventResult:
        """Open an impression for feedback; return the result of its events if it cannot be opened.

        `pinned` pins the ledgers of the batch until all events are written. The cache may evict some of them before
        that, and a ledger loaded a second time would miss the unwritten events of the first.
        """
        position = self.ids.position(impression)
        ledger = None if position is None else pinned.get(position[0]) or self.ledger(position[0])
        if position is None or ledger is None:
            return EventResult("unknown_impression")
        pinned[position[0]] = ledger
        entry = self.store.entry(*position)
        if entry is None and position[1] <= self.store.base(position[0]):
            return EventResult("expired")
        if entry is None or entry.kind != KIND_IMPRESSION:
            return EventResult("unknown_impression")
        made, candidates, version = self.repository.impression(ledger, entry)
        if now >= entry.time + version.retention:
            return EventResult("expired")
        return OpenImpression(
            ledger, entry, candidates.rows[decode_positions(made.shown)].tolist(), version, made.initial_bits()
        )

    def write_feedback(self, each: OpenImpression, now: int) -> None:
        """Append the effect of events on one impression to the log and record it in the ledger."""
        ledger, entry = each.ledger, each.entry
        changes = BitChanges(
            entry.seq, each.version.examination, each.version.bucket(entry.time),
            [
                (rank, each.rows[rank], before, after)
                for rank, (before, after) in enumerate(zip(each.before, each.bits, strict=True))
                if before != after
            ],
        )  # fmt: skip
        seq, when = ledger.seq + 1, max(now, ledger.time)
        self.store.append(ledger.number, LogEntry(seq, when, KIND_FEEDBACK, None, None, encode(changes), None))
        self.store.set_bits(ledger.number, entry.seq, bytes(each.bits))
        ledger.record_feedback(seq, when, changes)
        self.take_snapshot(ledger)

    # --- reading -----------------------------------------------------------------------------------------------------

    def explain(self, impression: str) -> Explanation:
        """Explain a list. The decision is repeated from the log, so the explanation is exact."""
        position = self.ids.position(impression)
        entry = None if position is None else self.store.entry(*position)
        if position is None or entry is None or entry.kind != KIND_IMPRESSION:
            expired = position is not None and position[1] <= self.store.base(position[0])
            raise NotFoundError("this impression has expired" if expired else "there is no such impression")
        ledger = self.repository.ledger(position[0], entry)
        impressed = decode_impression(entry.body)
        decision, candidates, version = self.repository.repeat_decision(ledger, entry)
        policy, q, rng = version.policy, decision.view, ledger.draws(version.rules.seed)
        terms = policy.terms(q)
        others = {term: ranks for term in WEIGHTS if (ranks := counterfactual(policy, q, rng, term)) is not None}
        bits = dict(
            zip(decode_positions(impressed.shown).tolist(), entry.bits or impressed.initial_bits(), strict=True)
        )
        n = candidates.rows.size
        items = []
        for j, i in enumerate(decision.pi.tolist()):
            row = int(candidates.rows[i])
            own = {name: float(values[i]) for name, values in terms.items()}
            without = {name: int(ranks[i]) for name, ranks in others.items()}
            prior = float(candidates.priors[i])
            items.append(ExplainedItem(
                id=ledger.ids[row], rank=j + 1,
                score=None if decision.scores is None else float(decision.scores[i]), terms=own,
                inputs=Inputs(relevance=float(q.R[i]), exposure=float(q.E[i]), clicks=float(ledger.C[row]),
                              prior=None if np.isnan(prior) else prior),
                without=without, shown=is_exposed(bits.get(i, 0)), clicked=is_clicked(bits.get(i, 0)),
                sentence=sentence(j + 1, n, own, without),
            ))  # fmt: skip
        return Explanation(
            impression=impression, query_id=ledger.key.hex(), policy=version.rules.policy, version=version.number,
            ranked_at=to_datetime(entry.time), visits=ledger.visits, candidates=n, deferred=impressed.deferred,
            shadow=impressed.policy_list is not None, items=items,
            summary=f"{policy.label} ranked {len(items)} of {n} items; the query had {ledger.visits} earlier visits.",
        )  # fmt: skip

    def query_state(self, query: str | None = None, query_id: str | None = None) -> QueryState:
        """Return the observations of a query, given by its text or its id."""
        return query_state(self.find_ledger(query, query_id), self.version, self.now())

    def find_ledger(self, query: str | None, query_id: str | None) -> Ledger:
        """Return the ledger of an existing query; raise NotFoundError if there is none."""
        key = b""
        if query is not None:
            key = self.ids.query(query)
        elif query_id is not None:
            try:
                key = bytes.fromhex(query_id)
            except ValueError:
                key = b""
        ledger = self.ledger_of(key) if len(key) == 16 else None
        if ledger is None:
            raise NotFoundError("there is no such query")
        return ledger

    def usage(self) -> Usage:
        """Count what is stored."""
        return Usage(**self.store.usage()._asdict())

    # --- rules -------------------------------------------------------------------------------------------------------

    def active_policy(self) -> ActivePolicy:
        """Return the rules in force."""
        version = self.version
        return ActivePolicy(
            version=version.number, since=to_datetime(version.since), **msgspec.structs.asdict(version.rules)
        )

    def change(self, change: PolicyChange) -> ActivePolicy:
        """Change the rules in force; a change without effect creates no version."""
        rules = self.version.rules.changed(change)
        if rules != self.version.rules:
            self.activate(rules)
        return self.active_policy()

    def activate(self, rules: Rules) -> None:
        """Create a version of the rules and put it in force."""
        before = self.repository.longest_maturation
        self.version = self.write_version(rules, default=True)
        self.by_policy.clear()
        if self.repository.longest_maturation != before:
            self.drop_cache()  # cached ledgers keep too few recent impressions for the longer maturation

    def version_with_policy(self, text: str) -> Version:
        """Return the version that differs from the rules in force only by its policy; create it if needed."""
        found = self.by_policy.get(text)
        if found is None:
            rules = self.version.rules.changed(PolicyChange(policy=text))
            same = [each for each in self.repository.versions.values()
                    if each.rules == rules and each.decaying_since == self.version.decaying_since]  # fmt: skip
            found = self.by_policy[text] = same[-1] if same else self.write_version(rules, default=False)
        return found

    def write_version(self, rules: Rules, default: bool) -> Version:
        """Write rules as a new version."""
        check_servable(parse_policy(rules.policy))
        if len(self.repository.versions) >= MAX_VERSIONS:
            raise RequestError(
                f"the store has {MAX_VERSIONS:,} versions of the rules, and no more are allowed", "policy"
            )
        version = self.repository.new_version(rules, self.now(), default)
        self.store.add_version(version.number, encode(version))
        self.repository.add_version(version)
        self.reset_expiry_schedule()
        return version

    # --- deleting ----------------------------------------------------------------------------------------------------

    def delete_query(self, query: str | None = None, query_id: str | None = None) -> None:
        """Delete a query and its data."""
        number = self.find_ledger(query, query_id).number
        self.store.delete_query(number)
        self.evict(number)
        self.reset_expiry_schedule()

    def delete_item(self, item: str) -> int:
        """Delete an item from every query; return the number of queries that had it."""
        rows = self.store.rows_of_item(item)
        now = self.now()
        for number, row in rows:
            ledger = self.ledger(number)
            assert ledger is not None
            seq, when = ledger.seq + 1, max(now, ledger.time)
            self.store.append(number, LogEntry(seq, when, KIND_DELETION, None, None, encode(row), None))
            self.store.erase_item(number, row)
            ledger.record_deletion(seq, when, row)
        self.reset_expiry_schedule()
        return len(rows)

    def reset(self) -> int:
        """Delete every query; rules and API keys stay. Return the number of queries deleted."""
        queries = self.store.reset()
        self.drop_cache()
        return queries

    # --- compaction --------------------------------------------------------------------------------------------------

    def compact_expired(self, seconds: float = math.inf) -> int:
        """Compact expired log entries into base snapshots; return the number of entries compacted.

        A call stops after `seconds` and the next one continues there. The schedule (`requests_due`, `queries_due`)
        records the earliest time at which anything can expire; until then the store is not read at all.
        """
        now = self.now()
        if now >= self.requests_due:
            self.expire_requests(now)
        return self.compact_queries(now, time.monotonic() + seconds) if now >= self.queries_due else 0

    def reset_expiry_schedule(self) -> None:
        """Clear the expiry schedule. Every operation other than rank and feedback may bring expiry forward."""
        self.requests_due = self.queries_due = self.next_expiry = 0

    def expire_requests(self, now: int) -> None:
        """Delete expired idempotency keys."""
        window = max(map(self.idempotency_window, self.repository.versions.values()))
        oldest = self.store.expire_requests(now - window)
        self.requests_due = (now if oldest is None else min(now, oldest)) + window + 1

    def compact_queries(self, now: int, end: float) -> int:
        """Compact queries in order of their numbers, from where the last call stopped."""
        if not self.compaction_cursor:  # a list ranked from now on expires at this time at the earliest
            self.next_expiry = (
                now
                + min(each.retention for each in self.repository.versions.values())
                + self.repository.longest_maturation
            )
        compacted = 0
        while numbers := self.store.numbers(self.compaction_cursor, 1):
            self.compaction_cursor = numbers[0]
            compacted += self.compact_query(self.compaction_cursor, now)
            if time.monotonic() > end:
                return compacted
        self.compaction_cursor, self.queries_due = 0, self.next_expiry
        return compacted

    def compact_query(self, number: int, now: int) -> int:
        """Compact the expired prefix of a query's log into its base snapshot; return the number of entries."""
        last: LogEntry | None = None
        compacted = 0
        for entry in self.store.log(number, 0):
            retention = self.repository.versions[entry.version or 0].retention if entry.kind == KIND_IMPRESSION else 0
            expires = entry.time + retention + self.repository.longest_maturation
            if now < expires:
                self.next_expiry = min(self.next_expiry, expires)
                break
            last = entry
            compacted += 1
        if last is None:
            return 0
        ledger = self.repository.ledger(number, last)
        self.repository.apply(ledger, last)
        self.store.add_snapshot(number, last.seq, last.time, encode(ledger.snapshot()))
        dropped = self.store.compact(number, last.seq)
        loaded = self.ledgers.get(number)
        if loaded is not None:
            loaded.evict_candidates(dropped)
        return compacted

    # --- keys --------------------------------------------------------------------------------------------------------

    def add_key(self, name: str, scopes: list[Scope]) -> CreatedKey:
        """Create an API key; only a hash of its secret is stored."""
        if unknown := [scope for scope in scopes if scope not in SCOPES]:
            raise RequestError(f"unknown scope {unknown[0]!r}; available: {', '.join(SCOPES)}", "scopes")
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        ordered = [scope for scope in SCOPES if scope in scopes]
        stored = StoredKey(id, hash_secret(secret), name, " ".join(ordered), self.now(), None)
        self.store.add_key(stored)
        self.api_keys[id] = stored
        return CreatedKey(key=f"{KEY_PREFIX}_{id}_{secret}", info=key_info(stored))

    def keys(self) -> list[KeyInfo]:
        """Return every API key, without its secret."""
        return [key_info(key) for key in self.store.all_keys()]

    def revoke_key(self, id: str) -> KeyInfo:
        """Revoke an API key; revoking it again changes nothing."""
        if id not in self.api_keys:
            raise NotFoundError("there is no such key")
        self.store.revoke_key(id, self.now())
        self.api_keys = {key.id: key for key in self.store.all_keys()}
        return key_info(self.api_keys[id])


class ResolvedCandidates(NamedTuple):
    """A candidate set with its number in the store, its new items, and the rows whose group changed."""

    number: int
    candidates: Candidates
    newcomers: list[tuple[str, str | None]]
    moved: list[tuple[int, str]]


class OpenImpression:
    """An impression during feedback: its state before the events of a batch and after them."""

    def __init__(self, ledger: Ledger, entry: LogEntry, rows: list[int], version: Version, first: bytes) -> None:
        self.ledger, self.entry, self.rows, self.version = ledger, entry, rows, version
        self.before = entry.bits or first
        self.bits = bytearray(self.before)

    def apply(self, event: Event, retract: bool) -> EventResult:
        """Apply an event, or retract it."""
        if event.type == "click":
            if event.item is None:
                return EventResult("invalid", "a click requires an item")
            if event.ranks is not None:
                return EventResult("invalid", "a click has an item, not ranks")
            row = self.ledger.index.get(event.item)
            if row is None or row not in self.rows:
                return EventResult("not_in_impression")
            return self.set([self.rows.index(row)], UNCLICKED if retract else CLICKED)
        if event.type == "shown":
            if event.item is not None:
                return EventResult("invalid", "shown has ranks, not an item")
            ranks = range(1, len(self.rows) + 1) if event.ranks is None else event.ranks
            if not all(1 <= rank <= len(self.rows) for rank in ranks):
                return EventResult("not_in_impression")
            return self.set([rank - 1 for rank in ranks], UNSHOWN if retract else SHOWN)
        return EventResult("invalid", f"unknown type {event.type!r}; available: click, shown")

    def set(self, ranks: list[int], bit: int) -> EventResult:
        """Set one bit at some ranks; an event that sets no new bit is a duplicate."""
        if all(self.bits[rank] & bit for rank in ranks):
            return EventResult("duplicate")
        for rank in ranks:
            self.bits[rank] |= bit
        return EventResult("applied")


def ranked_items(
    ids: list[str | None], positions: IntArray, version: Version, decision: Decision, explain: bool
) -> list[Ranked]:  # fmt: skip
    """Build the items of a response: id, rank, score, and the terms of the score if `explain` is set.

    Items that were deleted since the decision are left out.
    """
    scores = [None] * len(ids) if decision.scores is None else decision.scores[positions].tolist()
    if not explain:
        return [Ranked(id, j + 1, scores[j]) for j, id in enumerate(ids) if id is not None]
    by_name = version.policy.terms(decision.view)
    terms = [{name: float(values[i]) for name, values in by_name.items()} for i in positions.tolist()]
    return [Ranked(id, j + 1, scores[j], terms[j]) for j, id in enumerate(ids) if id is not None]


def digest16(content: bytes | msgspec.Raw) -> bytes:
    """Return a 16-byte digest of some content."""
    return hashlib.blake2b(content, digest_size=16).digest()


def hash_secret(secret: str) -> bytes:
    """Hash the secret of a key. It has 256 random bits, so a fast hash is sufficient."""
    return hashlib.sha256(secret.encode()).digest()


def key_info(key: StoredKey) -> KeyInfo:
    """Describe a key without its secret."""
    return KeyInfo(
        id=key.id, name=key.name, scopes=[scope for scope in SCOPES if scope in key.scopes.split()],
        created=to_datetime(key.created), revoked=None if key.revoked is None else to_datetime(key.revoked),
    )  # fmt: skip
