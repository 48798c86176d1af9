from html import unescape

import pytest
from small_results import ALONE, CUTOFFS, ODD, SEVERAL, TABLE, TRADEOFF, run

import mcfair as mf
from mcfair.report import write_report


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    about = {"mcfair": mf.__version__, "command": "mcfair reproduce --out 'a & b'"}
    return run([TABLE, CUTOFFS, TRADEOFF], tmp_path_factory.mktemp("runs"), about)


@pytest.fixture(scope="session")
def report(results, tmp_path_factory):
    return write_report(results, tmp_path_factory.mktemp("report") / "deep" / "er")


@pytest.fixture(scope="session")
def odd(tmp_path_factory):
    """A user's own experiments: one seed, odd labels, no times, one series, two datasets."""
    made = run([ODD, ALONE, SEVERAL], tmp_path_factory.mktemp("odd"))
    return write_report(made, tmp_path_factory.mktemp("odd-report"))


@pytest.fixture
def written(tmp_path):
    """Write a report; return the text of its page."""

    def write(results):
        page = write_report(results, tmp_path).read_text(encoding="utf-8")
        return unescape(page).replace("\N{NO-BREAK SPACE}", " ")

    return write
