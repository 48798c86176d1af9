from typing import Annotated, Literal

import msgspec
import pytest

from mcfair import errors
from mcfair.errors import MCFairError, PolicyError, SettingError, checked, unknown

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0, description="a number from 0 to 1")]


def test_a_suggestion_ignores_case_and_is_left_out_when_nothing_is_close():
    assert unknown("policy", "topk", ["TopK", "MCFair"]).startswith("unknown policy 'topk'; did you mean 'TopK'?")
    assert unknown("policy", "xyz", ["TopK"]) == "unknown policy 'xyz'; available: TopK"


def test_values_are_converted():
    assert checked("x", float, 1, SettingError) == 1.0
    assert isinstance(checked("x", float, 1, SettingError), float)
    assert checked("x", Literal["a", "b"], "b", SettingError) == "b"
    assert checked("x", float, float("inf"), SettingError) == float("inf")


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf"), "many", None])
def test_a_refusal_names_what_was_got_and_what_is_allowed(value):
    with pytest.raises(PolicyError, match=r"MMF: alpha = .* is not allowed: expected a number from 0 to 1"):
        checked("MMF: alpha", Share, value, PolicyError)


def test_a_choice_is_suggested():
    with pytest.raises(SettingError, match=r"unknown mode = 'onlin'; did you mean 'online'\?"):
        checked("mode", Literal["online", "post-processing"], "onlin", SettingError)


@pytest.mark.parametrize("value", [-0.1, 1.1, "many", float("nan")])
def test_a_number_or_a_word(value):
    hint = Share | Literal["auto"] | None
    assert checked("beta", hint, "auto", PolicyError) == "auto"
    assert checked("beta", hint, None, PolicyError) is None
    assert checked("beta", hint, "0.5", PolicyError) == 0.5
    with pytest.raises(PolicyError, match=r"beta = .* is not allowed: expected a number from 0 to 1, or 'auto'"):
        checked("beta", hint, value, PolicyError)


def test_every_error_of_the_package_is_an_mcfair_error():
    raised = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(raised) > 10
    assert all(issubclass(each, MCFairError | UserWarning) for each in raised)
    assert issubclass(PolicyError, errors.PartError)


def test_a_union_of_numbers_keeps_the_type_of_a_number():
    assert checked("weight", int | float, 2.5, SettingError) == 2.5
    for value in (2, 2.0):
        assert type(checked("weight", int | float, value, SettingError)) is type(value)
        assert type(checked("weight", float | int | None, value, SettingError)) is type(value)
    assert checked("weight", int | float, "2.5", SettingError) == 2.5
    with pytest.raises(SettingError, match=r"^weight = 'x' is not allowed: expected int or float$"):
        checked("weight", int | float, "x", SettingError)
