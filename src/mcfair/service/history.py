"""What the log of a query says: its books at any moment, lists made again, sums checked, everything exported."""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from ..analysis.limits import fairness_floor
from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset
from ..errors import StoreError
from ..metrics.exposure import query_unfairness
from ..policies.base import room_for
from .decision import Decision, decide
from .ledger import Candidates, Examinations, Flips, Impression, Ledger, Snapshot
from .rules import Rules, Version
from .stores import KIND_FEEDBACK, KIND_IMPRESSION, Entry, Store
from .wire import Fairness, GroupFairness, ItemState, QueryState

__all__ = ["Books", "export", "fairness", "moment", "replay", "verify"]

MANY = 256
"""Queries taken from a store at a time."""

decode_impression = msgspec.msgpack.Decoder(Impression).decode
decode_flips = msgspec.msgpack.Decoder(Flips).decode
decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode
decode_version = msgspec.msgpack.Decoder(Version).decode
decode_row = msgspec.msgpack.Decoder(int).decode
encode = msgspec.msgpack.Encoder().encode


def moment(time: int) -> datetime.datetime:
    """Make a date of a time in ms."""
    return datetime.datetime.fromtimestamp(time / 1000, datetime.UTC)


class Books:
    """The ledgers of a store, made from snapshots and logs, with every version of the rules."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.versions: dict[int, Version] = {}
        self.keeps = 0  # longest time for which any version holds impressions back from R, in ms
        self.examinations = Examinations()
        self.room = room_for(0)
        for _, body in store.versions():
            self.add_version(decode_version(body))

    def add_version(self, version: Version) -> None:
        """Take in a version of the rules."""
        number = self.examinations.number(version.rules.examination)
        if number != version.examination:
            raise StoreError(
                f"version {version.number} of the rules has an examination {version.examination}, not {number}"
            )
        self.versions[version.number] = version
        self.keeps = max(self.keeps, version.maturing)

    @property
    def in_force(self) -> Version:
        """The version that holds for requests that do not name a policy."""
        return next(version for version in reversed(self.versions.values()) if version.default)

    def new_version(self, rules: Rules, now: int, default: bool) -> Version:
        """Make the next version."""
        before = self.in_force if self.versions else None
        decaying = before is not None and before.half_life and rules.half_life is not None
        return Version(
            number=1 + max(self.versions, default=0), since=now, rules=rules,
            examination=self.examinations.number(rules.examination),
            decaying_since=before.decaying_since if before is not None and decaying else now, default=default,
        )  # fmt: skip

    def empty(self, number: int, key: bytes) -> Ledger:
        """Open the books of a query that has none."""
        return Ledger(number, key, self.examinations, self.keeps)

    def ledger(self, number: int, before: Entry | None = None, *, from_base: bool = False) -> Ledger:
        """Make the books of a query, as they are or as they were before an entry."""
        try:
            return self.made(number, before, from_base)
        except (msgspec.MsgspecError, ValueError, LookupError, zlib.error) as error:
            raise StoreError(f"query {number} cannot be read: {type(error).__name__}: {error}") from error

    def made(self, number: int, before: Entry | None, from_base: bool) -> Ledger:
        """Make books from a snapshot so old that nothing in it is held back from R any more, and what came after."""
        key = self.store.key_of(number)
        if key is None:
            raise StoreError(f"there is no query {number}")
        ledger = self.empty(number, key)
        ledger.name_items(self.store.items(number))
        if from_base:
            base = self.store.base(number)
            found = self.store.snapshot(number, base) if base else None
        else:
            settled = None
            if self.keeps and (newest := before or self.store.last_entry(number)) is not None:
                settled = newest.time - self.keeps
            found = self.store.snapshot(number, before.seq - 1 if before else None, settled)
            if found is None and (base := self.store.base(number)):
                found = self.store.snapshot(number, base)
        if found is not None:
            ledger.restore(decode_snapshot(found))
        if not from_base:
            for entry in self.store.log(number, ledger.seq, before.seq - 1 if before else None):
                self.apply(ledger, entry)
            ledger.since_snapshot = 0 if found is None else ledger.seq - decode_snapshot(found).seq
        ledger.candidate_number = self.store.last_candidates(number)
        return ledger

    def apply(self, ledger: Ledger, entry: Entry) -> None:
        """Do to the books what an entry of the log did."""
        if entry.seq != ledger.seq + 1:
            raise StoreError(f"the log of query {ledger.number} has a gap between {ledger.seq} and {entry.seq}")
        if entry.kind == KIND_IMPRESSION:
            impression, candidates, version = self.impression(ledger, entry)
            ledger.admit(candidates, version, entry.time)
            rows = candidates.rows[positions(impression.shown)]
            ledger.book_impression(entry.seq, entry.time, rows, impression.first_bits(), version)
        elif entry.kind == KIND_FEEDBACK:
            ledger.book_flips(entry.seq, entry.time, decode_flips(entry.body))
        else:
            ledger.book_deletion(entry.seq, entry.time, decode_row(entry.body))

    def impression(self, ledger: Ledger, entry: Entry) -> tuple[Impression, Candidates, Version]:
        """Read an impression, its candidates and its rules."""
        assert entry.candidates is not None
        assert entry.version is not None
        found = ledger.candidates.get(entry.candidates)
        if found is None:
            n, body = self.store.candidates(ledger.number, entry.candidates)
            found = Candidates.unpacked(body, n)
        return decode_impression(entry.body), found, self.versions[entry.version]

    def decide_again(self, ledger: Ledger, entry: Entry) -> tuple[Decision, Candidates, Version]:
        """Make the decision of an impression again, on books as they were before it."""
        impression, candidates, version = self.impression(ledger, entry)
        ledger.admit(candidates, version, entry.time)
        return self.decide(ledger, candidates, version, entry.time, impression.ranks), candidates, version

    def decide(self, ledger: Ledger, candidates: Candidates, version: Version, now: int, k: int) -> Decision:
        """Let the policy of some rules choose k of the candidates, which are admitted already."""
        n = candidates.rows.size
        if self.room.items.size <= n:
            self.room = room_for(2 * n)
        view, rng = ledger.view(candidates, version, now, k), ledger.draws(version.rules.seed)
        return decide(version.policy, view, rng, k, version.theta, self.room)

    def all_ledgers(self) -> Iterator[Ledger]:
        """Make the books of every query, one after the other."""
        for number in self.numbers():
            yield self.ledger(number)

    def numbers(self) -> Iterator[int]:
        """Every query."""
        last = 0
        while numbers := self.store.numbers(last, MANY):
            yield from numbers
            last = numbers[-1]


def packed_positions(places: IntArray) -> bytes:
    """Write a list of positions in 16 bits each."""
    return places.astype(np.uint16).tobytes()


def positions(packed: bytes) -> IntArray:
    """Read a list of positions."""
    return np.frombuffer(packed, np.uint16).astype(np.int64)


# --- what is known of queries ----------------------------------------------------------------------------------------


def everything(ledger: Ledger, version: Version, now: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Rows of all items of a query that are left, the exposure they have had, and their relevance.

    What newcomers are credited with is known to policies only: nobody has seen it.
    """
    rows = np.array([row for row in range(ledger.rows) if row not in ledger.gone], np.int64)
    if not rows.size:
        return rows, np.zeros(0), np.zeros(0)
    q = ledger.view(Candidates.of(rows, ledger.priors[rows]), version, now, 1)
    return rows, ledger.E[rows], q.R


def least_unfairness(ledger: Ledger, rows: IntArray, E: FloatArray, R: FloatArray) -> float:
    """Least unfairness that lists could have reached had they known R: ranks were given, who stood there was not.

    Exact for lists that were shown whole, under an examination that never rises. Of others only sums by rank are known,
    and lists could have done better than those allow; then what they did reach is given if it is less.
    """
    if rows.size < 2 or not E.any():
        return 0.0
    by_rank = np.zeros(max(block.ranks for block in ledger.blocks.values()))
    for block in ledger.blocks.values():
        by_rank[: block.ranks] += block.F[rows].sum(axis=0) * block.weights
    scale = max(1.0, float(R.max()))
    data = Dataset(offsets=[0, rows.size], y=np.zeros(rows.size), R=R / scale)  # type: ignore[arg-type]
    floor = fairness_floor(data, [1], np.sort(by_rank)[::-1][: rows.size])
    return min(floor.unfairness * scale * scale, float(query_unfairness(E, R)))


def query_state(ledger: Ledger, version: Version, now: int) -> QueryState:
    """Tell what was observed of a query, over all its items."""
    rows, E, R = everything(ledger, version, now)
    due = float(R.sum())
    had = float(E.sum())
    return QueryState(
        query_id=ledger.key.hex(), visits=ledger.visits,
        unfairness=float(query_unfairness(E, R)) if rows.size else 0.0,
        floor=least_unfairness(ledger, rows, E, R),
        items=[
            ItemState(
                id=str(ledger.ids[row]), group=ledger.groups[row], exposure=float(E[i]), clicks=float(ledger.C[row]),
                relevance=float(R[i]), exposure_share=float(E[i]) / had if had else 0.0,
                merit_share=float(R[i]) / due if due else 0.0,
            )
            for i, row in enumerate(rows.tolist())
        ],
    )  # fmt: skip


def fairness(store: Store, now: int) -> Fairness:
    """Tell fairness over all queries: means over those visited, and what each group had and was due."""
    books = Books(store)
    version = books.in_force
    queries = visits = 0
    unfair = floors = total = 0.0
    groups: dict[str | None, list[float]] = {}
    for ledger in books.all_ledgers():
        state = query_state(ledger, version, now)
        queries += 1
        visits += state.visits
        unfair += state.unfairness
        floors += state.floor
        exposure = sum(item.exposure for item in state.items)
        total += exposure
        for item in state.items:
            sums = groups.setdefault(item.group, [0, 0.0, 0.0, 0.0])
            sums[0] += 1
            sums[1] += item.exposure
            sums[2] += item.clicks
            sums[3] += item.merit_share * exposure
    return Fairness(
        queries=queries, visits=visits, unfairness=unfair / max(queries, 1), floor=floors / max(queries, 1),
        groups=[
            GroupFairness(
                group=group, items=int(items), exposure=had, clicks=clicks,
                exposure_share=had / total if total else 0.0, merit_share=due / total if total else 0.0,
            )
            for group, (items, had, clicks, due) in sorted(groups.items(), key=lambda each: -each[1][1])
        ],
        as_of=moment(now),
    )  # fmt: skip


def export(store: Store) -> Iterator[bytes]:
    """Give everything as lines of JSON: rules, then each query's counts and the impressions still in its log."""
    books = Books(store)
    line = msgspec.json.Encoder().encode
    for version in books.versions.values():
        yield line({"version": version.number, "since": moment(version.since), "default": version.default,
                    "rules": version.rules}) + b"\n"  # fmt: skip
    for number in books.numbers():
        ledger = books.ledger(number)
        yield line({"query": ledger.key.hex(), "visits": ledger.visits, "items": exported_items(ledger)}) + b"\n"
        for entry in store.log(number, 0):
            if entry.kind == KIND_IMPRESSION:
                impression, candidates, _ = books.impression(ledger, entry)
                shown = candidates.rows[positions(impression.shown)].tolist()
                yield line({
                    "query": ledger.key.hex(), "impression": entry.seq, "time": moment(entry.time),
                    "version": entry.version, "items": [ledger.ids[row] for row in shown],
                    "bits": list(entry.bits or impression.first_bits()),
                }) + b"\n"  # fmt: skip


def exported_items(ledger: Ledger) -> list[dict[str, Any]]:
    """Give the counts of every item that is left, by examination and time."""
    return [
        {
            "id": ledger.ids[row], "group": ledger.groups[row],
            "counts": [
                {"examination": block.examination, "since": block.bucket, "ranks": block.F[row].tolist(),
                 "clicks": int(block.C[row])}
                for block in ledger.blocks.values()
            ],
        }
        for row in range(ledger.rows) if row not in ledger.gone
    ]  # fmt: skip


# --- proofs ----------------------------------------------------------------------------------------------------------

Say = Callable[[int], None]


def verify(store: Store, progress: Say = lambda done: None) -> list[str]:
    """Prove that base + live impressions = counters for every query; return what is wrong, if anything.

    The log is summed up from the base and must give every later snapshot; what is known of each impression must be what
    its feedback said; nothing may be missing.
    """
    faults = store.check()
    books = Books(store)
    for number in books.numbers():
        try:
            faults += [f"query {number}: {fault}" for fault in query_faults(books, number)]
        except (StoreError, msgspec.MsgspecError, ValueError, LookupError, zlib.error) as error:
            faults.append(f"query {number}: {error}")
        progress(number)
    return faults


def query_faults(books: Books, number: int) -> Iterator[str]:
    """Check one query."""
    store = books.store
    taken = {seq: decode_snapshot(body) for seq, body in store.snapshots(number)}
    base = store.base(number)
    if base and base not in taken:
        yield f"its base at {base} is missing"
        return
    ledger = books.ledger(number, from_base=True)
    bits: dict[int, bytearray] = {}
    stored: dict[int, bytes] = {}
    for entry in store.log(number, ledger.seq):
        books.apply(ledger, entry)
        if entry.kind == KIND_IMPRESSION:
            impression = decode_impression(entry.body)
            bits[entry.seq] = bytearray(impression.first_bits())
            stored[entry.seq] = entry.bits or impression.first_bits()
        elif entry.kind == KIND_FEEDBACK:
            flips = decode_flips(entry.body)
            for rank, _, before, after in flips.flips:
                if flips.impression in bits:
                    if bits[flips.impression][rank] != before:
                        yield f"feedback {entry.seq} counted rank {rank + 1} of impression {flips.impression} twice"
                    bits[flips.impression][rank] = after
        if entry.seq in taken and differ(ledger.snapshot(), taken[entry.seq]):
            yield f"base and log up to {entry.seq} do not give the counters stored for it"
    if unreached := [seq for seq in taken if not base <= seq <= ledger.seq]:
        yield f"it has counters for {unreached[0]}, which its log does not reach"
    for seq, known in stored.items():
        if bits[seq] != known:
            yield f"impression {seq} is not what its feedback made of it"
    if any((block.F < 0).any() or (block.C < 0).any() for block in ledger.blocks.values()):
        yield "a counter is below 0"
    if ledger.rows > len(ledger.ids):
        yield f"it has {ledger.rows} rows, but {len(ledger.ids)} items"


def differ(a: Snapshot, b: Snapshot) -> bool:
    """Whether two snapshots differ in anything that counts."""
    return encode(a) != encode(b)


def replay(store: Store, progress: Say = lambda done: None) -> tuple[int, int, list[str]]:
    """Make every list in the log again, from the base of each query, and compare it with the one that was made.

    Returns how many queries and lists there were, and where they differ. Lists so soon after a base that impressions
    held back from R have gone into it are not compared.
    """
    books = Books(store)
    queries = lists = 0
    faults = []
    for number in books.numbers():
        ledger = books.ledger(number, from_base=True)
        begin = ledger.time + books.keeps if ledger.seq else 0
        for entry in store.log(number, ledger.seq):
            if entry.kind == KIND_IMPRESSION and entry.time >= begin:
                decision, _, _ = books.decide_again(ledger, entry)
                impression = decode_impression(entry.body)
                lists += 1
                if not np.array_equal(decision.pi, positions(impression.wanted or impression.shown)):
                    faults.append(f"query {number}: list {entry.seq} was another one")
            books.apply(ledger, entry)
        live = books.ledger(number)
        if differ(ledger.snapshot(), live.snapshot()):
            faults.append(f"query {number}: its counters are others")
        queries += 1
        progress(number)
    return queries, lists, faults
