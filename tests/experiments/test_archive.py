import os

import pytest

import mcfair as mf
from mcfair.experiments.archive import Archive
from mcfair.experiments.experiment import Experiment, Series
from mcfair.experiments.tasks import open_experiments, tasks_of

ONE = Experiment(name="one", settings=({"steps": 20},), seeds=1, series=(Series(policies=("TopK",)),))


@pytest.fixture(scope="module")
def data():
    return open_experiments([ONE])


@pytest.fixture
def task(data):
    return tasks_of([ONE], data)[0]


def test_a_run_is_stored_once_and_whole(tmp_path, data, task):
    archive = Archive(tmp_path / "runs")
    assert archive.missing([task]) == [task]
    trace = task.run(data[task.data])
    archive.save(task, trace)
    archive.save(task, trace)  # another process was faster
    assert archive.missing([task]) == []
    assert archive.load(task.key).unfairness == trace.unfairness


def test_partial_runs_are_neither_read_nor_left(tmp_path, task):
    archive = Archive(tmp_path / "runs")
    draft = archive.folder / f".{task.key}-abc"
    draft.mkdir()
    (draft / "run.json").write_text("{")
    assert task.key not in archive
    assert task.key not in Archive(tmp_path / "runs")
    assert draft.exists()  # another process may be writing it at this moment
    os.utime(draft, (0, 0))
    assert task.key not in Archive(tmp_path / "runs")
    assert not draft.exists()


def test_a_folder_that_cannot_be_written_to_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(mf.TraceError, match=r"cannot write to .*file"):
        Archive(tmp_path / "file" / "runs")
