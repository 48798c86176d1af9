"""Deliberate faults of the core: each is caught by a check against the oracle, and for the right reason.

A fault is installed by replacing a function of the package by one in plain Python. The same replacement without the
fault passes the check, so that it is the fault which is caught and not the replacement.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import naive
import pytest
from core_checks import (
    PRIOR,
    check_click_rates,
    check_continuation,
    check_dcg_bound,
    check_estimates,
    check_metric,
    check_mixture,
    check_run,
    check_scores,
    check_threads,
)
from core_replacements import (
    add_ndcg,
    arrivals,
    cascade,
    decompose,
    discounts,
    estimate,
    examined,
    fill_view,
    gini_value,
    group_value,
    ideal_dcg,
    ilp_rank,
    late_run,
    mcfair_score,
    observe_list,
    placement,
    position_based,
    relative_value,
    replace_function,
    replace_method,
    session_draws,
    shared_state,
    threaded_run,
    top_k,
    trust_bias,
    unfairness_value,
    update_beliefs,
)
from deliberate_faults import caught_by

import mcfair as mf
from mcfair.policies import lp, selection
from mcfair.simulation import loop, run


class Fault(NamedTuple):
    """A replacement, the check that must pass without its fault, and what the check says with it."""

    install: Callable[..., None]
    check: Callable[[], object]
    message: str


def on_loop(name, make, check, message):
    return Fault(replace_function(loop, name, make), check, message)


def on_run(name, make, check, message):
    return Fault(replace_function(run, name, make), check, message)


def click_fault(cls, make, text, message=r"clicks of session \d+"):
    return Fault(replace_method(cls, "clicks", make), partial(check_run, clicks=text), message)


FAULTS = {
    "unfairness without its factor 2": Fault(
        replace_method(mf.Unfairness, "value", unfairness_value), check_run, "unfairness at checkpoints"
    ),
    "relative unfairness divided by visits instead of their square": Fault(
        replace_method(mf.RelativeUnfairness, "value", relative_value),
        partial(check_metric, "relative_unfairness", lambda E, R, groups, v: naive.relative_unfairness(E, R, v)),
        "relative_unfairness",
    ),
    "Gini coefficient divided by n - 1": Fault(
        replace_method(mf.Gini, "value", gini_value),
        partial(check_metric, "gini", lambda E, R, groups, visits: naive.gini(E)),
        "gini",
    ),
    "group unfairness of means instead of sums": Fault(
        replace_method(mf.GroupUnfairness, "value", group_value),
        partial(check_metric, "group_unfairness", lambda E, R, groups, visits: naive.group_unfairness(E, R, groups)),
        "group_unfairness",
    ),
    "gradient with the wrong sign": Fault(
        replace_method(mf.MCFair, "score", partial(mcfair_score, fault="sign")),
        partial(check_run, "MCFair", "online"),
        r"list of session \d+",
    ),
    "marginal certainty without its floor": Fault(
        replace_method(mf.MCFair, "score", partial(mcfair_score, fault="floor")),
        partial(check_scores, mf.MCFair()),
        r"score: \[inf",
    ),
    "marginal certainty without the prior": Fault(
        replace_method(mf.MCFair, "score", partial(mcfair_score, fault="prior")),
        partial(check_scores, mf.MCFair()),
        "score: ",
    ),
    "exposure with other weights of the ranks": on_loop(
        "observe_list", observe_list, partial(check_run, "TopK", "post-processing"), "unfairness at checkpoints"
    ),
    "estimates that exposure without clicks does not change": on_loop(
        "update_beliefs", update_beliefs, partial(check_run, "TopK"), r"list of session \d+"
    ),
    "a query that begins with the view of another": on_loop("fill_view", fill_view, check_run, r"list of session \d+"),
    "NDCG of short lists cut at their end": on_loop(
        "add_ndcg", add_ndcg, partial(check_run, "TopK", "post-processing"), "^ndcg: "
    ),
    "clicks drawn without the seed": on_loop(
        "Draws", partial(session_draws, purpose=loop.FOR_CLICKS, field="seed"), check_run, r"clicks of session \d+"
    ),
    "clicks drawn for the visit after": on_loop(
        "Draws", partial(session_draws, purpose=loop.FOR_CLICKS, field="visit"), check_run, r"clicks of session \d+"
    ),
    "ties drawn without the seed": on_loop(
        "Draws",
        partial(session_draws, purpose=loop.FOR_TIES, field="seed"),
        partial(check_run, "TopK(ties=random)", "post-processing"),
        r"list of session \d+",
    ),
    "rule for ties reversed": Fault(
        replace_function(selection, "top_k", partial(top_k, fault="ties")),
        partial(check_run, "TopK", "post-processing"),
        "list of session 0:",
    ),
    "top-k that never shows the last item": Fault(
        replace_function(selection, "top_k", partial(top_k, fault="last")),
        partial(check_run, "ExploreK", "post-processing"),
        r"list of session \d+",
    ),
    "discount of cNDCG off by one": on_run("discounts", discounts, check_run, "cndcg at checkpoints"),
    "ideal DCG of items in the order of the data": on_run("ideal_dcg", ideal_dcg, check_run, "^ndcg: "),
    "arrivals of another generator": on_run("arrivals", partial(arrivals, fault="generator"), check_run, "^arrivals: "),
    "a continued run with the arrivals of its beginning": on_run(
        "arrivals", partial(arrivals, fault="start"), check_continuation, "arrivals of a continued run"
    ),
    "a continued run that shares the state it continues from": Fault(
        replace_function(run.State, "copy", shared_state), check_continuation, "the state to continue from was changed"
    ),
    "checkpoints recorded one session late": Fault(
        replace_function(run, "Run", late_run), check_run, "unfairness at checkpoints"
    ),
    "sums that depend on threads": Fault(
        lambda monkeypatch, faulty: monkeypatch.setattr(run, "Run", threaded_run(faulty, run.Run)),
        check_threads,
        r"ndcg@\d depends on threads",
    ),
    "clicks by the examination of the rank below": click_fault(
        mf.PositionBased, partial(position_based, fault="rank"), "PositionBased"
    ),
    "clicks drawn by rank instead of by item": click_fault(
        mf.PositionBased, partial(position_based, fault="slot"), "PositionBased"
    ),
    "clicks by the relevance of another item": click_fault(
        mf.PositionBased, partial(position_based, fault="relevance"), "PositionBased(noise=0.1)"
    ),
    "users who examine as exposure assumes whatever their severity": Fault(
        lambda monkeypatch, faulty: monkeypatch.setattr(mf.PositionBased, "examined", examined(faulty)),
        partial(check_run, clicks="PositionBased(severity=3)"),
        r"clicks of session \d+",
    ),
    "a cascade that never stops": click_fault(mf.Cascade, cascade, "Cascade"),
    "a cascade that never stops, by its rates": Fault(
        replace_method(mf.Cascade, "clicks", cascade),
        partial(check_click_rates, mf.Cascade()),
        r"rate of clicks at ranks \[2 3 4\]",
    ),
    "trust bias with its probabilities swapped": click_fault(mf.TrustBias, trust_bias, "TrustBias"),
    "an estimate that ignores the prior": Fault(
        replace_method(mf.IPS, "estimate", estimate), check_estimates, "estimate: "
    ),
    "a run whose estimates ignore the prior": Fault(
        replace_method(mf.IPS, "estimate", estimate),
        partial(check_run, "TopK", "online", prior=PRIOR),
        r"list of session \d+",
    ),
    "an LP mixture that loses a list": Fault(
        replace_function(lp, "decompose", decompose), check_mixture, r"weights of the mixture add up to 0\.\d+"
    ),
    "an LP mixture for another weight of fairness": Fault(
        replace_function(lp, "placement", placement), check_mixture, "objective of the mixture"
    ),
    "an ILP list that ignores the bound on DCG": Fault(
        lambda monkeypatch, faulty: (
            monkeypatch.setattr(mf.ILP, "kernel", None),
            monkeypatch.setattr(mf.ILP, "rank", ilp_rank(faulty)),
        ),
        check_dcg_bound,
        r"below the bound of 0\.95",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught_for_its_reason(name, monkeypatch):
    fault = FAULTS[name]

    def check(faulty):
        with monkeypatch.context() as patch:
            fault.install(patch, faulty)
            fault.check()

    caught_by(check, fault.message)
