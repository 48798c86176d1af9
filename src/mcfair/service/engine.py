"""What the service does, one operation after the other: rank, take feedback, explain, change, delete, expire.

Every operation reads and decides first and writes last, between `begin` and `commit` of its store; who calls sees to
that, and to calling from one thread only. An operation that raises one of our errors has written nothing.
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
from .history import Books, decode_impression, encode, moment, packed_positions, positions, query_state
from .ids import Names
from .ledger import CLICKED, SHOWN, UNCLICKED, UNSHOWN, Candidates, Flips, Impression, Ledger, is_clicked, is_exposed
from .rules import DAY, Rules, Version, check_servable
from .stores import KIND_DELETION, KIND_FEEDBACK, KIND_IMPRESSION, Entry, Store, StoredKey
from .wire import (
    MAX_KEY,
    SCOPES,
    Event,
    EventResult,
    ExplainedItem,
    Explanation,
    FeedbackAnswer,
    Inputs,
    Item,
    KeyAdded,
    KeyInfo,
    PolicyChange,
    PolicyInForce,
    QueryState,
    Ranked,
    Ranking,
    Scope,
    UnreadRank,
    Usage,
    besides_items,
    check_cells,
    check_rank,
    check_text,
    read_items,
)

__all__ = ["Engine"]

SNAPSHOT_EVERY, KEPT_EVERY = 64, 256
"""A ledger is written down whole after so many operations, more if it is large, so that to read it back costs little;
and one of so many operations stays, so that to explain what was done long ago costs little."""

MAX_VERSIONS = 10_000
MAX_ROWS = 100_000
"""Most items that can ever be candidates of one query."""

CACHE = 256 << 20
KEY_PREFIX = "mcfair"


class Engine:
    """The service without threads and without a network.

    Parameters
    ----------
    store
        Where everything is kept.
    rules
        Rules to be in force from now on; those of the store if left out.
    clock
        Gives the time in ms.
    cache
        Memory for ledgers, in bytes; what does not fit is read back from the store when it is needed.
    """

    def __init__(
        self, store: Store, rules: Callable[[Rules], Rules] | None = None, *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000, cache: int = CACHE,
    ) -> None:  # fmt: skip
        self.store, self.clock, self.cache = store, clock, cache
        self.names = Names(store.secret)
        self.latest = 0
        self.swept = 0
        self.forget()
        stored = self.version.rules if self.books.versions else Rules()
        wanted = stored if rules is None else rules(stored)
        if not self.books.versions or wanted != stored:
            self.use(wanted)

    def forget(self) -> None:
        """Forget everything that the store knows as well: after something failed, the store alone is right."""
        self.ledgers: OrderedDict[int, Ledger] = OrderedDict()
        self.sizes: dict[int, int] = {}
        self.cached = 0
        self.by_key: dict[bytes, int] = {}
        self.by_policy: dict[str, Version] = {}
        self.books = Books(self.store)
        if self.books.versions:
            self.version = self.books.in_force
        self.stored_keys = {key.id: key for key in self.store.all_keys()}
        self.look_again()

    def now(self) -> int:
        """Tell the time in ms, which never goes back."""
        self.latest = max(self.latest, self.clock())
        return self.latest

    # --- ledgers -----------------------------------------------------------------------------------------------------

    def ledger(self, number: int) -> Ledger | None:
        """Find the books of a query by its number."""
        ledger = self.ledgers.get(number)
        if ledger is None:
            if self.store.key_of(number) is None:
                return None
            ledger = self.books.ledger(number)
            self.keep(ledger)
        self.ledgers.move_to_end(number)
        return ledger

    def ledger_of(self, key: bytes) -> Ledger | None:
        """Find the books of a query by its name."""
        number = self.by_key.get(key) or self.store.find_query(key)
        return None if number is None else self.ledger(number)

    def keep(self, ledger: Ledger) -> None:
        """Keep a ledger in memory, and let go of those not used for longest if there are too many."""
        size, before = ledger.nbytes, self.sizes.get(ledger.number, 0)
        if size == before:
            return  # it is here, and is no larger than it was
        self.ledgers[ledger.number] = ledger
        self.by_key[ledger.key] = ledger.number
        self.cached += size - before
        self.sizes[ledger.number] = size
        while self.cached > self.cache and len(self.ledgers) > 1:
            self.drop(next(iter(self.ledgers)))

    def drop(self, number: int) -> None:
        """Let go of a ledger."""
        ledger = self.ledgers.pop(number, None)
        if ledger is not None:
            self.cached -= self.sizes.pop(number)
            del self.by_key[ledger.key]

    # --- rank --------------------------------------------------------------------------------------------------------

    def rank(self, request: UnreadRank, key: str | None = None) -> Ranking:
        """Make a list, write the impression down and credit its exposure.

        With a key, the same request again, byte for byte in its items, gets the same answer and changes nothing.
        """
        check_rank(request)
        items = digest_of(request.items)
        if key is not None:
            check_text("key", key, MAX_KEY)
            name = digest_of(key.encode())
            digest = digest_of(items + encode(besides_items(request)))
            if (earlier := self.answered(name, digest, request.explain)) is not None:
                return earlier
        query = self.names.query(request.query)
        ledger = self.ledger_of(query) or self.books.empty(0, query)
        fresh = not ledger.number
        known = ledger.known_candidates.get(items)
        read = read_items(request.items) if known is None else []
        n = len(read) if known is None else ledger.candidates[known].rows.size
        k = min(request.k, n)
        check_cells(n, k)
        version = self.version if request.policy is None else self.version_for(request.policy)
        try:
            now = max(self.now(), ledger.time)
            if fresh:
                ledger.number = self.store.add_query(query)
            number, candidates, newcomers, moved = self.candidates(ledger, known, read)
            first = ledger.rows
            ledger.admit(candidates, version, now)
            decision = self.books.decide(ledger, candidates, version, now, k)
        except BaseException:
            if fresh and ledger.number:
                self.store.delete_query(ledger.number)
            self.drop(ledger.number)
            raise
        places = np.arange(k) if request.shadow else decision.pi
        rows = candidates.rows[places]
        wanted = packed_positions(decision.pi) if request.shadow else None
        impression = Impression(packed_positions(places), wanted, request.defer_exposure)
        seq = ledger.seq + 1
        if newcomers:
            self.store.add_items(ledger.number, first, newcomers)
        for row, group in moved:
            self.store.regroup(ledger.number, row, group)
        if number not in ledger.candidates:
            self.store.add_candidates(ledger.number, number, candidates.rows.size, candidates.packed())
            ledger.remember_candidates(number, candidates, items)
        self.store.append(
            ledger.number, Entry(seq, now, KIND_IMPRESSION, version.number, number, encode(impression), None)
        )
        if key is not None:
            self.store.add_request(name, digest, ledger.number, seq, now)
        # The answer first: booking changes the visits that a score may depend on.
        answer = self.ranking(ledger, seq, now, version, decision, places, rows, request.explain)
        ledger.book_impression(seq, now, rows, impression.first_bits(), version)
        self.keep(ledger)
        self.take_snapshot(ledger)
        return answer

    def ranking(
        self, ledger: Ledger, seq: int, time: int, version: Version, decision: Decision, places: IntArray,
        rows: IntArray, explain: bool,
    ) -> Ranking:  # fmt: skip
        """Put an answer together: the candidates at these places, which have these rows in the ledger."""
        ids = [ledger.ids[row] for row in rows.tolist()]
        return Ranking(
            impression=self.names.impression(ledger.key, ledger.number, seq),
            query_id=ledger.key.hex(),
            items=ranked_items(ids, places, version, decision, explain),
            policy=version.rules.policy,
            version=version.number,
            expires_at=moment(time + version.retention),
        )

    def candidates(self, ledger: Ledger, known: int | None, items: list[Item]) -> Found:
        """Find the rows of candidates, naming new ones; those that are known need no second look."""
        if known is not None:
            return Found(known, ledger.candidates[known], [], [])
        index = ledger.index
        newcomers = [(item.id, item.group) for item in items if item.id not in index]
        if newcomers:
            if len(ledger.ids) + len(newcomers) > MAX_ROWS:
                raise RequestError(f"this query would have more than {MAX_ROWS:,} different items", "items")
            ledger.name_items(newcomers)
        priors = np.array([np.nan if item.prior is None else item.prior for item in items])
        rows = np.array([index[item.id] for item in items], np.int64)
        ledger.candidate_number += 1
        return Found(ledger.candidate_number, Candidates.of(rows, priors), newcomers, self.regrouped(ledger, items))

    def regrouped(self, ledger: Ledger, items: list[Item]) -> list[tuple[int, str]]:
        """Note which items belong to another group than before."""
        moved = [
            (row, item.group)
            for item in items
            if item.group is not None and ledger.groups[row := ledger.index[item.id]] != item.group
        ]
        for row, group in moved:
            ledger.groups[row] = group
        if moved:
            ledger.forget_candidates()  # they would be taken to be in the groups they were in
        return moved

    def answered(self, name: bytes, digest: bytes, explain: bool) -> Ranking | None:
        """Give the answer to a request that was answered before, made again from the log."""
        found = self.store.find_request(name)
        if found is None:
            return None
        earlier, number, seq = found
        entry = self.store.entry(number, seq)
        if entry is None or self.now() >= entry.time + self.remembered(self.books.versions[entry.version or 0]):
            return None  # that was long ago, or its query was deleted, and with it the answer
        if not hmac.compare_digest(earlier, digest):
            raise ConflictError("this Idempotency-Key was used for another request: use a new one for each request")
        ledger = self.books.ledger(number, entry)
        decision, candidates, version = self.books.decide_again(ledger, entry)
        places = positions(decode_impression(entry.body).shown)
        return self.ranking(ledger, seq, entry.time, version, decision, places, candidates.rows[places], explain)

    def remembered(self, version: Version) -> int:
        """Say for how long a request is remembered by its key, in ms."""
        return min(round(DAY * 1000), version.retention)

    def take_snapshot(self, ledger: Ledger) -> None:
        """Write a ledger down whole, now and then."""
        if ledger.since_snapshot >= SNAPSHOT_EVERY and ledger.since_snapshot * 256 >= ledger.nbytes // 8:
            snapshot, last = ledger.snapshot(), ledger.seq - ledger.since_snapshot
            self.store.add_snapshot(ledger.number, snapshot.seq, snapshot.time, encode(snapshot))
            if last // KEPT_EVERY == snapshot.seq // KEPT_EVERY and last != self.store.base(ledger.number):
                self.store.drop_snapshot(ledger.number, last)
            ledger.since_snapshot = 0

    # --- feedback ----------------------------------------------------------------------------------------------------

    def feedback(self, events: list[Event], retract: bool = False) -> FeedbackAnswer:
        """Take events in, or back; each is reported on, and none is guessed."""
        now = self.now()
        touched: dict[str, Touched | EventResult] = {}
        held: dict[int, Ledger] = {}
        results = []
        for event in events:
            place = touched.get(event.impression)
            if place is None:
                place = touched[event.impression] = self.touch(event.impression, now, held)
            results.append(place if isinstance(place, EventResult) else place.take(event, retract))
        for each in touched.values():
            if isinstance(each, Touched) and each.bits != each.before:
                self.write_feedback(each, now)
        return FeedbackAnswer(results)

    def touch(self, impression: str, now: int, held: dict[int, Ledger]) -> Touched | EventResult:
        """Open an impression for feedback, or say why that cannot be.

        Ledgers are held until all events are written down: memory may have room for some of them only, and one that
        was read back meanwhile would not know of the others' events.
        """
        place = self.names.place(impression)
        ledger = None if place is None else held.get(place[0]) or self.ledger(place[0])
        if place is None or ledger is None:
            return EventResult("unknown_impression")
        held[place[0]] = ledger
        entry = self.store.entry(*place)
        if entry is None and place[1] <= self.store.base(place[0]):
            return EventResult("expired")
        if entry is None or entry.kind != KIND_IMPRESSION:
            return EventResult("unknown_impression")
        made, candidates, version = self.books.impression(ledger, entry)
        if now >= entry.time + version.retention:
            return EventResult("expired")
        return Touched(ledger, entry, candidates.rows[positions(made.shown)].tolist(), version, made.first_bits())

    def write_feedback(self, each: Touched, now: int) -> None:
        """Write down what events changed in one impression."""
        ledger, entry = each.ledger, each.entry
        flips = Flips(
            entry.seq, each.version.examination, each.version.bucket(entry.time),
            [
                (rank, each.rows[rank], before, after)
                for rank, (before, after) in enumerate(zip(each.before, each.bits, strict=True))
                if before != after
            ],
        )  # fmt: skip
        seq, when = ledger.seq + 1, max(now, ledger.time)
        self.store.append(ledger.number, Entry(seq, when, KIND_FEEDBACK, None, None, encode(flips), None))
        self.store.set_bits(ledger.number, entry.seq, bytes(each.bits))
        ledger.book_flips(seq, when, flips)
        self.take_snapshot(ledger)

    # --- what is known -----------------------------------------------------------------------------------------------

    def explain(self, impression: str) -> Explanation:
        """Say why a list was as it was: the decision is made again from the log, so the explanation is exact."""
        place = self.names.place(impression)
        entry = None if place is None else self.store.entry(*place)
        if place is None or entry is None or entry.kind != KIND_IMPRESSION:
            gone = place is not None and place[1] <= self.store.base(place[0])
            raise NotFoundError("this impression has expired" if gone else "there is no such impression")
        ledger = self.books.ledger(place[0], entry)
        impressed = decode_impression(entry.body)
        decision, candidates, version = self.books.decide_again(ledger, entry)
        policy, q, rng = version.policy, decision.view, ledger.draws(version.rules.seed)
        terms = policy.terms(q)
        others = {term: ranks for term in WEIGHTS if (ranks := counterfactual(policy, q, rng, term)) is not None}
        bits = dict(zip(positions(impressed.shown).tolist(), entry.bits or impressed.first_bits(), strict=True))
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
            ranked_at=moment(entry.time), visits=ledger.visits, candidates=n, deferred=impressed.deferred,
            shadow=impressed.wanted is not None, items=items,
            summary=f"{policy.label} chose {len(items)} of {n} items; this query had {ledger.visits} lists before.",
        )  # fmt: skip

    def query_state(self, query: str | None = None, query_id: str | None = None) -> QueryState:
        """Tell what was observed of a query, named by its text or its id."""
        return query_state(self.known(query, query_id), self.version, self.now())

    def known(self, query: str | None, query_id: str | None) -> Ledger:
        """Find the books of a query that exists."""
        key = b""
        if query is not None:
            key = self.names.query(query)
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
        """Say how much is stored."""
        return self.store.usage()

    # --- rules -------------------------------------------------------------------------------------------------------

    def in_force(self) -> PolicyInForce:
        """Say how lists are made now."""
        version = self.version
        return PolicyInForce(
            version=version.number, since=moment(version.since), **msgspec.structs.asdict(version.rules)
        )

    def change(self, change: PolicyChange) -> PolicyInForce:
        """Make lists otherwise from now on; what is in force already stays the same version."""
        rules = self.version.rules.changed(change)
        if rules != self.version.rules:
            self.use(rules)
        return self.in_force()

    def use(self, rules: Rules) -> None:
        """Put rules in force."""
        before = self.books.keeps
        self.version = self.write_version(rules, default=True)
        self.by_policy.clear()
        if self.books.keeps != before:
            self.forget()  # ledgers must hold back more than they did

    def version_for(self, text: str) -> Version:
        """Find the version that differs from the rules in force by a policy only, or make it."""
        found = self.by_policy.get(text)
        if found is None:
            rules = self.version.rules.changed(PolicyChange(policy=text))
            same = [each for each in self.books.versions.values()
                    if each.rules == rules and each.decaying_since == self.version.decaying_since]  # fmt: skip
            found = self.by_policy[text] = same[-1] if same else self.write_version(rules, default=False)
        return found

    def write_version(self, rules: Rules, default: bool) -> Version:
        """Give rules a number and write them down."""
        check_servable(parse_policy(rules.policy))
        if len(self.books.versions) >= MAX_VERSIONS:
            raise RequestError(
                f"there have been {MAX_VERSIONS:,} versions of the rules, and there can be no more", "policy"
            )
        version = self.books.new_version(rules, self.now(), default)
        self.store.add_version(version.number, encode(version))
        self.books.add_version(version)
        self.look_again()
        return version

    # --- deleting ----------------------------------------------------------------------------------------------------

    def delete_query(self, query: str | None = None, query_id: str | None = None) -> None:
        """Forget a query and everything of it."""
        number = self.known(query, query_id).number
        self.store.delete_query(number)
        self.drop(number)
        self.look_again()

    def delete_item(self, item: str) -> int:
        """Forget an item, in every query; say in how many it was."""
        places = self.store.places_of(item)
        now = self.now()
        for number, row in places:
            ledger = self.ledger(number)
            assert ledger is not None
            seq, when = ledger.seq + 1, max(now, ledger.time)
            self.store.append(number, Entry(seq, when, KIND_DELETION, None, None, encode(row), None))
            self.store.forget_item(number, row)
            ledger.book_deletion(seq, when, row)
        self.look_again()
        return len(places)

    def reset(self) -> int:
        """Forget every query; rules and keys stay."""
        queries = self.store.reset()
        self.forget()
        return queries

    # --- expiry ------------------------------------------------------------------------------------------------------

    def sweep(self, seconds: float = math.inf) -> int:
        """Fold what has expired into the bases of queries; return how many entries that were.

        When the time is over it stops, and goes on there the next time. The store is left alone until something that
        was seen expires, or something that came later can have expired.
        """
        now = self.now()
        if now >= self.requests_due:
            self.sweep_requests(now)
        return self.sweep_queries(now, time.monotonic() + seconds) if now >= self.queries_due else 0

    def look_again(self) -> None:
        """Forget when something will expire: after anything but a list or feedback, that may be sooner."""
        self.requests_due = self.queries_due = self.coming = 0

    def sweep_requests(self, now: int) -> None:
        """Forget requests that are not remembered by their keys any more."""
        remembered = max(map(self.remembered, self.books.versions.values()))
        oldest = self.store.forget_requests(now - remembered)
        self.requests_due = (now if oldest is None else min(now, oldest)) + remembered + 1

    def sweep_queries(self, now: int, end: float) -> int:
        """Go through the queries, from where the last round stopped."""
        if not self.swept:  # a list that is made from now on lasts at least so long
            self.coming = now + min(each.retention for each in self.books.versions.values()) + self.books.keeps
        folded = 0
        while numbers := self.store.numbers(self.swept, 1):
            self.swept = numbers[0]
            folded += self.fold(self.swept, now)
            if time.monotonic() > end:
                return folded
        self.swept, self.queries_due = 0, self.coming
        return folded

    def fold(self, number: int, now: int) -> int:
        """Fold the expired beginning of a query's log into its base."""
        last: Entry | None = None
        folded = 0
        for entry in self.store.log(number, 0):
            retention = self.books.versions[entry.version or 0].retention if entry.kind == KIND_IMPRESSION else 0
            expires = entry.time + retention + self.books.keeps
            if now < expires:
                self.coming = min(self.coming, expires)
                break
            last = entry
            folded += 1
        if last is None:
            return 0
        ledger = self.books.ledger(number, last)
        self.books.apply(ledger, last)
        self.store.add_snapshot(number, last.seq, last.time, encode(ledger.snapshot()))
        dropped = self.store.fold(number, last.seq)
        loaded = self.ledgers.get(number)
        if loaded is not None:
            loaded.forget_candidates(dropped)
        return folded

    # --- keys --------------------------------------------------------------------------------------------------------

    def add_key(self, name: str, scopes: list[Scope]) -> KeyAdded:
        """Make a key; only a hash of its secret is kept."""
        if unknown := [scope for scope in scopes if scope not in SCOPES]:
            raise RequestError(f"unknown scope {unknown[0]!r}; available: {', '.join(SCOPES)}", "scopes")
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        ordered = [scope for scope in SCOPES if scope in scopes]
        stored = StoredKey(id, hashed(secret), name, " ".join(ordered), self.now(), None)
        self.store.add_key(stored)
        self.stored_keys[id] = stored
        return KeyAdded(key=f"{KEY_PREFIX}_{id}_{secret}", info=key_info(stored))

    def keys(self) -> list[KeyInfo]:
        """Every key, without its secret."""
        return [key_info(key) for key in self.store.all_keys()]

    def revoke_key(self, id: str) -> KeyInfo:
        """Make a key good for nothing; doing so again changes nothing."""
        if id not in self.stored_keys:
            raise NotFoundError("there is no such key")
        self.store.revoke_key(id, self.now())
        self.stored_keys = {key.id: key for key in self.store.all_keys()}
        return key_info(self.stored_keys[id])


class Found(NamedTuple):
    """Candidates, the number they are stored by, items that are new, and rows that belong to another group now."""

    number: int
    candidates: Candidates
    newcomers: list[tuple[str, str | None]]
    moved: list[tuple[int, str]]


class Touched:
    """An impression that feedback refers to."""

    def __init__(self, ledger: Ledger, entry: Entry, rows: list[int], version: Version, first: bytes) -> None:
        self.ledger, self.entry, self.rows, self.version = ledger, entry, rows, version
        self.before = entry.bits or first
        self.bits = bytearray(self.before)

    def take(self, event: Event, retract: bool) -> EventResult:
        """Set the bits that an event asks for."""
        if event.type == "click":
            if event.item is None:
                return EventResult("invalid", "a click needs an item")
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
        """Set one bit at some ranks."""
        if all(self.bits[rank] & bit for rank in ranks):
            return EventResult("duplicate")
        for rank in ranks:
            self.bits[rank] |= bit
        return EventResult("applied")


def ranked_items(
    ids: list[str | None], places: IntArray, version: Version, decision: Decision, explain: bool
) -> list[Ranked]:  # fmt: skip
    """Give the items of an answer: who, at which rank, with which score, and on request with which terms.

    An item that was deleted since is left out.
    """
    scores = [None] * len(ids) if decision.scores is None else decision.scores[places].tolist()
    if not explain:
        return [Ranked(id, j + 1, scores[j]) for j, id in enumerate(ids) if id is not None]
    by_name = version.policy.terms(decision.view)
    terms = [{name: float(values[i]) for name, values in by_name.items()} for i in places.tolist()]
    return [Ranked(id, j + 1, scores[j], terms[j]) for j, id in enumerate(ids) if id is not None]


def digest_of(content: bytes | msgspec.Raw) -> bytes:
    """Give 16 bytes that stand for some content."""
    return hashlib.blake2b(content, digest_size=16).digest()


def hashed(secret: str) -> bytes:
    """Hash the secret of a key. It is 256 random bits, so a fast hash will do."""
    return hashlib.sha256(secret.encode()).digest()


def key_info(key: StoredKey) -> KeyInfo:
    """Describe a key without its secret."""
    return KeyInfo(
        id=key.id, name=key.name, scopes=[scope for scope in SCOPES if scope in key.scopes.split()],
        created=moment(key.created), revoked=None if key.revoked is None else moment(key.revoked),
    )  # fmt: skip
