"""Colours, markers and lines: one fixed pair per policy in every figure, and the colours of dark mode."""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from ..policies.base import Policy
from .views import Curve

__all__ = ["DARK_BACKGROUND", "Style", "choose_styles", "darken_svg"]

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE, GREY = "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY, BLACK, YELLOW)
"""The palette of Okabe and Ito, distinguishable with any colour vision; the best contrast on white first."""

MARKERS = ("o", "v", "P", "X", "h", "D", "p", "s", "^", "<", ">", "d", "*")

LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))

DARK_BACKGROUND, DARK_INK, VIOLET = "#14181d", "#f2f4f7", "#a48cff"
DARK_CONTRAST = 4.5
"""Smallest contrast ratio of a colour against the dark background, as WCAG defines it."""

FAINT = 2.5
"""Greys with a smaller contrast against white stay faint in dark mode."""


# --- styles of series ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Style:
    """Appearance of a series; the markers of variants are hollow."""

    color: str
    marker: str
    line: Any = "-"
    hollow: bool = False

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of matplotlib's `plot`."""
        edge = self.color if self.hollow else "#5F5A12" if self.color == YELLOW else "white"
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": self.line,
            "linewidth": 1.6,
            "markersize": 6.5,
            "markerfacecolor": "white" if self.hollow else self.color,
            "markeredgecolor": edge,
            "markeredgewidth": 1.3 if self.hollow else 0.6,
        }


def choose_styles(curves: Sequence[Curve]) -> dict[str, Style]:
    """Choose the style of each label: the policy's own, a shade of it for variants, else one that is least used."""
    groups: dict[type[Policy], list[Curve]] = {}
    for curve in curves:
        group = groups.setdefault(curve.policy_class, [])
        if curve.label not in [each.label for each in group]:
            group.append(curve)
    fixed = [pair for policy in groups if (pair := policy.style)]
    colors, markers = [color for color, _ in fixed], [marker for _, marker in fixed]
    chosen: dict[str, Style] = {}
    for policy, group in groups.items():
        name = policy.__name__
        own = policy.style
        color, marker = own or (least_used(PALETTE, colors, name), least_used(MARKERS, markers, name))
        if own is None:
            colors.append(color)
            markers.append(marker)
        plain = plain_curve(group, name)
        variants = [curve.label for curve in group if curve is not plain and curve.label.startswith(name)]
        for curve in group:
            if curve is plain:
                style = Style(color, marker)
            elif curve.label in variants:
                i = variants.index(curve.label)
                shape = least_used(MARKERS, markers) if len(variants) > 2 else marker
                style = Style(shade(color, i, len(variants)), shape, LINES[i % 5 + 1], True)
            else:
                style = Style(least_used(PALETTE, colors), least_used(MARKERS, markers), LINES[1], True)
                colors.append(style.color)
            markers.append(style.marker)
            chosen.setdefault(curve.label, style)
    return {curve.label: chosen[curve.label] for curve in curves}


def plain_curve(group: Sequence[Curve], name: str) -> Curve:
    """Return the curve of a policy that gets its own style: the one named after it, else the least specialised."""
    return min(group, key=lambda curve: (curve.label != name, changed_parameters(curve)))


def changed_parameters(curve: Curve) -> int:
    """Count the parameters that differ from their default in all policies of a series; "auto" counts as its value."""

    def changed(policy: Policy) -> set[str]:
        automatic = {name: curve.mode and table[curve.mode] for name, table in policy.auto.items()}
        return {name for name in policy.changed_parameters if getattr(policy, name) != automatic.get(name)}

    return len(set.intersection(*(changed(point.policy) for point in curve.points)))


def least_used(values: Sequence[str], taken: Sequence[str], name: str = "") -> str:
    """Return the least used value; the first of several, counted from a place that depends on a name alone.

    Yellow comes last: a line of it is hardly seen on white.
    """
    start = zlib.crc32(name.encode()) % len(values) if name else 0
    return min((*values[start:], *values[:start]), key=lambda value: (taken.count(value), value == YELLOW))


def shade(color: str, i: int, count: int) -> str:
    """Return the i-th of several tones of a colour, from lighter to darker."""
    t = (i + 1) / (count + 1) if count > 1 else 0.75
    mixed = mix(color, "#FFFFFF", 0.55 - 1.1 * t) if t < 0.5 else mix(color, "#000000", 1.1 * (t - 0.5))
    return mixed.upper()


# --- dark mode -------------------------------------------------------------------------------------------------------


def darken_svg(svg: bytes) -> bytes:
    """Replace every colour of a figure drawn on white by its counterpart on the dark background."""
    recolored = re.sub(rb"#[0-9a-fA-F]{6}\b", lambda found: dark_color(found[0].decode().lower()).encode(), svg)
    fill = f'<svg fill="{dark_color(BLACK)}" '.encode()  # matplotlib does not write black, the default of SVG
    return recolored.replace(b"<svg ", fill, 1)


@cache
def dark_color(color: str) -> str:
    """Return the counterpart of a colour: greys are inverted, and all but faint ones have enough contrast."""
    r, g, b = channels(color)
    grey = max(r, g, b) - min(r, g, b) < 0.06
    shown = mix(DARK_INK, DARK_BACKGROUND, (r + g + b) / 3) if grey else color
    if grey and contrast(color, "#ffffff") < FAINT:
        return shown  # the background, grid lines, and areas that are meant to recede
    # A lighter blue would look like sky blue, which has the same hue, so blues shift towards violet.
    light = VIOLET if not grey and b == max(r, g, b) else "#ffffff"
    amount = 0.0
    while contrast(mix(shown, light, amount), DARK_BACKGROUND) < DARK_CONTRAST:
        amount += 0.05
    return mix(shown, light, amount)


def channels(color: str) -> tuple[float, float, float]:
    """Split a colour into red, green and blue, from 0 to 1."""
    r, g, b = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return r, g, b


def mix(color: str, other: str, share: float) -> str:
    """Mix two colours; `share` is the part of the second."""
    pairs = zip(channels(color), channels(other), strict=True)
    return "#" + "".join(f"{round(255 * ((1 - share) * a + share * b)):02x}" for a, b in pairs)


def contrast(a: str, b: str) -> float:
    """Compute the contrast ratio of two colours, as WCAG defines it.

    Examples
    --------
    >>> round(contrast("#000000", "#ffffff"), 6)
    21.0
    """
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    """Compute the relative luminance of a colour, as WCAG defines it."""
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels(color))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
