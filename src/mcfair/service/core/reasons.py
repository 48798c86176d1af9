"""Reasons in words: why an item has its rank, or is not shown, each statement true of the numbers of the decision.

A reason is a counterfactual: the part of the policy without which the rank of the item changes most, however large its
term is. A part that is equal for all candidates is no reason.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..._jit import kernel
from ...arrays import FloatArray, IntArray
from ...estimators import IPS
from ...policies.base import Policy
from ...random import Draws
from .decision import GROUP, GUARD, RELEVANCE, Decision, Standings, standings
from .ledger import Ledger
from .records import Candidates
from .rules import Version

FAIRNESS, EXPLORATION = "fairness", "exploration"

TIES = {
    "index": "equal scores keep the order of the request",
    "random": "the order of equal scores is drawn",
    "least-exposed": "of equal scores the one with the fewest views comes first",
}
"""The effect of each rule for ties, in words."""

NAMES = {GROUP: "fairness between groups", GUARD: "the guard"}
"""Words for parts whose name is not one."""

DIGITS = 3
"""Most digits after the decimal point of a percentage."""


def reasons_for(version: Version, ledger: Ledger, candidates: Candidates, decision: Decision) -> Reasons:
    """Return the reasons of a decision, given the ledger that it was made on."""
    return Reasons(
        version.policy,
        decision,
        ledger.draws(version.rules.seed),
        by_clicks=by_clicks(version, candidates),
        credited=bool(ledger.newcomers.exposure[candidates.rows].any()),
    )


def by_clicks(version: Version, candidates: Candidates) -> bool:
    """Return whether relevance is estimated by clicks alone, without priors."""
    rules = version.rules
    priors = rules.prior_strength > 0.0 and (candidates.have_priors or rules.prior_mean is not None)
    return isinstance(version.estimator, IPS) and not priors


class Reasons:
    """The reasons of a decision: one sentence for each candidate.

    Parameters
    ----------
    policy, decision, rng
        The policy, its decision and the draws of the session.
    by_clicks
        Whether relevance is estimated by clicks alone, without priors.
    credited
        Whether the exposure of some candidates includes what newcomers are credited with at the start.
    """

    def __init__(self, policy: Policy, decision: Decision, rng: Draws, *, by_clicks: bool, credited: bool) -> None:
        self.policy, self.decision, self.q = policy, decision, decision.view
        self.standings: Standings = standings(policy, decision, rng)
        self.n, self.k = self.q.R.size, decision.pi.size
        # Everything that is asked of each candidate is computed for all at once: a list may have 1,000 ranks.
        parts = [part for part in self.standings.without if part != RELEVANCE]
        self.present = self.places(self.standings.ranks)
        others = [self.places(self.standings.without[part]) for part in parts]
        self.others = np.array(others, np.int64).reshape(len(parts), self.n)
        changes = np.abs(self.others - self.present)
        changes[[part in self.standings.even for part in parts]] = 0
        self.ranks: list[int] = self.standings.ranks.tolist()
        self.ranks_without: dict[str, list[int]] = {part: self.standings.without[part].tolist() for part in parts}
        self.parts, self.chosen = parts, np.full(self.n, -1)
        if parts:
            best = changes.argmax(axis=0)
            self.chosen = np.where(changes[best, np.arange(self.n)] > 0, best, -1)
        self.shares = TotalShares(self.q.E, self.q.R)
        self.relevances = Ties(self.q.R)
        self.scores = None if decision.scores is None else Ties(decision.scores)
        self.basis = "clicks" if by_clicks else "estimated relevance"
        self.had = "has been credited with" if credited else "has had"

    # --- ranks -------------------------------------------------------------------------------------------------------

    def rank(self, i: int) -> int:
        """Return the rank of a candidate; 0 if it is not in the list of a policy that ranks no others."""
        return self.ranks[i]

    def without(self, i: int) -> dict[str, int | None]:
        """Return the rank of a candidate without each part; None if it would not be in the list."""
        return {part: ranks[i] or None for part, ranks in self.ranks_without.items()}

    def order(self) -> list[int]:
        """Return the candidates by rank, those without one last."""
        return [int(i) for i in np.argsort(self.present, kind="stable")]

    def places(self, ranks: IntArray) -> IntArray:
        """Return ranks with the first place after the list for candidates that are not in it."""
        return np.where(ranks == 0, self.k + 1, ranks)

    def main_part(self, i: int) -> str | None:
        """Return the part without which the rank of a candidate changes most; None if it changes without none."""
        return None if self.chosen[i] < 0 else self.parts[self.chosen[i]]

    # --- sentences ---------------------------------------------------------------------------------------------------

    def sentence(self, i: int) -> str:
        """Return why a candidate has its rank, or why it is not shown."""
        if self.n == 1:
            return "Ranked 1st: it is the only candidate."
        part = self.main_part(i)
        if part is None:
            return f"{self.heading(i)}{self.unmoved(i)}."
        words = {
            FAIRNESS: self.by_fairness,
            GROUP: self.by_group,
            EXPLORATION: self.by_exploration,
            GUARD: self.by_guard,
        }
        move = self.move(i, part)
        reason = words[part](i, move) if part in words else f"the term {part!r} moved it {move.direction}"
        if part == EXPLORATION and move.up and self.q.E[i] == 0.0:
            other = f"{move.otherwise[0].lower()}{move.otherwise[1:]}"
            new = f"New: too little is known to rank it by {self.basis}, so it is being tried"
            return f"{self.heading(i)}. {new}; {other}."
        return f"{self.heading(i)}. {move.otherwise}; {reason}."

    def heading(self, i: int) -> str:
        """Return the rank in words, or that the candidate is not shown."""
        rank = self.rank(i)
        if 0 < rank <= self.k:
            return f"Ranked {ordinal(rank)}"
        if rank == 0:
            return f"Not shown: the policy chose {counted(self.k, 'other candidate')}"
        return f"Not shown: it was ranked {ordinal(rank)}, and the list has {counted(self.k, 'place')}"

    def move(self, i: int, part: str) -> Move:
        """Return how a part has moved a candidate, and past which others."""
        without, then = self.ranks_without[part][i], self.others[self.chosen[i]]
        facts = [int(each) for each in compare_with_passed(i, self.present, then, self.q.E, self.q.R)]
        if without == 0:
            otherwise = f"Without {NAMES.get(part, part)} it would not be in the list"
        elif part != GUARD and without == self.standings.by_relevance[i]:
            otherwise = f"By {self.basis} alone it would be {ordinal(without)}"
        else:
            otherwise = f"Without {NAMES.get(part, part)} it would be {ordinal(without)}"
        return Move(bool(self.present[i] < then[i]), Passed(*facts), otherwise)

    def by_fairness(self, i: int, move: Move) -> str:
        """Return why fairness has moved a candidate: by its shares of exposure and relevance."""
        due = self.shares.of(i)
        if due is None:
            return f"fairness moved it {move.direction}"
        shares = f"it {self.had} {due.had} of the views where its relevance earns {due.earned}"
        if due.sign == 0:
            return f"fairness moved it {move.direction}, and {shares}"
        if (due.sign < 0) == move.up:
            return f"it was moved {move.direction} because {shares}"
        if (move.passed.had_more if move.up else move.passed.had_less) < move.passed.number:
            return f"fairness moved it {move.direction} although {shares}"
        have = "has" if move.passed.number == 1 else "have"
        even = f"{move.others} {have} had even {'more' if move.up else 'less'} for {move.their} relevance"
        return f"it was moved {move.direction} although {shares}: {even}"

    def by_group(self, i: int, move: Move) -> str:
        """Return why fairness between groups has moved a candidate: by the shares of its group."""
        due = self.group_shares.of(int(self.q.providers[i]))
        if due is None:
            return f"fairness between groups moved it {move.direction}"
        shares = f"its group {self.had} {due.had} of the views where its relevance earns {due.earned}"
        if due.sign != 0 and (due.sign < 0) == move.up:
            return f"it was moved {move.direction} because {shares}"
        joint = "and" if due.sign == 0 else "although"
        return f"fairness between groups moved it {move.direction}, {joint} {shares}"

    @cached_property
    def group_shares(self) -> TotalShares:
        """The shares of the groups."""
        return TotalShares(*(np.bincount(self.q.providers, each).astype(np.float64) for each in (self.q.E, self.q.R)))

    def by_exploration(self, i: int, move: Move) -> str:
        """Return why exploration has moved a candidate: by the views of it and of those that it has passed."""
        passed = move.passed
        if move.up and passed.seen_more == passed.number:
            return f"it was moved up to learn more about it: it {self.had} fewer views than {move.others}"
        if not move.up and passed.seen_less == passed.number:
            one = passed.number == 1
            had = self.had if one else self.had.replace("has", "have")
            who = f"{counted(passed.number, 'candidate')} that {had} fewer views"
            return f"it was moved down because {who} {'is' if one else 'are'} being tried ahead of it"
        return f"exploration moved it {move.direction}"

    def by_guard(self, i: int, move: Move) -> str:
        """Return why the guard has moved a candidate: by its relevance and that of those that it has passed."""
        passed, share = move.passed, f"{100.0 * self.policy.guard:g} %"
        reason = f"the guard, which keeps at least {share} of the relevance that a list can show, moved it"
        if (passed.less_relevant if move.up else passed.more_relevant) < passed.number:
            return f"{reason} {move.direction}"
        than = f"its estimated relevance is {'higher' if move.up else 'lower'} than that of {move.others}"
        return f"{reason} {move.direction} because {than}"

    def unmoved(self, i: int) -> str:
        """Return what is true of a candidate whose rank no part of the policy changes by itself."""
        rank, alone = self.rank(i), int(self.standings.by_relevance[i])
        by_relevance = f"y {self.basis} alone it would be {ordinal(alone)}"
        parts = self.standings.without
        if not parts:
            gap = self.decision.gap
            near = f"; its search stopped within {gap:.2g} of the best list" if gap > 0.0 else ""
            return f". {self.policy.label} has no terms to take apart{near}; b{by_relevance}"
        if RELEVANCE in parts and rank == alone:
            return self.relevance_facts(i)
        tied = self.tied(i)
        if tied:
            return f". Its score is equal to that of {counted(tied, 'other candidate')}, and {self.tie_rule}"
        if rank == alone:
            same = "have the same rank, and no part of the policy changes it by itself"
            return f". By {self.basis} alone it would {same}"
        return f". B{by_relevance}; no part of the policy accounts for its place by itself"

    def relevance_facts(self, i: int) -> str:
        """Return how the estimated relevance of a candidate compares with that of the others."""
        higher, same = self.relevances.higher(i), self.relevances.same(i)
        joint = ":" if 0 < self.rank(i) <= self.k else "."
        its = " its" if joint == ":" else " Its"
        if not same:
            place = "highest" if not higher else f"{ordinal(higher + 1)} highest"
            return f"{joint}{its} estimated relevance is the {place} of {self.n}"
        tie = f", and {self.tie_rule}" if self.tied(i) else ""
        if same == self.n - 1:
            return f"{joint} {'a' if joint == ':' else 'A'}ll candidates have the same estimated relevance{tie}"
        verb = "has" if same == 1 else "have"
        first = "the highest" if not higher else f"the {ordinal(higher + 1)} highest"
        return f"{joint}{its} estimated relevance is {first} of {self.n}, {counted(same, 'other')} {verb} the same{tie}"

    def tied(self, i: int) -> int:
        """Return the number of other candidates with the same score, 0 for a policy without scores."""
        return 0 if self.scores is None else self.scores.same(i)

    @property
    def tie_rule(self) -> str:
        """The effect of the policy's rule for equal scores, in words."""
        return TIES[getattr(self.policy, "ties", "index")]


@kernel
def compare_with_passed(
    i: int, now: IntArray, then: IntArray, E: FloatArray, R: FloatArray
) -> tuple[int, int, int, int, int, int, int]:
    """Count the candidates that one has passed, or that have passed it, and compare them with it; see `Passed`."""
    count = seen_more = seen_less = more_relevant = less_relevant = had_more = had_less = 0
    for j in range(now.shape[0]):
        overtaken = now[i] < then[i] and now[j] > now[i] and then[j] < then[i]
        if overtaken or (now[i] >= then[i] and now[j] < now[i] and then[j] > then[i]):
            due = E[j] * R[i] - E[i] * R[j]
            count += 1
            seen_more += E[j] > E[i]
            seen_less += E[j] < E[i]
            more_relevant += R[j] > R[i]
            less_relevant += R[j] < R[i]
            had_more += due > 0.0
            had_less += due < 0.0
    return count, seen_more, seen_less, more_relevant, less_relevant, had_more, had_less


class Passed(NamedTuple):
    """The candidates that one has passed, or that have passed it: how many, and how many of them are more than it.

    They have had more or fewer views, are more or less relevant, or have had more or fewer views for their relevance.
    """

    number: int
    seen_more: int
    seen_less: int
    more_relevant: int
    less_relevant: int
    had_more: int
    had_less: int


class Ties:
    """The order of some values, and which of them are equal."""

    def __init__(self, values: FloatArray) -> None:
        _, self.places, counts = np.unique(values, return_inverse=True, return_counts=True, equal_nan=False)
        self.counts, self.until = counts, counts.cumsum()

    def higher(self, i: int) -> int:
        """Return how many values are higher than one."""
        return int(self.until[-1] - self.until[self.places[i]])

    def same(self, i: int) -> int:
        """Return how many other values are equal to one."""
        return int(self.counts[self.places[i]]) - 1


class Move(NamedTuple):
    """How a part has moved a candidate: up or down, past which others, and where it would be otherwise."""

    up: bool
    passed: Passed
    otherwise: str

    @property
    def direction(self) -> str:
        """Up or down."""
        return "up" if self.up else "down"

    @property
    def others(self) -> str:
        """The candidates that it has passed, or that have passed it."""
        count = self.passed.number
        who = "the candidate" if count == 1 else f"the {count} candidates"
        return f"{who} that {'it overtook' if self.up else 'overtook it'}"

    @property
    def their(self) -> str:
        """The possessive of those candidates."""
        return "its" if self.passed.number == 1 else "their"


class Shares(NamedTuple):
    """A share of exposure and the share that relevance earns, as percentages, and the sign of their difference."""

    had: str
    earned: str
    sign: int


class TotalShares:
    """The shares of all entries."""

    def __init__(self, E: FloatArray, R: FloatArray) -> None:
        self.E, self.R, self.views, self.relevance = E, R, E.sum(), R.sum()

    def of(self, i: int) -> Shares | None:
        """Return the shares of one entry, with as many digits as show which is larger; None without any to divide."""
        if not (self.views > 0.0 and self.relevance > 0.0):
            return None
        had, earned = float(self.E[i] / self.views), float(self.R[i] / self.relevance)
        for digits in range(DIGITS + 1):
            texts = percent(had, digits), percent(earned, digits)
            if texts[0] != texts[1] and is_plain(had, texts[0]) and is_plain(earned, texts[1]):
                break
        return Shares(*texts, 0 if texts[0] == texts[1] else 1 if had > earned else -1)


def percent(share: float, digits: int) -> str:
    """Return a share as a percentage."""
    return f"{100.0 * share:.{digits}f} %"


def is_plain(share: float, text: str) -> bool:
    """Return whether a rounded percentage reads as none, or all, only if the share is."""
    value = float(text.removesuffix(" %"))
    return (value == 0.0) == (share == 0.0) and (value == 100.0) == (share == 1.0)


def ordinal(number: int) -> str:
    """Return a number as an ordinal.

    Examples
    --------
    >>> [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '13th', '21st', '102nd', '111th']
    """
    teens = 10 < number % 100 < 14
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which ends in -s in the plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
