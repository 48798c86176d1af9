"""Fixtures and order of all tests, doctests of the package included."""

import os
import sys
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

import mcfair as mf

# The first call of a kernel compiles it, which no deadline foresees. The examples are the same every time, so that a
# change is judged by what it changes; `make soak` draws many new ones.
settings.register_profile("mcfair", deadline=None, max_examples=15, derandomize=True)
settings.register_profile("soak", deadline=None, max_examples=400)
settings.load_profile("mcfair")

# Hundreds of processes import the same modules; without bytecode each of them would compile their source again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

LONGEST = (
    *("report", "cluster", "processes", "own_parts", "cli_leaderboard", "service_postgres", "execute"),
    *("deploy_restart", "service_faults", "service_crash", "cli_experiments", "cli_app", "service_commands"),
    *("policies", "frameworks", "service_schema", "service_rows", "service_machine", "service_soak"),
    *("service_postgres_machine", "service_app", "deploy_monitoring", "cli_import", "service_history", "cli_live"),
    *("service_dashboard_browser",),
)

ONE_BY_ONE = ("tests/docs/test_pages_run.py::", "tests/gallery/test_gallery.py::")

TESTS = Path(__file__).parent / "tests"


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Look for doctests in the package only: they are imported and searched by every process."""
    collected = yield
    return [each for each in collected if not (isinstance(each, DoctestModule) and TESTS in file_path.parents)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Distribute file by file, but pages and notebooks one by one, and the tests of the report to one process.

    The tests of the report share results of 20 seconds; pages and notebooks share nothing.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            if nodeid.startswith("tests/report/"):
                return "tests/report"
            return nodeid if nodeid.startswith(ONE_BY_ONE) else super()._split_scope(nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


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
