"""The report: one page that needs no other file, and its figures and tables as files."""

from __future__ import annotations

import base64
import inspect
from pathlib import Path
from typing import Any

from ..errors import TraceError
from ..experiments.results import Results
from ..metrics.base import Metric
from ..parts import Part
from .document import Document, Report, Section
from .formatting import NOTHING
from .markup import Table
from .sections import add_experiment
from .views import cndcg_limit

__all__ = ["create_folders", "render_template", "write_document", "write_report"]


def write_report(results: Results, folder: Path, *, title: str = "") -> Path:
    """Write the report of experiments to a folder: index.html, figures/ and tables/; equal results yield equal bytes.

    Parameters
    ----------
    results
        Results of the experiments.
    folder
        Created if it does not exist; files of the same names are replaced.
    title
        Heading of the page; by default it follows from the experiments.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    TraceError
        If the folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import mcfair as mf
    >>> toy = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mine = mf.Experiment(
    ...     name="mine",
    ...     data=("toy",),
    ...     settings=({"steps": 20, "k": 2},),
    ...     k_c=(2,),
    ...     seeds=2,
    ...     series=(mf.Series(policies=("TopK", "MCFair")),),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = mf.run_experiments([mine], folder, data={"toy": toy})
    ...     write_report(results, Path(folder) / "report").name
    'index.html'
    """
    target = Path(folder)
    try:
        create_folders(target)
        report = build_report(results)
        return write_document(report, render_page(report, title), target)
    except OSError as error:
        raise TraceError(f"cannot write the report to {target}: {error.strerror or error}") from None


def create_folders(target: Path) -> None:
    """Create the folders of a page, so that one that cannot be written fails before the work."""
    for place in ("figures", "tables"):
        (target / place).mkdir(parents=True, exist_ok=True)


def write_document(document: Document, html: str, target: Path) -> Path:
    """Write a page, and its figures and tables as files beside it."""
    for picture in document.pictures:
        (target / "figures" / f"{picture.name}.png").write_bytes(picture.png)
        (target / "figures" / f"{picture.name}.pdf").write_bytes(picture.pdf)
    for table in document.tables:
        (target / "tables" / f"{table.name}.md").write_text(table.as_markdown(), encoding="utf-8", newline="\n")
        (target / "tables" / f"{table.name}.tex").write_text(table.as_latex(), encoding="utf-8", newline="\n")
    page = target / "index.html"
    page.write_text(html, encoding="utf-8", newline="\n")
    return page


def build_report(results: Results) -> Report:
    """Build all sections, figures and tables."""
    report = Report(results)
    for experiment in results.experiments:
        add_experiment(report, experiment)
    if is_from_paper(results):
        title = "Differences from the paper"
        report.sections.append(Section(report.unique_name("differences"), title, template="differences"))
    add_provenance(report)
    return report


def is_from_paper(results: Results) -> bool:
    """Return whether any experiment follows the paper: its preset, or its figures."""
    return any(each.preset or any(series.paper for series in each.series) for each in results.experiments)


def add_provenance(report: Report) -> None:
    """Append the section on how the runs were made."""
    results = report.results
    blocks = []
    if results.about:
        about = tuple((key, " ".join(str(value).split())) for key, value in results.about.items())
        table = Table(
            name="about", caption="Machine and versions", columns=("item", "value"), rows=about, text_columns=2
        )
        blocks.append(report.add_table(table))
    rows: tuple[tuple[str, ...], ...] = tuple(
        (
            each.name,
            ", ".join(each.data),
            each.preset or "none",
            ", ".join(f"{setting.mode}: {setting.steps:,}" for setting in each.conditions),
            f"{each.seeds}",
            f"{sum(1 for _ in each.played()) * each.seeds * len(each.data):,}",
        )
        for each in results.experiments
    )
    columns = ("experiment", "data", "preset", "steps", "seeds", "runs")
    note = f"Experiments share runs: {results.runs.height:,} distinct runs were made."
    table = Table(
        name="runs", caption="Runs of each experiment", columns=columns, rows=rows, text_columns=4, notes=(note,)
    )
    blocks += [report.add_table(table), report.add_table(settings_table(results))]
    report.sections.append(Section(report.unique_name("how"), "How the experiments were run", tuple(blocks)))


def settings_table(results: Results) -> Table:
    """Build the table of the conditions of each experiment: users, estimates and what was measured."""
    rows = []
    for each in results.experiments:
        for setting in each.conditions:
            p = setting.examination
            examined = ", ".join(f"{one:g}" for one in p) if isinstance(p, tuple) else f"severity {p:g}"
            online = setting.mode == "online"
            estimators = [used.estimator_for(policy).label for _, used, policy in each.played() if used == setting]
            learnt = ", ".join(dict.fromkeys(estimators))
            parts = (setting.clicks.label, learnt) if online else (NOTHING, NOTHING)
            named = ", ".join(metric.label for metric in setting.metrics) or "none"
            rows.append((f"{each.name}, {setting.mode}", *parts, named, examined, f"{setting.k}"))
    columns = ("setting", "click model", "estimator", "further metrics", "examination", "ranks")
    note = (
        "The click model is how users click, the estimator how relevance is estimated from their clicks; where "
        "relevance is given, neither is used. Examination is what exposure assumes of users."
    )
    return Table(
        name="settings",
        caption="Settings of each experiment",
        columns=columns,
        rows=tuple(rows),
        text_columns=5,
        notes=(note,),
    )


# --- the page --------------------------------------------------------------------------------------------------------


def render_page(report: Report, title: str = "") -> str:
    """Render the page of experiments."""
    paper = is_from_paper(report.results)
    title = title or ("Fair ranking: the experiments of MCFair" if paper else "Fair ranking: experiments")
    return render_template(
        "page.html.j2", title=title, report=report, **summary(report.results), **terms(report.results)
    )


def render_template(name: str, **values: Any) -> str:
    """Render a page through its template; CSS and figures are embedded."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"data_uri": data_uri, "tie": tie}
    return environment.get_template(f"templates/{name}").render(**values)


def data_uri(svg: bytes) -> str:
    """Encode an SVG image for the src attribute of an image."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def tie(text: str) -> str:
    """Keep a number and its percent sign on one line."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def summary(results: Results) -> dict[str, Any]:
    """Collect the figures of the introduction."""
    return {
        "experiments": len(results.experiments),
        "data": list(dict.fromkeys(name for each in results.experiments for name in each.data)),
        "policies": len({text.split("(")[0] for text in results.runs["policy"].to_list()}),
        "runs": results.runs.height,
        "sessions": int(results.runs["sessions"].sum()) if results.runs.height else 0,
        "seeds": sorted({each.seeds for each in results.experiments}),
    }


def terms(results: Results) -> dict[str, Any]:
    """Collect what the explanations of terms depend on: settings in use, discounts and their limits, methods."""
    settings = [setting for each in results.experiments for setting in each.conditions]
    gammas = sorted({setting.gamma for setting in settings})
    classes: set[type[Part]] = {type(policy) for each in results.experiments for _, _, policy in each.played()}
    others: list[Part] = [
        part
        for each in results.experiments
        for _, setting, policy in each.played()
        if setting.mode == "online"
        for part in (setting.clicks, setting.estimator_for(policy))
    ]
    others += [metric for each in settings for metric in each.metrics]
    return {
        "modes": {setting.mode for setting in settings},
        "ranks": sorted({setting.k for setting in settings}),
        "gammas": [(f"{gamma:g}", limit and f"{limit:,.6g}") for gamma in gammas for limit in (cndcg_limit(gamma),)],
        "methods": [(each.__name__, described(each)) for each in sorted(classes, key=lambda each: each.__name__)],
        "others": list(dict.fromkeys((part.label, described(type(part)), direction(part)) for part in others)),
    }


def described(part: type[Part]) -> str:
    """Return the first sentence of a part's documentation; nothing if its author wrote none."""
    text = (inspect.getdoc(part) or "").split("\n\n")[0]
    generated = text.startswith(f"{part.__name__}(")  # the signature that dataclasses put in its place
    return "" if generated else " ".join(text.replace("`", "").split())


def direction(part: Part) -> str:
    """Return which values of a metric are better; nothing for other parts."""
    if not isinstance(part, Metric):
        return ""
    return "Higher is better." if part.higher_is_better else "Lower is better."
