"""Fixtures, tiers and order of all tests."""

import os
import re
import sys
from fnmatch import translate
from pathlib import Path

import pytest
from hypothesis import settings

import mcfair as mf

# --- tiers -----------------------------------------------------------------------------------------------------------

CHECKED = (
    "studies/*",
    "tests/browser/*",  # Chromium
    "tests/deploy/*",  # nginx, Prometheus, systemd, the compose file
    "tests/docs/*",  # the pages and their examples
    "tests/gallery/*",
    "tests/integrations/*",  # other people's frameworks
    "tests/postgres/*",
    "tests/processes/*",  # processes that are killed and started again, full disks, minutes of load
    # The same in other folders: tests of one of several stores, of Dask, of signals, of the cache of compiled code.
    "*postgres*",
    "*cluster*",
    "*browser*",
    "*kill*",
    "*ctrl_c*",
    "tests/experiments/test_processes.py*",
    "tests/test_jit.py*",
    "*mcfair.plugs.pyterrier*",  # its examples need PyTerrier
    # What is published.
    "tests/test_citation.py*",
    "tests/test_distribution.py*",
)
"""What `make check` adds to `make test`: it needs servers, a browser, other people's libraries, or minutes.

Patterns of test ids. `pytest` alone runs the quick tier, which is everything else, and does not even import these
files; `pytest --all` runs everything, and `pytest PATH` whatever is in that path.
"""

ROOT = Path(__file__).parent
CHECKED_ID = re.compile("|".join(map(translate, CHECKED)))


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run everything, not only the quick tier")


def pytest_configure(config):
    """Run everything of a path that is given; worker processes are told by this option what was decided here."""
    if config.args_source != pytest.Config.ArgsSource.TESTPATHS:
        config.option.all = config.option.all or not hasattr(config, "workerinput")


def pytest_ignore_collect(collection_path, config):
    """Leave out files and folders of the other tier."""
    name = collection_path.relative_to(ROOT).as_posix() if collection_path.is_relative_to(ROOT) else ""
    tail = "/" if collection_path.is_dir() else ""
    return True if not config.option.all and CHECKED_ID.match(name + tail) else None


# --- order and processes ---------------------------------------------------------------------------------------------

LONGEST = (
    *("report", "cluster", "processes", "own_parts", "service_postgres", "execute", "pages_run", "beyond"),
    *("deploy_restart", "service_faults", "service_crash", "cli_experiments", "cli_app", "service_commands"),
    *("policies", "frameworks", "service_simulation", "service_schema", "service_rows", "service_machine"),
    *("service_soak", "service_postgres_machine", "service_app", "deploy_monitoring", "cli_import", "service_history"),
    *("cli_live", "service_dashboard_browser"),
)

ONE_BY_ONE = ("tests/docs/test_pages_run.py::", "tests/gallery/test_gallery.py::")


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


def pytest_collection_modifyitems(config, items):
    """Begin with the files that take longest, so that no process is left alone with one of them at the end."""
    if not config.option.all:
        left = [item for item in items if CHECKED_ID.match(item.nodeid)]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
    rank = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


# --- what every test gets --------------------------------------------------------------------------------------------

# The first call of a kernel compiles it, which no deadline foresees. The examples are the same every time, so that a
# change is judged by what it changes; `make soak` draws many new ones.
settings.register_profile("mcfair", deadline=None, max_examples=15, derandomize=True)
settings.register_profile("soak", deadline=None, max_examples=400)
settings.load_profile("mcfair")

# Hundreds of processes import the same modules; without bytecode each of them would compile their source again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(autouse=True)
def registries():
    """Remove the parts that a test registers."""
    kinds = [base.kind for base in (mf.Policy, mf.ClickModel, mf.Estimator, mf.Metric)]
    before = [dict(kind.registry) for kind in kinds]
    yield
    for kind, parts in zip(kinds, before, strict=True):
        kind.registry.clear()
        kind.registry.update(parts)
