"""The wheel and the sdist, built for real; `make release-check` also installs them."""

import re
import shutil
import subprocess

import pytest
import release_smoke
from distribution import (
    EXTRAS,
    ROOT,
    contents_of_sdist,
    faults_against_commit,
    faults_of_sdist,
    faults_of_wheel,
    files_below,
    project,
)
from hatchling import build
from release_check import lower_bounds


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Return a copy of this repository with one commit."""
    copy = tmp_path_factory.mktemp("repository")
    for path in [path for place in contents_of_sdist() for path in files_below(place)]:
        (copy / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy / path.relative_to(ROOT))
    git = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "All"]):
        subprocess.run([*git, *words], cwd=copy, check=True)
    return copy


@pytest.fixture
def built(repository, tmp_path, monkeypatch):
    """Return a function that builds the wheel and the sdist of the copy."""

    def build_both():
        monkeypatch.chdir(repository)  # where a build back end is called
        return tmp_path / build.build_wheel(str(tmp_path)), tmp_path / build.build_sdist(str(tmp_path))

    return build_both


def test_the_wheel_holds_the_package_and_the_sdist_what_tests_and_pages_need(repository, built):
    wheel, sdist = built()
    assert faults_of_wheel(wheel) == []
    assert faults_of_sdist(sdist) == []
    assert faults_against_commit(wheel, sdist, repository) == []
    assert faults_against_commit(wheel, sdist, wheel.parent) == []  # without git there is nothing to compare with


def test_files_that_were_left_behind_are_not_shipped_or_are_reported(repository, built):
    left = {"MQ2008/Fold1/test.txt": "data", "notes.txt": "notes", "src/mcfair/draft.py": "draft = True\n"}
    for name, text in left.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    readme = (repository / "README.md").read_text(encoding="utf-8")
    (repository / "README.md").write_text(f"{readme}\nchanged\n", encoding="utf-8")
    try:
        wheel, sdist = built()
        assert faults_of_wheel(wheel) == ["mcfair/draft.py does not belong into a wheel"]
        assert faults_of_sdist(sdist) == ["src/mcfair/draft.py does not belong into an sdist"]
        reported = [fault.partition(" ")[0] for fault in faults_against_commit(wheel, sdist, repository)]
        assert reported == ["README.md", "src/mcfair/draft.py"]
    finally:
        subprocess.run(["git", "stash", "--quiet", "--include-untracked"], cwd=repository, check=True)


def test_the_changelog_begins_with_this_version():
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings[0].split()[1] == project()["version"]


def test_every_version_of_python_from_the_lowest_on_is_classified():
    versions = [each.rpartition(" ")[2] for each in project()["classifiers"] if "Python :: 3." in each]
    assert versions[0] == project()["requires-python"].removeprefix(">=")
    minors = [int(version.partition(".")[2]) for version in versions]
    assert minors == list(range(minors[0], minors[0] + len(minors)))


def test_every_extra_for_users_has_a_smoke_step():
    assert set(EXTRAS) <= set(release_smoke.STEPS)


def test_every_requirement_has_a_lower_bound_that_is_tried():
    groups = [project()["dependencies"], *project()["optional-dependencies"].values()]
    named = {re.match(r"[\w.-]+", line)[0] for group in groups for line in group}
    assert {line.partition("==")[0] for line in lower_bounds()} == named - {"mcfair"}
