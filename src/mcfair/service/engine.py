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
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from ..arrays import IntArray
from ..errors import ConflictError, NotFoundError, RequestError
from .decision import WEIGHTS, Decision, counterfactual, sentence
from .ids import IdSigner, Position
from .ledger import Ledger
from .records import (
    CLICKED,
    SHOWN,
    UNCLICKED,
    UNSHOWN,
    BitChanges,
    Candidates,
    Impression,
    decode_feedback,
    decode_impression,
    decode_positions,
    encode,
    encode_positions,
    is_clicked,
    is_exposed,
)
from .reports import query_state, to_datetime
from .repository import UNREADABLE, LedgerRepository
from .rules import DAY, Rules, Version
from .stores import (
    KIND_DELETION,
    KIND_FEEDBACK,
    KIND_IMPRESSION,
    LogEntry,
    Store,
    StoreCorruptError,
    StoredDeletion,
    StoredKey,
)
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

MAX_SNAPSHOT_INTERVAL = 512
"""Maximum number of log entries between snapshots of a large ledger."""

CANDIDATES_REUSED = 1024
"""Log entries for which a stored candidate set is used again. It is numbered by the entry that used it first, so
compaction can tell from the number alone that no entry refers to it any more."""

DELETION_STEP, PURGE_STEP = 16, 256
"""Maximum number of queries from which an item is deleted in one step, and of rows of deleted queries."""

COMPACTION_STEP, IDLE_STEP = 128, 512
"""Maximum numbers of log entries that are compacted, and of idle items that are deleted, in one step."""

VERSION_STEP = 1_000
"""Maximum number of versions of the rules that are dropped at the end of a pass of compaction."""

MAX_VERSIONS, MAX_ITEMS = 10_000, 100_000
"""Defaults of the maximum numbers of versions of the rules, and of items of one query."""

CACHE, LEDGER = 256 << 20, 64 << 20
KEY_PREFIX = "mcfair"
NO_QUERY = "there is no such query"


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
    snapshot_interval, snapshot_spacing
        Log entries between snapshots of a ledger, and between those that are kept when they are old.
    compaction_step
        Maximum number of log entries that are compacted in one step.
    max_items
        Maximum number of items of one query at a time.
    max_versions
        Maximum number of versions of the rules. Once there are half as many, those that nothing refers to are dropped.
    max_ledger
        Maximum size of the counts of one query, in bytes; by default 64 MB, or a quarter of the cache if that is more.
    """

    def __init__(
        self, store: Store, rules: Callable[[Rules], Rules] | None = None, *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000, cache: int = CACHE,
        snapshot_interval: int = SNAPSHOT_INTERVAL, snapshot_spacing: int = SNAPSHOT_SPACING,
        compaction_step: int = COMPACTION_STEP, max_items: int = MAX_ITEMS,
        max_versions: int = MAX_VERSIONS, max_ledger: int | None = None,
    ) -> None:  # fmt: skip
        self.store, self.clock, self.cache_limit = store, clock, cache
        self.snapshot_interval, self.snapshot_spacing = snapshot_interval, snapshot_spacing
        self.compaction_step, self.max_items, self.max_versions = compaction_step, max_items, max_versions
        self.max_ledger = max(LEDGER, cache // 4) if max_ledger is None else max_ledger
        self.ids = IdSigner(store.secret)
        self.epoch = secrets.randbits(32)
        self.latest = 0
        self.compaction_cursor = 0
        self.compaction_began: int | None = None
        self.oldest_version = 0  # the oldest one that any query visited by this pass refers to; 0 if not recorded
        self.optimistic = False
        self.touched: set[int] = set()
        self.damaged: dict[str, str] = {}  # what background work leaves out, such as a query, and why
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
        self.repository = LedgerRepository(self.store)
        self.read_settings()

    def refresh(self) -> None:
        """Read rules, API keys and deletions again if another instance has changed them."""
        if self.store.changed_elsewhere():
            self.repository.read_versions()
            self.read_settings()

    def read_settings(self) -> None:
        """Read the rules in force, the API keys and the deletions under way."""
        if self.repository.versions:
            self.version = self.repository.in_force
        self.api_keys = {key.id: key for key in self.store.all_keys()}
        self.deletions = {each.number: each for each in self.store.deletions()}
        self.purging = True  # whether rows of deleted queries may be stored
        self.reset_expiry_schedule()

    def now(self) -> int:
        """Return the time in ms; it never decreases, even if the clock does."""
        self.latest = max(self.latest, self.clock())
        return self.latest

    # --- ledgers -----------------------------------------------------------------------------------------------------

    def ledger(self, number: int) -> Ledger | None:
        """Return the ledger of a query number, from the cache or the store."""
        ledger = self.cached(number)
        if ledger is None:
            if self.store.key_of(number) is None:
                return None
            ledger = self.repository.ledger(number)
            self.cache_ledger(ledger)
        self.ledgers.move_to_end(number)
        if self.deletions:
            self.delete_from(ledger)
        return ledger

    def cached(self, number: int) -> Ledger | None:
        """Return the ledger of a query number if it is cached.

        Where several instances share the store, a cached ledger may be out of date. An optimistic operation appends to
        the log, which fails then; any other operation must not use such a ledger.
        """
        self.touched.add(number)
        ledger = self.ledgers.get(number)
        if ledger is None or not self.store.shared or self.optimistic:
            return ledger
        if self.store.head(number) == (ledger.base, ledger.revision, ledger.seq):
            return ledger
        self.evict(number)
        return None

    def ledger_of(self, key: bytes) -> Ledger | None:
        """Return the ledger of a query id."""
        number = self.by_key.get(key)
        ledger = None if number is None else self.ledger(number)
        if ledger is None and (number := self.store.find_query(key)) is not None:
            ledger = self.ledger(number)
        return ledger

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

    def evict_all(self, numbers: Collection[int]) -> None:
        """Evict ledgers that are out of date, with the candidate sets of their queries."""
        for number in numbers:
            self.evict(number)
        self.repository.evict_candidates(numbers)

    # --- rank --------------------------------------------------------------------------------------------------------

    def rank(self, request: RawRankRequest, key: str | None = None, caller: str | None = None) -> Ranking:
        """Rank the candidates, record the impression and credit its exposure.

        A repeated request with the same idempotency key, byte for byte in its items, returns the same ranking and
        changes nothing. Idempotency keys belong to a caller, such as the id of an API key.
        """
        check_rank_request(request)
        items = digest16(request.items)
        query = self.ids.query(request.query)
        ledger = self.ledger_of(query) or self.repository.empty(0, query)
        if key is not None:
            check_text("key", key, MAX_KEY)
            # Keyed: without the secret of the store, no guess of a query or of a key can be tested against them.
            name = self.ids.keyed_hash(encode((caller, key)), 16, b"request key")
            digest = self.ids.keyed_hash(items + encode(fields_besides_items(request)), 16, b"request")
            # The key is looked up after the ledger was loaded: appending to it proves that nobody used the key since.
            earlier = self.earlier_ranking(ledger.number, name, digest, request.explain) if ledger.number else None
            if earlier is not None:
                return earlier
        version = self.repository.with_policy(self.version, request.policy)
        chosen = self.choose(ledger, request, items, version)
        decision, positions = chosen.decision, chosen.positions
        seq, rows = ledger.seq + 1, chosen.candidates.rows[positions]
        impression = Impression(
            encode_positions(positions), encode_positions(decision.pi) if request.shadow else None,
            request.defer_exposure, self.epoch, None if request.policy is None else version.rules.policy, chosen.rate,
            chosen.reused,
        )  # fmt: skip
        self.store_candidates(ledger, chosen, items)
        self.store.append(
            ledger.number,
            LogEntry(seq, chosen.time, KIND_IMPRESSION, version.number, chosen.number, encode(impression), None),
            ledger.revision,
        )
        if key is not None:
            self.store.add_request(ledger.number, name, digest, seq, chosen.time)
        # Build the response before recording the impression: a score may depend on the visits, which that changes.
        place = Position(ledger.number, seq, self.epoch)
        answer = self.ranking(ledger, place, chosen.time, version, decision, positions, rows, request.explain)
        ledger.record_impression(seq, chosen.time, chosen.candidates, rows, impression.initial_bits(), version)
        self.cache_ledger(ledger)
        self.take_snapshot(ledger)
        return answer

    def choose(self, ledger: Ledger, request: RawRankRequest, items: bytes, version: Version) -> ChosenList:
        """Choose the list of a request. A request that fails leaves the ledger and the store as they were."""
        known = ledger.candidate_numbers.get(items)
        read = read_items(request.items) if known is None else []
        n = len(read) if known is None else ledger.candidates[known].rows.size
        k = min(request.k, n)
        check_cells(n, k)
        admitted, fresh = ledger.rows, not ledger.number
        now = max(self.now(), ledger.time)
        newcomers = [(item.id, item.group) for item in read if item.id not in ledger.index]
        if (live := len(ledger.index)) + len(newcomers) > self.max_items:
            raise RequestError(
                f"this query has {live:,} items, and {len(newcomers):,} more are too many: at most {self.max_items:,} "
                "are allowed; delete items that are no longer offered",
                "items",
            )
        ledger.check_size(len(newcomers), k, version, now, self.max_ledger)
        taken = ledger.add_items(newcomers)
        reused = [row for row in taken if row < admitted]
        moved = regrouped(ledger, read)
        if fresh:
            ledger.number = self.store.add_query(ledger.key)
            self.touched.add(ledger.number)
        try:
            candidates = ledger.candidates[known] if known is not None else resolve(ledger, read)
            rate = ledger.newcomer_rate(candidates, taken, version, now)
            ledger.admit(candidates, reused, rate, version, now)
            decision = self.repository.decide(ledger, candidates, version, now, k)
        except BaseException:
            ledger.withdraw_items(taken, admitted)
            for row, before, _ in moved:
                ledger.name_row(row, ledger.ids[row], before)
            if fresh:
                self.remove_query(ledger.number)
            raise
        reusable = known is not None and ledger.seq + 1 - known < CANDIDATES_REUSED
        number = known if known is not None and reusable else ledger.seq + 1
        positions = np.arange(k) if request.shadow else decision.pi
        items_added = [(row, *newcomer) for row, newcomer in zip(taken, newcomers, strict=True)]
        return ChosenList(now, number, candidates, rate, decision, positions, items_added, reused, moved)

    def store_candidates(self, ledger: Ledger, chosen: ChosenList, items: bytes) -> None:
        """Write what is new of the candidates of a request: items, groups, and the set itself."""
        if chosen.newcomers:
            self.store.add_items(ledger.number, chosen.newcomers)
            for deletion in self.deletions.values():
                if any(item == deletion.item for _, item, _ in chosen.newcomers):
                    self.store.exempt(deletion.number, ledger.number)  # it is a new item, not the deleted one
        for row, _, group in chosen.moved:
            self.store.set_group(ledger.number, row, group)
        if chosen.moved:
            ledger.evict_candidates()  # a cached set would keep the old groups
        if chosen.number not in ledger.candidates:
            candidates = chosen.candidates
            self.store.add_candidates(ledger.number, chosen.number, candidates.rows.size, candidates.packed())
            ledger.cache_candidates(chosen.number, candidates, items)

    def ranking(
        self, ledger: Ledger, place: Position, time: int, version: Version, decision: Decision, positions: IntArray,
        rows: IntArray, explain: bool,
    ) -> Ranking:  # fmt: skip
        """Build the response from positions among the candidates and their rows in the ledger."""
        ids = [ledger.ids[row] for row in rows.tolist()]
        return Ranking(
            impression=self.ids.impression(ledger.key, place),
            query_id=ledger.key.hex(),
            items=ranked_items(ids, positions, version, decision, explain),
            policy=version.rules.policy,
            version=version.number,
            expires_at=to_datetime(time + version.retention),
        )

    def earlier_ranking(self, number: int, name: bytes, digest: bytes, explain: bool) -> Ranking | None:
        """Return the response to an earlier request with this idempotency key, rebuilt from the log; None if new."""
        found = self.store.find_request(number, name)
        if found is None:
            return None
        earlier, seq = found
        entry = self.store.entry(number, seq)
        if entry is None or self.now() >= entry.time + self.idempotency_window(self.repository.version(entry)):
            return None  # the key has expired
        if not hmac.compare_digest(earlier, digest):
            raise ConflictError("this Idempotency-Key was used for another request: use a new one for each request")
        if self.deletions:
            self.ledger(number)  # deletes items whose deletion is under way
        ledger = self.repository.ledger(number, entry)
        decision, candidates, version = self.repository.repeat_decision(ledger, entry)
        impression = decode_impression(entry.body)
        positions, place = decode_positions(impression.shown), Position(number, seq, impression.epoch)
        return self.ranking(
            ledger, place, entry.time, version, decision, positions, candidates.rows_at(positions), explain
        )

    def idempotency_window(self, version: Version) -> int:
        """Return how long an idempotency key is valid under a version of the rules, in ms."""
        return min(round(DAY * 1000), version.retention)

    def take_snapshot(self, ledger: Ledger) -> None:
        """Write a snapshot of a ledger if enough entries were logged since the last one."""
        since = ledger.since_snapshot
        worthwhile = since * 256 >= ledger.nbytes // 8 or since >= MAX_SNAPSHOT_INTERVAL
        if since >= self.snapshot_interval and worthwhile:
            snapshot, last = ledger.snapshot(), ledger.seq - since
            self.store.add_snapshot(ledger.number, snapshot.seq, snapshot.time, encode(snapshot))
            same = last // self.snapshot_spacing == snapshot.seq // self.snapshot_spacing
            if same and last != ledger.base:
                self.store.delete_snapshot(ledger.number, last)
            ledger.since_snapshot = 0

    # --- feedback ----------------------------------------------------------------------------------------------------

    def feedback(
        self, events: list[Event], retract: bool = False, kept: Mapping[int, EventResult] | None = None
    ) -> FeedbackResults:
        """Apply events, or retract them; return one result per event.

        `kept` has the results of events, by their places, that were applied already and must not be applied again.
        """
        now, kept = self.now(), kept or {}
        opened: dict[Position | None, OpenImpression | EventResult] = {}
        positions = [None if i in kept else self.ids.position(event.impression) for i, event in enumerate(events)]
        pinned = self.pin_ledgers(positions)
        results = []
        for i, (event, position) in enumerate(zip(events, positions, strict=True)):
            if i in kept:
                results.append(kept[i])
                continue
            each = opened.get(position)
            if each is None:
                each = opened[position] = self.open_impression(position, now, pinned)
            results.append(each if isinstance(each, EventResult) else each.apply(event, retract))
        for each in opened.values():
            if isinstance(each, OpenImpression) and each.bits != each.before:
                self.write_feedback(each, now)
        return FeedbackResults(results)

    def pin_ledgers(self, positions: list[Position | None]) -> dict[int, Ledger]:
        """Return the ledgers of a batch by query number, to be used until all of its events are written.

        The cache may evict some of them before that, and a ledger loaded a second time would miss the unwritten events
        of the first. A cached ledger that ends before an impression is loaded again: another instance has ranked since.
        """
        pinned: dict[int, Ledger] = {}
        newest: dict[int, int] = {}
        for position in positions:
            if position is not None:
                newest[position.number] = max(position.seq, newest.get(position.number, 0))
        for number, seq in newest.items():
            ledger = self.ledger(number)
            if ledger is not None and ledger.seq < seq and self.store.shared:
                self.evict(number)
                ledger = self.ledger(number)
            if ledger is not None:
                pinned[number] = ledger
        return pinned

    def prefetch(self, batches: Iterable[list[Event]]) -> None:
        """Read the impressions of batches of events at once, those of queries whose ledgers are cached."""
        found = (self.ids.position(event.impression) for events in batches for event in events)
        places = {(each.number, each.seq) for each in found if each is not None and each.number in self.ledgers}
        if places:
            self.store.prefetch(list(places))

    def kept_results(
        self, events: list[Event], results: FeedbackResults, lost: Collection[int]
    ) -> dict[int, EventResult]:
        """Return the results of the events, by their places, that do not belong to queries that have lost."""
        positions = [self.ids.position(event.impression) for event in events]
        return {
            i: result
            for i, (position, result) in enumerate(zip(positions, results.results, strict=True))
            if position is None or position.number not in lost
        }

    def open_impression(
        self, position: Position | None, now: int, pinned: dict[int, Ledger]
    ) -> OpenImpression | EventResult:
        """Open an impression for feedback; return the result of its events if it cannot be opened.

        `pinned` has the ledgers of the batch, see `pin_ledgers`.
        """
        if position is None:
            return EventResult("unknown_impression")
        # The entry is read after the ledger was loaded: appending to it proves that nobody changed the entry since.
        ledger = pinned.get(position.number)
        if ledger is None:
            return EventResult("unknown_impression")
        entry = self.find_impression(position)
        if entry is None:
            return EventResult("expired" if self.is_compacted(position) else "unknown_impression")
        made, candidates = self.repository.impression(ledger, entry)
        version = self.repository.version(entry)
        if now >= entry.time + version.retention:
            return EventResult("expired")
        return OpenImpression(
            ledger, entry, candidates.rows_at(decode_positions(made.shown)).tolist(), version, made.bits(entry.bits)
        )

    def find_impression(self, position: Position) -> LogEntry | None:
        """Return the log entry of an impression; None if there is none, or if the entry has another epoch."""
        entry = self.store.entry(position.number, position.seq)
        if entry is None or entry.kind != KIND_IMPRESSION or decode_impression(entry.body).epoch != position.epoch:
            return None
        return entry if self.exists(position.number) and not self.is_compacted(position) else None

    def is_compacted(self, position: Position | None) -> bool:
        """Return whether a position belongs to the compacted part of a log."""
        if position is None:
            return False
        ledger = self.cached(position.number)
        base = self.store.base(position.number) if ledger is None else ledger.base
        return position.seq <= base and self.exists(position.number)

    def exists(self, number: int) -> bool:
        """Return whether a query exists; rows of one that was deleted may still be stored."""
        return self.cached(number) is not None or self.store.key_of(number) is not None

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
        history = [] if entry.bits is None else decode_feedback(entry.bits)
        self.store.append(
            ledger.number,
            LogEntry(seq, when, KIND_FEEDBACK, self.version.number, None, encode(changes), None),
            ledger.revision,
        )
        self.store.set_bits(ledger.number, entry.seq, encode(history + changes.history(seq)))
        ledger.record_feedback(seq, when, changes, self.version)
        self.take_snapshot(ledger)

    # --- reading -----------------------------------------------------------------------------------------------------

    def explain(self, impression: str) -> Explanation:
        """Explain a list. The decision is repeated from the log, so the explanation is exact."""
        position = self.ids.position(impression)
        entry = None if position is None else self.find_impression(position)
        if position is None or entry is None:
            expired = self.is_compacted(position)
            raise NotFoundError("this impression has expired" if expired else "there is no such impression")
        if self.deletions:
            self.ledger(position.number)  # deletes items whose deletion is under way
        ledger = self.repository.ledger(position.number, entry)
        impressed = decode_impression(entry.body)
        decision, candidates, version = self.repository.repeat_decision(ledger, entry)
        policy, q, rng = version.policy, decision.view, ledger.draws(version.rules.seed)
        terms = decision.terms(policy)
        others = {term: ranks for term in WEIGHTS if (ranks := counterfactual(policy, decision, rng, term)) is not None}
        bits = dict(zip(decode_positions(impressed.shown).tolist(), impressed.bits(entry.bits), strict=True))
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
                inputs=Inputs(relevance=float(q.R[i]), exposure=float(q.E[i]), clicks=ledger.clicks(row),
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
        ledger = self.ledger(self.find_number(query, query_id))
        if ledger is None:  # another instance has just deleted it
            raise NotFoundError(NO_QUERY)
        return ledger

    def find_number(self, query: str | None, query_id: str | None) -> int:
        """Return the number of an existing query, given by its text or its id; raise NotFoundError if there is none."""
        key = b""
        if query is not None:
            key = self.ids.query(query)
        elif query_id is not None:
            try:
                key = bytes.fromhex(query_id)
            except ValueError:
                key = b""
        number = self.store.find_query(key)
        if number is None:
            raise NotFoundError(NO_QUERY)
        return number

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
        """Write rules as a new version and put it in force."""
        if len(self.repository.versions) >= self.max_versions:
            raise RequestError(
                f"the store has {self.max_versions:,} versions of the rules, and no more are allowed: versions are "
                "dropped once the impressions ranked by them have expired",
                "policy",
            )
        version = self.repository.new_version(rules, self.now())
        self.store.add_version(version.number, encode(version))
        self.repository.add_version(version)
        self.version = version
        self.reset_expiry_schedule()

    # --- deleting ----------------------------------------------------------------------------------------------------

    def delete_query(self, query: str | None = None, query_id: str | None = None) -> None:
        """Delete a query. It is gone at once, and `purge` deletes its rows in the background, also after a restart."""
        number = self.find_number(query, query_id)
        self.remove_query(number)
        self.evict(number)

    def remove_query(self, number: int) -> None:
        """Delete a query from the store."""
        self.store.delete_query(number)
        self.purging = True

    def reset(self) -> None:
        """Delete every query as `delete_query` does; rules and API keys stay."""
        self.store.reset()
        self.drop_cache()

    def purge(self, end: float) -> None:
        """Delete rows of deleted queries until the monotonic time `end`, in small steps."""
        while self.purging:
            self.purging = self.work_on("what is left of deleted queries", partial(self.store.purge, PURGE_STEP)) > 0
            if time.monotonic() > end:
                return

    def delete_item(self, item: str) -> int:
        """Delete an item from every query; return the number of queries that have it.

        The item is gone at once: every operation on a query deletes it there first. The other queries follow in the
        background, see `continue_deletions`, also after a restart; `usage` reports the progress.
        """
        queries = self.store.count_item(item)
        if queries:
            number = self.store.add_deletion(item)
            self.deletions[number] = StoredDeletion(number, item, 0)
            if queries <= DELETION_STEP:
                self.continue_deletion(self.deletions[number])
        return queries

    def continue_deletions(self, end: float) -> None:
        """Continue the deletions of items until the monotonic time `end`, in steps of a few queries."""
        while self.deletions:
            self.continue_deletion(next(iter(self.deletions.values())))
            if time.monotonic() > end:
                return

    def continue_deletion(self, deletion: StoredDeletion) -> None:
        """Delete an item from the next queries that have it."""
        number, item, cursor = deletion
        rows = self.store.rows_of_item(item, cursor, DELETION_STEP, number)
        for query, row in rows:
            self.work_on(f"query {query}", partial(self.delete_row, query, row))
            cursor = query
        if len(rows) < DELETION_STEP:
            self.store.finish_deletion(number)
            del self.deletions[number]
        else:
            self.store.advance_deletion(number, cursor)
            self.deletions[number] = deletion._replace(cursor=cursor)
        self.reset_expiry_schedule()

    def delete_row(self, number: int, row: int) -> int:
        """Delete the item of a row of a query."""
        if self.store.lock(number):
            self.delete_rows(self.cached(number) or self.repository.ledger(number), [row])
        return 1

    def work_on(self, what: str, step: Callable[[], int]) -> int:
        """Do a step of background work, on one query for example; leave it out, and return 0, if data is damaged.

        A step that has written something before it found the damage must be rolled back, so its error is raised; the
        next attempt leaves it out.
        """
        if what in self.damaged:
            return 0
        changes = self.store.changes
        try:
            return step()
        except (StoreCorruptError, *UNREADABLE) as error:
            self.damaged[what] = f"background work leaves {what} out: {error}"
            if self.store.changes > changes:
                raise
            return 0

    def delete_from(self, ledger: Ledger) -> None:
        """Delete the items whose deletion is under way from one query."""
        for deletion in self.deletions.values():
            if (row := self.repository.row_to_delete(ledger, deletion)) is not None:
                self.delete_rows(ledger, [row])

    def delete_rows(self, ledger: Ledger, rows: list[int]) -> None:
        """Delete the items of some rows: append the deletion to the log and erase the ids."""
        seq, when, version = ledger.seq + 1, max(self.now(), ledger.time), self.version
        entry = LogEntry(seq, when, KIND_DELETION, version.number, None, encode(rows), None)
        self.store.append(ledger.number, entry, ledger.revision)
        for row in rows:
            self.store.erase_item(ledger.number, row, seq)
        ledger.record_deletion(seq, when, rows, version)

    # --- compaction --------------------------------------------------------------------------------------------------

    def compact_expired(self, seconds: float = math.inf) -> int:
        """Continue deletions, and compact expired log entries into base snapshots; return the number compacted.

        A call stops after `seconds` and the next one continues there. The schedule (`requests_due`, `queries_due`)
        records the earliest time at which anything can expire; until then the store is not read at all.
        """
        self.refresh()
        if not self.store.leads():
            self.compaction_began = None  # another instance continues
            return 0
        now, end = self.now(), time.monotonic() + seconds
        self.continue_deletions(end)
        self.purge(end)
        if now >= self.requests_due:
            self.work_on("idempotency keys", partial(self.expire_requests, now))
        return self.compact_queries(now, end) if now >= self.queries_due else 0

    def reset_expiry_schedule(self) -> None:
        """Clear the expiry schedule. Every operation other than rank and feedback may bring expiry forward."""
        self.requests_due = self.queries_due = self.next_expiry = 0

    def expire_requests(self, now: int) -> int:
        """Delete expired idempotency keys; return when the next ones expire, in ms."""
        window = max(map(self.idempotency_window, self.repository.versions.values()))
        oldest = self.store.expire_requests(now - window)
        self.requests_due = (now if oldest is None else min(now, oldest)) + window + 1
        return self.requests_due

    def compact_queries(self, now: int, end: float) -> int:
        """Compact queries in order of their numbers, from where the last call stopped."""
        if self.compaction_began is None:
            self.compaction_began = now
        if not self.compaction_cursor:  # a list ranked from now on expires at this time at the earliest
            self.next_expiry = now + min(each.retention for each in self.repository.versions.values())
            crowded = len(self.repository.versions) > self.max_versions // 2
            self.oldest_version = self.version.number if crowded else 0
        compacted = 0
        while numbers := self.store.numbers(self.compaction_cursor, 1):
            step = self.work_on(f"query {numbers[0]}", partial(self.compact_query, numbers[0], now))
            compacted += step
            if step < self.compaction_step:
                self.compaction_cursor = numbers[0]
                if self.oldest_version:
                    oldest = next(iter(self.store.log(numbers[0], 0)), None)
                    self.oldest_version = min(self.oldest_version, oldest.version if oldest else self.oldest_version)
            if time.monotonic() > end:
                return compacted
        self.compaction_cursor, self.compaction_began, self.queries_due = 0, None, self.next_expiry
        if dropped := self.repository.unreferenced_versions(self.oldest_version)[:VERSION_STEP]:
            self.store.delete_versions(dropped)
            self.repository.drop_versions(dropped)
        return compacted

    def compaction_seconds(self) -> float:
        """Return for how long the present pass of compaction over all queries has run; 0 if there is none."""
        began = self.compaction_began
        return 0.0 if began is None else max(0.0, (self.latest - began) / 1000)

    def compact_query(self, number: int, now: int) -> int:
        """Compact the first expired entries of a query's log into its base snapshot; return their number.

        Reads the base snapshot and at most one step of the log, however long the log is. Entries that were pending at
        the base are compacted, but stay in the log for as long as a decision after the base may depend on when they
        matured.
        """
        base = self.store.base(number)
        expired: list[LogEntry] = []
        live: LogEntry | None = None
        for entry in self.store.log(number, base, base + self.compaction_step + 1):
            if len(expired) == self.compaction_step or self.expiry(entry) > now:
                live = entry
                self.next_expiry = min(self.next_expiry, self.expiry(live))
                break
            expired.append(entry)
        longest = self.repository.longest_maturation(self.version if live is None else self.repository.version(live))
        if not expired and not (live is None and self.outlived_maturation(number, base, longest, now)):
            return 0
        if not self.store.lock(number):
            return 0
        loaded = self.cached(number)
        ledger = self.repository.ledger(number, from_base=True)
        for entry in expired:
            self.repository.apply(ledger, entry)
        until = now if live is None else live.time
        # Mature by the rules of the next entry: what it needs of the log stays stored, and nothing needs more.
        age = (self.version if live is None else self.repository.version(live)).maturation
        ledger.mature(age, until)
        if live is None and ledger.time + longest > now:
            self.next_expiry = min(self.next_expiry, ledger.time + longest)
        if loaded is not None and live is None:
            loaded.mature(age, until)
        self.store.add_snapshot(number, ledger.seq, ledger.time, encode(ledger.snapshot()))
        last = self.store.compact(number, ledger.seq, until - longest, 4 * self.compaction_step)
        unused = last if live is None and last == ledger.seq else last - CANDIDATES_REUSED
        dropped, freed = self.store.delete_candidates(number, unused), self.store.free_rows(number, last)
        if loaded is not None:
            loaded.evict_candidates(dropped)
            loaded.free_rows(freed)
            loaded.base, loaded.revision, _ = self.store.head(number) or (0, 0, 0)
        self.delete_idle_items(ledger, loaded, now)
        return len(expired)

    def delete_idle_items(self, base: Ledger, loaded: Ledger | None, now: int) -> None:
        """Delete items that need no row: never shown or clicked, and no candidates of any impression after the base.

        If such an item comes again, it is a newcomer. The current ledger is loaded only if the base has such items.
        """
        base.refresh(self.version, max(now, base.time))
        if base.idle_rows(base.seq):
            ledger = loaded or self.repository.ledger(base.number)
            ledger.refresh(self.version, max(now, ledger.time))
            if rows := ledger.idle_rows(base.seq)[:IDLE_STEP]:
                self.delete_rows(ledger, rows)

    def expiry(self, entry: LogEntry) -> int:
        """Return when an entry can be compacted, in ms: an impression after its retention, others at once."""
        return entry.time + (self.repository.version(entry).retention if entry.kind == KIND_IMPRESSION else 0)

    def outlived_maturation(self, number: int, base: int, longest: int, now: int) -> bool:
        """Return whether entries up to the base are stored that no decision can depend on any more."""
        entry = self.store.entry(number, base)
        if entry is None:
            return False
        due = entry.time + longest
        self.next_expiry = min(self.next_expiry, max(due, now + 1))
        return due <= now

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


class ChosenList(NamedTuple):
    """The list chosen for a request, and what is new about its candidates.

    `newcomers` are the rows, ids and groups of new items, `rate` their starting exposure and `reused` those of their
    rows that another item had before. `moved` are the rows of items that changed their group, with the group before and
    after.
    """

    time: int
    number: int
    candidates: Candidates
    rate: float
    decision: Decision
    positions: IntArray
    newcomers: list[tuple[int, str, str | None]]
    reused: list[int]
    moved: list[tuple[int, str | None, str]]


def resolve(ledger: Ledger, items: list[Item]) -> Candidates:
    """Resolve items to rows of a ledger, with their priors and groups."""
    priors = np.array([np.nan if item.prior is None else item.prior for item in items])
    rows = np.array([ledger.index[item.id] for item in items], np.int64)
    return Candidates.of(rows, priors, ledger.groups_of(rows))


def regrouped(ledger: Ledger, items: list[Item]) -> list[tuple[int, str | None, str]]:
    """Update the groups of items in a ledger; return the rows that changed, with the group before and after."""
    moved = [
        (row, before, item.group)
        for item in items
        if item.group is not None and (before := ledger.groups[row := ledger.index[item.id]]) != item.group
    ]
    for row, _, group in moved:
        ledger.name_row(row, ledger.ids[row], group)
    return moved


class OpenImpression:
    """An impression during feedback: its state before the events of a batch and after them."""

    def __init__(self, ledger: Ledger, entry: LogEntry, rows: list[int], version: Version, bits: bytearray) -> None:
        self.ledger, self.entry, self.rows, self.version = ledger, entry, rows, version
        self.before, self.bits = bytes(bits), bits

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
    by_name = decision.terms(version.policy)
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
