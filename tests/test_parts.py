"""The part mechanism, for all four kinds: policies, click models, estimators and metrics."""

import dataclasses
import importlib
import os
import pickle
import subprocess
import sys
from typing import Annotated, Literal

import msgspec
import numpy as np
import pytest
from example_parts import BASES, OPTION, PAIRS, PARSERS, Eager, PlainEager, PlainOverdue, run
from hypothesis import example, given, settings
from hypothesis import strategies as st
from same_runs import same

import mcfair as mf
from mcfair.parts import described_parameters
from mcfair.testing import check_part, views

every_kind = pytest.mark.parametrize("kind", BASES)


@pytest.fixture(scope="module")
def data():
    return mf.synthetic("mq2008-like", seed=0).take(range(12))


# --- specification ---------------------------------------------------------------------------------------------------


class Weighted(mf.Policy):
    weight: Annotated[float, msgspec.Meta(ge=0.0, le=1.0, description="a number from 0 to 1")]
    power: int = 2
    side: Literal["left", "right"] = "left"
    limit: float | None = None

    def score(self, q, rng):
        return self.weight * q.R


def test_parameters_are_converted_and_printed_in_full():
    assert repr(Weighted(weight=1)) == "Weighted(weight=1.0, power=2, side='left', limit=None)"
    assert Weighted(weight=1) == Weighted(weight=1.0, power=2)
    assert len({Weighted(weight=1), Weighted(weight=1.0), Weighted(weight=0.5)}) == 2
    assert mf.MCFair(alpha=1000, beta=0).label == "MCFair(alpha=1000.0, beta=0.0)"
    assert mf.TopK().label == "TopK"
    theta = Weighted(weight=0.5, side="right").theta
    assert theta[:3].tolist() == [0.5, 2.0, 1.0]
    assert np.isnan(theta[3])
    assert Weighted(weight=0.5, limit=3).theta.tolist() == [0.5, 2.0, 0.0, 3.0]


@every_kind
def test_parts_are_immutable_values(kind):
    for part in (*PAIRS[kind], *(cls() for cls in mf.registered(BASES[kind]).values())):
        for name in [field.name for field in dataclasses.fields(part)] + ["surprise"]:
            with pytest.raises(AttributeError):
                setattr(part, name, 3.0)
        twin = dataclasses.replace(part)
        assert twin == part
        assert hash(twin) == hash(part)
        assert pickle.loads(pickle.dumps(part)) == part


def test_a_part_is_copied_with_changes():
    assert dataclasses.replace(mf.MCFair(alpha=3), beta=1) == mf.MCFair(alpha=3, beta=1)
    assert dataclasses.replace(mf.Cascade(), stop=1) == mf.Cascade(stop=1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weighted(), "Weighted needs a value for weight"),
        (lambda: Weighted(weight=2), r"Weighted: weight = 2 is not allowed: expected a number from 0 to 1"),
        (lambda: Weighted(weight=float("nan")), "weight = nan is not allowed"),
        (lambda: Weighted(weight=1, power=1.5), r"power = 1.5 is not allowed: expected int"),
        (lambda: Weighted(weight=1, side="rigth"), r"unknown Weighted: side = 'rigth'; did you mean 'right'\?"),
        (lambda: mf.MCFair(alpha=-1), "MCFair: alpha = -1 is not allowed: expected a finite number of at least 0"),
        (lambda: mf.MCFair(alpha=float("inf")), "alpha = inf is not allowed"),
        (lambda: mf.MCFair(beta="much"), "beta = 'much' is not allowed: expected a finite number of .*, or 'auto'"),
        (lambda: mf.MCFair(alfa=1), r"unknown parameter of MCFair 'alfa'; did you mean 'alpha'\?"),
        (lambda: mf.FairK(ties="lowest"), "available: index, random, least-exposed"),
        (lambda: mf.parse_policy("MCFiar"), r"unknown policy 'MCFiar'; did you mean 'MCFair'\? available: .*TopK"),
        (
            lambda: mf.parse_policy("Mine"),
            "available: .*; one of your own needs @mf.register, and must be imported first, as `--plugin FILE` does",
        ),
        (lambda: mf.parse_policy("MCFair(1.0)"), r"every parameter needs its name, as in MCFair\(alpha=\.\.\.\)"),
        (lambda: mf.parse_policy("MCFair(alpha=)"), r"cannot parse policy 'MCFair\(alpha=\)'"),
        (lambda: mf.parse_policy("MCFair(**x)"), "every parameter needs its name"),
        (lambda: mf.parse_policy("1 + 1"), "expected Name or Name"),
        (lambda: mf.parse_policy(""), "cannot parse policy ''"),
        (lambda: mf.parse_policy("MCFair(alpha=high)"), "alpha = 'high' is not allowed"),
    ],
)
def test_invalid_policies_are_refused_with_what_is_allowed(make, message):
    with pytest.raises(mf.PolicyError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@every_kind
def test_unknown_names_and_parameters_are_refused_in_one_line(kind):
    base, parse, error = BASES[kind], PARSERS[kind], BASES[kind].kind.error
    known = mf.registered(base)
    name, cls = next((name, cls) for name, cls in known.items() if dataclasses.fields(cls))
    field = dataclasses.fields(cls)[0].name
    swapped = name[1] + name[0] + name[2:]
    cases = [
        (swapped, [base.kind.name, repr(swapped), f"did you mean {name!r}?", "available:", *known]),
        (f"{name}({field}x=1)", [f"parameter of {name}", repr(f"{field}x"), f"did you mean {field!r}?"]),
        (f"{name}({field}=[1, 2])", [name, f"{field} = [1, 2] is not allowed: expected"]),
        (f"{name}(1)", [f"cannot parse {base.kind.name} '{name}(1)'", "every parameter needs its name"]),
        ("?", [f"cannot parse {base.kind.name} '?'", "expected Name or Name(parameter=value, ...)"]),
    ]
    for text, phrases in cases:
        with pytest.raises(error) as caught:
            parse(text)
        message = str(caught.value)
        assert "\n" not in message
        for phrase in phrases:
            assert phrase in message, (text, phrase, message)


@every_kind
def test_wrong_values_name_the_part_what_was_got_and_what_is_allowed(kind):
    for cls in mf.registered(BASES[kind]).values():
        for field in dataclasses.fields(cls):
            for value in ("nonsense", object(), -1, float("nan")):
                try:
                    cls(**{field.name: value})
                except BASES[kind].kind.error as error:
                    message = str(error)
                    assert message.startswith(
                        (f"{cls.name()}: {field.name} = ", f"unknown {cls.name()}: {field.name} =")
                    )
                    assert "expected" in message or "available: " in message
                    assert "\n" not in message
                else:
                    pytest.fail(f"{cls.name()} accepts {field.name} = {value!r}")


# --- texts -----------------------------------------------------------------------------------------------------------


@given(
    alpha=st.floats(0, 1e9),
    beta=st.one_of(st.floats(0, 1e9), st.just("auto")),
    scale=st.sampled_from(["max", "raw", "mean"]),
    ties=st.sampled_from(["index", "random", "least-exposed"]),
    mc_floor=st.floats(0, 1),
)
def test_a_policy_parses_back(alpha, beta, scale, ties, mc_floor):
    policy = mf.MCFair(alpha=alpha, beta=beta, scale=scale, ties=ties, mc_floor=mc_floor)
    assert mf.parse_policy(repr(policy)) == policy
    assert mf.parse_policy(policy.label) == policy


shares = st.floats(0, 1)
several = st.lists(shares, min_size=1, max_size=6).map(tuple)
PARTS = st.one_of(
    st.builds(mf.PositionBased, noise=shares, severity=st.one_of(st.none(), st.floats(0, 10))),
    st.builds(mf.Cascade, stop=shares),
    st.builds(mf.DBN, satisfaction=shares, continuation=shares),
    st.builds(mf.TrustBias, positive=several, negative=several, severity=st.one_of(st.none(), st.floats(0, 10))),
    st.builds(mf.IPS, prior_mean=shares, prior_strength=st.floats(0, 1e9)),
    st.builds(mf.NDCG, k=st.integers(1, 10**6)),
    st.builds(mf.CNDCG, k=st.integers(1, 10**6)),
    st.builds(mf.LP, alpha=st.floats(0, 1000), refresh=st.integers(1, 10**6)),
)


@given(PARTS)
def test_parts_of_all_kinds_parse_back(part):
    base = next(base for base in BASES.values() if isinstance(part, base))
    assert base.parse(repr(part)) == part
    assert repr(base.parse(repr(part))) == repr(part)
    assert base.parse_all(repr(part)) == [part]


def test_words_need_no_quotes_and_spaces_do_not_matter():
    policy = mf.parse_policy('  MCFair( alpha = 1e3, ties=least-exposed, scale = "raw" ) ')
    assert policy == mf.MCFair(alpha=1000.0, ties="least-exposed", scale="raw")
    assert mf.parse_policy("FairCo(alpha=1000)") == mf.FairCo(alpha=1000.0)
    assert mf.parse_click_model("PositionBased(severity=None)") == mf.PositionBased()
    assert mf.parse_click_model("TrustBias(positive=(1, 0.5))").positive == (1.0, 0.5)


tokens = st.sampled_from(
    ["MCFair", "LP", "Cascade", "TrustBias", "IPS", "ndcg", "@", "(", ")", ",", "=", "alpha", "k", "stop", "positive",
     "1", "-", "1e999", "inf", "nan", "None", "True", "'", '"', "[", "]", "{", "}", "*", "**", ".", ":", "lambda", "\n",
     "\0", " ", "#", "\\", "0x", "1_0", "é", "b''", "f'{x}'", "...", "\ud800"]
)  # fmt: skip


@settings(max_examples=60)
@given(st.one_of(st.text(max_size=30), st.lists(tokens, max_size=14).map("".join)))
@example("MCFair(alpha=" + "(" * 300 + "1" + ")" * 300 + ")")
@example("MCFair(alpha=1" + "0" * 5000 + ")")
@example("MCFair(alpha=[[1], (2,)], beta={1: 2})")
@example("TrustBias(positive=((1,), 'x'), negative=[0.1])")
@example("ndcg@" + "9" * 5000)
@example("-" * 5000 + "1")
@example("MCFair(alpha={[]})")
@example("MCFair(alpha={{}: 1, []: 2})")
@example("MCFair(alpha='\\d')")
@example("MCFair(alpha=0x1for x in y)")
@example("A" * 100_000)
@example("MCFair(alpha=" + "-" * 3000 + "1)")
def test_any_text_parses_or_is_refused_by_an_error_of_ours(text):
    for base in BASES.values():
        for parse in (base.parse, base.parse_all):
            try:
                parts = parse(text)
            except mf.MCFairError as error:
                assert isinstance(error, base.kind.error)  # noqa: PT017
                assert "\n" not in str(error)  # noqa: PT017
            else:
                assert all(isinstance(part, base) for part in (parts if parse == base.parse_all else [parts]))


# --- registry --------------------------------------------------------------------------------------------------------


@every_kind
def test_a_registered_part_parses_and_runs(kind, data):
    for part in PAIRS[kind]:
        assert mf.register(type(part)) is type(part)
        assert mf.register(type(part)) is type(part)  # again, as a reloaded notebook does
        assert mf.registered(BASES[kind])[part.name()] is type(part)
        assert PARSERS[kind](part.name()) == PARSERS[kind](repr(part)) == part
        check_part(part)
        text = repr(part)
        options = {OPTION[kind]: [text] if kind == "metrics" else text}
        policy = options.pop("policy", "MCFair")
        assert same(mf.simulate(data, policy, "online", steps=300, **options), run(data, part))


def test_parameters_are_described():
    assert described_parameters(Weighted) == [
        "weight = required  (a number from 0 to 1)",
        "power = 2  (int)",
        "side = 'left'  (left | right)",
        "limit = None  (float, or None)",
        "alpha_group = 0.0  (a finite number of at least 0)",
        "guard = 0.0  (a number from 0 to 1)",
    ]
    assert described_parameters(Eager) == ["least = 0.3  (a number from 0 to 1)"]
    assert described_parameters(mf.MCFair)[1] == "beta = 'auto'  (a finite number of at least 0, or auto)"


@every_kind
def test_a_name_belongs_to_one_part_of_a_kind(kind):
    original = type(PAIRS[kind][1])
    mf.register(original)
    twin = type(original.__name__, (original,), {"__module__": "elsewhere"})
    with pytest.raises(BASES[kind].kind.error, match="exists already, in example_parts; choose another name"):
        mf.register(twin)


def test_the_same_name_may_belong_to_parts_of_two_kinds():
    policy = type("Shared", (PlainOverdue,), {})
    clicks = type("Shared", (PlainEager,), {})
    mf.register(policy)
    mf.register(clicks)
    assert type(mf.parse_policy("Shared")) is policy
    assert type(mf.parse_click_model("Shared")) is clicks


@every_kind
def test_a_part_that_computes_nothing_is_not_registered(kind):
    base = BASES[kind]
    empty = type("Empty", (base,), {})
    with pytest.raises(base.kind.error, match=f"Empty computes nothing: define {' or '.join(base.kind.methods)}, or a"):
        mf.register(empty)
    assert PARSERS[kind](f"{next(iter(mf.registered(base)))}")


@every_kind
def test_a_part_that_computes_nothing_says_so_when_it_is_called(kind):
    q = next(views())
    part = type("Empty", (BASES[kind],), {})()
    calls = {
        "policies": lambda: part.score(q, None),
        "clicks": lambda: part.clicks(np.zeros(1, int), q.R, q.p, None),
        "estimators": lambda: part.estimate(0, 0.0, q.F[0], q.p),
        "metrics": lambda: part.value(q.E, q.R, q.providers, 1),
    }
    with pytest.raises(BASES[kind].kind.error, match=r"(?i)empty (does not rank by a score|defines neither .* kernel)"):
        calls[kind]()


@pytest.mark.parametrize("thing", [int, mf.Part, 3, mf.TopK()], ids=repr)
def test_what_is_not_a_class_of_parts_is_not_registered(thing):
    with pytest.raises(mf.PartError, match="only subclasses of Policy, ClickModel, Estimator and Metric can be regist"):
        mf.register(thing)


OUTSIDE = """
import numpy as np
import mcfair as mf

class OutsidePolicy(mf.Policy):
    def score(self, q, rng):
        return -q.E

class OutsideClicks(mf.ClickModel):
    def clicks(self, pi, truth, p, rng):
        return np.ones(pi.size, bool)

class OutsideEstimator(mf.Estimator):
    def estimate(self, C, E, F, p):
        return C / (E + 1.0), 1.0

class OutsideMetric(mf.Metric):
    def value(self, E, R, groups, visits):
        return float(visits)
"""

ENTRIES = """
[mcfair.policies]
OutsidePolicy = outside:OutsidePolicy
[mcfair.clicks]
OutsideClicks = outside:OutsideClicks
[mcfair.estimators]
OutsideEstimator = outside:OutsideEstimator
[mcfair.metrics]
outside_metric = outside:OutsideMetric
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with a part of each kind, installed as far as importlib.metadata can tell."""
    (tmp_path / "outside.py").write_text(OUTSIDE)
    folder = tmp_path / "outside-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("outside", None)


def test_installed_packages_bring_parts_of_every_kind(installed, data):
    trace = mf.simulate(
        data,
        "OutsidePolicy",
        "online",
        steps=50,
        clicks="OutsideClicks",
        estimator="OutsideEstimator",
        metrics=["outside_metric"],
    )
    assert trace.state.C.sum() == 50 * 5
    assert trace.figures["outside_metric"] == pytest.approx(trace.state.visits[trace.state.visits > 0].mean())
    for kind, base in BASES.items():
        assert "outside" in {cls.__module__ for cls in mf.registered(base).values()}, kind


def test_installed_packages_are_not_imported_before_a_name_is_looked_for(installed):
    code = (
        "import sys, mcfair as mf\n"
        "mf.parse_policy('MCFair'); assert 'outside' not in sys.modules\n"
        "print(repr(mf.parse_policy('OutsidePolicy')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": os.pathsep.join([str(installed), *sys.path]), "HOME": str(installed)},
    )
    assert (done.returncode, done.stdout) == (0, "OutsidePolicy()\n"), done.stderr


def test_a_parameter_given_twice_is_refused():
    with pytest.raises(mf.PolicyError, match="alpha occurs twice"):
        mf.parse_policy("MCFair(alpha=1, alpha=2)")


def test_plain_parts_may_have_parameters_that_are_not_numbers():
    class Boosted(mf.Policy):
        boosts: tuple[float, ...] = (1.0, 2.0)
        name_of_it: str = "x"

        def score(self, q, rng):
            return q.R * self.boosts[0]

    assert mf.simulate(mf.Dataset(offsets=[0, 3], y=[2, 1, 0]), Boosted(), steps=5).ndcg[1] == 1.0


FAILING = {
    "clicks": type("Torn", (mf.ClickModel,), {"clicks": lambda self, *_: 1 / 0}),
    "estimator": type("Broken", (mf.Estimator,), {"estimate": lambda self, *_: 1 / 0}),
    "metrics": type("Off", (mf.Metric,), {"value": lambda self, *_: 1 / 0}),
}


@pytest.mark.parametrize("option", FAILING)
def test_plain_parts_that_fail_are_named(option):
    part = FAILING[option]()
    options = {option: [part] if option == "metrics" else part}
    with pytest.raises(mf.PartError, match="failed: ZeroDivisionError"):
        mf.simulate(mf.Dataset(offsets=[0, 3], y=[2, 1, 0]), "TopK", "online", steps=5, **options)


def test_a_kernel_with_the_wrong_number_of_arguments_is_refused_in_one_line():
    class Short(mf.ClickModel):
        kernel = mf.kernel(lambda pi, truth: None)

    with pytest.raises(mf.PartError, match="it takes 2 arguments, but its kind is called with 6"):
        mf.simulate(mf.Dataset(offsets=[0, 3], y=[2, 1, 0]), "TopK", "online", steps=5, clicks=Short())
