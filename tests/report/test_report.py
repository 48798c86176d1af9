"""The report: every file is there, says what the runs gave, and the page opens without fetching anything."""

import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

import mcfair as mf
from mcfair.experiments.archive import Archive
from mcfair.experiments.experiment import Experiment, Paper, Series
from mcfair.experiments.processes import run_on_processes
from mcfair.experiments.results import Results, collect
from mcfair.experiments.tasks import open_experiments, tasks_of
from mcfair.policies.base import parse_policies
from mcfair.report import write_report
from mcfair.report.claims import baseline, compared_curves, envelope, significance
from mcfair.report.figures import POLICY_STYLES, spaced, styles
from mcfair.report.markup import NOTHING, Table, latex, markdown, number, spread
from mcfair.report.views import Curve, Point, View, paper_is_comparable, views

TABLE = Experiment(
    name="table1",
    title="Table 1: fairness",
    about="\nHow fair each method is.",
    compare_with="MCFair",
    seeds=2,
    series=(
        Series(policies=("TopK",), paper=Paper(unfairness=(100.0, 2.0), seconds=0.5)),
        Series(policies=("FairCo(alpha=1000)",), paper=Paper(unfairness=(30.0, 0.5)), note="It has its reasons."),
        Series(policies=("MCFair(alpha=1000, beta=0)",), paper=Paper(unfairness=(26.0, 100.0))),
        Series(policies=("MCFair(alpha=1000, beta=0)",), label="MCFair again", note="The same once more."),
    ),
)
CUTOFFS = Experiment(name="fig2", show="cutoffs", seeds=2, series=TABLE.series)
TRADEOFF = Experiment(
    name="fig3",
    title="Figure 3: trade-off",
    show="tradeoff",
    k_c=(5, 1),
    settings=({"mode": "post-processing", "steps": 2000}, {"mode": "online", "steps": 3000}),
    compare_with="MCFair",
    seeds=2,
    series=(
        Series(policies=("TopK",)),
        Series(policies=("FairCo(alpha=[0, 0.001, 0.01, 1000])",)),
        Series(policies=("MCFair(alpha=[0, 0.1, 1, 1000], beta=0)",), mode="post-processing"),
        Series(policies=("MCFair(alpha=[0, 0.1, 1, 1000])",), mode="online"),
    ),
)
ODD = Experiment(
    name="<b>odd</b> & 100 %_",
    title="$x$ <script>alert(1)</script> & co",
    about="50 % & <i>more</i>",
    show="tradeoff",
    settings=({"mode": "online", "steps": 500},),
    compare_with="_β & <b>",
    seeds=1,
    series=(
        Series(policies=("MCFair(alpha=[1, 2])",), label="_β & <b>"),
        Series(policies=("TopK",), label="100 % | $a_b$ 漢"),
    ),
)


def run(experiments: list[Experiment], folder: Path, about: dict[str, str] | None = None) -> Results:
    data = open_experiments(experiments)
    tasks = tasks_of(experiments, data)
    archive = Archive(folder)
    for task, trace in run_on_processes(archive.missing(tasks), data, jobs=1):
        archive.save(task, trace)
    times = {task.key: 0.25 for task in tasks if task.seed == 0 and about}
    return collect(experiments, data, tasks, archive, times, about or {})


def on_mq2008(results: Results) -> Results:
    """The same runs as if they were on the paper's data."""
    name = pl.lit("mq2008/fold1").alias("data")
    frames = {field: getattr(results, field).with_columns(name) for field in ("runs", "limits", "frontier", "times")}
    experiments = tuple(msgspec.structs.replace(each, data=("mq2008/fold1",)) for each in results.experiments)
    return replace(results, experiments=experiments, **frames)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    about = {"mcfair": mf.__version__, "command": "mcfair reproduce --out 'a & b'"}
    return run([TABLE, CUTOFFS, TRADEOFF], tmp_path_factory.mktemp("runs"), about)


@pytest.fixture(scope="module")
def report(results, tmp_path_factory):
    return write_report(results, tmp_path_factory.mktemp("report") / "deep" / "er")


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A user's own experiments: one seed, odd labels, no times, one series, two datasets."""
    alone = Experiment(name="alone", seeds=1, series=(Series(policies=("TopK",)),), settings=({"steps": 300},))
    several = msgspec.structs.replace(CUTOFFS, name="alone", seeds=1, data=("mq2008-like", "istella-s-like"),
                                      settings=({"steps": 200},), series=TRADEOFF.series[:1])  # fmt: skip
    made = run([ODD, alone, several], tmp_path_factory.mktemp("odd"))
    return made, write_report(made, tmp_path_factory.mktemp("odd-report"))


def view_of(results: Results, experiment: int, setting: int = 0) -> View:
    chosen = results.experiments[experiment]
    return list(views(results, chosen, chosen.data[0]))[setting]


def cells(path: Path) -> list[list[str]]:
    """Read the rows of a Markdown table, with the escapes taken out; the rule below the head is left out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in row] for i, row in enumerate(rows) if i != 1]


def column(rows: list[list[str]], name: str) -> dict[str, str]:
    at = rows[0].index(name)
    return {re.sub(r" \[\w+\]$", "", row[0]): row[at] for row in rows[1:]}


# --- files -----------------------------------------------------------------------------------------------------------


def test_every_file_is_there(report):
    folder = report.parent
    assert sorted(path.name for path in folder.iterdir()) == ["figures", "index.html", "tables"]
    tables = {path.name for path in (folder / "tables").iterdir()}
    for name in ("table1", "table1-tests", "fig2-values", "fig3-post-processing-points", "fig3-online-points", "runs"):
        assert {f"{name}.md", f"{name}.tex"} <= tables
    figures = {path.name for path in (folder / "figures").iterdir()}
    assert {"fig2.png", "fig2.pdf", "fig3.png", "fig3.pdf"} <= figures
    for path in folder.rglob("*.*"):
        assert path.stat().st_size > 100, path
    for path in (folder / "figures").iterdir():
        assert path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"%PDF")
    for link in re.findall(r'href="([^#"]+)"', report.read_text(encoding="utf-8")):
        assert (folder / link).exists()


def test_equal_results_give_equal_bytes(results, report, tmp_path):
    again = write_report(results, tmp_path)
    for path in sorted(report.parent.rglob("*.*")):
        assert (again.parent / path.relative_to(report.parent)).read_bytes() == path.read_bytes(), path.name


def test_a_folder_that_cannot_be_written(results, tmp_path):
    (tmp_path / "taken").write_text("")
    small = replace(results, experiments=(CUTOFFS,))
    with pytest.raises(mf.MCFairError, match="cannot write the report to"):
        write_report(small, tmp_path / "taken")


def test_markdown_has_the_numbers_of_the_runs(results, report):
    rows = cells(report.parent / "tables" / "table1.md")
    policy = parse_policies("FairCo(alpha=1000)")[0]
    runs = results.of("mq2008-like", mf.Setting(), policy)
    u = runs["unfairness"].to_numpy()
    floor = view_of(results, 0).limits.floor
    mean, std = re.fullmatch(r"([\d.,]+) \(([\d.]+)\)†?‡?", column(rows, "unfairness (std)")["FairCo"]).groups()
    assert float(mean) == pytest.approx(u.mean(), rel=1e-4)
    assert float(std) == pytest.approx(u.std(), abs=10.0 ** -len(std.split(".")[1]))
    assert float(column(rows, "above the floor, %")["FairCo"]) == pytest.approx(
        100 * (u.mean() / floor.mean() - 1), rel=1e-2
    )
    assert float(column(rows, "cNDCG@3")["FairCo"]) == pytest.approx(runs["cndcg@3"].mean(), rel=1e-4)
    assert column(rows, "s per 1,000 lists")["FairCo"] == "0.250"
    low, high = map(float, column(rows, "95 % interval")["FairCo"].split(" to "))
    assert low < u.mean() < high
    assert low + high == pytest.approx(2 * u.mean(), rel=1e-3)
    assert rows[1][0] == "floor"
    assert float(rows[1][2].split()[0]) == pytest.approx(floor.mean(), rel=1e-4)
    points = cells(report.parent / "tables" / "fig3-online-points.md")
    assert len(points) == 1 + 1 + 4 + 4
    values = cells(report.parent / "tables" / "fig2-values.md")
    assert float(column(values, "cNDCG@5 (std)")["TopK"].split()[0]) == pytest.approx(200, rel=1e-3)


def test_latex_is_escaped(report, odd):
    for folder in (report.parent, odd[1].parent):
        for path in (folder / "tables").glob("*.tex"):
            text = path.read_text(encoding="utf-8")
            assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
            columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", text)[1])
            body = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
            for line in body.splitlines():
                if line.endswith(r"\\"):
                    assert len(re.findall(r"(?<!\\)&", line)) == columns - 1
            assert not re.search(r"(?<!\\)[%#_]", text)
            assert not re.search(r"[βα†‡<>]", text)
    assert latex(r"50 % & a_b {x} \ β < 1") == (
        r"50 \% \& a\_b \{x\} \textbackslash{} $\beta$ \textless{} 1"
    )  # fmt: skip


# --- the page --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(report, odd):
    return [path.read_text(encoding="utf-8") for path in (report, odd[1])]


def test_the_page_fetches_nothing(pages):
    for page in pages:
        assert "<script" not in page
        assert not re.search(r"https?://|@import|url\(", re.sub(r"base64,[\w+/=]+", "", page))
        assert all(source.startswith("data:image/svg+xml;base64,") for source in re.findall(r'src="([^"]*)"', page))
        assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in page
        assert '<meta name="viewport"' in page
        assert all(re.findall(r'<img [^>]*alt="([^"]+)"', page))


def test_the_page_is_whole(pages):
    for page in pages:
        for tag in (
            "section",
            "table",
            "tr",
            "td",
            "th",
            "p",
            "li",
            "ul",
            "details",
            "figure",
            "div",
            "main",
            "h2",
            "h3",
        ):
            assert len(re.findall(rf"<{tag}[ >]", page)) == page.count(f"</{tag}>"), tag
        anchors = re.findall(r'id="([^"]+)"', page)
        assert len(anchors) == len(set(anchors))
        assert set(re.findall(r'href="#([^"]+)"', page)) <= set(anchors)
        assert page.count("<h1>") == 1


def test_the_page_says_what_was_run(results, report):
    page = unescape(report.read_text(encoding="utf-8"))
    assert f"{results.runs.height:,} runs" in page
    assert f"{results.runs['sessions'].sum():,} sessions" in page
    assert "mcfair reproduce --out 'a & b'" in page
    assert "Table 1: fairness" in page
    limits = view_of(results, 0).limits
    assert f"cannot be reached for {limits.unreachable} of {limits.queries} queries" in page
    assert 0 < limits.unreachable < limits.queries
    assert "What differs from the paper and why" in page
    assert "<strong>FairCo.</strong> It has its reasons." in page


# --- the paper's figures ---------------------------------------------------------------------------------------------


def test_deviations_are_hidden_on_other_data(report):
    page = unescape(report.read_text(encoding="utf-8"))
    assert "The paper's figures are for MQ2008, and these runs are on other data (mq2008-like)" in page
    rows = cells(report.parent / "tables" / "table1.md")
    assert "deviation, %" not in rows[0]
    assert column(rows, "paper: unfairness (std)")["FairCo"] == "30 (0.5)"


def test_deviations_are_shown_on_the_papers_data(results, tmp_path):
    paper = replace(on_mq2008(results), experiments=on_mq2008(results).experiments[:1])
    page = write_report(paper, tmp_path).read_text(encoding="utf-8")
    rows = cells(tmp_path / "tables" / "table1.md")
    u = view_of(results, 0).curves[0].points[0].mean("unfairness")
    assert float(column(rows, "deviation, %")["TopK"]) == pytest.approx(u - 100, abs=0.51)
    assert float(column(rows, "in the paper's std")["TopK"]) == pytest.approx((u - 100) / 2, abs=0.51)
    assert column(rows, "deviation, %")["MCFair again"] == NOTHING
    assert "on other data" not in page
    # What is far from the paper shows its note, or that there is none; what is near shows no distance.
    text = (tmp_path / "tables" / "table1.md").read_text(encoding="utf-8")
    assert re.search(r"of the paper's standard deviations (above|below) its mean. It has its reasons.", text)
    assert re.search(r"of the paper's standard deviations (above|below) its mean. No reason is recorded.", text)
    assert len(re.findall(r"its mean\.", text)) == 2
    assert "1 of 3 methods are within one of the paper's standard deviations" in unescape(page)


def test_deviations_need_runs_as_long_as_the_papers(results):
    paper = on_mq2008(results)
    assert paper_is_comparable(view_of(paper, 0))
    short = view_of(paper, 2)
    assert short.setting.steps == 2000
    assert not paper_is_comparable(short)
    assert not paper_is_comparable(view_of(results, 0))
    assert paper_is_comparable(View(results, TABLE, "MQ2008/Fold1", mf.Setting()))


# --- claims ----------------------------------------------------------------------------------------------------------


def test_significance_marks(results, report):
    view = view_of(results, 0)
    tests = significance(view, "unfairness")
    marks = {point.label: test.mark for point, test in tests.items()}
    assert baseline(view).label == "MCFair"
    assert marks == {"TopK": "†", "FairCo": "†", "MCFair again": ""}
    again = next(test for point, test in tests.items() if point.label == "MCFair again")
    assert (again.p, again.corrected, again.mean) == (1.0, 1.0, 0.0)
    top = next(test for point, test in tests.items() if point.label == "TopK")
    points = {curve.label: curve.points[0] for curve in view.curves}
    expected = points["TopK"].mean("unfairness") - points["MCFair"].mean("unfairness")
    assert top.mean == pytest.approx(expected, rel=1e-6)
    assert top.low < top.mean < top.high
    rows = column(cells(report.parent / "tables" / "table1.md"), "unfairness (std)")
    assert rows["TopK"].endswith("†")
    assert rows["MCFair"].endswith(")")
    assert rows["MCFair again"].endswith(")")
    page = report.read_text(encoding="utf-8")
    assert "Fisher&#x27;s randomisation test" in page
    assert 'title="differs from MCFair by' in page


def test_no_marks_without_a_baseline(results, tmp_path):
    plain = msgspec.structs.replace(TABLE, compare_with="")
    page = write_report(replace(results, experiments=(plain,)), tmp_path).read_text(encoding="utf-8")
    assert "†" not in page
    assert not (tmp_path / "tables" / "table1-tests.md").exists()


def moved(results: Results, policy: str, by: float) -> Results:
    """The same results, with a policy's effectiveness changed."""
    here = pl.when(pl.col("policy").str.starts_with(policy)).then(by).otherwise(0.0)
    return replace(results, runs=results.runs.with_columns(pl.col("cndcg@5") + here, pl.col("cndcg@1") + here))


def test_a_planted_point_above_the_curve_is_found(results, tmp_path):
    planted = replace(moved(results, "FairCo(alpha=0.01", 60.0), experiments=(TRADEOFF,))
    found = {one.label: one for one in compared_curves(view_of(planted, 0), 5)}
    assert [each.point.text for each in found["FairCo"].above] == ["FairCo(alpha=0.01)"]
    above = found["FairCo"].above[0]
    assert above.low <= above.by <= above.high
    page = unescape(write_report(planted, tmp_path).read_text(encoding="utf-8"))
    assert "FairCo is above at 1 of" in page
    rows = cells(tmp_path / "tables" / "fig3-above.md")
    assert "FairCo(alpha=0.01)" in [row[2] for row in rows]


def test_nothing_is_above_when_all_others_are_low(results, tmp_path):
    low = replace(moved(moved(results, "FairCo", -60.0), "TopK", -60.0), experiments=(TRADEOFF,))
    for setting in (0, 1):
        assert not any(one.above for one in compared_curves(view_of(low, 0, setting), 5))
    page = unescape(write_report(low, tmp_path).read_text(encoding="utf-8"))
    assert "holds everywhere" in page
    assert re.search(r"no other method's curve rises above MCFair's, in (\d) of \1 panels", page)
    assert not (tmp_path / "tables" / "fig3-above.md").exists()


def test_points_of_equal_lists_are_not_above(results):
    found = {one.label: one for one in compared_curves(view_of(results, 2), 5)}
    assert found["TopK"].compared == 1  # MCFair with alpha=0 shows the same lists
    assert not found["TopK"].above


def test_the_envelope_is_the_best_at_no_more_unfairness():
    x, y = np.array([10.0, 4.0, 2.0, 3.0]), np.array([50.0, 60.0, 20.0, 10.0])
    assert envelope(x, y, 3.0) == pytest.approx(40.0)
    assert envelope(x, y, 2.0) == pytest.approx(20.0)
    assert envelope(x, y, 7.0) == pytest.approx(60.0)
    assert envelope(x, y, 1.0) == -np.inf


def test_seeds_of_other_experiments_are_left_out(results):
    one = replace(results, experiments=(msgspec.structs.replace(TABLE, seeds=1),))
    view = view_of(one, 0)
    assert {point.runs.height for curve in view.curves for point in curve.points} == {1}
    assert view.limits.floor.size == 1


# --- edges -----------------------------------------------------------------------------------------------------------


def test_odd_experiments(odd):
    path = odd[1]
    page = path.read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "_β &amp; &lt;b&gt;" in page
    assert "With one seed nothing is known of the noise" in page
    assert "What differs from the paper" not in page
    names = {file.name for file in (path.parent / "tables").iterdir()}
    assert {"b-odd-b-100-points.md", "alone.md", "alone-mq2008-like-values.md"} <= names
    points = cells(path.parent / "tables" / "b-odd-b-100-points.md")
    assert [row[0] for row in points[1:]] == ["_β & <b>", "_β & <b>", "100 % | $a_b$ 漢"]
    rows = cells(path.parent / "tables" / "alone.md")
    assert rows[0] == ["method", "policy", "unfairness (std)", "above the floor, %", "95 % interval", "cNDCG@1",
                       "cNDCG@3", "cNDCG@5", "NDCG@5"]  # fmt: skip
    assert column(rows, "95 % interval")["TopK"] == NOTHING
    assert re.search(r"\(0\.0+\)$", column(rows, "unfairness (std)")["TopK"])
    assert "There is one seed, so nothing is known of the spread." in page


def test_no_runs_and_no_limits(results, tmp_path):
    """Results cut short are still shown."""
    empty = replace(results, experiments=(TABLE, msgspec.structs.replace(CUTOFFS, data=("elsewhere",))),
                    limits=pl.DataFrame(), frontier=pl.DataFrame(), times=results.times.clear())  # fmt: skip
    page = write_report(empty, tmp_path).read_text(encoding="utf-8")
    assert "There are no runs on elsewhere." in page
    rows = cells(tmp_path / "tables" / "table1.md")
    assert rows[1][0] == "TopK"
    assert column(rows, "above the floor, %")["TopK"] == NOTHING


# --- styles and numbers ----------------------------------------------------------------------------------------------


def curve(label: str, text: str) -> Curve:
    points = [Point(label, policy, pl.DataFrame(), None) for policy in parse_policies(text)]
    return Curve(Series(policies=(text,), label=label), points)


def test_each_policy_has_its_own_style():
    assert set(POLICY_STYLES) == set(mf.policies())
    assert len(set(POLICY_STYLES.values())) == len(POLICY_STYLES)


def test_variants_share_the_hue_and_others_do_not_take_it():
    chosen = styles([
        curve("MCFair", "MCFair(alpha=[0, 1], beta=0)"), curve("MCFair", "MCFair(alpha=[0, 1])"),
        curve("MCFair, β = 50", "MCFair(beta=50)"), curve("TopK", "TopK"),
    ])  # fmt: skip
    assert (chosen["MCFair"].color, chosen["MCFair"].marker) == POLICY_STYLES["MCFair"]
    assert list(chosen) == ["MCFair", "MCFair, β = 50", "TopK"]
    assert len(set(chosen.values())) == 3
    parts = styles([
        curve("Eff.", "TopK"), curve("Eff.+Fair.", "MCFair(beta=0, alpha=[0, 1])"),
        curve("Eff.+Uncert.", "MCFair(alpha=0, beta=[0, 1])"), curve("all", "MCFair(alpha=[0, 1], beta=100)"),
    ])  # fmt: skip
    assert (parts["all"].color, parts["all"].marker) == POLICY_STYLES["MCFair"]
    assert len({style.color for style in parts.values()}) == 4
    many = styles([curve(f"FairCo, β = {beta}", f"FairCo(beta={beta})") for beta in range(7)])
    assert len(set(many.values())) == 7


def test_labels_are_moved_apart():
    rng = np.random.default_rng(0)
    for size in (1, 2, 9):
        values = rng.normal(size=size)
        places = spaced(values, 0.5)
        assert np.all(np.diff(np.sort(places)) > 0.5 - 1e-9)
        assert np.array_equal(np.argsort(places), np.argsort(values))
        assert places.mean() == pytest.approx(values.mean())


def test_numbers():
    assert number(1234567.8) == "1,234,568"
    assert number(0.00012345) == "0.00012345"
    assert number(float("nan")) == number(None) == NOTHING
    assert spread([22.0, 23.0]) == "22.500 (0.500)"
    assert markdown("a|b_c") == r"a\|b\_c"
    table = Table(name="t", caption="c", columns=("x",), rows=(("1",),))
    assert table.as_markdown() == "**c**\n\n| x |\n| :-- |\n| 1 |\n"


# --- in a browser ----------------------------------------------------------------------------------------------------

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

PROBE = """<script>
window.addEventListener("load", () => {
  const images = [...document.images];
  const drawn = images.filter((each) => each.naturalWidth > 0);
  const fetched = performance.getEntriesByType("resource").filter((each) => !each.name.startsWith("data:"));
  const { scrollWidth, clientWidth } = document.documentElement;
  const found = [drawn.length, images.length, fetched.length, innerWidth, scrollWidth - clientWidth];
  parent.postMessage(found.join(" "), "*");
});
</script></head>"""

FRAME = """<!doctype html><title>waiting</title>
<script>addEventListener("message", (event) => { document.title = event.data; });</script>
<iframe src="probe.html" width="WIDTH" height="844" style="border: 0"></iframe>"""
"""A window is never as narrow as a phone, but a frame in it is."""


def probed(page: Path, folder: Path, width: int) -> list[int]:
    """Open a copy of a page, without its policy but with a probe, in a frame; give what the probe found."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
    (folder / "probe.html").write_text(text.replace("</head>", PROBE, 1), encoding="utf-8")
    frame = folder / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", str(width)), encoding="utf-8")
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=5000",
        f"--user-data-dir={folder / 'profile'}", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--no-first-run", "--disable-dev-shm-usage", "--window-size=1300,900", frame.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    title = re.search(r"<title>([-\d ]+)</title>", done.stdout.decode("utf-8", "replace"))
    assert title, done.stderr.decode("utf-8", "replace")[-2000:]
    return [int(word) for word in title[1].split()]


@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on this machine")
@pytest.mark.parametrize("width", [1200, 390])
def test_in_a_browser(report, odd, tmp_path, width):
    for i, page in enumerate((report, odd[1])):
        folder = tmp_path / str(i)
        folder.mkdir()
        drawn, images, fetched, inner, beyond = probed(page, folder, width)
        assert drawn == images == page.read_text(encoding="utf-8").count("<img ") > 0
        assert fetched == 0
        assert inner == width
        assert beyond <= 0  # tables scroll in their own boxes, the page does not
