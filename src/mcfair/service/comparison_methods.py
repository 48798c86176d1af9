"""The methods of `Client`, `AsyncClient` and `Ranker` that compare policies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import wire
from .calls import Call, Caller

if TYPE_CHECKING:
    from ..policies.base import Policy


class ComparisonMethods(Caller):
    """Comparisons of policies on the log, and the results of experiments."""

    def compare(
        self, policies: Iterable[Policy | str] = (), *, max_age: float | None = None, lists: int = 500
    ) -> wire.PolicyComparisons:
        """Compare policies with the lists that were shown, on an even sample of the log.

        Parameters
        ----------
        policies
            Policies to replay, at most four. Lists that were recorded in shadow mode are compared in any case.
        max_age
            Age of the oldest list, in seconds; all lists that have not expired if left out.
        lists
            Maximum number of lists to compare, up to 5,000.

        Returns
        -------
        PolicyComparisons
            Lists that differ, NDCG by estimate, unfairness and exposure by group, with intervals.
        """
        fields = {"policies": list(map(str, policies)), "max_age": max_age, "lists": wire.as_builtin(lists)}
        return self._run(Call("compare", {"body": wire.convert(wire.CompareRequest, fields)}))

    def experiment(self) -> wire.ExperimentReport:
        """Return the results of the present experiment, or of the last one.

        Returns
        -------
        ExperimentReport
            Lists, clicks, NDCG by estimate and unfairness of each arm, and their differences from the control.

        Raises
        ------
        NotFoundError
            If there was no experiment.
        """
        return self._run(Call("experiment"))
