"""The reference is what the code says, and everything public is in it with a description; each check can fail."""

import dataclasses
import inspect
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
import typer
from page_blocks import ROOT

import mcfair as mf
from mcfair.auditing.readers import FORMATS
from mcfair.data.protocols import PROTOCOLS
from mcfair.service.declaration import Operation

sys.path.insert(0, str(ROOT / "docs"))
import make_reference
import reference_interfaces
import reference_tables

KINDS = (mf.Policy, mf.ClickModel, mf.Estimator, mf.Metric)


@cache
def complete_pages():
    return make_reference.pages()


def page(name):
    """Return a page as it is on the site."""
    return complete_pages()[f"{name}.md"]


def without_description(text):
    """Return the rows of tables, and the sections, that have no words: what they list is not documented."""
    rows = [line for line in text.splitlines() if re.match(r"\| \[?`.*\|\s*\|$", line)]
    return rows + re.findall(r"^### (?=(.*)\n+(?:#|\||\Z|<!--))", text, flags=re.MULTILINE)


# --- the pages are complete ------------------------------------------------------------------------------------------


def test_every_source_is_on_one_page():
    text = "".join(path.read_text(encoding="utf-8") for path in make_reference.REFERENCE.glob("*.md"))
    assert sorted(make_reference.MARKED.findall(text)) == sorted(make_reference.SOURCES)
    assert not any(make_reference.MARKED.search(each) for each in complete_pages().values())


@pytest.mark.parametrize("name", [name for name in make_reference.SOURCES if name != "log columns"])
def test_everything_listed_is_described(name):
    assert without_description(make_reference.SOURCES[name]()) == []


def test_an_unknown_source_is_refused():
    with pytest.raises(ValueError, match="unknown source 'polices'; available: policies"):
        make_reference.completed("<!-- generated: polices -->")


def test_pages_that_have_not_changed_are_left_alone(tmp_path):
    make_reference.write_pages({"api/a.md": "1", "b.md": "1"}, tmp_path)
    before = (tmp_path / "b.md").stat().st_mtime_ns
    make_reference.write_pages({"api/a.md": "2", "b.md": "1"}, tmp_path)
    assert (tmp_path / "api" / "a.md").read_text() == "2"
    assert (tmp_path / "b.md").stat().st_mtime_ns == before


# --- Python ----------------------------------------------------------------------------------------------------------


def undocumented(name, value):
    """Return the name of a public object, or of its public members, that have no docstring."""
    missing = [] if inspect.getdoc(value) else [name]
    if inspect.isclass(value):
        for member, found in inspect.getmembers_static(value):
            own = any(member in vars(each) and each.__module__.startswith("mcfair") for each in value.__mro__)
            function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
            described = inspect.isfunction(function) or isinstance(found, property)
            if own and described and not member.startswith("_") and not documentation(value, member):
                missing.append(f"{name}.{member}")
    return missing


def documentation(cls, member):
    """Return the docstring of a member, or of what it overrides."""
    return next(
        filter(None, (inspect.getdoc(vars(each).get(member)) for each in cls.__mro__ if member in vars(each))), ""
    )


PAGES = {
    module: [name for group, (_, at, _) in reference_interfaces.GROUPS.items() if at == module
             for name in reference_interfaces.group_names(group)]
    for module in dict.fromkeys(at for _, at, _ in reference_interfaces.GROUPS.values())
}  # fmt: skip


@pytest.mark.parametrize("module", PAGES)
def test_every_public_name_is_on_one_page_and_documented(module):
    public = import_module(module)
    constants = [name for name in public.__all__ if isinstance(getattr(public, name), str)]
    assert sorted([*PAGES[module], *constants]) == sorted(public.__all__)
    assert [each for name in PAGES[module] for each in undocumented(name, getattr(public, name))] == []


def test_modules_for_other_tools_are_on_a_page():
    pages = {module for module in PAGES if ".plugs." in module} | {getattr(mf, name).__module__ for name in mf.__all__}
    for path in (Path(mf.__file__).parent / "plugs").glob("[!_]*.py"):
        module = f"mcfair.plugs.{path.stem}"
        assert module in pages or path.stem == "candidates", module


def test_an_undocumented_name_or_method_is_noticed():
    class Documented:
        """Do something."""

        def described(self):
            """Return nothing."""

        def bare(self): ...

        @property
        def plain(self): ...

        def _private(self): ...

    Documented.__module__ = "mcfair.somewhere"
    assert undocumented("Documented", Documented) == ["Documented.bare", "Documented.plain"]
    Documented.__doc__ = None
    assert undocumented("Documented", Documented)[0] == "Documented"


# --- parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", KINDS)
def test_every_part_has_a_section_with_all_of_its_parameters(base):
    text = page("parts")
    for name, cls in mf.registered(base).items():
        if cls.__module__.startswith("mcfair."):
            section = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", text, flags=re.MULTILINE | re.DOTALL)[1]
            common = {field.name for field in dataclasses.fields(base)}
            assert re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE) == [
                field.name for field in dataclasses.fields(cls) if field.name not in common
            ]
    assert f"| `mf.{base.__name__}` |" in text
    assert f"`mcfair.{base.kind.plural}`" in text
    for method in base.kind.methods:
        assert f"`{method}(" in text


def test_every_policy_has_a_score_and_common_parameters_are_described():
    text = page("parts")
    for name in mf.registered(mf.Policy):
        assert f"| [{name}](#{name.lower()}) |" in text
    for field in dataclasses.fields(mf.Policy):
        assert f"- `{field.name}` is" in text, field.name
    for field in mf.Query._fields:
        assert f"`{field}`" in text, field


def test_an_undocumented_part_or_parameter_is_noticed():
    class Vague(mf.Policy):
        """Rank somehow.

        Parameters
        ----------
        known
            Weight of something.
        """

        known: float = 1.0
        bare: float = 2.0

        def score(self, q, rng):
            return q.R

    section = reference_tables.part_section(Vague, mf.Policy)
    (row,) = without_description(section)
    assert row.startswith("| `bare` | `2.0` |")
    Vague.__doc__ = ""
    assert "Vague" in without_description(reference_tables.part_section(Vague, mf.Policy))


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", reference_interfaces.all_commands())
def test_every_command_and_option_is_listed(name):
    section = re.search(rf"^### mcfair {name}\n(.*?)(?=^##|\Z)", page("command-line"), flags=re.MULTILINE | re.DOTALL)[
        1
    ]
    for parameter in reference_interfaces.all_commands()[name].params:
        option = parameter.opts[0] if parameter.opts[0].startswith("--") else parameter.name.upper()
        assert f"`{option}`" in section or (parameter.metavar and f"`{parameter.metavar}`" in section), option


def test_an_undocumented_command_or_option_is_noticed(monkeypatch):
    app = typer.Typer()

    @app.command()
    def vague(bare: int = 1, known: Annotated[int, typer.Option(help="A number.")] = 2): ...

    @app.command()
    def clear():
        """Do something."""

    group = typer.main.get_command(app)
    monkeypatch.setattr(reference_interfaces, "all_commands", lambda: group.commands)
    missing = without_description(reference_interfaces.commands())
    assert missing == ["| `--bare` | `1` |  |", "mcfair vague"]


# --- HTTP ------------------------------------------------------------------------------------------------------------


def test_every_operation_and_type_has_a_section():
    text = page("http-api")
    for method, path, described in reference_interfaces.operations():
        assert f"### {method} {path}\n\n{described['summary']}" in text
    for name in reference_interfaces.document()["components"]["schemas"]:
        assert f"\n### {name}\n" in text


def test_an_undocumented_operation_or_field_is_noticed(monkeypatch):
    class Vague(msgspec.Struct):
        bare: int
        known: Annotated[int, msgspec.Meta(description="a number")] = 1

    def vague(): ...

    from mcfair.service.web.apidocs import openapi

    operation = Operation(function=vague, method="POST", path="/v1/vague", tag="Reading", scope="read", request=Vague)
    document = openapi([operation], "")
    monkeypatch.setattr(reference_interfaces, "document", lambda: document)
    assert without_description(reference_interfaces.http_overview()) == ["| `POST /v1/vague` | read |  |"]
    missing = without_description(reference_interfaces.http_types())
    assert "Vague" in missing
    assert [row for row in missing if row.startswith("| `bare`")]
    assert not [row for row in missing if row.startswith("| `known`")]


# --- settings, metrics, experiments and logs -------------------------------------------------------------------------


def test_every_rule_and_option_of_serve_is_listed():
    from mcfair.service.wire import PolicyChange

    text = page("service-settings")
    for name in PolicyChange.__struct_fields__:
        assert f"\n| `{name}` |" in text
    for parameter in reference_interfaces.all_commands()["serve"].params:
        assert f"`{parameter.opts[0]}`" in text


def test_an_undocumented_rule_is_noticed(monkeypatch):
    from mcfair.service.core.rules import Rules

    monkeypatch.setattr(Rules, "__doc__", re.sub(r"    seed\n.*\n", "", Rules.__doc__))
    (row,) = without_description(reference_tables.rule_table())
    assert row.startswith("| `seed` | `--seed` | `0` | a whole number from 0 to")


def test_every_metric_of_a_running_service_is_listed():
    """The text that Prometheus reads names no metric that the page does not have."""
    from mcfair.service.web.forwarding import background_of
    from mcfair.service.web.lifecycle import Lifecycle
    from mcfair.service.web.metrics import Metrics

    with mf.Ranker("memory:") as ranker:
        ranker.rank("a query", ["an item", "another"])
        ranker.fairness()
        text = Metrics(ranker, Lifecycle(), background_of(ranker)).exposition().decode()
    names = {name.removesuffix("_created") for name in re.findall(r"^# TYPE (mcfair_\w+) ", text, flags=re.MULTILINE)}
    listed = re.findall(r"^\| `(mcfair_\w+)` \|", page("service-metrics"), flags=re.MULTILINE)
    assert {name.removesuffix("_total") for name in names} == {name.removesuffix("_total") for name in listed}
    assert len(listed) == 21


def test_an_undocumented_metric_is_noticed(monkeypatch):
    from mcfair.service.web import metrics

    monkeypatch.setitem(metrics.GAUGES, "vague", ("", lambda executor, lifecycle: 0.0))
    assert without_description(reference_tables.service_metrics()) == ["| `mcfair_vague` | gauge |  |  |"]


@pytest.mark.parametrize("kind", [mf.Experiment, mf.Series])
def test_every_key_of_an_experiment_file_is_listed(kind):
    for name in set(kind.__struct_fields__) - {"name", "as_published"}:
        assert f"\n| `{name}` |" in page("experiment-file"), name


def test_every_field_of_a_setting_and_every_preset_is_listed():
    for name in [*(field.name for field in dataclasses.fields(mf.Setting)), *PROTOCOLS]:
        assert f"\n| `{name}` |" in page("experiment-file"), name


def test_an_undocumented_key_is_noticed():
    class Vague(msgspec.Struct):
        """Hold a key.

        Parameters
        ----------
        known
            A number.
        """

        known: int = 1
        bare: int = 2

    assert without_description(reference_tables.struct_keys(Vague)) == ["| `bare` | `2` |  |"]


def test_every_format_of_a_log_is_listed():
    for name in FORMATS:
        assert f"\n| `{name}` |" in page("log-formats"), name
