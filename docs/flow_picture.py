"""The picture of the flow, from a query to its list and back, as SVG that follows the light or dark setting."""

from __future__ import annotations

from html import escape

WIDTH, HEIGHT = 880, 460
BOX_WIDTH, BOX_HEIGHT = 232, 112
COLUMNS, ROWS = (24, 324, 624), (96, 272)

STYLE = """
  text { font-family: system-ui, "DejaVu Sans", sans-serif; font-size: 13px; fill: #1d232b; }
  .card { fill: #ffffff; stroke: #d5d9df; }
  .box { fill: #eaf2fb; stroke: #0072b2; stroke-width: 1.5; }
  .head { font-weight: 600; font-size: 15px; }
  .simulator { fill: #00694a; }
  .service { fill: #a84300; }
  .arrow { stroke: #57606a; stroke-width: 2; fill: none; marker-end: url(#head); }
  .tip { fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6e9ed; }
    .card { fill: #15191f; stroke: #39414b; }
    .box { fill: #1c2b3a; stroke: #56a8df; }
    .simulator { fill: #4fd1a5; }
    .service { fill: #ffa45c; }
    .arrow { stroke: #a0a9b4; }
    .tip { fill: #a0a9b4; }
  }
"""

BOXES: dict[tuple[int, int], tuple[str, str, str, str]] = {
    (0, 0): ("Query", "view of R̂, uncertainty, E, F, p", "simulator: of a Dataset", "service: of a request"),
    (1, 0): (
        "Policy",
        "score, such as R̂ + \u03b1·B + β·MC",
        "guard: a least share of the DCG",
        "top k, with a rule for ties",
    ),
    (2, 0): ("List", "k items in order", "simulator: counted at once", "service: logged, then answered"),
    (2, 1): ("Users", "examine ranks, click", "simulator: a ClickModel", "service: people, /v1/feedback"),
    (1, 1): ("Counts", "F by rank, clicks C, visits", "simulator: State, arrays", "service: Ledger, sum of a log"),
    (0, 1): (
        "Estimator",
        "R̂ and uncertainty from C and E",
        "prior: fixed, sent with items,",
        "or learnt from all queries",
    ),
}
"""Boxes by column and row: the heading and three lines; a line that begins with one of the two is about that one."""


def box(column: int, row: int) -> str:
    """Return a box with its texts."""
    heading, *lines = BOXES[column, row]
    x, y = COLUMNS[column], ROWS[row]
    parts = [f'<rect class="box" x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8"/>']
    parts.append(f'<text class="head" x="{x + 14}" y="{y + 27}">{escape(heading)}</text>')
    for i, text in enumerate(lines):
        kind = text.partition(":")[0]
        chosen = f' class="{kind}"' if kind in ("simulator", "service") else ""
        parts.append(f'<text{chosen} x="{x + 14}" y="{y + 52 + 21 * i}">{escape(text)}</text>')
    return "\n".join(parts)


def arrow(*points: tuple[float, float]) -> str:
    """Return an arrow along some points."""
    path = " L".join(f"{x},{y}" for x, y in points)
    return f'<path class="arrow" d="M{path}"/>'


def flow() -> str:
    """Return the picture."""
    middle = [y + BOX_HEIGHT / 2 for y in ROWS]
    right = [x + BOX_WIDTH for x in COLUMNS]
    centre = [x + BOX_WIDTH / 2 for x in COLUMNS]
    bottom, gap = ROWS[0] + BOX_HEIGHT, 4
    arrows = [
        arrow((right[0], middle[0]), (COLUMNS[1] - gap, middle[0])),
        arrow((right[1], middle[0]), (COLUMNS[2] - gap, middle[0])),
        arrow((centre[2], bottom), (centre[2], ROWS[1] - gap)),
        arrow((COLUMNS[2], middle[1]), (right[1] + gap, middle[1])),
        arrow((COLUMNS[1], middle[1]), (right[0] + gap, middle[1])),
        arrow((centre[0], ROWS[1]), (centre[0], bottom + gap)),
        arrow((centre[0], 62), (centre[0], ROWS[0] - gap)),
        arrow((centre[1], ROWS[1] + BOX_HEIGHT), (centre[1], ROWS[1] + BOX_HEIGHT + 26)),
    ]
    under = ROWS[1] + BOX_HEIGHT + 45
    texts = [
        f'<text class="simulator" x="{COLUMNS[0]}" y="34">simulator: Dataset and arrivals</text>',
        f'<text class="service" x="{COLUMNS[0]}" y="53">service: POST /v1/rank, a query with candidates</text>',
        f'<text x="{COLUMNS[2]}" y="34">plain text: the same code in both</text>',
        f'<text class="simulator" text-anchor="middle" x="{centre[1]}" y="{under}">'
        "simulator: Metric → Trace → Results → report</text>",
        f'<text class="service" text-anchor="middle" x="{centre[1]}" y="{under + 20}">'
        "service: explanations, history, dashboard, verify and replay</text>",
    ]
    body = "\n".join([*(box(*place) for place in BOXES), *arrows, *texts])
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">
<title>The flow from a query to its list, to clicks and back to the estimate</title>
<style>{STYLE}</style>
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path class="tip" d="M0,0 L10,5 L0,10 z"/></marker></defs>
<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12"/>
{body}
</svg>
"""
