"""Checks of the contents of the wheel and the sdist, for `test_distribution.py` and `release_check.py`."""

import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/mcfair"

NEEDED_FROM_SDIST = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "conftest.py")
"""Files that the sdist holds beside the folders below: enough to run the tests and to build the pages."""

FOLDERS_OF_SDIST = ("src", "tests", "docs", "benchmarks", "deploy")


def project():
    """Return the table `project` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def files_below(folder):
    """Return the files of a folder that git does not ignore; in an unpacked sdist, all but bytecode."""
    if not (ROOT / ".git").exists():
        return {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", str(folder)]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return {ROOT / name for name in listed if name and (ROOT / name).is_file()}


def faults_of_wheel(wheel):
    """Return what is wrong with the contents of a wheel; an empty list if nothing is."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"mcfair-{project()['version']}.dist-info/METADATA").decode()
    wanted = {path.relative_to(PACKAGE.parent).as_posix() for path in files_below(PACKAGE)}
    held = {name for name in names if ".dist-info/" not in name}
    faults = [f"{name} is missing" for name in sorted(wanted - held)]
    faults += [f"{name} does not belong into a wheel" for name in sorted(held - wanted)]
    faults += [] if "mcfair/py.typed" in names else ["no py.typed: the annotations would be ignored"]
    faults += [] if any(name.endswith("licenses/LICENSE") for name in names) else ["no licence"]
    for extra in project()["optional-dependencies"]:
        if f"Provides-Extra: {extra}\n" not in metadata:
            faults.append(f"extra {extra} is missing")
    return faults


def faults_of_sdist(sdist):
    """Return what is wrong with the contents of an sdist; an empty list if nothing is."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {path.relative_to(ROOT).as_posix() for folder in FOLDERS_OF_SDIST for path in files_below(ROOT / folder)}
    return [f"{name} is missing" for name in sorted({*NEEDED_FROM_SDIST, *wanted} - names)]
