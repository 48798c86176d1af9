"""The page: what was run, what came out, what the paper says, and how it was done; nothing is fetched."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path

from ..errors import TraceError
from ..experiments.experiment import Experiment, shipped_experiments
from ..experiments.results import Results
from .claims import Above, Comparison, compared_curves
from .figures import Picture, cutoffs_figure, has_fair_end, tradeoff_figure
from .markup import Table, number, percent, signed
from .tables import above_table, cutoffs_table, deviation, main_tables, points_table
from .views import View, views

__all__ = ["write_report"]

STYLE = """
:root { color-scheme: light dark; --ink: #1d2530; --paper: #ffffff; --soft: #5b6673; --rule: #d9dee4; --tint: #f4f6f8;
  --mark: #e8f1f8; --link: #00598c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e7ec; --paper: #14181d; --soft: #a2adb9; --rule: #333b45; --tint: #1c2229; --mark: #1b3040;
    --link: #7cc4f0; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 74rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: break-word; }
p, li { max-width: 46rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .6rem; }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 2.6rem 0 .5rem; padding-top: 1rem;
  border-top: 1px solid var(--rule); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
a { color: var(--link); }
nav ul, .glance { padding-left: 1.2rem; }
.glance { background: var(--tint); border-radius: .5rem; padding: .8rem 1rem .8rem 2rem; max-width: 48rem; }
nav ul { columns: 2 18rem; }
.scroll { overflow-x: auto; margin: 1rem 0 .4rem; border: 1px solid var(--rule); border-radius: .5rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; min-width: 100%; }
caption { text-align: left; font-weight: 600; padding: .5rem .7rem; white-space: nowrap; }
th, td { padding: .32rem .7rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--rule); }
thead th { vertical-align: bottom; font-weight: 600; color: var(--soft); white-space: normal; min-width: 6rem; }
tbody th, thead th:first-child { position: sticky; left: 0; background: inherit; }
tbody tr, thead tr { background: var(--paper); }
th.text, td.text { text-align: left; }
tbody th { font-weight: 600; }
td.text { color: var(--soft); }
tr.base { background: var(--mark); }
tr.limit { background: var(--tint); font-style: italic; }
.wrap td { white-space: normal; overflow-wrap: anywhere; }
.notes p, .files, figcaption { font-size: .86rem; color: var(--soft); margin: .35rem 0; max-width: 52rem; }
figure { margin: 1rem 0; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; border: 1px solid var(--rule);
  border-radius: .5rem; padding: .4rem; }
details { margin: .8rem 0; }
summary { cursor: pointer; color: var(--link); }
"""

DEPARTURES = (
    "Queries. The paper draws them from the training, validation and test parts and judges on the test part; the "
    "released code plays the test part of fold 1 alone. It also loses the last query of each file, drops queries "
    "without a relevant document and keeps those of 6 to 19 documents, which leaves 82.",
    "Sessions. The released code judges before it plays the last step, so 9,999 sessions of 10,000 count.",
    "The gradient of fairness (Eq. 16) is divided by its largest entry, which is the scale of the paper's weights; "
    "marginal certainty is at most 10; an item of grade 0 has relevance 0.1.",
    "Chance. The arrivals of queries follow the released code's generator, seed by seed, so what does not draw lots "
    "agrees to the printed digits. Clicks and lotteries came from generators without a seed and can be matched as "
    "bands only.",
    "Ties. Items of equal score are taken in the order of the file; the paper's NumPy had its own order for the lists "
    "in which all items tie, which shows in ExploreK and FairK.",
    "ILP. Every item far enough behind costs the same at each rank, so dozens of lists are optimal at a time and which "
    "one is taken decides the run. The paper's figure is what its solver happened to return; here the optimum of least "
    "squared deviation is taken, which is far fairer.",
    "PLFair. The published training (20 epochs, step 0.1) is far from converged, so its place says little of the "
    "method; with a step of 1 it gets fairer in the same time.",
)
"""What the released code does otherwise than the paper says, and what follows."""


@dataclass
class Report:
    """What has been made so far: sections of the page and files beside it."""

    results: Results
    sections: list[tuple[str, str, str]] = field(default_factory=list)
    glance: list[str] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def name(self, *parts: str) -> str:
        """Make a name for files and anchors out of any words; no two are the same."""
        word = re.sub(r"[^a-z0-9]+", "-", "-".join(part for part in parts if part).lower()).strip("-") or "part"
        chosen, i = word, 2
        while chosen in self.names:
            chosen, i = f"{word}-{i}", i + 1
        self.names.add(chosen)
        return chosen

    def table(self, table: Table) -> str:
        """Keep a table, and give its HTML with links to its files."""
        self.tables.append(table)
        links = f'<a href="tables/{table.name}.md">Markdown</a>, <a href="tables/{table.name}.tex">LaTeX</a>'
        return f'{table.as_html()}<p class="files">This table as {links}.</p>\n'

    def picture(self, picture: Picture, caption: str) -> str:
        """Keep a figure, and give its HTML: the image itself is in the page."""
        self.pictures.append(picture)
        image = base64.b64encode(picture.svg).decode()
        links = f'<a href="figures/{picture.name}.png">PNG</a>, <a href="figures/{picture.name}.pdf">PDF</a>'
        return (
            f'<figure>\n<a href="figures/{picture.name}.png">'
            f'<img src="data:image/svg+xml;base64,{image}" alt="{escape(picture.alt)}"></a>\n'
            f"<figcaption>{escape(caption)} This figure as {links}.</figcaption>\n</figure>\n"
        )


def write_report(results: Results, folder: Path) -> Path:
    """Write the report of some results to a folder: index.html, figures/ and tables/; equal results, equal bytes.

    Parameters
    ----------
    results
        What the experiments gave.
    folder
        Made if it is not there; files of the same names are replaced.

    Returns
    -------
    Path of the page.
    """
    target = Path(folder)
    page = target / "index.html"
    try:  # before the work is done: what cannot be written need not be drawn
        for place in ("figures", "tables"):
            (target / place).mkdir(parents=True, exist_ok=True)
        report = make_report(results)
        for picture in report.pictures:
            (target / "figures" / f"{picture.name}.png").write_bytes(picture.png)
            (target / "figures" / f"{picture.name}.pdf").write_bytes(picture.pdf)
        for table in report.tables:
            (target / "tables" / f"{table.name}.md").write_text(table.as_markdown(), encoding="utf-8", newline="\n")
            (target / "tables" / f"{table.name}.tex").write_text(table.as_latex(), encoding="utf-8", newline="\n")
        page.write_text(html_page(report), encoding="utf-8", newline="\n")
    except OSError as error:
        raise TraceError(f"cannot write the report to {target}: {error.strerror or error}") from None
    return page


def make_report(results: Results) -> Report:
    """Make all sections, figures and tables."""
    report = Report(results)
    for experiment in results.experiments:
        add_experiment(report, experiment)
    add_differences(report)
    add_circumstances(report)
    return report


# --- experiments -----------------------------------------------------------------------------------------------------


def add_experiment(report: Report, experiment: Experiment) -> None:
    """Add the section of an experiment."""
    title = experiment.title or experiment.name
    parts = [f"<p>{escape(' '.join(experiment.about.split()))}</p>\n"] if experiment.about.strip() else []
    for data in experiment.data:
        found = list(views(report.results, experiment, data))
        if not found:
            parts.append(f"<p>There are no runs on {escape(data)}.</p>\n")
            continue
        several = len(experiment.data) > 1
        if several:
            parts.append(f"<h3>{escape(data)}</h3>\n")
        name = (experiment.name, data if several else "")
        where = f"{data}, {sessions(found)}"
        add = {"table": add_table, "cutoffs": add_cutoffs, "tradeoff": add_tradeoff}[experiment.show]
        parts.extend(add(report, found, name, title, where))
    report.sections.append((report.name("experiment", experiment.name), title, "".join(parts)))


def sessions(found: Sequence[View]) -> str:
    """Say how long the runs of some settings are."""
    return ", ".join(f"{view.setting.mode} with {view.setting.sessions:,} sessions" for view in found)


def add_table(report: Report, found: Sequence[View], name: tuple[str, str], title: str, where: str) -> Iterator[str]:
    """Show a table of policies for each setting, with the tests behind it."""
    for view in found:
        mode = view.setting.mode if len(found) > 1 else ""
        tables = main_tables(view, report.name(*name, mode), f"{title} ({view.data}, {sessions([view])})")
        yield report.table(tables[0])
        for table in tables[1:]:
            shown = report.table(replace(table, name=report.name(table.name)))
            yield f"<details><summary>Size and p-value of every difference</summary>\n{shown}</details>\n"
        report.glance.extend(table_sentences(view, title))
        for curve in view.curves:
            if curve.series.note and (curve.label, curve.series.note) not in report.notes:
                report.notes.append((curve.label, curve.series.note))


def table_sentences(view: View, title: str) -> Iterator[str]:
    """Say which policy is the fairest, and how many agree with the paper."""
    points = [point for curve in view.curves for point in curve.points]
    head = title.split(":")[0]
    if len(points) > 1:
        first, second = sorted(points, key=lambda point: point.mean("unfairness"))[:2]
        floor = float(view.limits.floor.mean()) if view.limits else 0.0
        above = f", {percent(first.mean('unfairness') / floor)} % above the least possible" if floor > 0 else ""
        yield (
            f"{head} ({view.data}, {view.setting.mode}): {first.label} is the fairest, with an unfairness of "
            f"{number(first.mean('unfairness'))}{above}; next is {second.label} with "
            f"{number(second.mean('unfairness'))}."
        )
    found = [(point.label, off[1]) for point in points if (off := deviation(view, point)) is not None]
    if found:
        far = [f"{label} ({signed(off)})" for label, off in found if abs(off) > 1]
        rest = f"; not {', '.join(far)}, for the reason given there" if far else ""
        yield (
            f"{head}: {len(found) - len(far)} of {len(found)} methods are within one of the paper's standard "
            f"deviations of its unfairness{rest}."
        )


def add_cutoffs(report: Report, found: Sequence[View], name: tuple[str, str], title: str, where: str) -> Iterator[str]:
    """Show cNDCG at every cutoff."""
    picture = cutoffs_figure(found, report.name(*name), title)
    yield report.picture(picture, f"{where}. Lines are means over seeds, bands one standard deviation to either side.")
    for view in found:
        mode = view.setting.mode if len(found) > 1 else ""
        caption = f"{title} ({view.data}, {view.setting.mode})"
        yield report.table(cutoffs_table(view, report.name(*name, mode, "values"), caption))


def add_tradeoff(report: Report, found: Sequence[View], name: tuple[str, str], title: str, where: str) -> Iterator[str]:
    """Show effectiveness against unfairness, whether the claim holds, and all points."""
    picture = tradeoff_figure(found, report.name(*name), title)
    yield report.picture(picture, f"{where}. {explanation(found)}")
    if has_fair_end(found):
        picture = tradeoff_figure(found, report.name(*name, "closer"), title, closer=True)
        yield report.picture(picture, "A closer look at the fair end of the same panels.")
    yield from add_claim(report, found, name, title)
    for view in found:
        mode = view.setting.mode if len(found) > 1 else ""
        table = points_table(view, report.name(*name, mode, "points"), f"{title} ({view.data}, {view.setting.mode})")
        count = f"{len(table.rows)} points, {view.setting.mode}"
        yield f"<details><summary>All {count}</summary>\n{report.table(table)}</details>\n"


def explanation(found: Sequence[View]) -> str:
    """Say how to read a trade-off."""
    text = "Markers are means over seeds, bars one standard deviation to either side."
    if any(view.limits and view.limits.unfairness.size and view.setting.k_s in view.experiment.k_c for view in found):
        text += (
            " The grey line is the limit for the same visits: no policy can be above it, even one that knows "
            "relevance. It is for NDCG averaged over the run; cNDCG weighs the last sessions most, so a run that got "
            "fairer before it got effective, or luck, can lift a point over it."
        )
    if any(view.limits and view.limits.floor.mean() > 0 for view in found):
        text += " The dotted line is the least unfairness possible."
    return text


def add_claim(report: Report, found: Sequence[View], name: tuple[str, str], title: str) -> Iterator[str]:
    """Check the claim that the curve in `compare_with` lies on or above every other."""
    wanted = found[0].experiment.compare_with
    checks = [(view, k, compared_curves(view, k)) for view in found for k in view.experiment.k_c]
    if not any(each for _, _, each in checks):
        return
    yield f"<h3>Is {escape(wanted)} on or above every other curve?</h3>\n"
    yield (
        f"<p>Each point of another method is compared with {escape(wanted)}'s curve at the same unfairness, seed by "
        "seed, inside the range that the curve covers. It counts as above if the 95 % interval of the difference over "
        "seeds is. The curve is straight between its points: where they are far apart it may lie lower than it "
        "could.</p>\n"
    )
    items, violations, panels, held = [], [], 0, 0
    for view, k, comparisons in checks:
        if comparisons:
            above = [(view, k, each) for one in comparisons for each in one.above]
            violations += above
            panels += any(one.compared for one in comparisons)
            held += any(one.compared for one in comparisons) and not above
            items.append(f"<li>{escape(verdict(view, k, comparisons))}</li>\n")
    yield f"<ul>\n{''.join(items)}</ul>\n"
    if all(point.runs.height == 1 for view in found for curve in view.curves for point in curve.points):
        yield "<p>With one seed nothing is known of the noise, so any difference counts.</p>\n"
    if violations:
        caption = f"Points above {wanted}'s curve"
        yield report.table(above_table(violations, report.name(*name, "above"), caption))
    if panels:
        report.glance.append(claim_sentence(title.split(":")[0], wanted, panels, held, violations))


def verdict(view: View, k: int, comparisons: list[Comparison]) -> str:
    """Say where the claim holds in one panel."""
    inside = sum(one.compared for one in comparisons)
    text = f"{view.setting.mode}, cNDCG@{k}: "
    above = [one for one in comparisons if one.above]
    if not inside:
        text += "no point of another method lies in its range."
    elif not above:
        text += f"holds everywhere, at all {inside} points of {sum(one.compared > 0 for one in comparisons)} methods."
    else:
        where = "; ".join(
            f"{one.label} is above at {len(one.above)} of {one.compared} points, by at most "
            f"{number(max(each.by for each in one.above), 3)}"
            for one in above
        )
        text += f"{where}; it holds at the other {inside - sum(len(one.above) for one in above)} of {inside} points."
    fairer, less_fair = sum(one.fairer for one in comparisons), sum(one.less_fair for one in comparisons)
    if fairer or less_fair:
        text += f" Outside the range: {fairer} fairer, {less_fair} less fair."
    return text


def claim_sentence(head: str, wanted: str, panels: int, held: int, violations: list[tuple[View, int, Above]]) -> str:
    """Say in one sentence whether the claim holds."""
    if not violations:
        return f"{head}: no other method's curve rises above {wanted}'s, in {held} of {panels} panels."
    count = f"{len(violations)} points of others are" if len(violations) > 1 else "1 point of another is"
    share = max(each.by / view.best_cndcg for view, _, each in violations)
    return (
        f"{head}: {wanted}'s curve is on or above all others in {held} of {panels} panels; elsewhere "
        f"{count} above it, by at most {100 * share:.2g} % of the largest cNDCG."
    )


# --- the rest --------------------------------------------------------------------------------------------------------


def is_from_paper(results: Results) -> bool:
    """Whether the paper's experiments are among those run, or others with figures of the paper."""
    return any(
        each.name in shipped_experiments() or any(series.paper for series in each.series)
        for each in results.experiments
    )


def add_differences(report: Report) -> None:
    """Add what differs from the paper and why, if the paper's experiments are among those run."""
    if not is_from_paper(report.results):
        return
    noted = "".join(f"<li><strong>{escape(label)}.</strong> {escape(note)}</li>\n" for label, note in report.notes)
    fixed = "".join(
        "<li><strong>{}.</strong>{}</li>\n".format(*map(escape, text.split(".", 1))) if "." in text[:12]
        else f"<li>{escape(text)}</li>\n"
        for text in DEPARTURES
    )  # fmt: skip
    body = (
        "<p>The preset wsdm23 loads and plays as the code released with the paper does, which departs from what the "
        f"paper says:</p>\n<ul>\n{fixed}</ul>\n"
    )
    if noted:
        body += f"<p>Row by row:</p>\n<ul>\n{noted}</ul>\n"
    report.sections.append((report.name("differences"), "What differs from the paper and why", body))


def add_circumstances(report: Report) -> None:
    """Add how the runs came about."""
    results = report.results
    body = ""
    if results.about:
        about = tuple((key, " ".join(str(value).split())) for key, value in results.about.items())
        table = Table(name=report.name("about"), caption="Machine and versions", columns=("what", "value"), rows=about,
                      texts=2)  # fmt: skip
        body += f'<div class="wrap">{report.table(table)}</div>'
    rows: tuple[tuple[str, ...], ...] = tuple(
        (
            each.name, ", ".join(each.data), each.preset or "none",
            ", ".join(f"{setting.mode}: {setting.steps:,}" for setting in each.conditions),
            f"{each.seeds}", f"{sum(1 for _ in each.played()) * each.seeds * len(each.data):,}",
        )
        for each in results.experiments
    )  # fmt: skip
    columns = ("experiment", "data", "preset", "steps", "seeds", "runs")
    note = f"Experiments share runs: {results.runs.height:,} different ones were made."
    table = Table(name=report.name("runs"), caption="What was run", columns=columns, rows=rows, texts=4, notes=(note,))
    report.sections.append((report.name("how"), "How it was run", body + report.table(table)))


def summary(results: Results) -> str:
    """Say what was run in one paragraph."""
    data = list(dict.fromkeys(name for each in results.experiments for name in each.data))
    total = int(results.runs["sessions"].sum()) if results.runs.height else 0
    seeds = sorted({each.seeds for each in results.experiments})
    policies = {text.split("(")[0] for text in results.runs["policy"].to_list()}
    experiments = "1 experiment" if len(results.experiments) == 1 else f"{len(results.experiments)} experiments"
    each = f"{seeds[-1]} seed{'s' if seeds[-1] > 1 else ''}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    return (
        f"Fair ranking of search results: {experiments} on {', '.join(data)}. {len(policies)} policies with different "
        f"parameters were played against simulated users in {results.runs.height:,} runs ({each}), {total:,} sessions "
        "in all. Unfairness (Eq. 8 of the paper) is lower when items are seen in proportion to their relevance; cNDCG "
        "is higher when users find relevant items first."
    )


def html_page(report: Report) -> str:
    """Put the page together."""
    title = "Fair ranking: the experiments of MCFair" if is_from_paper(report.results) else "Fair ranking: experiments"
    contents = "".join(f'<li><a href="#{anchor}">{escape(name)}</a></li>\n' for anchor, name, _ in report.sections)
    glance = "".join(f"<li>{escape(text)}</li>\n" for text in report.glance)
    body = "".join(
        f'<section aria-labelledby="{anchor}">\n<h2 id="{anchor}">{escape(name)}</h2>\n{text}</section>\n'
        for anchor, name, text in report.sections
    )
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    at_a_glance = f'<h2 id="glance">At a glance</h2>\n<ul class="glance">\n{glance}</ul>\n' if glance else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n"
        f"<h1>{escape(title)}</h1>\n<p>{escape(summary(report.results))}</p>\n{at_a_glance}</header>\n"
        f'<nav aria-label="Contents">\n<h2>Contents</h2>\n<ul>\n{contents}</ul>\n</nav>\n<main>\n{body}</main>\n'
        "</body>\n</html>\n"
    )
