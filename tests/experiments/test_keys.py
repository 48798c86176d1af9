"""Keys: everything that a result depends on changes them, and what no file shows has none."""

import dataclasses
import itertools
import subprocess
import sys
from importlib.util import resolve_name

import numpy as np
import pytest
from real_data import FOLDS, needs_mq2008

import mcfair as mf
from mcfair.cli.parts import import_plugin
from mcfair.experiments import keys as module
from mcfair.experiments.keys import NoKeyError, fingerprint, imported, key_of, local_modules, parts_of, source_hash


def key(opened=None, policy="MCFair", seed=0, **changes):
    content = fingerprint(mf.synthetic("mq2008-like") if opened is None else opened)
    chosen = mf.parse_policy(policy) if isinstance(policy, str) else policy
    return key_of(content, chosen, mf.Setting(steps=10, **changes), seed)


def test_a_key_holds_all_that_a_run_depends_on_and_nothing_else():
    other = mf.synthetic("mq2008-like", seed=1)
    protocol = dataclasses.replace(mf.synthetic("mq2008-like"), protocol=mf.Protocol(plays_last_step=False))
    keys = [
        key(), key(policy="MCFair(alpha=2)"), key(seed=1), key(mode="online"), key(k=3), key(opened=other),
        key(opened=protocol), key(examination=2), key(examination=(1, 0.5, 0.4, 0.3, 0.2)), key(clicks="Cascade"),
        key(clicks="Cascade(stop=0.5)"), key(estimator="IPS(prior_strength=1)"), key(metrics=["gini"]),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert key() == key(policy="MCFair(beta=auto, alpha=1)")


def test_a_change_of_our_sources_is_noticed(monkeypatch):
    before = key()
    monkeypatch.setattr(module, "source_hash", lambda whole: "other sources")
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


def test_no_part_of_a_run_imports_what_is_not_in_the_hash_of_its_sources():
    outside = {name.removesuffix(".py") for name in module.NOT_IN_A_RUN}
    for file in module.PACKAGE.rglob("*.py"):
        parts = file.relative_to(module.PACKAGE.parent).with_suffix("").parts
        if parts[1] not in outside:
            for level, name in imported(file.read_bytes()):
                name = resolve_name("." * level + name, ".".join(parts[:-1]))
                assert not (name.startswith("mcfair.") and name.split(".")[1] in outside), (file, name)
    for name in module.NOT_IN_A_RUN:
        assert (module.PACKAGE / name).exists(), name
    assert source_hash() != source_hash(whole=True)


# --- users' parts ----------------------------------------------------------------------------------------------------

PLUGIN = """
import mcfair as mf

@mf.register
class Theirs(mf.Policy):
    def score(self, q, rng):
        return q.R
"""
NUMBERS = itertools.count()


@pytest.fixture
def plugged(tmp_path, monkeypatch):
    """Return a function that imports a plugin from its text, with files beside it, and returns its class."""

    def plug(text, name="Theirs", base=mf.Policy, **files):
        folder = tmp_path / str(next(NUMBERS))
        folder.mkdir()
        for stem, content in files.items():
            (folder / stem.replace("_dot_", ".")).write_text(content)
        (folder / "theirs.py").write_text(text)
        import_plugin(str(folder / "theirs.py"))
        return mf.registered(base)[name]

    monkeypatch.setattr(sys, "path", list(sys.path))
    yield plug
    for name in ("theirs", "helping", "deeper"):
        sys.modules.pop(name, None)
    mf.Policy.kind.registry.pop("Theirs", None)


def key_or_reason(cls):
    try:
        return key(policy=cls())
    except NoKeyError as error:
        return str(error)


def test_a_change_in_the_file_of_a_part_is_noticed(plugged):
    keys = [key_or_reason(plugged(PLUGIN.replace("q.R", line))) for line in ("q.R", "q.R * 1.5", "q.R")]
    assert keys[0] == keys[2] != keys[1]


def test_a_change_in_a_module_that_it_imports_directly_or_not_is_noticed(plugged):
    text = PLUGIN.replace("import mcfair", "import helping\nimport mcfair")
    keys = []
    for factor in ("2", "3", "2"):
        for name in ("helping", "deeper"):
            sys.modules.pop(name, None)
        keys.append(key_or_reason(plugged(text, helping_dot_py="from deeper import F", deeper_dot_py=f"F = {factor}")))
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize("place", ["helping.py", "other/deep.py", "__init__.py", "other/__init__.py"])
def test_a_change_in_what_it_imports_from_its_package_is_noticed(tmp_path, place):
    package = tmp_path / "package"
    (package / "other").mkdir(parents=True)
    for name in ("helping.py", "other/deep.py", "__init__.py", "other/__init__.py"):
        (package / name).write_text("F = 1\n")
    file = package / "theirs.py"
    file.write_text("from . import helping\nfrom .other.deep import F\n")
    before = module.closure(file)
    assert {each.relative_to(package.resolve()).as_posix() for each in before} == {
        *("theirs.py", "helping.py", "__init__.py", "other/__init__.py", "other/deep.py")
    }
    (package / place).write_text("F = 2\n")
    assert module.closure(file) != before


def test_a_change_in_a_file_that_it_declares_is_noticed(plugged):
    text = PLUGIN.replace("    def score", '    depends = ("weights.txt",)\n    def score')
    text = text.replace("return q.R", "return q.R * float(open('weights.txt').read())")
    keys = [key_or_reason(plugged(text, weights_dot_txt=content)) for content in ("1", "2", "1")]
    assert keys[0] == keys[2] != keys[1]
    with pytest.raises(mf.SettingError, match=r"Theirs depends on .*weights.txt, which cannot be read: No such file"):
        key_or_reason(plugged(text))
    with pytest.raises(mf.SettingError, match=r"depends = 'weights.txt': expected a tuple of paths"):
        key_or_reason(plugged(text.replace('("weights.txt",)', '"weights.txt"'), weights_dot_txt="1"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("import random; return q.R * random.random()", "it draws random numbers that no seed of the run determines"),
        ("import numpy as np; return q.R + np.random.rand()", r"\(numpy.random.rand in theirs.py, line 7\)"),
        ("from numpy.random import normal; return q.R + normal()", r"\(numpy.random.normal in theirs.py"),
        ("import numpy as np; return q.R + np.random.default_rng().random()", "it draws random numbers"),
        ("import os; return q.R * float(os.environ['SCALE'])", r"may change from run to run \(os.environ in"),
        ("import time; return q.R * time.time()", r"\(time.time in theirs.py"),
        ("return q.R * float(open('weights').read())", r'it reads a file \(open in .*declare it, as in depends = \("w'),
        ("from pathlib import Path; return q.R * float(Path('w').read_text())", "it reads a file"),
        ("import numpy as np; return q.R + np.random.default_rng(3).random()", None),
        ("import random; return q.R * random.Random(3).random()", None),
        ("return q.R + noise()\n\ndef noise():\n    import random\n    return random.random()", "it draws random"),
        ("return q.R * SCALE\n\nSCALE = 1 or open('weights').read()", "it reads a file"),
        ("return q.R\n\ndef main():\n    print(open('weights').read())", None),  # the class does not lead there
    ],
)
def test_what_no_file_shows_has_no_key(plugged, line, reason):
    found = key_or_reason(plugged(PLUGIN.replace("return q.R", line)))
    if reason is None:
        assert len(found) == 32
    else:
        assert found.startswith("runs with Theirs are not kept: ")
        assert __import__("re").search(reason, found), found


def test_a_file_that_was_edited_after_its_import_has_no_key(plugged):
    cls = plugged(PLUGIN)
    assert len(key_or_reason(cls)) == 32
    file = module.file_of_class(cls)
    file.write_text(PLUGIN.replace("q.R", "-q.R"))
    assert "theirs.py was edited after it was imported" in key_or_reason(cls)


def test_what_was_typed_at_a_prompt_or_made_by_a_function_has_no_key():
    cell = {"__name__": "__main__", "mf": mf}
    exec(compile(PLUGIN, "<ipython-input-1>", "exec"), cell)
    assert "it was defined at a prompt; put it into a file" in key_or_reason(cell["Theirs"])
    mf.Policy.kind.registry.pop("Theirs")

    class Local(mf.Policy):
        def score(self, q, rng):
            return q.R

    assert "it was made by a function, or defined again" in key_or_reason(Local)


class Users(mf.ClickModel):
    stop: float = 0.5

    def clicks(self, pi, truth, p, rng):
        return truth[pi] > self.stop


class Exposed(mf.Metric):
    def value(self, E, R, providers, visits):
        return float(E.max())


def test_users_parts_in_the_fields_of_a_setting_count():
    setting = mf.Setting(steps=5, clicks=Users(), metrics=(Exposed(), mf.Gini()))
    assert list(parts_of([mf.MCFair(), setting])) == [Users, Exposed]
    assert list(parts_of([mf.MCFair(), mf.Setting()])) == []


def test_modules_of_users_travel_and_those_of_others_do_not(plugged):
    text = PLUGIN.replace("import mcfair", "import helping, numpy\nimport mcfair")
    plugged(text, helping_dot_py="F = 1")
    assert {"helping", "theirs"} <= set(local_modules())
    assert not {"numpy", "mcfair", "mcfair.policies", "__main__"} & set(local_modules())


def test_installed_packages_count_with_their_version(plugged, monkeypatch):
    cls = plugged(PLUGIN.replace("import mcfair", "import numba\nimport mcfair"))
    before = key_or_reason(cls)
    monkeypatch.setattr(module.metadata, "version", lambda name: "another")
    assert key_or_reason(cls) != before


def test_the_class_of_a_script_has_the_same_key_in_every_process(tmp_path):
    (tmp_path / "mine.py").write_text(
        PLUGIN + "\nfrom mcfair.experiments.keys import key_of\nprint(key_of('', Theirs(), mf.Setting(), 0))\n"
    )
    found = [subprocess.check_output([sys.executable, "-B", "mine.py"], cwd=tmp_path, text=True) for _ in range(2)]
    assert len(found[0]) == 33
    assert found[0] == found[1]
