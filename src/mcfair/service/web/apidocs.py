"""API documentation: the OpenAPI document, generated from the types, and an HTML page generated from it."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable
from html import escape
from http import HTTPStatus
from typing import Any

import msgspec

from ..declaration import JSON, Operation
from ..wire import Problem
from .layout import environment
from .requests import KEY_PATTERN
from .responses import PROBLEM

ABOUT = """Fair ranking while relevance is still being learnt.

An application sends a query with its candidates and receives a ranked list; later it reports the clicks. The service \
records impressions and clicks, so that the next ranking is better informed and fairer."""

ERRORS = {
    400: "The request is malformed or not allowed; `field` names the part at fault.",
    401: "The API key is missing, unknown or revoked.",
    403: "The API key lacks the required scope; or, without keys, the request was not made directly to localhost.",
    404: "The resource does not exist.",
    408: "The request body did not arrive in time.",
    409: "The request conflicts with an earlier one, such as another request with the same Idempotency-Key.",
    413: "The request body is too large.",
    415: "The request body is not application/json.",
    500: "An unexpected error occurred and was logged.",
    503: "The service is unavailable: retry the same request after Retry-After seconds.",
}


def openapi(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """Build the OpenAPI 3.1 document of operations."""
    operations = list(operations)
    types = [kind for each in operations for kind in (each.request, each.response) if kind is not None]
    types = [Problem, *types]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = describe_operation(each, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "mcfair", "version": version, "description": ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(each.tag for each in operations)],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {str(code): describe_error(code) for code in ERRORS},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def describe_operation(each: Operation, schema_of: dict[str, Any]) -> dict[str, Any]:
    """Build the OpenAPI description of one operation."""
    summary, _, more = (inspect.getdoc(each.function) or "").partition("\n\n")
    described: dict[str, Any] = {"operationId": each.name, "tags": [each.tag], "summary": summary}
    if more:
        described["description"] = " ".join(more.split())
    if each.scope is not None:
        described["security"] = [{"key": [each.scope]}]
    parameters = [
        {"name": name, "in": "path", "required": True, "description": about, "schema": TEXT}
        for name, about in each.parameters.items()
    ]
    if each.options is not None:
        parameters += describe_options(each.options)
    if each.idempotent:
        schema = {"type": "string", "pattern": KEY_PATTERN}
        parameters.append({"name": "Idempotency-Key", "in": "header", "description": KEY, "schema": schema})
    if parameters:
        described["parameters"] = parameters
    if each.request is not None:
        body = {"schema": schema_of[repr(each.request)]}
        if each.example is not None:
            body["example"] = each.example
        described["requestBody"] = {"required": True, "content": {JSON: body}}
    success: dict[str, Any] = {"description": HTTPStatus(each.status).phrase}
    if each.response is not None or each.media_type != JSON:
        success["content"] = {each.media_type: {"schema": schema_of[repr(each.response)] if each.response else TEXT}}
    errors = {str(code): {"$ref": f"#/components/responses/{code}"} for code in each.error_statuses}
    described["responses"] = {str(each.status): success} | errors
    return described


def describe_options(kind: Any) -> list[dict[str, Any]]:
    """Build the OpenAPI description of the parameters of a query string."""
    _, components = msgspec.json.schema_components([kind])
    return [
        {"name": name, "in": "query", "description": schema.pop("description"), "schema": schema}
        for name, schema in components[kind.__name__]["properties"].items()
    ]


TEXT = {"type": "string"}
KEY = (
    "Makes retries safe: a repeated request with the same key and body gets the same response and counts once. "
    "Keys of different queries, and of different API keys, are independent."
)


def describe_error(code: int) -> dict[str, Any]:
    """Build the OpenAPI description of an error response."""
    described: dict[str, Any] = {
        "description": ERRORS[code],
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if code == 503:
        described["headers"] = {"Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 1}}}
    if code == 401:
        described["headers"] = {"WWW-Authenticate": {"schema": TEXT}}
    return described


# --- the page --------------------------------------------------------------------------------------------------------


def page(document: dict[str, Any]) -> str:
    """Render an OpenAPI document as one self-contained HTML page, without scripts, fonts or images."""
    schemas = document["components"]["schemas"]

    def resolved(schema: dict[str, Any]) -> dict[str, Any]:
        """Resolve the reference of a schema, or of the members of a list."""
        schema = schema.get("items", schema) if schema.get("type") == "array" else schema
        return schemas.get(schema.get("$ref", "").rsplit("/", 1)[-1], schema)  # type: ignore[no-any-return]

    templates = environment()
    templates.filters |= {"prose": prose, "notes": notes, "curl": curl, "resolved": resolved}
    groups: dict[str, list[dict[str, Any]]] = {each["name"]: [] for each in document["tags"]}
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            groups[described["tags"][0]].append({"method": method.upper(), "path": path, **described})
    template = templates.get_template("docs.html.j2")
    return template.render(page="docs", document=document, groups=groups, errors=ERRORS)


def curl(each: dict[str, Any]) -> str:
    """Return a curl command that calls an operation."""
    words = ["curl"] + ([f"-X {each['method']}"] if each["method"] not in ("GET", "POST") else [])
    words.append('"$MCFAIR' + re.sub(r"{(\w+)}", lambda name: name[1].upper(), each["path"]) + '"')
    lines = [" ".join(words)]
    if "security" in each:
        lines.append('-H "Authorization: Bearer $KEY"')
    if any(given["name"] == "Idempotency-Key" for given in each.get("parameters", [])):
        lines.append('-H "Idempotency-Key: $(uuidgen)"')
    if "requestBody" in each:
        example = each["requestBody"]["content"][JSON].get("example", {})
        lines += [f"-H 'Content-Type: {JSON}'", f"-d '{json.dumps(example, ensure_ascii=False)}'"]
    return " \\\n     ".join(lines)


BOUNDS = {
    "minimum": "at least {:g}",
    "maximum": "at most {:,.10g}",
    "minLength": "at least {:,} character(s)",
    "maxLength": "at most {:,} characters",
    "minItems": "at least {:,}",
    "maxItems": "at most {:,}",
}


def notes(schema: dict[str, Any], is_required: bool) -> str:
    """Describe the default and the limits of a value."""
    default = [] if schema.get("default") is None else [f"default {json.dumps(schema['default'])}"]
    parts = [schema, *schema.get("anyOf", [])]
    limits = [text.format(part[name]) for part in parts for name, text in BOUNDS.items() if name in part]
    return ", ".join((["required"] if is_required else default) + limits)


def prose(text: str) -> str:
    """Escape a text and render its code in backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
