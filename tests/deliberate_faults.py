"""Deliberate faults: proof that a check would notice them, and for the right reason."""

import pytest


def caught_by(check, reason):
    """Assert that a check passes without a deliberate fault, and fails with it for a named reason.

    `check(faulty=False)` is the control: it installs the same override, tampering or process with the fault switched
    off, so an override that no longer fits the code it overrides fails here, loudly. `check(faulty=True)` must raise an
    AssertionError whose message matches `reason`; any other exception propagates and fails the test.
    """
    check(faulty=False)
    with pytest.raises(AssertionError, match=reason):
        check(faulty=True)
