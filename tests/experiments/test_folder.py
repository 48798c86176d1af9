"""A folder of finished runs: whole or absent, verified byte for byte, and nothing is left behind."""

import os
import random
import resource
import shutil
import warnings

import msgspec
import pytest

import mcfair as mf
from mcfair.experiments.folder import PREFIX, Folder, Outcome
from mcfair.simulation.trace import sealed, unsealed

KEYS = ("a" * 32, "b" * 32)


@pytest.fixture(scope="module")
def traces():
    data = mf.synthetic("mq2008-like").take(range(4))
    return [mf.simulate(data, "TopK", steps=20, seed=seed) for seed in (0, 1)]


@pytest.fixture
def stored(tmp_path, traces):
    with Folder.open(tmp_path / "out") as folder:
        for key, trace in zip(KEYS, traces, strict=True):
            folder.save(key, trace)
            folder.save(key, trace)  # another process was faster
        yield folder


def files_of(folder):
    return {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}


def test_what_is_read_is_what_was_run(stored, traces):
    found = stored.load(KEYS)
    for key, trace in zip(KEYS, traces, strict=True):
        same = Outcome.of(trace)
        assert (found[key].sessions, found[key].figures) == (same.sessions, same.figures)
        assert found[key].queries.equals(same.queries)
        assert found[key].p.tolist() == same.p.tolist()
        assert mf.Trace.load(stored.path / "runs" / key).figures == trace.figures
    assert set(stored.load(["c" * 32])) == set()


def test_no_flipped_bit_is_believed(stored):
    """A bit in every part of every file: the run is missing or, where the bit means nothing, exactly the same."""
    place, whole = stored.path / "runs" / KEYS[0], stored.load(KEYS[:1])[KEYS[0]]
    rng = random.Random(0)
    for path in files_of(place).values():
        content = path.read_bytes()
        for _ in range(15):
            at, bit = rng.randrange(len(content)), rng.randrange(8)
            flipped = bytearray(content)
            flipped[at] ^= 1 << bit
            path.write_bytes(flipped)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = stored.load(KEYS[:1])
            if found:  # white space
                assert path.name == "run.json"
                assert found[KEYS[0]].figures == whole.figures
                assert found[KEYS[0]].queries.equals(whole.queries)
            else:
                assert KEYS[0] in str(caught[0].message)
        path.write_bytes(content)


@pytest.mark.parametrize(
    "harm", ["another run", "a missing file", "an empty file", "no folder", "a pipe", "one of its tables"]
)
def test_what_is_not_that_run_is_made_again_and_said_so_once(stored, traces, harm):
    place, other = stored.path / "runs" / KEYS[0], stored.path / "runs" / KEYS[1]
    if harm == "another run":
        shutil.rmtree(place)
        shutil.copytree(other, place)
    elif harm == "a missing file":
        (place / "state.parquet").unlink()
    elif harm == "an empty file":
        (place / "run.json").write_bytes(b"")
    elif harm == "a pipe":
        (place / "metrics.parquet").unlink()
        os.mkfifo(place / "metrics.parquet")
    elif harm == "no folder":
        shutil.rmtree(place)
        place.write_text("in the way")
    else:
        shutil.copy(other / "metrics.parquet", place)
    with pytest.warns(mf.MCFairWarning, match=rf"that are damaged are made again: {KEYS[0]}: \w+") as warned:
        assert list(stored.load(KEYS)) == [KEYS[1]]
    assert len(warned) == 1
    stored.save(KEYS[0], traces[0])
    assert stored.load(KEYS)[KEYS[0]].figures == traces[0].figures


def test_a_damaged_run_is_refused_where_it_is_loaded_by_hand(stored):
    place = stored.path / "runs" / KEYS[0]
    content = bytearray((place / "metrics.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (place / "metrics.parquet").write_bytes(content)
    with pytest.raises(mf.TraceError, match=r"is not a saved run: metrics.parquet does not match its digest"):
        mf.Trace.load(place)


def test_runs_of_earlier_versions_have_no_digests_and_can_be_loaded_with_a_warning(stored, traces):
    place = stored.path / "runs" / KEYS[0]
    about = unsealed((place / "run.json").read_bytes())
    del about["files"]
    (place / "run.json").write_bytes(msgspec.json.encode(about))
    with pytest.warns(mf.MCFairWarning, match="has no digests to verify it by"):
        assert mf.Trace.load(place).figures == traces[0].figures


def test_plain_data_are_recalled_unless_they_are_damaged(stored):
    calls = []

    def compute():
        calls.append(1)
        return {"seconds": 0.25}

    for _ in range(2):
        assert stored.recall("times", KEYS[0], compute) == {"seconds": 0.25}
    file = stored.path / "times" / f"{KEYS[0]}.json"
    for wrong in (b"", b"{", file.read_bytes().replace(b"25", b"26"), sealed({"seconds": 1.0, "key": KEYS[1]})):
        file.write_bytes(wrong)
        assert stored.recall("times", KEYS[0], compute) == {"seconds": 0.25}
    file.unlink()
    os.mkfifo(file)
    assert stored.recall("times", KEYS[0], compute) == {"seconds": 0.25}
    assert len(calls) == 6


def test_drafts_of_processes_that_were_killed_are_removed_and_those_of_others_kept(tmp_path):
    left = tmp_path / f"{PREFIX}dead"
    left.mkdir()
    (left / "run.json").write_text("{")
    with Folder.open(tmp_path) as one, Folder.open(tmp_path) as two:
        assert not left.exists()
        assert one.drafts.exists()
        assert one.drafts != two.drafts
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_one_line_and_leaves_nothing(stored, traces):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for write in (
        lambda: stored.save(KEYS[0], traces[0]),
        lambda: stored.recall("times", "c" * 32, lambda: {"text": "x" * 2000}),
        lambda: traces[0].save(stored.path / "mine"),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # no file may be longer
        try:
            with pytest.raises(mf.TraceError, match=r"cannot write .*: File too large$"):
                write()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert set(stored.load(KEYS)) == set(KEYS)
    assert {path.name for path in stored.path.iterdir()} == {stored.drafts.name, "runs"}


def test_a_folder_that_cannot_be_written_to_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(mf.TraceError, match=r"cannot write to .*file"), Folder.open(tmp_path / "file" / "runs"):
        pass
