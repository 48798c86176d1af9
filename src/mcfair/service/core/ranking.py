"""Ranking: choose a list for a request, record the impression, and repeat the response to a repeated request."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ...arrays import IntArray
from ...errors import ConflictError, RequestError
from ..stores import KIND_IMPRESSION, LogEntry
from ..wire import (
    MAX_KEY,
    Item,
    Ranked,
    Ranking,
    RawRankRequest,
    check_cells,
    check_rank_request,
    check_text,
    fields_besides_items,
    read_items,
)
from .decision import Decision
from .engine_state import EngineState, WouldBlockError
from .experiments import arm_name, arm_policy, assign, figures_of
from .ids import Position
from .ledger import Ledger
from .records import Assignment, Candidates, Impression, decode_impression, decode_positions, encode, encode_positions
from .reports import to_datetime
from .rules import Version

CANDIDATES_REUSED = 1024
"""Log entries for which a stored candidate set is used again. It is numbered by the entry that used it first, so
compaction can tell from the number alone that no entry refers to it any more."""


class RankOperations(EngineState):
    """The operation of ranking."""

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
        assigned = None if request.shadow or request.policy else assign(self.ids, self.version.rules, request.session)
        policy = request.policy if assigned is None else arm_policy(self.version.rules, assigned[0])
        version = self.repository.with_policy(self.version, policy)
        if not version.served:
            self.repository.check_compiled(version)
            if self.nonblocking:
                raise WouldBlockError
        chosen = self.choose(ledger, request, items, version)
        version.served = version.policy.kernel is not None
        decision, positions = chosen.decision, chosen.positions
        seq, rows = ledger.seq + 1, chosen.candidates.rows[positions]
        impression = Impression(
            encode_positions(positions),
            encode_positions(decision.pi) if request.shadow else None,
            request.defer_exposure,
            self.epoch,
            None if policy is None else version.rules.policy,
            chosen.rate,
            list(chosen.reused),
            None if assigned is None else self.assignment(ledger, chosen, version, *assigned),
        )
        self.store_candidates(ledger, chosen, items)
        self.store.append(
            ledger.number,
            LogEntry(seq, chosen.time, KIND_IMPRESSION, version.number, chosen.number, encode(impression), None),
            ledger.revision,
        )
        if impression.assignment is not None and not impression.deferred:
            self.count_list(ledger, version, impression.assignment, b"", impression.initial_bits())
        if key is not None:
            self.store.add_request(ledger.number, name, digest, seq, chosen.time)
        # Build the response before recording the impression: a score may depend on the visits, which that changes.
        place = Position(ledger.number, seq, self.epoch)
        answer = self.ranking(ledger, place, chosen.time, version, impression, decision, rows, request.explain)
        ledger.record_impression(seq, chosen.time, chosen.candidates, rows, impression.initial_bits(), version)
        self.cache_ledger(ledger)
        self.take_snapshot(ledger)
        return answer

    def choose(self, ledger: Ledger, request: RawRankRequest, items: bytes, version: Version) -> ChosenList:
        """Choose the list of a request. A request that fails leaves the ledger and the store as they were."""
        now, known = max(self.now(), ledger.time), ledger.candidate_numbers.get(items)
        if known is None:
            return self.choose_from_new(ledger, request, version, now)
        # The items of a set that was ranked before are admitted, and in their groups.
        candidates = ledger.candidates[known]
        k = min(request.k, candidates.rows.size)
        check_cells(candidates.rows.size, k)
        ledger.check_size(0, k, version, now, self.max_ledger)
        decision = self.repository.decide(ledger, candidates, version, now, k)
        number = known if ledger.seq + 1 - known < CANDIDATES_REUSED else ledger.seq + 1
        return ChosenList(now, number, candidates, decision, np.arange(k) if request.shadow else decision.pi)

    def choose_from_new(self, ledger: Ledger, request: RawRankRequest, version: Version, now: int) -> ChosenList:
        """Choose a list from a set of candidates that is not cached; some of them may be new to the query."""
        read = read_items(request.items)
        k = min(request.k, len(read))
        check_cells(len(read), k)
        admitted, fresh = ledger.rows, not ledger.number
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
            candidates = resolve(ledger, read)
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
        positions = np.arange(k) if request.shadow else decision.pi
        items_added = [(row, *newcomer) for row, newcomer in zip(taken, newcomers, strict=True)]
        return ChosenList(now, ledger.seq + 1, candidates, decision, positions, rate, items_added, reused, moved)

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
        self,
        ledger: Ledger,
        place: Position,
        time: int,
        version: Version,
        impression: Impression,
        decision: Decision,
        rows: IntArray,
        explain: bool,
    ) -> Ranking:
        """Build the response from an impression, the decision behind it and the rows of its list in the ledger."""
        positions = decode_positions(impression.shown)
        ids = [ledger.ids[row] for row in rows.tolist()]
        return Ranking(
            impression=self.ids.impression(ledger.key, place),
            query_id=ledger.key.hex(),
            items=ranked_items(ids, positions, version, decision, explain),
            policy=version.rules.policy,
            version=version.number,
            expires_at=to_datetime(time + version.retention),
            arm=arm_name(version.rules.experiment, impression.assignment),
        )

    def assignment(self, ledger: Ledger, chosen: ChosenList, version: Version, arm: int, bucket: int) -> Assignment:
        """Return the record of the arm of a list, with its figures by the estimates of the rules in force.

        The policy of an arm may bring an estimator of its own; arms are comparable only by a common one.
        """
        decision, common = chosen.decision, self.version
        view = decision.view
        if version.estimator != common.estimator:
            view = ledger.view(chosen.candidates, common, chosen.time, decision.pi.size)
        return Assignment(arm, bucket, *figures_of(view.R, view.E, decision.p, chosen.positions).fixed())

    def earlier_ranking(self, number: int, name: bytes, digest: bytes, explain: bool) -> Ranking | None:
        """Return the response to an earlier request with this idempotency key, rebuilt from the log; None if new."""
        found = self.store.find_request(number, name)
        if found is None:
            return None
        if self.nonblocking:
            raise WouldBlockError
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
        rows, place = candidates.rows_at(decode_positions(impression.shown)), Position(number, seq, impression.epoch)
        return self.ranking(ledger, place, entry.time, version, impression, decision, rows, explain)


class ChosenList(NamedTuple):
    """The list chosen for a request, and what is new about its candidates.

    `newcomers` are the rows, ids and groups of new items, `rate` their starting exposure and `reused` those of their
    rows that another item had before. `moved` are the rows of items that changed their group, with the group before and
    after.
    """

    time: int
    number: int
    candidates: Candidates
    decision: Decision
    positions: IntArray
    rate: float = 0.0
    newcomers: Sequence[tuple[int, str, str | None]] = ()
    reused: Sequence[int] = ()
    moved: Sequence[tuple[int, str | None, str]] = ()


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


def ranked_items(
    ids: list[str | None], positions: IntArray, version: Version, decision: Decision, explain: bool
) -> list[Ranked]:
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
