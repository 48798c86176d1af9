"""Tables of the reference: parts, experiments, settings and metrics, read from the classes that define them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from typing import Any

import msgspec
from numpydoc.docscrape import NumpyDocString

import mcfair as mf
from mcfair.parts import described_hint, parameter_types, summary


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def sentence(text: str) -> str:
    """Return a text in one line, with the literals of docstrings as code."""
    return " ".join(text.replace("``", "`").split())


def described(documented: Any, *others: Any) -> dict[str, str]:
    """Return the description of each parameter in the docstrings of a class or function, and of other classes."""
    found: dict[str, str] = {}
    for each in (documented, *others):
        doc = NumpyDocString(inspect.getdoc(each) or "")
        for entry in [*doc["Parameters"], *doc["Attributes"]]:
            for name in entry.name.split(","):
                found.setdefault(name.strip().lstrip("*"), sentence(" ".join(entry.desc)))
    return found


def code(value: Any) -> str:
    """Return a value as code."""
    return f"`{value}`"


# --- parts -----------------------------------------------------------------------------------------------------------


def parts(base: type[mf.Part]) -> str:
    """Describe every part of a kind that ships with the package: a sentence and a table of parameters."""
    shipped = [cls for cls in mf.registered(base).values() if cls.__module__.startswith("mcfair.")]
    return "\n\n".join(part_section(cls, base) for cls in sorted(shipped, key=lambda cls: cls.name().lower()))


def part_section(cls: type[mf.Part], base: type[mf.Part]) -> str:
    """Describe one part."""
    lines = [f"### {cls.name()}", "", sentence(summary(cls))]
    about = described(cls, *cls.__mro__[1:-1])
    default = cls()
    names = [name for name in parameter_types(cls) if name not in cls.common_parameters]
    rows = [
        (code(name), code(getattr(default, name)), described_hint(parameter_types(cls)[name]), about.get(name, ""))
        for name in names
    ]
    if rows:
        lines += ["", table(("parameter", "default", "allowed", "meaning"), rows)]
    return "\n".join(lines)


# --- experiments -----------------------------------------------------------------------------------------------------


def struct_keys(kind: Any, hidden: Iterable[str] = ()) -> str:
    """Return a table of the fields of a struct with defaults and descriptions."""
    about, rows = described(kind), []
    for field in msgspec.structs.fields(kind):
        if field.name not in hidden:
            default = "required" if field.required else shown_default(field.default)
            rows.append((code(field.name), default, about.get(field.name, "")))
    return table(("key", "default", "meaning"), rows)


def shown_default(value: Any) -> str:
    """Return a default as it would be written in TOML; nothing for what is empty."""
    if value in (None, "", ()):
        return ""
    return code(json.dumps(list(value) if isinstance(value, tuple) else value))


def experiment_keys() -> str:
    """Return the keys of an experiment file."""
    return struct_keys(mf.Experiment, hidden=("as_published", "name"))


def series_keys() -> str:
    """Return the keys of a series."""
    return struct_keys(mf.Series)


def setting_keys() -> str:
    """Return the fields of a setting."""
    about = described(mf.Setting)
    parameters = inspect.signature(mf.Setting).parameters.values()
    rows = [(code(each.name), code(each.default), about.get(each.name, "")) for each in parameters]
    return table(("key", "default", "meaning"), rows)


# --- the service -----------------------------------------------------------------------------------------------------


def rule_table() -> str:
    """Return the rules of a service: option, default, bounds and meaning."""
    from mcfair.service.core.rules import Rules
    from mcfair.service.wire import PolicyChange

    defaults, about = Rules(), described(Rules)
    _, components = msgspec.json.schema_components([PolicyChange])
    options = {option for option, _, _ in serve_rows()}
    rows = []
    for name, schema in components["PolicyChange"]["properties"].items():
        option = f"--{name.replace('_', '-')}"
        default = mf.parse_policy(defaults.policy).label if name == "policy" else getattr(defaults, name)
        rows.append(
            (
                code(name),
                code(option) if code(option) in options else "",
                "none" if default is None else code(f"{default:g}" if isinstance(default, float) else default),
                bounds(schema),
                about.get(name, ""),
            )
        )
    return table(("rule", "option of `serve`", "default", "allowed", "meaning"), rows)


def bounds(schema: dict[str, Any]) -> str:
    """Describe the values that a JSON schema allows, in short."""
    if "anyOf" in schema:
        return ", or ".join(dict.fromkeys(filter(None, map(bounds, schema["anyOf"]))))
    if "enum" in schema:
        return " or ".join(code(each) for each in schema["enum"])
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[-1]
    low, high = schema.get("minimum"), schema.get("maximum")
    name = {"null": "none", "string": "text", "array": "a list", "integer": "a whole number"}.get(
        schema.get("type", ""), f"a {schema.get('type', 'value')}"
    )
    if name == "a list" and "items" in schema:
        return f"{name} of: {bounds(schema['items'])}"
    if low is not None and high is not None:
        return f"{name} from {figure(low)} to {figure(high)}"
    return f"{name} of at least {figure(low)}" if low is not None else name


def figure(value: float) -> str:
    """Return a bound with separators between thousands."""
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def serve_rows() -> list[tuple[str, str, str]]:
    """Return the options of `mcfair serve`: option, default and meaning."""
    from reference_interfaces import all_commands, option_row

    return [option_row(each) for each in all_commands()["serve"].params]


def serve_options() -> str:
    """Return the options of `mcfair serve` that are no rules."""
    from mcfair.service.wire import PolicyChange

    rules = {code(f"--{name.replace('_', '-')}") for name in PolicyChange.__struct_fields__}
    return table(("option", "default", "meaning"), [row for row in serve_rows() if row[0] not in rules])


def service_metrics() -> str:
    """Return the Prometheus metrics of a service, read from the registry of one that has ranked a list."""
    from prometheus_client import ProcessCollector

    from mcfair.service.web.forwarding import background_of
    from mcfair.service.web.lifecycle import Lifecycle
    from mcfair.service.web.metrics import Metrics

    with mf.Ranker("memory:") as ranker:
        ranker.rank("a query", ["an item", "another"])
        ranker.fairness()  # there are gauges of fairness after it
        registry = Metrics(ranker, Lifecycle(1), background_of(ranker)).registry
        own = [each for each in registry._collector_to_names if not isinstance(each, ProcessCollector)]
        rows = []
        for collector in own:
            for family in collector.collect():
                labels = getattr(collector, "_labelnames", ()) or family_labels(family)
                name = family.name + ("_total" if family.type == "counter" else "")
                rows.append((code(name), family.type, ", ".join(map(code, labels)), sentence(family.documentation)))
    return table(("metric", "type", "labels", "meaning"), sorted(rows))


def family_labels(family: Any) -> list[str]:
    """Return the names of the labels of a family of gauges."""
    return sorted({name for sample in family.samples for name in sample.labels} - {"le"})


# --- logs ------------------------------------------------------------------------------------------------------------


def log_columns() -> str:
    """Return the roles of the columns of a log and the names that are understood."""
    from mcfair.auditing.log import REQUIRED, ROLES

    rows = [
        (code(role), "yes" if role in REQUIRED else "", ", ".join(code(name) for name in names if name != role))
        for role, names in ROLES.items()
    ]
    return table(("role", "needed", "other names that are understood"), rows)


def measures() -> str:
    """Return the measures of an audit."""
    from mcfair.auditing.page import EXPLANATIONS

    rows = [(code(name), label, best, sentence(about)) for name, (label, best, about) in EXPLANATIONS.items()]
    return table(("measure", "name on the page", "best", "meaning"), rows)
