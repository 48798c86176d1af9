"""Evaluation protocols: which queries are kept, where sessions come from and how many are played."""

from __future__ import annotations

import dataclasses
from typing import Literal

from ..errors import DataError, SettingError, unknown

PARTS = ("train", "validation", "test")
"""The parts of a fold, in the order in which they are concatenated."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a dataset is loaded and evaluated; every dataset carries the protocol that it was loaded by.

    Parameters
    ----------
    name : str
        Name of a shipped protocol, "" for none.
    min_items, max_items : int
        Bounds on the number of items of a query; `max_items` may be None. A dataset carries the bounds that were used,
        which differ from those in `PROTOCOLS` where the catalogue or the caller sets others.
    relevant_only : bool
        Whether test queries without a relevant item are left out.
    drop_last : bool
        Whether the last query of each file is left out.
    parts : tuple of str
        The parts of a fold that sessions draw their queries from; figures cover the test part alone.
    arrivals : {"uniform", "cyclic", "wsdm23"}
        Name of the stream of arrivals.
    plays_last_step : bool
        Whether the last step is played.

    Examples
    --------
    >>> find_protocol("wsdm23").sessions(10_000)
    9999
    """

    name: str = ""
    min_items: int = 0
    max_items: int | None = None
    relevant_only: bool = False
    drop_last: bool = False
    parts: tuple[str, ...] = ("test",)
    arrivals: Literal["uniform", "cyclic", "wsdm23"] = "uniform"
    plays_last_step: bool = True

    def sessions(self, steps: int) -> int:
        """Return the number of sessions that are played when `steps` are asked for.

        Raises
        ------
        SettingError
            If no session is left.

        Examples
        --------
        >>> Protocol().sessions(10)
        10
        """
        sessions = steps if self.plays_last_step else steps - 1
        if sessions < 1:
            reason = "" if self.plays_last_step else ": the released code never plays the last step"
            raise SettingError(f"steps = {steps} leaves nothing to play{reason}")
        return sessions

    def with_bounds(self, min_items: int | None, max_items: int | None) -> Protocol:
        """Return the same protocol with other bounds on the items of a query; None keeps a bound as it is.

        Examples
        --------
        >>> bounded = Protocol(min_items=6).with_bounds(None, 19)
        >>> bounded.min_items, bounded.max_items
        (6, 19)
        """
        for name, bound in (("min_items", min_items), ("max_items", max_items)):
            if bound is not None and bound < 0:
                raise SettingError(f"{name} = {bound} is not allowed: expected a number of items of at least 0")
        return dataclasses.replace(
            self,
            min_items=self.min_items if min_items is None else min_items,
            max_items=self.max_items if max_items is None else max_items,
        )


NO_PROTOCOL = Protocol()
"""All queries of the test part, uniform arrivals, and every step is played."""

PROTOCOLS = {
    "paper": Protocol(name="paper", parts=PARTS),
    # The released code loses the last query of every file that it loads, and the last step of every run.
    "wsdm23": Protocol(
        name="wsdm23", min_items=6, relevant_only=True, drop_last=True, arrivals="wsdm23", plays_last_step=False
    ),
}
"""The shipped protocols by name; loaders and the command line call this name the preset."""


def find_protocol(name: str | None) -> Protocol:
    """Return a shipped protocol by name, or the default protocol for None and "".

    Raises
    ------
    DataError
        If no shipped protocol has this name.

    Examples
    --------
    >>> find_protocol("paper").parts
    ('train', 'validation', 'test')
    """
    if not name:
        return NO_PROTOCOL
    if name not in PROTOCOLS:
        raise DataError(unknown("preset", name, PROTOCOLS))
    return PROTOCOLS[name]
