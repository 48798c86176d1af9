import pytest
from letor_files import TOY, sha256

from mcfair.data.catalogue import CATALOGUE, Entry


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    """A machine without data; returns the folder that MCFAIR_DATA names and the user's data folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MCFAIR_DATA", str(tmp_path / "named"))
    return tmp_path / "named", tmp_path / "home" / "mcfair"


@pytest.fixture
def toy_entry(monkeypatch):
    entry = Entry(description="toy", source="Toy 1.0", licence="free", folder="Toy/Fold1", sums={"test": sha256(TOY)})
    monkeypatch.setitem(CATALOGUE, "toy/fold1", entry)
    return entry
