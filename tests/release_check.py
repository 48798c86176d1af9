"""Install the wheel and the sdist of `make dist` into empty environments, on every Python that is found, and use them.

On each Python: the wheel alone, then each extra alone. On the oldest: also the sdist, and all lower bounds of
pyproject.toml together with the quick part of the tests. On the newest: the same tests with the newest of everything.
One line for each step, and a table at the end. Not part of the suite: it installs from the package index.

    python tests/release_check.py dist --python 3.11 --python 3.14
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from distribution import faults_of_sdist, faults_of_wheel, project

SMOKE = Path(__file__).with_name("release_smoke.py")
EXTRAS = [
    each for each in ("cluster", "client", "postgres", "service", "docs") if each in project()["optional-dependencies"]
]
"""Extras that `release_smoke.py` tries."""

QUICK_TESTS = (
    *("test_package.py", "test_parts.py", "test_errors.py", "test_random.py", "test_elementary.py", "data", "metrics"),
    *("estimators", "users", "simulation/test_simulate.py", "simulation/test_trace.py", "policies/test_selection.py"),
    *("cli/test_cli_simulate.py", "cli/test_cli_listings.py", "service/test_service_ranker.py"),
    *("service/test_service_client.py",),
)
TEST_TOOLS = ("pytest", "hypothesis", "httpx", "pandas", "pyarrow")


@dataclass
class Outcome:
    python: str
    step: str
    seconds: float
    fault: str = ""


def classified_versions():
    """Return the versions of Python that the classifiers name, in order."""
    lines = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in project()["classifiers"]]
    return [match[1] for match in lines if match]


def found_pythons():
    """Return the interpreters of the classified versions, by version, that are on the PATH or under pyenv."""
    found = {}
    for version in classified_versions():
        candidates = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True)
        candidates += [Path(path) for path in [shutil.which(f"python{version}")] if path]
        for path in candidates:
            ran = subprocess.run([path, "-c", "import ensurepip, sys"], capture_output=True, check=False)
            if ran.returncode == 0:
                found[version] = path
                break
    return found


def lower_bounds():
    """Return a constraint for each requirement of the package and its extras: the declared minimum, exactly."""
    groups = [project()["dependencies"], *project()["optional-dependencies"].values()]
    pattern = re.compile(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)(?:;.*)?")
    matches = [pattern.fullmatch(re.sub(r"\s*;.*", "", line)) for group in groups for line in group]
    return sorted({f"{match[1]}=={match[2]}" for match in matches if match})


class Check:
    """The steps done so far, and the folder with their environments."""

    def __init__(self, dist, folder):
        (self.wheel,) = dist.glob("*.whl")
        (self.sdist,) = dist.glob("*.tar.gz")
        self.folder = folder
        self.outcomes = []

    def step(self, python, name, action, *arguments):
        """Call a function and print a line about it."""
        print(f"{python:6} {name} …", flush=True)
        begun = time.monotonic()
        try:
            action(*arguments)
            fault = ""
        except (subprocess.CalledProcessError, AssertionError) as error:
            fault = getattr(error, "output", None) or str(error)
        outcome = Outcome(python, name, time.monotonic() - begun, fault)
        self.outcomes.append(outcome)
        print(f"{python:6} {name}: {'FAILED' if fault else 'ok'}, {outcome.seconds:.0f} s\n{fault}", end="", flush=True)

    def environment(self, interpreter, name, *requirements, constraints=()):
        """Create an empty environment and install into it; return its interpreter."""
        place = self.folder / name
        run("-m", "uv", "venv", "--quiet", "--clear", "--python", interpreter, place)
        constraint = self.folder / f"{name}.txt"
        constraint.write_text("\n".join(constraints))
        python = place / "bin/python"
        install = ("-m", "uv", "pip", "install", "--quiet", "--python", python, "--constraint", constraint)
        run(*install, *requirements)
        return python

    def smoke(self, interpreter, name, requirement, *steps):
        python = self.environment(interpreter, name, requirement)
        run(SMOKE, *steps, python=python, folder=self.folder)
        shutil.rmtree(self.folder / name)

    def tests(self, interpreter, name, constraints=()):
        """Run the quick tests out of the sdist, without its sources, against the installed wheel.

        With constraints, old packages run beside new ones, whose warnings about them are not ours to heed.
        """
        requirement = f"mcfair[cluster,client,postgres,service] @ {self.wheel.as_uri()}"
        python = self.environment(interpreter, name, requirement, *TEST_TOOLS, constraints=constraints)
        with tarfile.open(self.sdist) as archive:
            archive.extractall(self.folder, filter="data")
        unpacked = self.folder / self.sdist.name.removesuffix(".tar.gz")
        shutil.rmtree(unpacked / "src")
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{each}" for each in QUICK_TESTS)]
        words += ["-W", "ignore::DeprecationWarning"] if constraints else []
        run(*words, python=python, folder=unpacked)

    def contents(self):
        faults = [*faults_of_wheel(self.wheel), *faults_of_sdist(self.sdist)]
        assert not faults, "\n".join(faults)


def run(*words, python=sys.executable, folder=None):
    """Run a Python command outside this repository; a failure holds what it printed."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    words = [str(python), *map(str, words)]
    subprocess.run(words, cwd=folder, env=kept, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)


def table(outcomes):
    """Return a row for each step and a column for each Python."""
    pythons = sorted({each.python for each in outcomes}, key=lambda each: [int(part) for part in each.split(".")])
    steps = list(dict.fromkeys(each.step for each in outcomes))
    cells = {(each.step, each.python): f"{'FAILED' if each.fault else 'ok'} {each.seconds:.0f} s" for each in outcomes}
    width = max(map(len, steps))
    lines = [" ".join([" " * width, *(f"{python:>12}" for python in pythons)])]
    lines += [" ".join([f"{step:{width}}", *(f"{cells.get((step, py), '-'):>12}" for py in pythons)]) for step in steps]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path, help="folder with one wheel and one sdist")
    parser.add_argument("--python", action="append", help="only this version, such as 3.12; repeat for several")
    parser.add_argument("--no-tests", action="store_true", help="smoke tests only")
    options = parser.parse_args()
    pythons = {version: path for version, path in found_pythons().items() if version in (options.python or [version])}
    if not pythons:
        parser.error("no Python that the classifiers name was found")
    print("Pythons:", ", ".join(f"{version} ({path})" for version, path in pythons.items()), flush=True)
    oldest, *_, newest = [*pythons, *pythons]
    with tempfile.TemporaryDirectory() as place:
        check = Check(options.dist.resolve(), Path(place))
        check.step(oldest, "contents of wheel and sdist", check.contents)
        for version, path in pythons.items():
            wheel = f"mcfair @ {check.wheel.as_uri()}"
            check.step(version, "wheel alone", check.smoke, path, "alone", wheel, "base", "missing")
            for extra in EXTRAS:
                wanted = wheel.replace("mcfair @", f"mcfair[{extra}] @")
                check.step(version, f"extra {extra}", check.smoke, path, extra, wanted, extra)
        check.step(oldest, "sdist", check.smoke, pythons[oldest], "sdist", check.sdist, "base")
        if not options.no_tests:
            check.step(oldest, "tests, lower bounds", check.tests, pythons[oldest], "lowest", lower_bounds())
            check.step(newest, "tests, newest", check.tests, pythons[newest], "newest")
    print("\n" + table(check.outcomes))
    absent = [each for each in classified_versions() if each not in pythons]
    print(f"not tried: {', '.join(absent)}" if absent else "every version that the classifiers name was tried")
    return any(each.fault for each in check.outcomes)


if __name__ == "__main__":
    sys.exit(main())
