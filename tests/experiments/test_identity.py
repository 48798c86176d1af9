"""Identity of code: equal for the same code in any process, different for anything that changes what it computes."""

import collections
import dataclasses
import enum
import functools
import os
import subprocess
import sys
import threading
from pathlib import Path

import numba
import numpy as np
import pytest

import mcfair as mf
from mcfair.experiments import identity, origins
from mcfair.experiments.identity import UnidentifiedCodeError, identify, user_modules
from mcfair.experiments.origins import imported_modules, installed_version, source_hash

SOURCE = """
import dataclasses, enum, functools
import numpy as np
import numba
import mcfair as mf
from mcfair.random import uniform
from typing import Annotated
import msgspec

WEIGHTS = np.array([0.5, 0.25])
TABLE = {"b": [1, 2], "a": (3.0, None, True)}
NAMES = {"x", "y", "z", frozenset({"p", "q"})}
SCALE = 2.0
Positive = Annotated[float, msgspec.Meta(ge=0)]

class Kind(enum.Enum):
    ONE = 1
    TWO = "two"

    def half(self):
        return 0.5

@dataclasses.dataclass(frozen=True)
class Options:
    depth: int = 3
    kind: Kind = Kind.ONE

OPTIONS = Options()

def helper(x, shift=0.25, *, factor=1.0):
    return x * SCALE * factor + shift

@functools.lru_cache
def cached(x):
    return helper(x)

def outer(amount):
    def inner(x):
        return [amount * each for each in (x, 7)]
    return inner

CLOSURE = outer(0.125)

@numba.njit(fastmath=False)
def compiled(x):
    return x + 11.0

@mf.kernel
def damped(q, theta, rng, out):
    for d in range(out.shape[0]):
        out[d] = q.R[d] - WEIGHTS[0] * theta[0] * uniform(rng, d)

class Mixin:
    offset = 0.75

    def extra(self):
        return 17

class Kernelled(mf.Policy):
    weight: Positive = 0.5
    kernel = damped

class Theirs(Mixin, mf.Policy):
    weight: Positive = 0.5

    @staticmethod
    def fixed():
        return 19

    @property
    def doubled(self):
        return 2 * self.weight

    def score(self, q, rng):
        known = {"p", "q"}
        values = sorted(TABLE) + sorted(map(str, NAMES)) + [each for each in known]
        total = cached(self.doubled) + compiled(1.0) + self.extra() + self.fixed() + OPTIONS.depth
        if self.recursive(2) or OPTIONS.kind is Kind.TWO:
            total += CLOSURE(1.0)[0] + super().offset + Kind.ONE.half()
        return q.R * total + np.log(len(values))

    def recursive(self, n):
        return Theirs.recursive(self, n - 1) if n else self.weight
"""


def defined(source, name="Theirs", module="users_code"):
    """Execute a source as at a prompt, without a file, and return what it defines."""
    namespace = {"__name__": module}
    exec(source, namespace)
    return namespace[name]


def test_the_same_code_has_one_identity_wherever_it_was_typed():
    moved = SOURCE.replace("class Mixin:", "\n\n# moved down\nclass Mixin:")
    assert identify(defined(SOURCE)) == identify(defined(moved)) == identify(defined(SOURCE, module="__main__"))


def test_using_a_class_does_not_change_its_identity():
    theirs = defined(SOURCE)
    before = identify(theirs), identify(theirs.__mro__[1]), identify(defined(SOURCE, "Kernelled"))
    mf.simulate(mf.synthetic("mq2008-like"), theirs(), steps=5)
    kernelled = defined(SOURCE, "Kernelled")
    mf.simulate(mf.synthetic("mq2008-like"), kernelled(), steps=5)
    assert (identify(theirs), identify(theirs.__mro__[1]), identify(kernelled)) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return q.R * total", "return q.R - total"),
        ("recursive(2)", "recursive(3)"),
        ("SCALE = 2.0", "SCALE = 2"),
        ("SCALE = 2.0", "SCALE = -2.0"),
        ("shift=0.25", "shift=0.2"),
        ("factor=1.0", "factor=1.1"),
        ("outer(0.125)", "outer(0.25)"),
        ("(x, 7)", "(x, 8)"),
        ("x + 11.0", "x - 11.0"),
        ("fastmath=False", "fastmath=True"),
        ("offset = 0.75", "offset = 0.5"),
        ("return 17", "return 18"),
        ("return 19", "return 20"),
        ("2 * self.weight", "3 * self.weight"),
        ("weight: Positive = 0.5\n\n", "weight: Positive = 0.25\n\n"),
        ("Meta(ge=0)", "Meta(ge=0.1)"),
        ('"b": [1, 2]', '"b": [2, 1]'),
        ("None, True)", "None, 1)"),
        ('"x", "y"', '"x", "w"'),
        ('frozenset({"p", "q"})', 'frozenset({"p", "r"})'),
        ('known = {"p", "q"}', 'known = ["p", "q"]'),
        ("ONE = 1", "ONE = 3"),
        ("return 0.5", "return 0.6"),
        ("depth: int = 3", "depth: int = 4"),
        ("np.log", "np.exp"),
    ],
)
def test_any_change_of_what_runs_is_a_change_of_identity(old, new):
    assert SOURCE.count(old) == 1 or old.startswith("weight")
    assert identify(defined(SOURCE)) != identify(defined(SOURCE.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"), [("0.5, 0.25]", "0.25, 0.5]"), ("- WEIGHTS", "+ WEIGHTS"), ("weight: Positive", "heft: Positive")]
)
def test_kernels_count_with_their_plain_function(old, new):
    before = identify(defined(SOURCE, "Kernelled"))
    assert before != identify(defined(SOURCE.replace(old, new, 1), "Kernelled"))
    assert before == identify(defined(SOURCE.replace("x + 11.0", "x + 12.0"), "Kernelled"))


def test_another_process_computes_the_same_identity(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "users_code.py").write_text(SOURCE)
    program = (
        "import users_code as code\nfrom mcfair.experiments.identity import identify\n"
        "print(identify(code.Theirs), identify(code.Kernelled), identify(code.CLOSURE))\n"
    )
    found = set()
    for seed in ("1", "2", "3"):
        path = os.pathsep.join([str(tmp_path / "elsewhere"), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
        found.add(subprocess.check_output([sys.executable, "-c", program], env=environment, text=True))
    names = ("Theirs", "Kernelled", "CLOSURE")
    assert found == {" ".join(identify(defined(SOURCE, name)) for name in names) + "\n"}


# --- modules ---------------------------------------------------------------------------------------------------------

PLUGIN = """
import helping
from helping import shift
import mcfair as mf

class Theirs(mf.Policy):
    def score(self, q, rng):
        import lately
        from package import late
        return helping.scaled(q.R) + shift(1) + late.AMOUNT + lately.amount()
"""
HELPERS = {
    "helping.py": "import deeper\ndef scaled(x):\n    return deeper.FACTOR * x\ndef shift(x):\n    return x + 1\n",
    "deeper.py": "FACTOR = 2.0\n",
    "package/__init__.py": "",
    "lately.py": "def amount():\n    return 3\n",
    "package/late.py": "from .deepest import AMOUNT\n",
    "package/deepest.py": "AMOUNT = 5\n",
    "unused.py": "VALUE = 1\n",
}


def plugin_identity(folder, monkeypatch, changed="", old="", new=""):
    folder.mkdir()
    (folder / "package").mkdir()
    for name, text in {**HELPERS, "plugin.py": PLUGIN}.items():
        assert name != changed or old in text
        (folder / name).write_text(text.replace(old, new) if name == changed else text)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(folder))
        before = set(sys.modules)
        try:
            import plugin  # type: ignore[import-not-found]

            return identify(plugin.Theirs), user_modules([plugin.Theirs])
        finally:
            for name in set(sys.modules) - before:
                if name.partition(".")[0] in ("plugin", "helping", "deeper", "package", "lately"):
                    del sys.modules[name]


def test_a_change_in_a_module_that_a_plugin_uses_is_noticed(tmp_path, monkeypatch):
    same, modules = plugin_identity(tmp_path / "1", monkeypatch)
    assert modules == {
        *("plugin", "helping", "deeper", "package", "package.late", "package.deepest", "lately"),
    }
    assert plugin_identity(tmp_path / "2", monkeypatch)[0] == same
    assert plugin_identity(tmp_path / "3", monkeypatch, "unused.py", "1", "2")[0] == same
    changes = [
        ("helping.py", "deeper.FACTOR * x", "x / deeper.FACTOR"),
        ("helping.py", "x + 1", "x + 2"),
        ("deeper.py", "2.0", "3.0"),
        ("package/late.py", "import AMOUNT", "import AMOUNT as AMOUNT, __name__ as _"),
        ("package/deepest.py", "5", "6"),
        ("lately.py", "3", "4"),
    ]
    found = {plugin_identity(tmp_path / f"c{i}", monkeypatch, *each)[0] for i, each in enumerate(changes)}
    assert len(found | {same}) == len(changes) + 1


def test_a_value_set_in_a_module_counts_though_its_file_is_the_same(tmp_path, monkeypatch):
    (tmp_path / "settings_of_users.py").write_text("LEVEL = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import settings_of_users  # type: ignore[import-not-found]

    def score():
        return settings_of_users.LEVEL

    before = identify(score)
    settings_of_users.LEVEL = 2
    assert identify(score) != before
    settings_of_users.LEVEL = 1
    assert identify(score) == before
    # an edit after the import: the old code still runs, and what it gives must not be kept for the new file
    (tmp_path / "settings_of_users.py").write_text("LEVEL = 3\n")
    stale = identify(score)
    settings_of_users.LEVEL = 3
    assert len({before, stale, identify(score)}) == 3


def test_installed_packages_count_by_name_and_version(monkeypatch):
    assert installed_version("numpy.linalg", np.linalg.__file__) == np.__version__
    assert installed_version("json", sys.modules["json"].__file__) == sys.version.split()[0]
    assert installed_version("sys", None) == sys.version.split()[0]
    assert installed_version("__main__", np.__file__) is None
    assert installed_version(__name__, __file__) is None
    before = identify(np.log), identify(functools.partial(np.linalg.norm, axis=0))
    monkeypatch.setattr(origins, "distribution_version", lambda top: "another version")
    assert identify(functools.partial(np.linalg.norm, axis=0)) != before[1]


def test_parts_of_this_package_outside_a_run_count_where_a_user_calls_them(monkeypatch):
    def calls_a_policy(x):
        return mf.MCFair(alpha=x)

    def calls_the_floor(x):
        return mf.fairness_floor(x)

    before = [identify(each) for each in (calls_a_policy, calls_the_floor)]
    monkeypatch.setattr(identity, "source_hash", lambda whole: "other sources")
    after = [identify(each) for each in (calls_a_policy, calls_the_floor)]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False]


def test_no_part_of_a_run_imports_what_is_not_in_the_hash_of_its_sources():
    outside = {name.removesuffix(".py") for name in origins.NOT_IN_A_RUN}
    for file in origins.PACKAGE.rglob("*.py"):
        parts = file.relative_to(origins.PACKAGE.parent).with_suffix("").parts
        if parts[1] not in outside:
            for name in imported_modules(file.read_bytes(), ".".join(parts[:-1])):
                assert not (name.startswith("mcfair.") and name.split(".")[1] in outside), (file, name)
    for name in origins.NOT_IN_A_RUN:
        assert (origins.PACKAGE / name).exists(), name
    assert source_hash() != source_hash(whole=True)


# --- values ----------------------------------------------------------------------------------------------------------

Pair = collections.namedtuple("Pair", "a b")


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: object


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


VALUES = [
    None, ..., True, 1, 1.0, -0.0, 0.0, float("nan"), 1j, "1", b"1", bytearray(b"1"), "", (), [], {}, set(),
    frozenset(), (1,), [1], {1}, frozenset([1]), {1: 2}, {2: 1}, {1: 2, 3: 4}, {3: 4, 1: 2}, (1, (2,)), ((1, 2),),
    ("a", "bc"), ("ab", "c"), range(3), slice(1), Pair(1, 2), Pair(1, 3), Level.LOW, Level.HIGH, Frozen(1), Frozen(2),
    Frozen(Frozen(1)), Slotted(1), Slotted(2), np.float64(1), np.float32(1), np.arange(3), np.arange(3.0),
    np.arange(4).reshape(2, 2), np.arange(4), np.array([1, "a"], object), np.array([1, "b"], object),
    np.array(["a"]), np.dtype("f4"), collections.OrderedDict(a=1), collections.defaultdict(int, a=1), Path("a"),
    Path("b"), np.random.default_rng(1), np.random.default_rng(2), int, float, np.add, np.log, len, sys, np,
    functools.partial(max, 1), functools.partial(max, 2), [].append, "x".join, 2**5000, list[int], int | None,
    collections.deque([1]), mf.TopK, mf.MCFair(), mf.MCFair(alpha=2), mf.MCFair.score, numba.njit(lambda x: x),
]  # fmt: skip


def test_different_values_have_different_identities():
    found = [identify(each) for each in VALUES]
    assert len(set(found)) == len(VALUES)
    assert found == [identify(each) for each in VALUES]


def test_cycles_come_to_an_end():
    loop = [1]
    loop.append(loop)
    other = [1]
    other.append([1, other])
    assert identify(loop) == identify(loop) != identify(other)
    ring = {"self": None}
    ring["self"] = {id: ring, "set": {len, max}}
    assert identify(ring) == identify(ring)

    def ping(n):
        return pong(n - 1) if n else 0

    def pong(n):
        return ping(n - 1) if n else 1

    assert identify(ping) != identify(pong)


OPEN = Path(os.devnull).open()  # noqa: SIM115  # an open file is what cannot be identified
LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda: OPEN.read(), "OPEN: an object of type TextIOWrapper has no content"),
        (lambda: LOCK, "LOCK: an object of type lock has no content"),
        (lambda: open("weights.txt"), r"open: open\(\) brings in what is known only at run time"),  # noqa: PTH123, SIM115
        (lambda: eval("1 + 1"), r"eval: eval\(\) brings in"),
        (lambda: (each for each in OPEN), "OPEN: "),
        (lambda x=(each for each in "ab"): x, "generator"),
        (np.frompyfunc(lambda x: x, 1, 1), "of type ufunc has no content"),
    ],
)
def test_what_cannot_be_identified_is_named(function, reason):
    with pytest.raises(UnidentifiedCodeError, match=reason):
        identify(function)


def test_a_structure_that_is_nested_too_deeply_is_not_identified():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UnidentifiedCodeError, match="nested too deeply"):
        identify(deep)


def teardown_module():
    OPEN.close()
