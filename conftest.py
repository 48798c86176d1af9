"""Fixtures and order of all tests, doctests of the package included."""

import os
import sys
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

import mcfair as mf

# The first call of a kernel compiles it, which no deadline foresees. `make soak` has the profile with many examples.
settings.register_profile("mcfair", deadline=None, max_examples=20)
settings.register_profile("soak", deadline=None, max_examples=400)
settings.load_profile("mcfair")

# Hundreds of processes import the same modules; without bytecode each of them would compile their source again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

LONGEST = (
    *("processes", "own_parts", "service_postgres", "service_crash", "execute", "service_faults", "service_soak"),
    *("deploy_restart", "cli_experiments", "cluster", "service_commands", "service_machine", "cli_app", "policies"),
    *("report", "service_postgres_machine", "service_app", "deploy_monitoring", "browser", "claims", "figures"),
    *("service_rows", "cli_import", "service_history", "cli_live", "cli_leaderboard", "service_dashboard_browser"),
)


TESTS = Path(__file__).parent / "tests"


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Look for doctests in the package only: they are imported and searched by every process."""
    collected = yield
    return [each for each in collected if not (isinstance(each, DoctestModule) and TESTS in file_path.parents)]


def pytest_collection_modifyitems(items):
    """Begin with the files that take longest, so that no process is left alone with one of them at the end."""
    rank = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


@pytest.fixture(autouse=True)
def registries():
    """Remove the parts that a test registers."""
    kinds = [base.kind for base in (mf.Policy, mf.ClickModel, mf.Estimator, mf.Metric)]
    before = [dict(kind.registry) for kind in kinds]
    yield
    for kind, parts in zip(kinds, before, strict=True):
        kind.registry.clear()
        kind.registry.update(parts)
