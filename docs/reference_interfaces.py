"""Sections of the reference on the three interfaces: Python names, commands and HTTP operations."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

import typer.main
from reference_tables import bounds, code, sentence, table

import mcfair as mf

# --- Python ----------------------------------------------------------------------------------------------------------

GROUPS: dict[str, tuple[str, str, list[str]]] = {
    "simulation": (
        "Run a simulation",
        "mcfair",
        ["simulate", "Setting", "Trace", "State", "Query", "tradeoff", "Tradeoff"],
    ),
    "data": (
        "Data",
        "mcfair",
        ["Dataset", "Fold", "open_data", "load_fold", "load_letor", "synthetic", "Protocol"],
    ),
    "policies": ("Policies", "mcfair", ["Policy", "parse_policy", "parse_policies"]),
    "click-models": ("Click models", "mcfair", ["ClickModel", "parse_click_model", "examination"]),
    "estimators": ("Estimators", "mcfair", ["Estimator", "parse_estimator"]),
    "metrics": (
        "Metrics",
        "mcfair",
        ["Metric", "parse_metric", "unfairness", "ndcg", "cndcg"],
    ),
    "parts": ("Parts of your own", "mcfair", ["Part", "register", "registered", "kernel", "Kernel"]),
    "experiments": (
        "Experiments",
        "mcfair",
        [
            "Experiment",
            "Series",
            "read_experiment",
            "shipped_experiment",
            "compare",
            "run_experiments",
            "Results",
            "write_report",
        ],
    ),
    "analysis": (
        "Analysis",
        "mcfair",
        ["fairness_floor", "group_floor", "Floor", "frontier", "Frontier", "tune", "Tuning", "fisher", "holm"],
    ),
    "audit": ("Audit of a log", "mcfair", ["audit", "Audit", "write_audit", "fit_examination", "FittedExamination"]),
    "tables": ("Fair lists from tables", "mcfair", ["fair_lists", "FairReranker"]),
    "service": ("The service", "mcfair", ["Client", "AsyncClient", "Ranker"]),
    "errors": ("Errors and warnings", "mcfair", ["MCFairError", "MCFairWarning"]),
    "application": ("The service in another program", "mcfair.service", ["create_app"]),
    "pyterrier": ("A transformer of PyTerrier", "mcfair.plugs.pyterrier", ["Fair"]),
    "exposure-measures": (
        "Measures of ir_measures",
        "mcfair.plugs.exposure_measures",
        ["EED", "EEL", "EER", "Unfairness", "ExposureProvider"],
    ),
    "tables-of-results": ("Tables of results", "mcfair.tables", []),
    "report": ("Reports and figures", "mcfair.report", []),
    "frontiers": ("Frontiers that policies reach", "mcfair.analysis.frontiers", []),
    "significance": ("Tests of significance", "mcfair.analysis.significance", []),
    "more": ("More names", "mcfair", []),
    "testing": ("Tests of your own parts and stores", "mcfair.testing", ["check_part", "check_store", "views"]),
}
"""Pages of the Python API: title, module and names, without which they are all public names of the module.

Parts and errors are added to the page of their base class, and names of `mcfair` that are on no page to the last one.
"""

BASES = {"policies": mf.Policy, "click-models": mf.ClickModel, "estimators": mf.Estimator, "metrics": mf.Metric}


def group_names(group: str) -> list[str]:
    """Return the public names on a page: those of the table, then the shipped parts and errors, in order."""
    _, module, names = GROUPS[group]
    if module != "mcfair":
        found = import_module(module)
        return names or [name for name in found.__all__ if not isinstance(getattr(found, name), str)]
    public = {name: getattr(mf, name) for name in mf.__all__ if name not in names}
    if group in BASES:
        return names + [name for name, each in public.items() if is_subclass(each, BASES[group])]
    if group == "errors":
        return names + [name for name, each in public.items() if is_subclass(each, mf.MCFairError)]
    if group == "more":
        others = {name for each in GROUPS if each != "more" for name in group_names(each)}
        return [name for name, each in public.items() if name not in others and not isinstance(each, str)]
    return names


def is_subclass(value: Any, base: type) -> bool:
    """Return whether a value is a class below another one."""
    return inspect.isclass(value) and issubclass(value, base)


def api_overview() -> str:
    """Return the tables of all public names, each with its page and first sentence, and the order of the pages."""
    sections = []
    pages = {group: each for group, each in GROUPS.items() if group_names(group)}
    for group, (title, module, _) in pages.items():
        rows = []
        for name in group_names(group):
            value = getattr(import_module(module), name)
            first = sentence((inspect.getdoc(value) or "").split("\n\n")[0])
            rows.append((f"[`{name}`](api/{group}.md)", first))
        sections.append(f"## {title}\n\n" + table((f"name in `{module}`", "purpose"), rows))
    contents = "\n".join(f"api/{group}" for group in pages)
    return "\n\n".join([*sections, f"```{{toctree}}\n:hidden:\n\n{contents}\n```"])


def api_page(group: str) -> str:
    """Return the directives that render the docstrings of the names of one page."""
    module = GROUPS[group][1]
    lines = ["```{eval-rst}", f".. currentmodule:: {module}"]
    for name in group_names(group):
        value = getattr(import_module(module), name)
        if inspect.isclass(value):
            lines += ["", f".. autoclass:: {name}", "   :members:"]
            if group == "service":
                lines.append("   :inherited-members:")
        elif callable(value) and hasattr(value, "__name__"):
            lines += ["", f".. autofunction:: {name}"]
        else:
            lines += ["", f".. autodata:: {name}", "   :no-value:"]
    return "\n".join([*lines, "```"])


# --- commands --------------------------------------------------------------------------------------------------------


@cache
def all_commands() -> dict[str, Any]:
    """Return every command by its words."""
    from mcfair.cli.app import app

    def walk(group: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for name, each in group.commands.items():
            words = (*path, name)
            yield from walk(each, words) if hasattr(each, "commands") else [(" ".join(words), each)]

    return dict(walk(typer.main.get_command(app), ()))


def command_list() -> str:
    """Return the table of all commands."""
    rows = [
        (
            f"[`mcfair {name}`](#mcfair-{name.replace(' ', '-')})",
            sentence(each.help or "").split(". ")[0].rstrip(".") + ".",
        )
        for name, each in all_commands().items()
    ]
    return table(("command", "what it does"), rows)


def commands() -> str:
    """Return a section for each command: its description, and its arguments and options in a table."""
    sections = []
    for name, each in all_commands().items():
        lines = [f"### mcfair {name}", "", sentence(each.help or "")]
        if rows := [option_row(parameter) for parameter in each.params]:
            lines += ["", table(("argument or option", "default", "meaning"), rows)]
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


def option_row(parameter: Any) -> tuple[str, str, str]:
    """Return the row of an argument or option: name, default and meaning."""
    names = ", ".join(code(each) for each in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = code((parameter.metavar or parameter.name).upper())
    default = parameter.default() if callable(parameter.default) else parameter.default
    shown = "required" if parameter.required else "" if default in (None, False, ()) else code(shown_value(default))
    meaning = sentence(getattr(parameter, "help", "") or "")
    return names, shown, meaning + allowed(parameter)


def allowed(parameter: Any) -> str:
    """Return a sentence on the bounds of a number, which releases of Typer keep at the option or at its type."""
    holder = parameter if hasattr(parameter, "min") else getattr(parameter, "type", None)
    low, high = getattr(holder, "min", None), getattr(holder, "max", None)
    if low is None and high is None:
        return ""
    if high is None:
        return f" Allowed: at least {low:,}."
    return f" Allowed: at most {high:,}." if low is None else f" Allowed: {low:,} to {high:,}."


def shown_value(value: Any) -> str:
    """Return a default as it would be typed."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(getattr(value, "value", value))


# --- HTTP ------------------------------------------------------------------------------------------------------------


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document that the service serves."""
    from mcfair.service.web.apidocs import openapi
    from mcfair.service.web.operations import OPERATIONS

    return openapi(OPERATIONS, "")


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield method, path and description of every operation."""
    for path, methods in document()["paths"].items():
        for method, described in methods.items():
            yield method.upper(), path, described


def http_overview() -> str:
    """Return the table of all operations."""
    rows = [
        (code(f"{method} {path}"), scope_of(described), described["summary"])
        for method, path, described in operations()
    ]
    return table(("operation", "scope", "what it does"), rows)


def scope_of(described: dict[str, Any]) -> str:
    """Return the scope that an operation requires."""
    return described["security"][0]["key"][0] if "security" in described else "none"


def http_operations() -> str:
    """Return a section for each operation."""
    return "\n\n".join(operation_section(*each) for each in operations())


def operation_section(method: str, path: str, described: dict[str, Any]) -> str:
    """Describe one operation: parameters, body, example, response and errors."""
    lines = [f"### {method} {path}", "", sentence(f"{described['summary']} {described.get('description', '')}")]
    lines += ["", f"Scope: {scope_of(described)}. {exchanged(described)}"]
    if parameters := described.get("parameters"):
        rows = [
            (code(each["name"]), each["in"], default_of(each["schema"]), sentence(each["description"]))
            for each in parameters
        ]
        lines += ["", table(("parameter", "in", "default", "meaning"), rows)]
    body = next(iter(described.get("requestBody", {}).get("content", {}).values()), {})
    if "example" in body:
        lines += ["", "```json", json.dumps(body["example"], ensure_ascii=False), "```"]
    return "\n".join(lines)


def exchanged(described: dict[str, Any]) -> str:
    """Return a sentence that names the types of request and response, and the errors."""
    body = next(iter(described.get("requestBody", {}).get("content", {}).values()), None)
    text = f"Request: {typed(body['schema'])}. " if body else ""
    for status, answer in described["responses"].items():
        if status.startswith("2"):
            media, content = next(iter(answer.get("content", {}).items()), ("", None))
            kind = typed(content["schema"]) if content and media.endswith("json") else media or "no content"
            text += f"Response {status}: {kind}. "
    return text + "Errors: " + ", ".join(status for status in described["responses"] if status >= "400") + "."


def typed(schema: dict[str, Any]) -> str:
    """Return the type of a JSON schema in Markdown, with links to the types of the page."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(typed(each) for each in schema["anyOf"]))
    if schema.get("type") == "array" and "items" in schema:
        return f"list of {typed(schema['items'])}"
    if schema.get("type") == "object" and "additionalProperties" in schema and schema["additionalProperties"]:
        values = schema["additionalProperties"]
        return f"object of {typed(values)}" if isinstance(values, dict) else "object"
    return {"null": "null", "object": "object"}.get(schema.get("type", ""), bounds(schema).removeprefix("a "))


def default_of(schema: dict[str, Any]) -> str:
    """Return the default of a JSON schema as code."""
    return code(json.dumps(schema["default"])) if schema.get("default") is not None else ""


def http_types() -> str:
    """Return a section for each type of a request or response."""
    sections = []
    for name, schema in sorted(document()["components"]["schemas"].items()):
        lines = [f"### {name}", "", sentence(schema.get("description", ""))]
        required = schema.get("required", [])
        rows = [
            (
                code(field),
                typed(each),
                "required" if field in required else default_of(each),
                sentence(each.get("description", "")),
            )
            for field, each in schema.get("properties", {}).items()
        ]
        if rows:
            lines += ["", table(("field", "type", "default", "meaning"), rows)]
        sections.append("\n".join(lines))
    return "\n\n".join(sections)
