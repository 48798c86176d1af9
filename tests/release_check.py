"""Install the wheel and the sdist of `make dist` into empty environments, on every Python that is found, and use them.

On each Python: the wheel alone, then each extra alone. On the oldest: also the sdist, and, if it is the oldest that is
supported, all lower bounds of pyproject.toml together with the quick tier of the tests. On the newest: the same tests
with the newest of everything.
A step that fails does not stop the others. At the end: a table, and the reason of each failure; the status is 1 then.
Not part of the suite: it installs from the package index.

    python tests/release_check.py dist --python 3.11 --python 3.14
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from distribution import EXTRAS, faults_against_commit, faults_of_sdist, faults_of_wheel, project

SMOKE = Path(__file__).with_name("release_smoke.py")

LIMIT = 3600.0
"""Seconds that a command of a step may take; a busy machine needs minutes to compile all kernels."""

LINES_SHOWN = 15
"""Lines at the end of a failed command's output that are repeated below the table."""


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
    """Return the interpreters of the classified versions, by version: of pyenv, of the PATH, or installed by uv."""
    found = {}
    for version in classified_versions():
        candidates = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), shutil.which(f"python{version}")]
        asked = [sys.executable, "-m", "uv", "python", "find", "--quiet", "--no-python-downloads", version]
        candidates.append(subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip())
        for path in filter(None, candidates):
            ran = subprocess.run([path, "-c", "import sys"], capture_output=True, check=False)
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
        self.wheel, self.sdist = only_file(dist, "*.whl"), only_file(dist, "*.tar.gz")
        self.folder = folder
        self.outcomes = []

    def step(self, python, name, action, *arguments):
        """Call a function and print a line about it; whatever it raises is its fault, not the end of the check."""
        print(f"{python:6} {name} …", flush=True)
        begun = time.monotonic()
        try:
            action(*arguments)
            fault = ""
        except Exception as error:
            fault = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        outcome = Outcome(python, name, time.monotonic() - begun, fault)
        self.outcomes.append(outcome)
        print(f"{python:6} {name}: {'FAILED' if fault else 'ok'}, {outcome.seconds:.0f} s\n{fault}", flush=True)

    @contextmanager
    def environment(self, interpreter, *requirements, constraints=()):
        """Create an empty environment and install into it; yield its interpreter, and remove it afterwards.

        All are created at the same place, because compiled kernels are cached by path: those that one step has
        compiled serve the next step on the same Python.
        """
        place = self.folder / "environment"
        constraint = self.folder / "constraints.txt"
        constraint.write_text("\n".join(constraints))
        try:
            run("-m", "uv", "venv", "--quiet", "--clear", "--python", interpreter, place)
            python = place / "bin/python"
            install = ("-m", "uv", "pip", "install", "--quiet", "--python", python, "--constraint", constraint)
            run(*install, *requirements)
            yield python
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def smoke(self, interpreter, requirement, *steps):
        with self.environment(interpreter, requirement) as python:
            self.use(python, "-P", SMOKE, *steps, folder=self.folder)

    def use(self, python, *words, folder):
        """Run a Python command in an environment, with a cache of its own as on a new machine."""
        run(*words, python=python, folder=folder, XDG_CACHE_HOME=str(self.folder / "cache"))

    def tests(self, interpreter, constraints=()):
        """Run the quick tier of the tests out of the sdist, without its sources, against the installed wheel.

        With constraints, old packages run beside new ones, whose warnings about them are not ours to heed.
        """
        unpacked = self.folder / self.sdist.name.removesuffix(".tar.gz")
        requirement = f"mcfair[dev] @ {self.wheel.as_uri()}"
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile"]
        words += ["-W", "ignore::DeprecationWarning"] if constraints else []
        with self.environment(interpreter, requirement, constraints=constraints) as python:
            with tarfile.open(self.sdist) as archive:
                archive.extractall(self.folder, filter="data")
            shutil.rmtree(unpacked / "src")
            try:
                self.use(python, *words, folder=unpacked)
            finally:
                shutil.rmtree(unpacked)

    def contents(self):
        faults = [*faults_of_wheel(self.wheel), *faults_of_sdist(self.sdist)]
        faults += faults_against_commit(self.wheel, self.sdist)
        assert not faults, "\n".join(faults)


def only_file(folder, pattern):
    """Return the file of a folder that matches a pattern."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        names = ", ".join(each.name for each in found) or "none"
        sys.exit(f"{folder} must hold one {pattern}; it holds {names}. Build them with `make dist`.")
    return found[0]


def run(*words, python=sys.executable, folder=None, **variables):
    """Run a Python command outside this repository; a failure holds what it printed.

    The command is the leader of a group of processes, so that no server that it started is left behind.
    """
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    words = [str(python), *map(str, words)]
    with tempfile.TemporaryFile("w+") as printed:
        options = {"cwd": folder, "env": kept | variables, "stdout": printed, "stderr": subprocess.STDOUT}
        with subprocess.Popen(words, start_new_session=True, **options) as process:
            try:
                ended = f"status {process.wait(LIMIT)}"
            except subprocess.TimeoutExpired:
                ended = f"not finished after {LIMIT:.0f} s"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        printed.seek(0)
        assert ended == "status 0", f"{' '.join(words)}\n{printed.read()}{ended}"


def table(outcomes):
    """Return a row for each step and a column for each Python."""
    pythons = sorted({each.python for each in outcomes}, key=lambda each: [int(part) for part in each.split(".")])
    steps = list(dict.fromkeys(each.step for each in outcomes))
    cells = {(each.step, each.python): f"{'FAILED' if each.fault else 'ok'} {each.seconds:.0f} s" for each in outcomes}
    width = max(map(len, steps))
    lines = [" ".join([" " * width, *(f"{python:>12}" for python in pythons)])]
    lines += [" ".join([f"{step:{width}}", *(f"{cells.get((step, py), '-'):>12}" for py in pythons)]) for step in steps]
    return "\n".join(lines)


def reasons(outcomes):
    """Return the end of what each failed step printed."""
    failed = [each for each in outcomes if each.fault]
    ends = ["\n".join(each.fault.rstrip().splitlines()[-LINES_SHOWN:]) for each in failed]
    return "".join(f"\n{each.python} {each.step} FAILED:\n{end}\n" for each, end in zip(failed, ends, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path, help="folder with one wheel and one sdist")
    parser.add_argument("--python", action="append", help="only this version, such as 3.12; repeat for several")
    parser.add_argument("--no-tests", action="store_true", help="smoke tests only")
    options = parser.parse_args()
    pythons = found_pythons()
    if options.python:
        absent = [version for version in options.python if version not in pythons]
        if absent:
            parser.error(f"no Python {', '.join(absent)} was found, or no classifier names it; found: {list(pythons)}")
        pythons = {version: path for version, path in pythons.items() if version in options.python}
    if not pythons:
        parser.error("no Python that the classifiers name was found")
    print("Pythons:", ", ".join(f"{version} ({path})" for version, path in pythons.items()), flush=True)
    oldest, *_, newest = [*pythons, *pythons]
    with tempfile.TemporaryDirectory() as place:
        check = Check(options.dist.resolve(), Path(place))
        check.step(oldest, "contents of wheel and sdist", check.contents)
        for version, path in pythons.items():
            wheel = f"mcfair @ {check.wheel.as_uri()}"
            check.step(version, "wheel alone", check.smoke, path, wheel, "base", "missing")
            for extra in EXTRAS:
                wanted = wheel.replace("mcfair @", f"mcfair[{extra}] @")
                check.step(version, f"extra {extra}", check.smoke, path, wanted, extra)
        check.step(oldest, "sdist", check.smoke, pythons[oldest], check.sdist, "base")
        if not options.no_tests and oldest == classified_versions()[0]:  # newer ones have no wheels of old packages
            check.step(oldest, "tests, lower bounds", check.tests, pythons[oldest], lower_bounds())
        if not options.no_tests:
            check.step(newest, "tests, newest", check.tests, pythons[newest])
    print(f"\n{table(check.outcomes)}\n{reasons(check.outcomes)}")
    absent = [each for each in classified_versions() if each not in pythons]
    print(f"not tried: {', '.join(absent)}" if absent else "every version that the classifiers name was tried")
    return any(each.fault for each in check.outcomes)


if __name__ == "__main__":
    sys.exit(main())
