"""Metric: the base of what is measured in a run."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

import numpy as np

from ..arrays import read_only
from ..parts import Kind, Part, parameter_types

# Values that a kernel is compiled for: of a query, or of a list.
QUERY_VALUE = (np.zeros(1), np.zeros(1), np.zeros(1, np.int64), 0, np.zeros(1))
LIST_VALUE = (np.zeros(1, np.int64), np.zeros(1), np.zeros(1), np.zeros(1))


class Metric(Part, kind=Kind(name="metric", plural="metrics", methods=("value",))):
    """Base of metrics: subclass it, annotate the parameters, and define `value` or a kernel.

    A metric measures one query, from the exposure E and the true relevance R of its items, their groups and the visits
    so far: `value(E, R, groups, visits)`, or a kernel `(E, R, groups, visits, theta)` that returns a float. At every
    checkpoint it is averaged over the evaluated queries that were visited and have a relevant item; nan leaves a query
    out. With `per_list` it measures one list instead: `value(pi, R, p)`, or a kernel `(pi, R, p, theta)`, averaged
    over all sessions so far.

    The text of a metric is its name in lower case, `ndcg@5` if it has a parameter `k`, and parses back.

    Attributes
    ----------
    higher_is_better
        Direction of the metric.
    per_list
        Whether it measures lists rather than the exposure of a query.
    floor_among
        What its lowest possible value is known for: "items" by `fairness_floor`, "groups" by `group_floor`; or None.
    of_users
        Whether the E it measures is the exposure that the users of the run really gave, list by list, instead of the
        one that the setting's examination assumes.
    summed_while_played
        Whether every run sums it while it is played, as NDCG and cNDCG, so that it needs no lists.
    spelling
        The usual spelling of the name, if it is not the name itself.

    Examples
    --------
    >>> class Coverage(Metric):
    ...     higher_is_better = True
    ...     def value(self, E, R, groups, visits):
    ...         return float(np.count_nonzero(E) / E.size)
    >>> Coverage(), Coverage().value(np.array([1.0, 0.0]), np.ones(2), np.arange(2), 1)
    (coverage, 0.5)
    """

    higher_is_better: ClassVar[bool] = False
    per_list: ClassVar[bool] = False
    floor_among: ClassVar[Literal["items", "groups"] | None] = None
    of_users: ClassVar[bool] = False
    summed_while_played: ClassVar[bool] = False
    spelling: ClassVar[str] = ""

    @property
    def needs_lists(self) -> bool:
        """Whether the lists of a run must be recorded to measure it."""
        return self.of_users or (self.per_list and not self.summed_while_played)

    @classmethod
    def name(cls) -> str:
        """Return the class name in lower case with underscores."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def text(self, names: Any) -> str:
        """Return the name, the cutoff k if there is one, and other parameters."""
        others = [name for name in names if name != "k"]
        cutoff = f"@{getattr(self, 'k')}" if "k" in parameter_types(type(self)) else ""  # noqa: B009
        values = f"({', '.join(f'{name}={getattr(self, name)!r}' for name in others)})" if others else ""
        return f"{self.name()}{cutoff}{values}"

    @property
    def label(self) -> str:
        """Name in tables and on axes."""
        name, text = self.name(), self.text(self.changed_parameters)
        return text.replace(name, self.spelling or name, 1).replace("_", " ")

    def value(self, *args: Any, **kwargs: Any) -> float:
        """Return the value of one query or list; by default what the kernel returns.

        Parameters
        ----------
        *args
            `E, R, groups, visits` of one query, or with `per_list` `pi, R, p` of one list.

        Returns
        -------
        float
            The value; nan if the query does not count.

        Raises
        ------
        PartError
            If the metric defines neither `value` nor a kernel.
        """
        if self.kernel is None:
            raise self.kind.error(f"metric {self.name()} defines neither value nor a kernel")
        return float(self.kernel(*args, self.theta))

    def plain_value(self, *arguments: Any) -> float:
        """Return what `value` returns, called as a kernel with the parameters last."""
        value = self.attempt(self.value, *read_only(*arguments[:-1]))
        if not isinstance(value, int | float | np.floating | np.integer):
            raise self.kind.error(f"{self!r} returned {value!r}, expected a number")
        return float(value)


parse_metric = Metric.parse


def metric_label(text: str) -> str:
    """Return the label of a metric given by its text.

    Examples
    --------
    >>> metric_label("cndcg@5"), metric_label("group_unfairness")
    ('cNDCG@5', 'group unfairness')
    """
    return parse_metric(text).label
