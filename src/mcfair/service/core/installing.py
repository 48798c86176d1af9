"""Installing what background work has computed: small, and only if what it was computed from is still true."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec

from ...errors import RequestError
from ...estimators import parse_estimator
from .engine_state import EngineState
from .history import ErasedGroups, HistoryOperations, SummaryUpdate
from .summaries import Present

MAX_INSTALL = 1 << 20
"""Maximum size of what is installed at a time, in bytes: nobody waits long for it."""


class Turn(NamedTuple):
    """Whether this instance is to do background work, the time in ms, and the number of rows changed so far.

    The number is not known, None, if other instances write to the store as well.
    """

    leads: bool
    now: int
    changes: int | None


class SummaryStep(msgspec.Struct, tag="summaries", array_like=True):
    """Summaries of queries, with the counts of the log entries since they were booked last."""

    updates: list[SummaryUpdate]


class PresentFigures(msgspec.Struct, tag="figures", array_like=True):
    """The present figures; `seen` is a query that they include, 0 if there is none."""

    present: Present
    seen: int


class WithoutGroups(msgspec.Struct, tag="groups", array_like=True):
    """Periods without the names of groups that do not exist any more."""

    periods: list[ErasedGroups]


class FittedPrior(msgspec.Struct, tag="prior", array_like=True):
    """A fitted estimator and the visits it was fitted to; `before` was the fitted prior in force then."""

    before: str | None
    fitted: str
    visits: int


class StoppedArm(msgspec.Struct, tag="arm", array_like=True):
    """An arm, with the version at which its experiment began, that is to be stopped for a reason."""

    experiment: int
    name: str
    reason: str


Install: TypeAlias = SummaryStep | PresentFigures | WithoutGroups
"""What every instance may install while others write."""

RuleInstall: TypeAlias = FittedPrior | StoppedArm
"""What becomes a new version of the rules."""

encode_install = msgspec.msgpack.Encoder().encode
decode_install = msgspec.msgpack.Decoder(Install).decode
decode_rule_install = msgspec.msgpack.Decoder(RuleInstall).decode


def check_size(body: bytes) -> bytes:
    """Return what is to be installed unless it is too large."""
    if len(body) > MAX_INSTALL:
        raise RequestError(f"{len(body):,} bytes cannot be installed at a time: expected at most {MAX_INSTALL:,}")
    return body


class InstallOperations(HistoryOperations, EngineState):
    """The operations by which background work takes effect."""

    def turn(self) -> Turn:
        """Return whether this instance is to do background work, the time, and the rows changed so far."""
        return Turn(self.store.leads(), self.now(), None if self.store.shared else self.store.changes)

    def install(self, body: bytes) -> None:
        """Install summaries or figures, as far as what they were computed from has not changed."""
        match decode_install(check_size(body)):
            case SummaryStep(updates):
                self.write_summaries(updates)
            case PresentFigures(present, seen):
                self.write_present(present, seen)
            case WithoutGroups(periods):
                self.erase_groups(periods)

    def install_rules(self, body: bytes) -> bool:
        """Put a fitted prior in force, or stop an arm, unless the rules have changed; return whether they do now."""
        what = decode_rule_install(check_size(body))
        if isinstance(what, FittedPrior):
            return self.set_prior(what.before, what.fitted, what.visits)
        return self.stop_arm(what.experiment, what.name, what.reason)

    def set_prior(self, before: str | None, fitted: str, visits: int) -> bool:
        """Put a fitted prior in force, unless the rules have another estimator, or another prior, by now.

        Another instance may have taken over the fits, and finished one, while this prior was fitted.
        """
        if before != self.version.fitted or not parse_estimator(fitted).same_but_fitted(self.version.estimator):
            return False
        self.activate(self.version.rules, fitted, visits)
        return True

    def stop_arm(self, number: int, name: str, reason: str) -> bool:
        """Stop an arm of the experiment that began with a version; return whether it was running until now."""
        experiment = self.version.rules.experiment
        if experiment is None or self.version.experiment != number:
            return False
        if not any(arm.name == name and arm.stopped is None for arm in experiment.arms):
            return False
        arms = [msgspec.structs.replace(arm, stopped=reason) if arm.name == name else arm for arm in experiment.arms]
        stopped = msgspec.structs.replace(experiment, arms=arms)
        self.activate(msgspec.structs.replace(self.version.rules, experiment=stopped))
        return True
