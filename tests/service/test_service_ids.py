"""Impression ids: one spelling, nothing revealed, not forgeable."""

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcfair.service.core.ids import IdSigner, Position

SIGNER = IdSigner(b"s" * 32)
QUERY = bytes(range(16))
POSITIONS = st.builds(
    Position, st.integers(0, 2**40 - 1), st.integers(0, 2**40 - 1), st.integers(0, 2**32 - 1)
)  # fmt: skip


@given(POSITIONS)
def test_an_id_leads_back_to_its_position(position):
    name = SIGNER.impression(QUERY, position)
    assert len(name) == 40
    assert SIGNER.position(name) == position
    assert IdSigner(b"t" * 32).position(name) is None


def spellings(name):
    """Return other texts that some base64 decoder reads as the same bytes."""
    raw = base64.urlsafe_b64decode(name)
    standard = base64.b64encode(raw).decode()
    yield from (name + pad for pad in ("=", "==", "====", "A===", "\n", " ", "!", "=\n="))
    yield from (name[:i] + extra + name[i:] for i in range(0, 41, 5) for extra in ("\n", "=", " ", "*"))
    yield from (each for each in (standard, base64.b32encode(raw).decode(), raw.hex(), name.swapcase()) if each != name)
    yield from (name[:-1] + last for last in string.ascii_letters + string.digits + "-_+/" if last != name[-1])


def test_only_the_canonical_spelling_of_an_id_is_accepted():
    for seq in range(20):
        name = SIGNER.impression(QUERY, Position(7, seq, 9))
        assert [other for other in spellings(name) if SIGNER.position(other) is not None] == []


def test_ids_do_not_reveal_counts():
    """Ids of neighbouring positions agree only in the slot, and in no more bytes than random ones."""
    raws = [base64.urlsafe_b64decode(SIGNER.impression(QUERY, Position(1, seq, 5))) for seq in range(1, 400)]
    assert {raw[:2] for raw in raws} == {QUERY[:2]}
    for place in range(2, 30):
        assert len({raw[place] for raw in raws}) > 100
    assert len(set(raws)) == len(raws)


@pytest.mark.parametrize("text", ["", "é?", "A" * 40, "A" * 28, "\ud800", "=" * 40, "A" * 5000], ids=lambda t: t[:5])
def test_other_texts_are_not_ids(text):
    assert SIGNER.position(text) is None


@given(POSITIONS, st.integers(0, 29), st.integers(1, 255))
def test_a_changed_id_is_refused(position, place, change):
    raw = bytearray(base64.urlsafe_b64decode(SIGNER.impression(QUERY, position)))
    raw[place] ^= change
    assert SIGNER.position(base64.urlsafe_b64encode(raw).decode()) is None
