import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from real_data import FOLDS, needs_mq2008

import mcfair as mf
from mcfair.cli.plugins import import_plugin
from mcfair.experiments import tasks as module
from mcfair.experiments.execute import run_experiments
from mcfair.experiments.experiment import Experiment, Series
from mcfair.experiments.tasks import Task, fingerprint, open_experiments, parts_of, tasks_of

SMALL = Experiment(
    name="small",
    settings=({"mode": "post-processing", "steps": 400}, {"mode": "online", "steps": 600}),
    seeds=2,
    series=(Series(policies=("TopK", "MCFair(alpha=[0, 10], beta=0)")), Series(policies=("LP",), mode="online")),
)


def test_every_run_once_whatever_the_experiments_share():
    tasks = tasks_of([SMALL, SMALL], open_experiments([SMALL]))
    assert len(tasks) == len({task.key for task in tasks}) == (3 * 2 + 1) * 2


def key(name="d", opened=None, policy="MCFair", seed=0, code=(), **changes):
    content = fingerprint(mf.synthetic("mq2008-like") if opened is None else opened)
    return Task.of(name, content, mf.parse_policy(policy), mf.Setting(steps=10, **changes), seed, code).key


def test_a_key_holds_all_that_a_run_depends_on_and_nothing_else():
    other = mf.synthetic("mq2008-like", seed=1)
    protocol = dataclasses.replace(mf.synthetic("mq2008-like"), protocol=mf.Protocol(plays_last_step=False))
    keys = [
        key(), key(policy="MCFair(alpha=2)"), key(seed=1), key(mode="online"), key(k=3), key(opened=other),
        key(opened=protocol), key(examination=2), key(examination=(1, 0.5, 0.4, 0.3, 0.2)), key(clicks="Cascade"),
        key(clicks="Cascade(stop=0.5)"), key(estimator="IPS(prior_strength=1)"), key(metrics=["gini"]),
        key(code=("a",)), key(code=("b",)),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert key() == key(name="another name for it") == key(policy="MCFair(beta=auto, alpha=1)")


def test_a_change_of_our_sources_is_noticed(monkeypatch):
    before = key()
    monkeypatch.setattr(module, "source_hash", lambda: "other sources")
    assert key() != before


def test_data_count_with_their_arrays_whatever_fingerprint_they_carry():
    data = mf.synthetic("mq2008-like")
    changed = dataclasses.replace(data, R=np.clip(data.R + 0.01, 0, 1))
    assert changed.fingerprint == data.fingerprint
    renamed = dataclasses.replace(data, query_ids=[f"q{i}" for i in range(data.queries)])
    assert len({key(opened=each) for each in (data, changed, renamed)}) == 3
    assert key(opened=dataclasses.replace(data, name="another")) == key(opened=data)


@needs_mq2008
def test_a_fold_is_known_by_all_its_parts():
    fold = mf.load_fold(FOLDS / "Fold1", preset="paper")
    changed = dataclasses.replace(fold, loading=dataclasses.replace(fold.loading, epsilon=0.2))
    assert np.array_equal(fold.R, changed.R)  # of the test part; the others are read in another way
    assert key(opened=fold) != key(opened=changed)
    assert key(opened=fold) != key(opened=fold.test)
    assert key(opened=mf.load_fold(FOLDS / "Fold1")) == key(opened=mf.load_fold(FOLDS / "Fold1").test)


# --- code of users ---------------------------------------------------------------------------------------------------


def experiment(*policies, **fields):
    return Experiment(name="mine", settings=({"steps": 20},), seeds=1, series=(Series(policies=policies),), **fields)


def keys_of(each):
    return [task.key for task in tasks_of([each], open_experiments([each]))]


def define(source):
    """Run a cell as IPython does: in the namespace of one module, without a file that holds its source."""
    exec(compile(source, "<ipython-input-1>", "exec"), CELLS)


CELLS = {"__name__": "__main__", "mf": mf}

CELL = """
SHIFT = 1
@mf.register
class Typed(mf.Policy):
    def score(self, q, rng, power={power}):
        return q.R * {factor} + SHIFT + power
"""


def test_a_policy_that_is_defined_again_is_run_again():
    keys = []
    for power, factor in ((1, 2), (1, 3), (2, 3), (1, 2)):
        define(CELL.format(power=power, factor=factor))
        keys += keys_of(experiment("Typed"))
    define("SHIFT = 2")
    keys += keys_of(experiment("Typed"))
    assert keys[0] == keys[3]
    assert len(set(keys)) == 4


def test_a_change_in_the_file_of_a_plugin_is_noticed(tmp_path):
    keys = []
    for line in ("return q.R", "return q.R * 1.5", "return q.R"):
        file = tmp_path / "theirs.py"
        file.write_text(
            "import mcfair as mf\n\n@mf.register\nclass Theirs(mf.Policy):\n"
            f"    def score(self, q, rng):\n        {line}\n"
        )
        import_plugin(str(file))
        keys += keys_of(experiment("Theirs"))
    assert keys[0] == keys[2] != keys[1]


def test_a_change_in_a_module_that_a_plugin_imports_is_noticed(tmp_path):
    """Each key in a process of its own, as a user starts it."""
    (tmp_path / "theirs.py").write_text(
        "import mcfair as mf\nfrom helping import scaled\n\n@mf.register\nclass Theirs(mf.Policy):\n"
        "    def score(self, q, rng):\n        return scaled(q.R)\n"
    )
    program = (
        "import theirs, sys; sys.path.insert(0, TESTS); from test_tasks import experiment, keys_of\n"
        "print(keys_of(experiment('Theirs', 'TopK')))"
    ).replace("TESTS", repr(__file__.rpartition("/")[0]) + "); sys.path.insert(0, " + repr(__file__.rsplit("/", 2)[0]))
    keys = []
    for factor in (2, 3, 2):
        (tmp_path / "helping.py").write_text(f"FACTOR = {factor}\n\ndef scaled(x):\n    return x * FACTOR\n")
        keys.append(subprocess.check_output([sys.executable, "-B", "-c", program], cwd=tmp_path, text=True))
    assert keys[0] == keys[2] != keys[1]
    assert eval(keys[0])[1] == eval(keys[1])[1]  # of TopK


def test_what_cannot_be_identified_is_run_every_time_and_collected(tmp_path):
    source = (tmp_path / "weights.txt").open("w+")

    @mf.register
    class Reading(mf.Policy):
        def score(self, q, rng):
            return q.R * (source.tell() + 1)

    mine = experiment("Reading", "TopK")
    with source:
        stages = []
        for _ in range(2):
            with pytest.warns(
                mf.MCFairWarning,
                match=r"Reading cannot be identified, so its runs are not reused \(score: source: an ob",
            ):
                results = run_experiments([mine, mine], tmp_path, progress=lambda *stage: stages.append(stage))
            assert results.runs.height == 2
            assert results.of("mq2008-like", mine.conditions[0], Reading())["unfairness"].len() == 1
            assert results.times.height == 2
    assert [stage for stage in stages if stage[0] == "runs"] == [
        ("runs", 0, 2), ("runs", 1, 2), ("runs", 2, 2), ("runs", 1, 2), ("runs", 2, 2)
    ]  # fmt: skip
    assert len(list((tmp_path / "runs").glob("[!.]*"))) == 3
    assert (tmp_path / "times.json").read_text().count(":") == 1


def test_users_parts_in_the_fields_of_a_setting_count():
    class Users(mf.ClickModel):
        stop: float = 0.5

        def clicks(self, pi, truth, p, rng):
            return truth[pi] > self.stop

    class Exposed(mf.Metric):
        def value(self, E, R, groups, visits):
            return float(E.max())

    setting = mf.Setting(steps=5, clicks=Users(), metrics=(Exposed(), mf.Gini()))
    assert list(parts_of([mf.MCFair(), setting])) == [Users(), Exposed()]
    assert list(parts_of([mf.MCFair(), mf.Setting()])) == []
    assert setting.to_dict()["clicks"] == "Users(stop=0.5)"
    assert setting.to_dict()["metrics"] == ["exposed", "gini"]


PARTS_CELL = """
SHIFT = {shift}
@mf.register
class Typed(mf.ClickModel):
    def clicks(self, pi, truth, p, rng):
        return truth[pi] > SHIFT
@mf.register
class Guessed(mf.Estimator):
    def estimate(self, C, E, F, p):
        return C + {guess}, 0.0
@mf.register
class Exposed(mf.Metric):
    def value(self, E, R, groups, visits):
        return {weight} * float(E.max())
"""


def test_a_click_model_an_estimator_or_a_metric_that_is_defined_again_is_run_again():
    same = {"shift": 0.5, "guess": 1.0, "weight": 1.0}
    keys = []
    for change in ({}, {"shift": 0.6}, {"guess": 2.0}, {"weight": 2.0}, {}):
        define(PARTS_CELL.format(**same | change))
        keys += keys_of(experiment("TopK", clicks="Typed", estimator="Guessed", metrics=("exposed",)))
    assert keys[0] == keys[4]
    assert len(set(keys)) == 4


# --- data ------------------------------------------------------------------------------------------------------------


def test_one_name_is_loaded_in_one_way():
    other = Experiment(name="other", series=SMALL.series, epsilon=0.3)
    with pytest.raises(mf.DataError, match="other loads mq2008-like in another way"):
        open_experiments([SMALL, other])


def test_data_in_memory_are_found_by_name_before_files_and_profiles(tmp_path):
    small = mf.synthetic("mq2008-like").select(max_items=8)
    mine = experiment("TopK", data=("mine", "mq2008-like"))
    opened = open_experiments([mine], {"mine": small, "mq2008-like": small})
    assert opened == {"mine": small, "mq2008-like": small}
    assert open_experiments([mine], {"mine": small})["mq2008-like"].queries == 83
    with pytest.raises(mf.DataError, match="no such file or folder: mine"):
        open_experiments([mine])
    results = run_experiments([mine], tmp_path, data={"mine": small})
    assert results.runs["data"].to_list() == ["mine", "mq2008-like"]
    assert results.of("mine", mine.conditions[0], mf.TopK())["unfairness"][0] == (
        mf.simulate(small, "TopK", steps=20).unfairness
    )
