"""Styles, dark mode, labels and numbers: what needs no results."""

import re
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_results import view_of

import mcfair as mf
from mcfair.experiments.experiment import Series
from mcfair.policies.base import parse_policies
from mcfair.report import Curve, Point
from mcfair.report import figures as styles
from mcfair.report.figures import (
    DARK_BACKGROUND,
    PALETTE,
    Panel,
    channels,
    choose_styles,
    contrast,
    cutoff_panels,
    dark_color,
    draw,
    tradeoff_alt,
    tradeoff_figure,
)


def curve(label: str, text: str, mode: str | None = None) -> Curve:
    series = Series(policies=(text,), label=label)
    return Curve(series, [Point(series, policy, pl.DataFrame()) for policy in parse_policies(text)], mode)


# --- styles ----------------------------------------------------------------------------------------------------------


def test_each_built_in_policy_has_its_own_style():
    found = [policy.style for policy in mf.registered(mf.Policy).values()]
    assert None not in found
    assert len(set(found)) == len(found)


def test_a_policy_may_carry_its_style():
    @mf.register
    class Own(mf.Policy):
        style = ("#CC79A7", "*")

        def score(self, q, rng):
            return q.R

    chosen = choose_styles([curve("mine", "Own"), curve("TopK", "TopK")])
    assert (chosen["mine"].color, chosen["mine"].marker) == ("#CC79A7", "*")


def test_policies_without_a_style_get_colours_and_markers_of_their_own_by_order():
    names = [f"Own{i}" for i in range(len(PALETTE))]
    for name in names:
        mf.register(type(name, (mf.Policy,), {"score": lambda self, q, rng: q.R, "__module__": __name__}))
    drawn = [curve(name, name) for name in ("TopK", "FairCo", "MCFair", *names)]
    chosen = choose_styles(drawn)
    assert chosen == choose_styles(drawn)
    own = [chosen[name] for name in names]
    shipped = {mf.TopK.style[0], mf.FairCo.style[0], mf.MCFair.style[0]}
    first = [color for color in PALETTE if color not in shipped]
    assert [style.color for style in own[: len(first)]] == first  # nobody else's, as long as there are any
    assert len({style.marker for style in own[:10]}) == 10
    greys = [style.color for style in own if len(set(channels(style.color))) == 1 and style.color != "#000000"]
    assert not greys  # the limit and the floor are grey


def test_variants_share_the_hue_and_others_do_not_take_it():
    chosen = choose_styles([
        curve("MCFair", "MCFair(alpha=[0, 1], beta=0)"), curve("MCFair", "MCFair(alpha=[0, 1])"),
        curve("MCFair, β = 50", "MCFair(beta=50)"), curve("TopK", "TopK"),
    ])  # fmt: skip
    own = mf.MCFair.style
    assert (chosen["MCFair"].color, chosen["MCFair"].marker) == own
    assert list(chosen) == ["MCFair", "MCFair, β = 50", "TopK"]
    assert len(set(chosen.values())) == 3
    parts = choose_styles([
        curve("Eff.", "TopK", "online"), curve("Eff.+Fair.", "MCFair(beta=0, alpha=[0, 1])", "online"),
        curve("Eff.+Uncert.", "MCFair(alpha=0, beta=[0, 1])", "online"),
        curve("all", "MCFair(alpha=[0, 1], beta=100)", "online"),
    ])  # fmt: skip
    assert (parts["all"].color, parts["all"].marker) == own  # with β = 100, as "auto" is online
    assert len({style.color for style in parts.values()}) == 4
    many = choose_styles([curve(f"FairCo, β = {beta}", f"FairCo(beta={beta})") for beta in range(7)])
    assert len(set(many.values())) == 7


# --- dark mode -------------------------------------------------------------------------------------------------------


def test_dark_colors_have_contrast_and_stay_apart():
    shown = [dark_color(color.lower()) for color in PALETTE]
    assert all(contrast(color, DARK_BACKGROUND) >= 4.5 for color in shown)
    assert len(set(shown)) == len(PALETTE)
    assert dark_color("#ffffff") == DARK_BACKGROUND
    assert contrast(dark_color("#e4e4e4"), DARK_BACKGROUND) < 2  # grid lines stay faint
    css = (Path(styles.__file__).parent / "style.css").read_text(encoding="utf-8")
    assert f"--paper: {DARK_BACKGROUND};" in css


def test_every_color_of_a_dark_figure_is_a_dark_one(results):
    view = view_of(results)
    panel = Panel(view.curves, "cndcg@5", "post-processing: relevance is given", view.floor)
    picture = draw(lambda narrow: tradeoff_figure([[panel]], narrow=narrow), "one", "One panel.")
    light, dark = (set(re.findall(rb"#[0-9a-f]{6}", svg)) for svg in (picture.svg, picture.dark_svg))
    assert dark == {dark_color(color.decode()).encode() for color in light} | {dark_color("#000000").encode()}
    assert picture.dark_svg.count(b"<path") == picture.svg.count(b"<path")
    assert b'<svg fill="#f2f4f7"' in picture.dark_svg  # black, which SVG takes where no colour is written


# --- trade-offs ------------------------------------------------------------------------------------------------------


def test_a_tradeoff_can_be_drawn_from_curves_alone():
    """Without an experiment or results: any points, any metric."""
    series = Series(policies=("MCFair(alpha=[0, 1])",), label="mine")
    points = [
        Point(series, policy, pl.DataFrame({"seed": [0, 1], "unfairness": [u, u + 0.1], "ndcg@3": [n, n]}))
        for policy, u, n in zip(parse_policies("MCFair(alpha=[0, 1])"), (2.0, 30.0), (0.8, 0.9), strict=True)
    ]
    one = Curve(series, points)
    panel = Panel([one], "ndcg@3", floor=1.0, frontier=(np.array([1.0, 5.0]), np.array([0.85, 0.95])))
    wide, narrow = tradeoff_figure([[panel, panel]]), tradeoff_figure([[panel, panel]], narrow=True)
    assert [len(figure.axes) for figure in (wide, narrow)] == [2, 2]
    (width, height), (narrow_width, narrow_height) = (figure.get_size_inches() for figure in (wide, narrow))
    assert narrow_width < width / 2
    assert narrow_height > height
    assert wide.axes[0].get_ylabel() == "NDCG@3 (higher is better)"
    assert wide.axes[0].get_xscale() == "log"
    assert [text.get_text() for text in wide.legends[0].get_texts()] == [
        "mine", "floor (lowest possible)", "limit if relevance is known"
    ]  # fmt: skip
    assert "NDCG@3 against unfairness" in tradeoff_alt([[panel]], "Mine")


def test_without_matplotlib_one_line_says_how_to_install_it(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    view = view_of(results)
    with pytest.raises(mf.MCFairError, match=r"pip install .mcfair\[report\]"):
        tradeoff_figure([[Panel(view.curves)]])


def test_cutoffs_are_drawn_with_a_line_and_a_name_for_every_policy(results):
    panels = cutoff_panels([view_of(results, 1)])
    figure = tradeoff_figure(panels)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["TopK", "FairCo", "MCFair", "MCFair again"]
    (axes,) = figure.axes
    assert len(axes.lines) == len(names)
    assert axes.lines[0].get_ydata().tolist() == [view_of(results, 1).points[0].mean(f"cndcg@{k}") for k in range(1, 6)]
    assert axes.get_ylabel() == "cNDCG (higher is better)"
    assert "cNDCG at cutoffs 1 to 5" in tradeoff_alt(panels, "Mine")


def test_built_in_styles_are_of_the_palette():
    assert {policy.style[0] for policy in mf.registered(mf.Policy).values()} <= {*PALETTE, styles.GREY}
