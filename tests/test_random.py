import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcfair.random import CLICKS, POLICY, draws, philox4x32, uniform, uniforms

word = st.integers(0, 2**32 - 1)

# The known-answer vectors published with Random123: counter, key, output.
KNOWN = [
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN)
def test_philox_reproduces_the_published_answers(counter, key, output):
    words = [np.uint64(x) for x in (*counter, *key)]
    assert tuple(int(x) for x in philox4x32(*words)) == output
    assert tuple(int(x) for x in philox4x32.interpreted(*words)) == output
    assert naive.philox4x32(counter, key) == output


@given(st.integers(0, 2**64 - 1), word, word, word, word)
def test_a_draw_is_a_function_of_seed_purpose_query_visit_and_slot(seed, purpose, query, visit, slot):
    u = uniform(draws(seed, purpose, query, visit), slot)
    assert u == naive.uniform(seed, purpose, query, visit, slot)
    assert 0 <= u < 1


def test_draws_are_the_same_in_every_release():
    frozen = [0.8862038757345201, 0.17893146779634694, 0.6701367307799824]
    got = [
        uniform(draws(1, CLICKS, 2, 3), 5),
        uniform(draws(0, POLICY), 0),
        uniform(draws(2**63 + 11, POLICY, 7, 8), 9),
    ]
    assert got == frozen


def test_several_slots_at_once_are_the_single_draws():
    rng = draws(7, POLICY, 1, 2)
    assert uniforms(rng, 50).tolist() == [uniform(rng, slot) for slot in range(50)]


def test_draws_look_uniform():
    u = np.concatenate([uniforms(draws(seed, CLICKS, query), 5000) for seed in (0, 1) for query in (0, 1)])
    counts = np.bincount((u * 20).astype(int), minlength=20)
    chi2 = ((counts - 1000.0) ** 2 / 1000).sum()
    assert chi2 < 43.8  # 99.9 % point of chi-squared with 19 degrees of freedom
