import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcfair.analysis import significance
from mcfair.analysis.significance import confidence, detectable_difference, difference, fisher, holm, resample
from mcfair.errors import DataError, SettingError

DARWIN = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
"""Heights of cross-fertilised maize less those of self-fertilised, in eighths of an inch (Fisher 1935, chapter 3)."""

whole = st.integers(-20, 20)
p_values = st.lists(st.floats(0, 1), min_size=1, max_size=20)


@pytest.fixture(scope="module")
def stats():
    """SciPy's tests and distributions, which take seconds to import: only the process that runs these tests does."""
    from scipy import stats

    return stats


def by_enumeration(d):
    sums = [
        sum(sign * each for sign, each in zip(signs, d, strict=True))
        for signs in itertools.product((1, -1), repeat=len(d))
    ]
    return sum(abs(each) >= abs(sum(d)) for each in sums) / len(sums)


# --- Fisher's test ---------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.lists(st.tuples(whole, whole), min_size=1, max_size=10))
def test_few_pairs_are_tested_exactly(pairs):
    a, b = np.array(pairs).T
    assert fisher(a, b) == pytest.approx(by_enumeration((a - b).tolist()), rel=1e-12)
    assert fisher(a / 1024, b / 1024) == fisher(a, b)


def test_fisher_on_darwin_s_maize():
    # 863 of the 2^15 ways have a sum of at least 314; Fisher gives 5.267 per cent for both sides.
    assert fisher(DARWIN, np.zeros(15)) == 2 * 863 / 2**15


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_neither_the_order_of_pairs_nor_of_samples_matters(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0.3, 1, 30).round(1), rng.normal(0, 1, 30).round(1)
    order = rng.permutation(30)
    p = fisher(a, b, resamples=300)
    assert fisher(b, a, resamples=300) == p
    assert fisher(a[order], b[order], resamples=300) == p
    assert fisher(a, b, resamples=300) == p


def test_drawn_ways_agree_with_all_ways():
    drawn = [fisher(DARWIN, np.zeros(15), resamples=20_000, seed=seed) for seed in range(4)]
    assert len(set(drawn)) == 4
    assert drawn == pytest.approx([863 / 2**14] * 4, abs=5 * math.sqrt(0.053 / 20_000))


@pytest.mark.parametrize("seed", range(3))
def test_p_is_that_of_scipy(seed, stats):
    a = np.random.default_rng(seed).gamma(1, 1, 40) - 0.8
    statistic = lambda x, axis: x.mean(axis=axis)  # noqa: E731
    expected = stats.permutation_test(
        (a,), statistic, permutation_type="samples", n_resamples=20_000, vectorized=True
    ).pvalue
    assert fisher(a, np.zeros(40)) == pytest.approx(expected, abs=5 * math.sqrt(expected / 20_000))


def test_when_nothing_differs_p_is_uniform():
    rng = np.random.default_rng(0)
    p = np.sort([fisher(*rng.normal(size=(2, 20)), resamples=499, seed=i) for i in range(400)])
    assert np.abs(p - np.linspace(0, 1, 400)).max() < 1.63 / math.sqrt(400)  # Kolmogorov's bound, 1 in 100
    assert np.mean(p <= 0.05) == pytest.approx(0.05, abs=0.033)


def test_a_clear_difference_has_the_least_p_there_is():
    a = np.random.default_rng(0).normal(5, 1, 100)
    assert fisher(a, np.zeros(100), resamples=999) == 1 / 1000


@pytest.mark.parametrize(("a", "b"), [([1.0], [1.0]), ([3.0], [1.0]), ([1, 2, 3], [1, 2, 3]), ([1, 2, 3], [3, 2, 1]),
                                      ([1, 2, 3], [1, 2, 9])])  # fmt: skip
def test_p_is_1_when_no_turn_brings_the_means_closer(a, b):
    assert fisher(a, b) == 1


def test_equal_pairs_change_nothing():
    same = np.arange(100.0)
    assert fisher([*DARWIN, *same], [*np.zeros(15), *same]) == fisher(DARWIN, np.zeros(15))


def test_batches_bound_memory_and_change_nothing(monkeypatch):
    a = np.random.default_rng(0).normal(0.1, 1, 200)
    whole = fisher(a, np.zeros(200), resamples=500), difference(a, np.zeros(200), resamples=500)
    monkeypatch.setattr(significance, "BATCH_SIZE", 3_000)
    assert (fisher(a, np.zeros(200), resamples=500), difference(a, np.zeros(200), resamples=500)) == whole
    sizes = []

    def function(data, statistic, *, batch, **_):
        sizes.append(batch * data[0].size)

    resample(function, np.zeros(6_600), 10, 0)
    resample(function, np.zeros(100), 10, 0)
    assert sizes == [6_600, 3_000]


def test_older_and_newer_scipy_are_seeded():
    def older(data, statistic, *, n_resamples, batch, vectorized, random_state=None):
        return random_state.random()

    def newer(data, statistic, *, n_resamples, batch, vectorized, rng=None, random_state=None):
        assert random_state is None
        return rng.random()

    expected = np.random.default_rng(7).random()
    assert resample(older, np.zeros(2), 1, 7) == resample(newer, np.zeros(2), 1, 7) == expected


def test_scipy_s_statistics_are_imported_only_when_needed():
    code = "import sys, mcfair.analysis.significance; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- Holm's correction -----------------------------------------------------------------------------------------------


def test_holm_by_hand():
    # sorted 0.005 0.01 0.03 0.04, times 4 3 2 1: 0.02 0.03 0.06 0.04, and never falling: 0.02 0.03 0.06 0.06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02], rel=1e-12)
    assert holm([0.5, 0.6]).tolist() == [1.0, 1.0]
    assert holm([0.2]).tolist() == [0.2]


@given(p_values, st.randoms(use_true_random=False))
def test_holm_keeps_the_order_and_lies_between_none_and_bonferroni(p, random):
    p = np.array(p)
    out = holm(p)
    assert np.all((p <= out) & (out <= np.minimum(p * p.size, 1)))
    assert np.all(np.diff(out[np.argsort(p)]) >= 0)
    assert out.min() == min(p.min() * p.size, 1)
    order = np.array(random.sample(range(p.size), p.size))
    assert holm(p[order]).tolist() == out[order].tolist()


@given(p_values, st.floats(0.001, 0.999))
def test_holm_refuses_what_the_step_down_procedure_refuses(p, level):
    refused = [False] * len(p)
    for step, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[i] * (len(p) - step) > level:
            break
        refused[i] = True
    assert (holm(p) <= level).tolist() == refused


# --- intervals -------------------------------------------------------------------------------------------------------


def test_student_s_interval_by_hand():
    # mean 2, standard deviation 1; with 2 degrees of freedom the quantile has a closed form
    half = 0.95 * math.sqrt(2 / (1 - 0.95**2)) / math.sqrt(3)
    assert confidence([1, 2, 3]) == pytest.approx((2 - half, 2 + half), rel=1e-9)  # SciPy before 1.15 is that exact
    assert confidence([1, 3], level=0.5) == pytest.approx((1, 3))  # that of 1 degree at 0.75 is tan(π/4)
    assert confidence([0.25, 0.25, 0.25]) == (0.25, 0.25)
    assert np.isnan(confidence([7.0])).all()


def test_intervals_contain_the_mean_as_often_as_they_say():
    rng = np.random.default_rng(3)
    inside = np.zeros(3)
    for i in range(600):
        low, high = confidence(rng.normal(2, 3, 5))
        inside[0] += low <= 2 <= high
        a, b = rng.normal(size=(2, 40))
        _, low, high = difference(a + 1, b, resamples=400, seed=i)
        inside[1] += low <= 1 <= high
        _, low, high = difference(a, b, level=0.8, resamples=400, seed=i)
        inside[2] += low <= 0 <= high
    assert inside / 600 == pytest.approx([0.95, 0.94, 0.79], abs=0.04)  # a bootstrap of 40 is a little too narrow


def test_a_difference_is_that_of_the_means():
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 1, 82), rng.normal(0, 1, 82)
    mean, low, high = difference(a, b)
    assert mean == pytest.approx(a.mean() - b.mean())
    half = 1.99 * np.std(a - b, ddof=1) / math.sqrt(82)
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.1 * half)
    assert difference(a, b) == (mean, low, high)
    assert difference(a, b, seed=1) != (mean, low, high)
    assert difference(a, b, level=0.5)[1] > low
    order = rng.permutation(82)
    assert difference(a[order], b[order]) == pytest.approx((mean, low, high), rel=1e-12)
    assert difference(a + 1e9, b, resamples=100) == pytest.approx(
        tuple(1e9 + x for x in difference(a, b, resamples=100)), rel=1e-15
    )


def test_the_interval_of_equal_differences_is_a_point():
    assert difference([1, 2, 3], [1, 2, 3]) == (0, 0, 0)
    assert difference([2, 3, 4], [1, 2, 3]) == (1, 1, 1)
    mean, low, high = difference([3.0], [1.0])
    assert mean == 2
    assert math.isnan(low)
    assert math.isnan(high)


@given(st.lists(st.sampled_from([0.1, np.nextafter(0.1, 1), 0.1 + 1e-12, 0.2]), min_size=2, max_size=6))
@settings(max_examples=40)
def test_differences_that_are_all_but_equal_bring_no_warning(a):
    mean, low, high = difference(a, np.zeros(len(a)), resamples=99)
    assert min(a) - 1e-15 <= low <= high <= max(a) + 1e-15
    assert low - 1e-15 <= mean <= high + 1e-15


# --- power -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "level", "power"), [(2, 0.95, 0.8), (5, 0.95, 0.8), (5, 0.8, 0.5), (82, 0.99, 0.9)])
def test_a_detectable_difference_is_detected_as_often_as_the_power_says(n, level, power, stats):
    rng = np.random.default_rng(0)
    one = rng.normal(0, 3, n)
    draws = rng.normal(0, one.std(ddof=1), (40_000, n)) + detectable_difference(one, level, power=power)
    t = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / math.sqrt(n))
    detected = np.abs(t) > stats.t.ppf((1 + level) / 2, n - 1)
    assert detected.mean() == pytest.approx(power, abs=4 * math.sqrt(power * (1 - power) / 40_000))


def test_a_detectable_difference_by_hand():
    # many differences: the noncentral t is a normal distribution, and λ is the sum of two normal quantiles
    d = np.tile([-1.0, 1.0], 50_000)
    assert detectable_difference(d) == pytest.approx((1.959964 + 0.841621) / math.sqrt(100_000), rel=1e-4)
    five = [0.9, 1.1, 1.3, 0.7, 1.0]
    assert detectable_difference(np.multiply(five, -7)) == pytest.approx(7 * detectable_difference(five))
    assert detectable_difference(np.add(five, 100)) == pytest.approx(detectable_difference(five))
    assert detectable_difference(five, power=0.9) > detectable_difference(five)
    assert detectable_difference(five, 0.99) > detectable_difference(five)
    assert detectable_difference([2.0, 2.0]) == 0
    assert math.isnan(detectable_difference([2.0]))


def test_strict_levels_and_few_differences_have_a_finite_detectable_difference(stats):
    for n in (2, 3, 5, 82, 6_600):
        for level in (0.95, 1 - 0.05 / 60):
            found = detectable_difference(np.arange(n), level)
            assert 0 < found < math.inf
            t = stats.t.ppf((1 + level) / 2, n - 1)  # half the power needs about λ = t, and 80 % needs more
            assert found > 0.5 * t * np.arange(n).std(ddof=1) / math.sqrt(n)


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1, 2], [1], "expected pairs, got 2 values and 1"),
        ([], [], r"a: expected a list of at least one number, got an array of shape \(0,\)"),
        ([1], 1, r"b: expected a list of at least one number, got an array of shape \(\)"),
        ([1, np.nan, np.nan], [1, 2, 3], "a: expected finite numbers, got nan at place 1, one of 2 such; leave out"),
        ([1, 2], [np.inf, 2], "b: expected finite numbers, got inf at place 0"),
    ],
)
@pytest.mark.parametrize("function", [fisher, difference])
def test_what_are_not_pairs_of_numbers_is_refused(function, a, b, message):
    with pytest.raises(DataError, match=message):
        function(a, b)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fisher([1], [1], resamples=0), SettingError, "resamples = 0 is not allowed: expected a whole"),
        (lambda: fisher([1], [1], seed=-1), SettingError, "seed = -1 is not allowed: expected a whole number"),
        (lambda: difference([1], [1], resamples=0.5), SettingError, "resamples = 0.5 is not allowed"),
        (lambda: difference([1], [1], level=1), SettingError, "level = 1 is not allowed: expected a number between"),
        (lambda: confidence([1, 2], level=95), SettingError, "level = 95 is not allowed: expected a number between"),
        (lambda: confidence([]), DataError, "values: expected a list of at least one number"),
        (lambda: confidence([1, np.nan]), DataError, "values: expected finite numbers, got nan at place 1"),
        (lambda: detectable_difference([]), DataError, "differences: expected a list of at least one number"),
        (lambda: detectable_difference([1, 2], 95), SettingError, "level = 95 is not allowed: expected a number"),
        (lambda: detectable_difference([1, 2], power=1), SettingError, "power = 1 is not allowed: expected a number"),
        (lambda: detectable_difference([1, 2], power=0.05), SettingError, "power = 0.05 is not allowed: expected more"),
        (lambda: holm([0.5, 1.5]), DataError, "p-values: expected numbers from 0 to 1, got 1.5"),
        (lambda: holm([-0.5]), DataError, "p-values: expected numbers from 0 to 1, got -0.5"),
        (lambda: holm([np.nan]), DataError, "p-values: expected finite numbers, got nan"),
        (lambda: holm([]), DataError, "p-values: expected a list of at least one number"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_what_was_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call()
