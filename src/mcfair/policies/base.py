"""Policy: the base of ranking policies."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset
from ..errors import PolicyError
from ..estimators import IPS, Estimator
from ..parts import Kind, NonNegative, Part, Share, shortened
from ..random import Draws
from ..state import Query, State
from .selection import BY_INDEX, FALLBACK, TIE_RULES, choose, is_list, policy_call
from .terms import group_term

Mode = Literal["post-processing", "online"]
"""Whether relevance is given, or learnt from the clicks of the run."""


class Solution(NamedTuple):
    """A list that `Policy.solve` returns, and by how much the objective of the policy might be better at most."""

    pi: IntArray
    gap: float = 0.0


class Policy(Part, kind=Kind(name="policy", plural="policies", methods=("score", "rank"), error=PolicyError)):
    """Base of ranking policies: subclass it, annotate the parameters, and define `score`, `rank` or a kernel.

    A policy holds no state of a run: what it keeps between sessions is built by `prepare` and passed in the view.

    Parameters
    ----------
    alpha_group
        Weight of fairness among the groups (providers) of a query's items, for any policy with a score: the gradient of
        Eq. 16 on summed exposure and relevance, scaled like the policy's own, see
        `mcfair.policies.terms.add_group_term`. 0 is off, as in the paper.
    guard
        The least share of the DCG that R allows which every list keeps, for any policy with a score; see
        `mcfair.policies.selection.keep_share`. 0 is off, as in the paper.

    Attributes
    ----------
    kernel
        The compiled form of `score` or `rank`: a function of `(q, theta, rng, out)`, see `Part`.
    ranks
        Whether the kernel writes a list, as `rank` returns it, instead of scores. It may leave a session to
        `solve` by writing -1 to `out[0]`.
    fits
        How often in a run `prepare` is called, at evenly spaced moments beginning with the start.
    prepares_at_fits
        Whether `prepare` is also called after each fit of a pooled estimator.
    needs_features
        Whether `prepare` reads `data.X`.
    cost
        Rough cost of a session relative to a score in one pass, for scheduling.
    style
        Colour and marker in figures; chosen automatically if None.
    auto
        For each parameter that may be "auto", its value in each mode.
    estimator
        The relevance estimator of online runs whose setting names none.

    Examples
    --------
    >>> class Newest(Policy):
    ...     weight: float = 1.0
    ...     def score(self, q, rng):
    ...         return q.R - self.weight * np.arange(q.R.size)
    >>> Newest(weight=2)
    Newest(weight=2.0)
    """

    alpha_group: NonNegative = 0.0
    guard: Share = 0.0

    ranks: ClassVar[bool] = False
    fits: ClassVar[int] = 1
    prepares_at_fits: ClassVar[bool] = False
    needs_features: ClassVar[bool] = False
    cost: ClassVar[float] = 1.0
    style: ClassVar[tuple[str, str] | None] = None
    auto: ClassVar[dict[str, dict[Mode, float]]] = {}
    estimator: ClassVar[Estimator] = IPS()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        own = vars(cls)
        if ("score" in own or "rank" in own) and "ranks" not in own:
            cls.ranks = "rank" in own
        unused = ("alpha_group", "guard") if cls.ranks else ()
        cls.unused_parameters = dict.fromkeys(unused, "does not rank by a score")
        super().__init_subclass__(**kwargs)

    def score(self, q: Query, rng: Draws) -> FloatArray:
        """Return one number per item, the highest ranked first; by default what the kernel writes, and the group term.

        A subclass that defines it returns its own score: the group term and the guard are added to the score of every
        policy alike.

        Parameters
        ----------
        q
            The view of the query.
        rng
            Draws of this session: `uniform(rng, slot)`. They are the same in simulator, library and service.

        Returns
        -------
        (n,) float array

        Raises
        ------
        PolicyError
            If the policy does not rank by a score.
        """
        if self.kernel is None or self.ranks:
            raise PolicyError(f"{self.name()} does not rank by a score")
        out = np.empty(q.R.size)
        q = q.for_kernels()
        policy_call(self)(q, self.theta, rng, out)
        return out if self.alpha_group == 0.0 else out + group_term(self, q)

    def rank(self, q: Query, rng: Draws) -> IntArray:
        """Return the list for one session; by default the items of the highest scores.

        Parameters
        ----------
        q
            The view of the query.
        rng
            Draws of this session.

        Returns
        -------
        (min(k_s, n),) int array
            Distinct positions in the item order of the view, best first.

        Raises
        ------
        PolicyError
            If the policy fails or returns something that is not a ranking.
        """
        return choose(self, q.for_kernels(), rng).pi

    def solve(self, q: Query, rng: Draws) -> IntArray | Solution:
        """Return the list for a session that the kernel leaves to Python; see `ranks`.

        Parameters
        ----------
        q
            The view of the query.
        rng
            Draws of this session.

        Returns
        -------
        (min(k_s, n),) int array, or Solution
            As `rank` returns it; a `Solution` if another list may be better.

        Raises
        ------
        PolicyError
            If the policy does not define it.
        """
        raise PolicyError(f"the kernel of {self!r} handed a session over, but {self.name()} defines no solve")

    def terms(self, q: Query) -> dict[str, FloatArray]:
        """Return the terms whose sum is the score, to explain a ranking.

        Parameters
        ----------
        q
            The view of the query.

        Returns
        -------
        dict of (n,) float arrays
            The terms by name; empty if the score is not a sum, or there is no score.
        """
        return {}

    @property
    def part_weights(self) -> dict[str, int]:
        """Where in `theta` the weight of each named part of the ranking is; empty if there are none.

        With a weight of 0 the kernel ranks without that part, which is how a ranking is explained. The names are
        relevance, fairness, exploration, or others.
        """
        return {}

    def prepare(self, data: Dataset, state: State, rng: Draws) -> Sequence[Any] | FloatArray | None:
        """Return what the policy keeps between sessions: one entry per query, which views hold as `q.memory`.

        Parameters
        ----------
        data
            The queries. `data.scores` is the relevance at this moment, given or estimated; R and y are hidden.
        state
            What was observed so far.
        rng
            Draws of this call.

        Returns
        -------
        sequence, array or None
            For a policy with a kernel a float array with a row per query. None keeps what an earlier call in the run
            returned.
        """
        return None

    @property
    def tie_rule(self) -> int:
        """Index of the rule for equal scores, the parameter `ties` if there is one."""
        return BY_INDEX if self.ranks else TIE_RULES[getattr(self, "ties", "index")]

    def in_mode(self, mode: Mode) -> Self:
        """Return the policy with every parameter that is "auto" replaced by its value in a mode.

        Parameters
        ----------
        mode
            "post-processing" or "online".

        Returns
        -------
        Policy
            The policy itself if no parameter is "auto".
        """
        values = {name: table[mode] for name, table in self.auto.items() if getattr(self, name) == "auto"}
        return dataclasses.replace(self, **values) if values else self

    # --- the plain form, called as a kernel is -----------------------------------------------------------------------

    def write_scores(self, q: Query, theta: FloatArray, rng: Draws, out: FloatArray) -> None:
        """Write what `score` returns, as a kernel would."""
        returned = self.attempt(self.score, q.read_only(), rng)
        try:
            scores = np.asarray(returned, dtype=np.float64)
        except (TypeError, ValueError):
            raise PolicyError(f"{self!r} returned {shortened(returned)}, expected {out.size} numbers") from None
        if scores.shape != out.shape:
            raise PolicyError(f"{self!r} returned scores of shape {scores.shape} for {out.size} items")
        out[:] = scores

    def write_list(self, q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> None:
        """Write what `rank` returns, as a kernel would."""
        self.write_positions(self.attempt(self.rank, q.read_only(), rng), out)
        if out[0] == FALLBACK:
            raise PolicyError(f"{self!r} returned a list whose entries are not distinct items")

    def write_solution(self, q: Query, rng: Draws, out: IntArray) -> float:
        """Write the list that `solve` returns for a session that the kernel left to Python; return its gap."""
        solved = self.attempt(self.solve, q.read_only(), rng)
        pi, gap = solved if isinstance(solved, Solution) else Solution(solved)
        self.write_positions(pi, out)
        if not is_list(out, q.R.size):
            raise PolicyError(f"{self!r} returned a list whose entries are not distinct items")
        return float(gap)

    def write_positions(self, positions: Any, out: IntArray) -> None:
        """Write a list of positions after checking its length and type."""
        pi = np.asarray(positions)
        if pi.shape != out.shape or not np.issubdtype(pi.dtype, np.integer):
            raise PolicyError(f"{self!r} returned {pi!r}, expected a list of {out.size} positions")
        out[:] = pi


parse_policy = Policy.parse
parse_policies = Policy.parse_all
