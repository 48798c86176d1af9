from functools import partial

import naive
import naive_users
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcfair as mf
from mcfair.random import CLICKS, draws
from mcfair.testing import check_part

VARIANTS = [
    "PositionBased",
    "PositionBased(noise=0.2)",
    "PositionBased(severity=2)",
    "PositionBased(noise=0.1, severity=0)",
    "Cascade",
    "Cascade(stop=1)",
    "Cascade(stop=0)",
    "DBN",
    "DBN(satisfaction=0.3, continuation=0.6)",
    "TrustBias",
    "TrustBias(positive=(0.9, 0.5), negative=(0.2,), severity=1.5)",
    "TrustBias(positive=(1,), negative=(0.3, 0.2, 0.1))",
]
MODELS = [mf.parse_click_model(text) for text in VARIANTS]


def clicks(model, pi, truth, p, *, seed=0, query=0, visit=0):
    return model.clicks(np.asarray(pi), np.asarray(truth, float), model.examined(p), draws(seed, CLICKS, query, visit))


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_contract(model):
    check_part(model)


def test_every_registered_click_model_is_tested():
    assert {type(model).__name__ for model in MODELS} == set(mf.registered(mf.ClickModel)) == set(naive_users.MODELS)


@st.composite
def sessions(draw):
    n = draw(st.integers(1, 20))
    pi = draw(st.permutations(range(n)))[: draw(st.integers(1, 8))]
    truth = draw(st.lists(st.sampled_from([0.0, 0.1, 0.4, 0.9, 1.0]), min_size=n, max_size=n))
    return pi, truth, draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("model", MODELS, ids=repr)
@settings(max_examples=60)
@given(session=sessions())
def test_every_click_is_that_of_the_equations(model, session):
    pi, truth, seed, query, visit = session
    p = naive.examination(len(pi))
    expected = naive_users.twin(model)(
        pi, truth, naive_users.users_examination(model, p), partial(naive.uniform, seed, CLICKS, query, visit)
    )
    assert clicks(model, pi, truth, p, seed=seed, query=query, visit=visit).tolist() == expected


VISITS = 20_000


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_clicks_are_as_frequent_at_every_rank_as_the_formula_says(model):
    """The mean over many visits lies within 4.5 standard deviations of the probability."""
    pi, truth, p = np.array([2, 0, 5, 3, 1]), np.array([0.9, 0.1, 0.4, 0.7, 1.0, 0.25]), naive.examination(5)
    examined, theta = model.examined(p), model.theta
    total, hits = np.zeros(5), np.zeros(5, bool)
    for visit in range(VISITS):
        model.kernel(pi, truth, examined, theta, draws(7, CLICKS, 3, visit), hits)
        total += hits
    expected = np.array(naive_users.rates(model, truth[pi], p))
    band = 4.5 * np.sqrt(expected * (1 - expected) / VISITS)
    assert np.all(np.abs(total / VISITS - expected) <= band), (total / VISITS, expected)


@pytest.mark.parametrize(("satisfaction", "continuation"), [(0.7, 0.9), (1.0, 1.0), (0.3, 1.0), (0.0, 0.5)])
def test_the_formula_of_dbn_is_the_sum_over_all_that_a_user_can_do(satisfaction, continuation):
    r = [0.9, 0.1, 0.4]
    by_enumeration = naive_users.dbn_rates_by_enumeration(satisfaction, continuation, r)
    assert naive_users.dbn_rates(satisfaction, continuation, r, None) == pytest.approx(by_enumeration)
    assert naive_users.cascade_rates(satisfaction, r, None) == pytest.approx(
        naive_users.dbn_rates_by_enumeration(satisfaction, 1.0, r)
    )


@given(session=sessions(), stop=st.floats(0, 1))
def test_a_cascade_is_dbn_without_abandonment(session, stop):
    pi, truth, seed, query, visit = session
    p = naive.examination(len(pi))
    both = [
        clicks(model, pi, truth, p, seed=seed, query=query, visit=visit).tolist()
        for model in (mf.Cascade(stop=stop), mf.DBN(satisfaction=stop, continuation=1))
    ]
    assert both[0] == both[1]


def test_the_strict_cascade_clicks_at_most_once():
    truth, p = np.full(6, 0.5), naive.examination(6)
    totals = [clicks(mf.Cascade(stop=1), np.arange(6), truth, p, visit=visit).sum() for visit in range(300)]
    assert set(totals) == {0, 1}


def test_whether_a_user_clicks_depends_on_the_item_and_not_on_its_rank():
    """One user, two lists: items that are relevant enough at both ranks are clicked in both."""
    truth, p = np.full(5, 0.5), np.ones(5)
    for model in (mf.PositionBased(), mf.TrustBias(positive=(0.8,), negative=(0.1,))):
        for visit in range(200):
            one, other = np.arange(5), np.array([3, 1, 4, 0, 2])
            first, second = (clicks(model, pi, truth, p, visit=visit) for pi in (one, other))
            assert first[other].tolist() == second.tolist()


def test_a_user_who_clicks_would_click_at_any_better_rank():
    truth = np.array([0.8])
    for visit in range(200):
        hits = [bool(clicks(mf.PositionBased(), [0], truth, np.array([p]), visit=visit)[0]) for p in (0.1, 0.5, 1.0)]
        assert hits == sorted(hits)


# --- in a run --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    return mf.synthetic("mq2008-like", seed=0).take(range(6))


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_run_online_is_the_paper_simulated_with_these_users(data, model):
    trace = mf.simulate(data, "MCFair", "online", steps=250, seed=3, record=True, clicks=model)
    p = naive.examination(5)
    slow = naive.simulate(
        data,
        mf.MCFair(),
        trace.arrivals,
        online=True,
        seed=3,
        click=naive_users.twin(model),
        users_p=naive_users.users_examination(model, p),
    )
    assert trace.lists.tolist() == slow.lists
    assert trace.clicks.tolist() == slow.clicks
    assert trace.state.C.tolist() == slow.C.tolist()
    assert trace.unfairness == pytest.approx(slow.unfairness, rel=1e-9)
    assert trace.provenance["setting"]["clicks"] == repr(model)


def test_by_default_users_examine_ranks_as_the_setting_says(data):
    """A severity of their own does not follow it, and one that equals it changes nothing."""
    flat = [1.0, 1.0, 1.0, 1.0, 1.0]
    runs = {
        (severity, examined): mf.simulate(
            data,
            "RandomK",
            "online",
            steps=4000,
            examination=flat if examined == "flat" else 1.0,
            clicks=mf.PositionBased(severity=severity),
        ).state
        for severity in (None, 1.0, 2.0)
        for examined in ("flat", "paper")
    }
    clicked = {key: int(state.C.sum()) for key, state in runs.items()}
    assert np.array_equal(runs[None, "paper"].C, runs[1.0, "paper"].C)
    assert clicked[None, "flat"] > 1.2 * clicked[None, "paper"]
    assert clicked[2.0, "flat"] == clicked[2.0, "paper"] < 0.85 * clicked[None, "paper"]
    assert mf.PositionBased().examined(np.array(flat)).tolist() == flat
    assert mf.PositionBased(severity=2).examined(np.array(flat)) == pytest.approx(naive.examination(5, 2.0))


@pytest.mark.parametrize("policy", ["RandomK", "ExploreK"])
def test_users_who_look_less_far_than_exposure_assumes_make_estimates_too_low(policy):
    """E assumes a severity of 1; with 2 the expected estimate is R times the ratio of examination actually done."""
    data = mf.synthetic("mq2008-like", seed=2).take(range(20))
    ratio = {}
    for severity in (0.5, 1.0, 2.0):
        states = [
            mf.simulate(data, policy, "online", steps=2400, seed=seed, clicks=mf.PositionBased(severity=severity)).state
            for seed in range(20)
        ]
        shown = sum(state.F for state in states)
        assumed, actual = shown @ naive.examination(5), shown @ naive.examination(5, severity)
        estimate = sum(state.C for state in states) / assumed
        ratio[severity] = estimate.sum() / data.R.sum()
        assert ratio[severity] == pytest.approx((data.R * actual / assumed).sum() / data.R.sum(), rel=0.02)
    assert ratio[2.0] < 0.85 < 0.98 < ratio[1.0] < 1.02 < 1.1 < ratio[0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Cascade(stop=1.5)", r"Cascade: stop = 1\.5 is not allowed: expected a number from 0 to 1"),
        ("PositionBased(severity=-1)", r"severity = -1 is not allowed: expected a finite number of at least 0"),
        ("DBN(patience=1)", r"unknown parameter of DBN 'patience'; available: satisfaction, continuation"),
        ("TrustBias(positive=())", r"positive = \(\) is not allowed: expected one or more numbers from 0 to 1"),
        ("Casade", r"unknown click model 'Casade'; did you mean 'Cascade'\? available: "),
    ],
)
def test_invalid_click_models_are_refused_with_what_is_allowed(text, message):
    with pytest.raises(mf.PartError, match=message):
        mf.parse_click_model(text)


@pytest.mark.parametrize("answer", [np.ones(4, bool), np.ones(5), [1, 0, 1, 0, 1]])
def test_what_is_not_a_list_of_clicks_is_refused(data, answer):
    class Wrong(mf.ClickModel):
        def clicks(self, pi, truth, p, rng):
            return answer

    with pytest.raises(mf.PartError, match=r"Wrong\(\) returned .*, expected 5 values of True or False"):
        mf.simulate(data, "TopK", "online", steps=10, clicks=Wrong())
