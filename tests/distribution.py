"""Checks of the contents of the wheel and the sdist, for `test_distribution.py` and `release_check.py`."""

import io
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/mcfair"

ADDED_BY_BUILD = {"PKG-INFO"}
"""Files of an sdist that are not in the repository: its metadata."""


def configuration():
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def project():
    """Return the table `project` of pyproject.toml."""
    return configuration()["project"]


EXTRAS = [each for each in project()["optional-dependencies"] if each not in ("dev", "check", "plugs", "release")]
"""Extras for users: each is installed alone, and `release_smoke.py` has a step for it."""


def contents_of_sdist():
    """Return the files and folders of the repository that pyproject.toml names for the sdist."""
    names = configuration()["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    return [ROOT / name for name in names]


def files_below(place):
    """Return the file, or the files of the folder, that git does not ignore; in an unpacked sdist, all but bytecode."""
    if not (ROOT / ".git").exists():
        found = place.rglob("*") if place.is_dir() else [place]
        return {path for path in found if path.is_file() and path.suffix != ".pyc"}
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", str(place)]
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
    held = set(bytes_of_tar(sdist.read_bytes(), strip=1))
    wanted = {path.relative_to(ROOT).as_posix() for place in contents_of_sdist() for path in files_below(place)}
    faults = [f"{name} is missing" for name in sorted(wanted - held)]
    return faults + [f"{name} does not belong into an sdist" for name in sorted(held - wanted - ADDED_BY_BUILD)]


def faults_against_commit(wheel, sdist, root=ROOT):
    """Return the files of the wheel and the sdist that are not those of the last commit, which the tag will name."""
    if not (root / ".git").exists():
        return []
    command = ["git", "archive", "--format=tar", "HEAD"]
    committed = bytes_of_tar(subprocess.run(command, cwd=root, capture_output=True, check=True).stdout)
    held = bytes_of_tar(sdist.read_bytes(), strip=1)
    with zipfile.ZipFile(wheel) as archive:
        held |= {f"src/{name}": archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    changed = [name for name in sorted(held.keys() - ADDED_BY_BUILD) if committed.get(name) != held[name]]
    return [f"{name} is not as committed: commit or remove it, then build again" for name in changed]


def bytes_of_tar(archive, strip=0):
    """Return the contents of the files of a tar archive by their names, without the first folders."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        members = [each for each in opened.getmembers() if each.isfile()]
        return {each.name.split("/", strip)[-1]: opened.extractfile(each).read() for each in members}
