"""The wheel and the sdist, built for real; `make release-check` also installs them."""

import pytest
from distribution import ROOT, faults_of_sdist, faults_of_wheel, project
from hatchling import build


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)  # where a build back end is called


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path):
    assert faults_of_wheel(tmp_path / build.build_wheel(str(tmp_path))) == []


def test_the_sdist_holds_what_tests_and_pages_need(tmp_path):
    assert faults_of_sdist(tmp_path / build.build_sdist(str(tmp_path))) == []


def test_the_changelog_begins_with_this_version():
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings[0].split()[1] == project()["version"]


def test_every_version_of_python_from_the_lowest_on_is_classified():
    versions = [each.rpartition(" ")[2] for each in project()["classifiers"] if "Python :: 3." in each]
    assert versions[0] == project()["requires-python"].removeprefix(">=")
    minors = [int(version.partition(".")[2]) for version in versions]
    assert minors == list(range(minors[0], minors[0] + len(minors)))
