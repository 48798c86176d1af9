import os

import msgspec
import pytest
from real_data import FOLDS, needs_mq2008

import mcfair as mf
from mcfair.experiments.compare import open_experiments
from mcfair.experiments.experiment import (
    SHIPPED,
    Experiment,
    Series,
    parse_experiment,
    read_experiment,
    shipped_experiment,
    thinned,
)

MINE = """
title = "Mine"
data = ["mq2008-like"]
settings = ["post-processing", {mode = "online", steps = 500, estimator = "IPS(prior_strength=5)"}]
seeds = 2

[[series]]
policies = ["TopK", "FairCo(alpha=[0, 1])"]

[[series]]
label = "ours"
mode = "online"
policies = ["MCFair(alpha=[0.1, 1], beta=[0, 100])"]
"""


def test_a_file_becomes_a_grid(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    experiment = read_experiment(path)
    assert experiment.name == "mine"
    played = [
        (series.name, setting.mode, setting.steps, policy.label) for series, setting, policy in experiment.played()
    ]
    assert played == [
        ("TopK", "post-processing", 10_000, "TopK"),
        ("TopK", "post-processing", 10_000, "FairCo(alpha=0.0)"),
        ("TopK", "post-processing", 10_000, "FairCo"),
        ("TopK", "online", 500, "TopK"),
        ("TopK", "online", 500, "FairCo(alpha=0.0)"),
        ("TopK", "online", 500, "FairCo"),
        ("ours", "online", 500, "MCFair(alpha=0.1, beta=0.0)"),
        ("ours", "online", 500, "MCFair(alpha=0.1, beta=100.0)"),
        ("ours", "online", 500, "MCFair(beta=0.0)"),
        ("ours", "online", 500, "MCFair(beta=100.0)"),
    ]
    assert experiment.conditions[1].estimator == mf.IPS(prior_strength=5)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_papers_experiments_can_be_read(name):
    experiment = shipped_experiment(name)
    assert experiment.seeds == 5
    assert experiment.title
    modes = {setting.mode: setting.steps for setting in experiment.conditions}
    assert modes.items() <= {"post-processing": 10_000, "online": 100_000}.items()
    assert experiment.preset == "wsdm23"


def test_the_grids_are_the_papers():
    tradeoff = shipped_experiment("fig3")
    points = {(series.name, series.mode): len(series.points) for series in tradeoff.series}
    assert points["MCFair", "post-processing"] == 14 + 3
    assert points["FairCo", "post-processing"] == 14
    assert points["MCFair", "online"] == points["MCFair, β = 50", "online"] == 31
    assert points["FairCo", "online"] == 16
    assert points["ILP", ""] == points["MMF", ""] == points["PLFair", ""] == 9
    # The paper's grids have no point where LP's trade-off lies, and others do not reach down to it.
    for mode in ("post-processing", "online"):
        lp = next(series for series in tradeoff.series if (series.name, series.mode) == ("LP", mode))
        assert {0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1000.0} <= {policy.alpha for policy in lp.points}
    assert len(shipped_experiment("fig4").series) == 7
    assert len(shipped_experiment("fig5").series) == 7
    table = {series.name: series.paper for series in shipped_experiment("table1").series if series.paper}
    assert len(table) == 9
    assert table["MCFair"].unfairness == (22.68, 0.735)


def test_all_ten_policies_are_in_the_papers_experiments():
    played = {type(policy).__name__ for name in SHIPPED for _, _, policy in shipped_experiment(name).played()}
    paper = {"TopK", "RandomK", "FairK", "ExploreK", "MCFair", "FairCo", "MMF", "ILP", "LP", "PLFair"}
    assert played == paper <= set(mf.registered(mf.Policy))


def test_a_quick_version_keeps_the_ends_of_every_curve():
    whole = shipped_experiment("fig3")
    quick = whole.reduced(seeds=2, points=4, shorter=10)
    assert quick.seeds == 2
    assert [setting.steps for setting in quick.conditions] == [1_000, 10_000]
    for before, after in zip(whole.series, quick.series, strict=True):
        assert len(after.points) == min(4, len(before.points))
        assert (after.points[0], after.points[-1]) == (before.points[0], before.points[-1])
    assert thinned(list(range(10)), 3) == [0, 4, 9]


def test_on_other_data_or_reduced_it_is_no_longer_as_published():
    published = shipped_experiment("table1")
    assert published.as_published
    moved = published.on("mq2008-like", "")
    assert moved.data == ("mq2008-like",)
    assert moved.preset == ""
    assert not moved.as_published
    assert not published.reduced(seeds=2, points=5, shorter=10).as_published
    assert not published.on("mq2008/fold1", "").as_published
    assert published.on("MQ2008/Fold1", "wsdm23").as_published
    assert not moved.on("mq2008/fold1", "wsdm23").reduced(seeds=5, points=99, shorter=1).as_published


@needs_mq2008
def test_the_folder_of_a_catalogued_dataset_is_that_dataset():
    published = shipped_experiment("table1")
    assert published.on(str(FOLDS / "Fold1"), "wsdm23").as_published
    assert published.on(str(FOLDS / "Fold2" / ".." / "Fold1"), "wsdm23").as_published
    assert not published.on(str(FOLDS / "Fold2"), "wsdm23").as_published


def test_paths_of_data_are_relative_to_the_current_directory_or_else_to_the_file(tmp_path, monkeypatch):
    lines = "".join(f"{grade} qid:{query} 1:0.5\n" for query in range(4) for grade in (0, 1, 2, 0))
    for name in ("work/here.txt", "work/both.txt", "files/both.txt", "files/beside.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(lines)
    data = ["here.txt", "both.txt", "beside.txt", "mq2008-like", "nowhere.txt"]
    (tmp_path / "files" / "mine.toml").write_text(f'data = {data}\n[[series]]\npolicies = ["TopK"]\n')
    monkeypatch.chdir(tmp_path / "work")
    experiment = read_experiment("../files/mine.toml")
    assert experiment.data == ("here.txt", "both.txt", "../files/beside.txt", "mq2008-like", "nowhere.txt")
    opened = open_experiments([msgspec.structs.replace(experiment, data=experiment.data[:4])])
    assert [each.queries for each in opened.values()] == [4, 4, 4, 83]


def test_a_file_names_the_separator_and_the_columns_of_its_table(tmp_path):
    (tmp_path / "shop.csv").write_text("term;sku_code;label\na;x;0\na;y;2\n")
    lines = [f'data = ["{tmp_path}/shop.csv"]', 'separator = ";"', 'columns = {query = "term", item = "sku_code"}']
    (tmp_path / "mine.toml").write_text("\n".join([*lines, "[[series]]", 'policies = ["TopK"]']))
    (data,) = open_experiments([read_experiment(tmp_path / "mine.toml")]).values()
    assert (data.query_ids, data.item_ids, data.y.tolist()) == (["a"], ["x", "y"], [0, 2])


def test_parts_hold_for_every_setting_that_has_none_of_its_own():
    series = (Series(policies=("TopK",)),)
    plain = Experiment(name="mine", series=series, settings=("online",))
    assert plain.conditions == [mf.Setting(mode="online")]
    table = {"mode": "online", "clicks": "PositionBased", "metrics": ["ndcg@3"], "steps": 10}
    several = Experiment(
        name="mine",
        series=series,
        clicks="Cascade(stop=0.7)",
        estimator="IPS(prior_strength=2)",
        metrics=("gini",),
        settings=("online", table),
    )
    estimator = mf.IPS(prior_strength=2)
    assert several.conditions == [
        mf.Setting(mode="online", clicks=mf.Cascade(stop=0.7), estimator=estimator, metrics=[mf.Gini()]),
        mf.Setting(mode="online", clicks=mf.PositionBased(), estimator=estimator, metrics=[mf.NDCG(k=3)], steps=10),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('seed = 3\n[[series]]\npolicies = ["TopK"]\n', "line 1: unknown key 'seed'; did you mean 'seeds'?"),
        ('[[series]]\npolicies = ["TopK"]\n\n[[series]]\npolicis = ["TopK"]\n', "line 5: unknown key 'policis'"),
        ('[[series]]\npolicies = ["TopK"]\npaper = {unfair = 1}\n', "line 3: unknown key 'unfair'"),
        ('seeds = "many"\n[[series]]\npolicies = ["TopK"]\n', "line 1: seeds: expected `int`, got `str`"),
        ('seeds = 0\n[[series]]\npolicies = ["TopK"]\n', "seeds = 0: expected a number of seeds of at least 1"),
        ('\n[[series]]\npolicies = ["TopKK"]\n', "line 3: unknown policy 'TopKK'; did you mean 'TopK'?"),
        ('[[series]]\npolicies = ["TopK(alpha=1)"]\n', "unknown parameter of TopK 'alpha'"),
        ('settings = ["onlin"]\n[[series]]\npolicies = ["TopK"]\n', "line 1: .*'onlin'; did you mean 'online'?"),
        (
            'settings = [{step = 3}]\n[[series]]\npolicies = ["TopK"]\n',
            "unknown option of a setting 'step'; did you",
        ),
        ('clicks = "Cascad"\n[[series]]\npolicies = ["TopK"]\n', "line 1: unknown click model 'Cascad'; did you mean"),
        ('estimator = "IPS(s=1)"\n[[series]]\npolicies = ["TopK"]\n', "unknown parameter of IPS 's'"),
        (
            'metrics = ["gini", "ndgc@3"]\n[[series]]\npolicies = ["TopK"]\n',
            "line 1: unknown metric 'ndgc'; did you",
        ),
        (
            'show = "pie"\n[[series]]\npolicies = ["TopK"]\n',
            "line 1: unknown show = 'pie'; available: table",
        ),
        ('k_c = [6]\n[[series]]\npolicies = ["TopK"]\n', "k_c = .6,.: expected cutoffs from 1 to k = 5"),
        ('compare_with = "Top"\n[[series]]\npolicies = ["TopK"]\n', "line 1: .*'Top'; did you mean 'TopK'?"),
        ("title = \n", "not TOML: Invalid value .at line 1"),
        ('title = "x"\n', "missing required field `series`"),
        ("series = []\n", "series is empty"),
    ],
)
def test_errors_in_a_file_are_reported_with_their_line(text, message):
    with pytest.raises(mf.SettingError, match=rf"mine.toml.*{message}".replace("?", r"\?")):
        parse_experiment(text, "mine.toml")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(mf.SettingError, match=r"none.toml: No such file"):
        read_experiment(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes("title = 'ä'".encode("latin-1"))
    with pytest.raises(mf.SettingError, match=r"cannot read .*latin.toml"):
        read_experiment(tmp_path / "latin.toml")
    os.mkfifo(pipe := tmp_path / "pipe.toml")
    for endless, what in ((pipe, "named pipe"), ("/dev/zero", "device")):
        with pytest.raises(mf.SettingError, match=f"expected a file, got a {what}"):
            read_experiment(endless)
    with (tmp_path / "large.toml").open("wb") as large:
        large.truncate(2**40)
    with pytest.raises(mf.SettingError, match="larger than 16 MiB, so it is no experiment"):
        read_experiment(tmp_path / "large.toml")
    with pytest.raises(mf.SettingError, match="unknown experiment 'table2'; did you mean 'table1'"):
        shipped_experiment("table2")


def test_an_experiment_can_be_written_and_read_back():
    experiment = Experiment(name="mine", series=(Series(policies=("TopK",)),), seeds=1)
    assert msgspec.convert(msgspec.to_builtins(experiment), Experiment) == experiment
