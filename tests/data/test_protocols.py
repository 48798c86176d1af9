import dataclasses

import pytest

from mcfair.data.protocols import NO_PROTOCOL, PROTOCOLS, Protocol, find_protocol
from mcfair.errors import DataError, SettingError


def test_shipped_protocols():
    assert dict(PROTOCOLS) == {
        "paper": Protocol(name="paper", parts=("train", "validation", "test")),
        "wsdm23": Protocol(
            name="wsdm23", min_items=6, relevant_only=True, drop_last=True, arrivals="wsdm23", plays_last_step=False
        ),
    }
    assert all(name == protocol.name for name, protocol in PROTOCOLS.items())


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_is_found_by_name(name):
    assert find_protocol(name) is PROTOCOLS[name]


@pytest.mark.parametrize("name", [None, ""])
def test_no_name_is_no_protocol(name):
    assert find_protocol(name) is NO_PROTOCOL
    assert NO_PROTOCOL == Protocol() == dataclasses.replace(Protocol(), parts=("test",), arrivals="uniform")


def test_an_unknown_protocol_is_refused():
    with pytest.raises(DataError, match=r"^unknown preset 'wsdm32'; did you mean 'wsdm23'\? available: paper, wsdm23$"):
        find_protocol("wsdm32")


@pytest.mark.parametrize(("name", "lost"), [("", 0), ("paper", 0), ("wsdm23", 1)])
@pytest.mark.parametrize("steps", [2, 10_000])
def test_sessions_of_steps(name, lost, steps):
    assert find_protocol(name).sessions(steps) == steps - lost


def test_a_protocol_that_leaves_nothing_to_play_is_refused():
    assert Protocol().sessions(1) == 1
    with pytest.raises(
        SettingError, match=r"^steps = 1 leaves nothing to play: the released code never plays the last step$"
    ):
        find_protocol("wsdm23").sessions(1)
    with pytest.raises(SettingError, match=r"^steps = 0 leaves nothing to play$"):
        Protocol().sessions(0)


@pytest.mark.parametrize(
    ("given", "expected"), [((None, None), (6, 19)), ((0, None), (0, 19)), ((None, 7), (6, 7)), ((1, 2), (1, 2))]
)
def test_bounds_can_be_changed_one_by_one(given, expected):
    before = Protocol(name="x", min_items=6, max_items=19, drop_last=True)
    after = before.with_bounds(*given)
    assert (after.min_items, after.max_items) == expected
    assert dataclasses.replace(after, min_items=6, max_items=19) == before


def test_a_protocol_is_a_value():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Protocol().name = "x"
    assert hash(Protocol()) == hash(Protocol())
