"""Reasons in words: why an item has its rank, or is not shown, each statement true of the numbers of the decision.

A reason is a counterfactual: the part of the policy without which the rank of the item changes most, however large its
term is. A part that is equal for all candidates is no reason.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray, IntArray
from ...estimators import IPS
from ...policies.base import Policy
from ...random import Draws
from .decision import GROUP, GUARD, RELEVANCE, Decision, Standings, standings
from .ledger import Ledger
from .records import Candidates
from .rules import Version

__all__ = ["Reasons", "ordinal", "reasons_for"]

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
        self.basis = "clicks" if by_clicks else "estimated relevance"
        self.had = "has been credited with" if credited else "has had"

    # --- ranks -------------------------------------------------------------------------------------------------------

    def rank(self, i: int) -> int:
        """Return the rank of a candidate; 0 if it is not in the list of a policy that ranks no others."""
        return int(self.standings.ranks[i])

    def without(self, i: int) -> dict[str, int | None]:
        """Return the rank of a candidate without each part; None if it would not be in the list."""
        parts = self.standings.without.items()
        return {part: int(ranks[i]) or None for part, ranks in parts if part != RELEVANCE}

    def order(self) -> list[int]:
        """Return the candidates by rank, those without one last."""
        return [int(i) for i in np.argsort(self.places(self.standings.ranks), kind="stable")]

    def places(self, ranks: IntArray) -> IntArray:
        """Return ranks with the first place after the list for candidates that are not in it."""
        return np.where(ranks == 0, self.k + 1, ranks)

    def main_part(self, i: int) -> str | None:
        """Return the part without which the rank of a candidate changes most; None if it changes without none."""
        place = self.places(self.standings.ranks)[i]
        best, most = None, 0
        for part, ranks in self.standings.without.items():
            change = abs(int(self.places(ranks)[i] - place))
            if part != RELEVANCE and part not in self.standings.even and change > most:
                best, most = part, change
        return best

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
        without = self.standings.without[part]
        now, then = self.places(self.standings.ranks), self.places(without)
        up = bool(now[i] < then[i])
        passed = (now > now[i]) & (then < then[i]) if up else (now < now[i]) & (then > then[i])
        if without[i] == 0:
            otherwise = f"Without {NAMES.get(part, part)} it would not be in the list"
        elif part != GUARD and without[i] == self.standings.by_relevance[i]:
            otherwise = f"By {self.basis} alone it would be {ordinal(int(without[i]))}"
        else:
            otherwise = f"Without {NAMES.get(part, part)} it would be {ordinal(int(without[i]))}"
        return Move(up, np.flatnonzero(passed), otherwise)

    def by_fairness(self, i: int, move: Move) -> str:
        """Return why fairness has moved a candidate: by its shares of exposure and relevance."""
        E, R = self.q.E, self.q.R
        due = compare_shares(E, R, i)
        if due is None:
            return f"fairness moved it {move.direction}"
        shares = f"it {self.had} {due.had} of the views where its relevance earns {due.earned}"
        if due.sign == 0:
            return f"fairness moved it {move.direction}, and {shares}"
        if (due.sign < 0) == move.up:
            return f"it was moved {move.direction} because {shares}"
        per_relevance = E[move.passed] * R[i] - E[i] * R[move.passed]
        if not ((per_relevance > 0.0) if move.up else (per_relevance < 0.0)).all():
            return f"fairness moved it {move.direction} although {shares}"
        have = "has" if move.passed.size == 1 else "have"
        even = f"{move.others} {have} had even {'more' if move.up else 'less'} for {move.their} relevance"
        return f"it was moved {move.direction} although {shares}: {even}"

    def by_group(self, i: int, move: Move) -> str:
        """Return why fairness between groups has moved a candidate: by the shares of its group."""
        q = self.q
        E, R = (np.bincount(q.providers, each).astype(np.float64) for each in (q.E, q.R))
        due = compare_shares(E, R, int(q.providers[i]))
        if due is None:
            return f"fairness between groups moved it {move.direction}"
        shares = f"its group {self.had} {due.had} of the views where its relevance earns {due.earned}"
        if due.sign != 0 and (due.sign < 0) == move.up:
            return f"it was moved {move.direction} because {shares}"
        joint = "and" if due.sign == 0 else "although"
        return f"fairness between groups moved it {move.direction}, {joint} {shares}"

    def by_exploration(self, i: int, move: Move) -> str:
        """Return why exploration has moved a candidate: by the views of it and of those that it has passed."""
        E = self.q.E
        if move.up and (E[move.passed] > E[i]).all():
            return f"it was moved up to learn more about it: it {self.had} fewer views than {move.others}"
        if not move.up and (E[move.passed] < E[i]).all():
            one = move.passed.size == 1
            had = self.had if one else self.had.replace("has", "have")
            who = f"{counted(move.passed.size, 'candidate')} that {had} fewer views"
            return f"it was moved down because {who} {'is' if one else 'are'} being tried ahead of it"
        return f"exploration moved it {move.direction}"

    def by_guard(self, i: int, move: Move) -> str:
        """Return why the guard has moved a candidate: by its relevance and that of those that it has passed."""
        R, share = self.q.R, f"{100.0 * self.policy.guard:g} %"
        reason = f"the guard, which keeps at least {share} of the relevance that a list can show, moved it"
        above = R[i] > R[move.passed] if move.up else R[i] < R[move.passed]
        if not above.all():
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
        R = self.q.R
        higher, same = int((R[i] < R).sum()), int((R[i] == R).sum()) - 1
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
        scores = self.decision.scores
        return 0 if scores is None else int((scores == scores[i]).sum()) - 1

    @property
    def tie_rule(self) -> str:
        """The effect of the policy's rule for equal scores, in words."""
        return TIES[getattr(self.policy, "ties", "index")]


class Move(NamedTuple):
    """How a part has moved a candidate: up or down, past which others, and where it would be otherwise."""

    up: bool
    passed: IntArray
    otherwise: str

    @property
    def direction(self) -> str:
        """Up or down."""
        return "up" if self.up else "down"

    @property
    def others(self) -> str:
        """The candidates that it has passed, or that have passed it."""
        count = self.passed.size
        who = "the candidate" if count == 1 else f"the {count} candidates"
        return f"{who} that {'it overtook' if self.up else 'overtook it'}"

    @property
    def their(self) -> str:
        """The possessive of those candidates."""
        return "its" if self.passed.size == 1 else "their"


class Shares(NamedTuple):
    """A share of exposure and the share that relevance earns, as percentages, and the sign of their difference."""

    had: str
    earned: str
    sign: int


def compare_shares(E: FloatArray, R: FloatArray, i: int) -> Shares | None:
    """Return the shares of one entry, with as many digits as show which is larger; None without views or relevance."""
    if not (E.sum() > 0.0 and R.sum() > 0.0):
        return None
    had, earned = float(E[i] / E.sum()), float(R[i] / R.sum())
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
