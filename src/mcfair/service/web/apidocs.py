"""API documentation: the OpenAPI document, generated from the types, and an HTML page generated from it."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable
from html import escape
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ..wire import Problem, Scope
from .requests import KEY_PATTERN
from .responses import JSON, PROBLEM

__all__ = ["Operation", "openapi", "page"]


class Operation(Struct, frozen=True, kw_only=True):
    """An operation of the HTTP API: its route, scope, request and response types.

    The docstring of `function` is the documentation of the operation. `request` is the documented type of the body;
    `decode_as` is the type it is decoded to, if that is another one. `errors` are statuses that only some operations
    respond with. An `idempotent` operation accepts an Idempotency-Key. A `probe` is admitted under overload; a `rooted`
    operation receives the path under which the application is mounted.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    tag: str
    scope: Scope | None
    function: Callable[..., Any]
    request: Any = None
    decode_as: Any = None
    response: Any = None
    status: int = 200
    media_type: str = JSON
    errors: tuple[int, ...] = ()
    example: Any = None
    idempotent: bool = False
    probe: bool = False
    rooted: bool = False

    @property
    def parameters(self) -> list[str]:
        """Names of the path parameters."""
        return re.findall(r"{(\w+)}", self.path)

    @property
    def error_statuses(self) -> list[int]:
        """Error statuses of the operation, ascending."""
        codes = {400, 500, 503, *self.errors}
        if self.scope is not None:
            codes |= {401, 403}
        if self.parameters:
            codes.add(404)
        if self.request is not None:
            codes |= {408, 413, 415}
        return sorted(codes)


# --- the document ----------------------------------------------------------------------------------------------------

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
    503: "The service is unavailable and nothing was changed: retry the same request after Retry-After seconds.",
}


def openapi(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """Build the OpenAPI 3.1 document of operations."""
    operations = list(operations)
    types = [kind for each in operations for kind in (each.request, each.response) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        [Problem, *types], ref_template="#/components/schemas/{name}"
    )  # fmt: skip
    schema_of = dict(zip(map(repr, [Problem, *types]), schemas, strict=True))
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
    described: dict[str, Any] = {"operationId": each.function.__name__, "tags": [each.tag], "summary": summary}
    if more:
        described["description"] = " ".join(more.split())
    if each.scope is not None:
        described["security"] = [{"key": [each.scope]}]
    parameters = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in each.parameters]
    if each.idempotent:
        schema = {"type": "string", "pattern": KEY_PATTERN}
        about = (
            "Makes retries safe: a repeated request with the same key and body gets the same response and counts once."
        )
        parameters.append({"name": "Idempotency-Key", "in": "header", "description": about, "schema": schema})
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


TEXT = {"type": "string"}


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
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {each["name"]: [] for each in document["tags"]}
    for path, operations in document["paths"].items():
        for method, described in operations.items():
            groups[described["tags"][0]].append((method.upper(), path, described))
    info, schemas = document["info"], document["components"]["schemas"]
    menu = "".join(
        f"<p>{escape(group)}</p>"
        + "".join(
            f'<a href="#{each["operationId"]}">{badge(method)}<span>{escape(path)}</span></a>'
            for method, path, each in members
        )
        for group, members in groups.items()
    )
    sections = "".join(
        f"<h2>{escape(group)}</h2>" + "".join(operation_section(*each, document) for each in members)
        for group, members in groups.items()
    )
    kinds = "".join(
        f'<section id="{name}"><h3>{name}</h3><p>{prose(schema.get("description", ""))}</p>{fields(schema)}</section>'
        for name, schema in sorted(schemas.items())
    )
    codes = "".join(f"<tr><td>{code}</td><td>{prose(text)}</td></tr>" for code, text in ERRORS.items())
    about = "".join(f"<p>{prose(part)}</p>" for part in info["description"].split("\n\n"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{STYLE}</style></head><body>"
        f'<nav><a class="home" href="#top">{escape(info["title"])} <small>{escape(info["version"])}</small></a>{menu}'
        '<p>Types</p><a href="#types"><span>all types</span></a></nav>'
        f'<main id="top"><h1>{escape(info["title"])} API</h1>{about}{START}'
        f"<h2>Errors</h2><p>{ERROR_FORMAT}</p><table>{codes}</table>"
        f'{sections}<h2 id="types">Types</h2>{kinds}</main></body></html>'
    )


START = """<p>The examples read the address and the API key from environment variables. A service without keys needs
none and accepts only requests from the same machine. The same information is available as an
<a href="openapi.json">OpenAPI document</a>.</p>
<pre>export MCFAIR=http://127.0.0.1:8000
export KEY=&hellip;   # from: mcfair keys add</pre>"""

ERROR_FORMAT = (
    "Every error response is a problem (RFC 9457) of type <code>application/problem+json</code>: see "
    '<a href="#Problem">Problem</a>. Statuses below 500 are faults of the request, others of the service.'
)


def operation_section(method: str, path: str, described: dict[str, Any], document: dict[str, Any]) -> str:
    """Render one operation: description, example, parameters, request and response."""
    scopes = [scope for each in described.get("security", []) for scope in each["key"]]
    parts = [
        f'<section id="{described["operationId"]}"><h3>{badge(method)} <code>{escape(path)}</code>'
        f"<small>{f'scope {scopes[0]}' if scopes else 'no key required'}</small></h3><p>{prose(described['summary'])}"
        f" {prose(described.get('description', ''))}</p>",
        f"<pre>{escape(curl(method, path, described))}</pre>",
    ]
    given = "".join(
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{typed(each['schema'])}</td>"
        f"<td>in the {each['in']}. {prose(each.get('description', ''))}</td></tr>"
        for each in described.get("parameters", [])
    )
    if given:
        parts.append(f"<h4>Parameters</h4><table>{given}</table>")
    if "requestBody" in described:
        schema = described["requestBody"]["content"][JSON]["schema"]
        parts.append(f"<h4>Request body: {typed(schema)}</h4>{fields(resolved(schema, document))}")
    done, *errors = described["responses"]
    (media, content), *_ = described["responses"][done].get("content", {"": {}}).items() or [("", {})]
    schema = content.get("schema", {})
    parts.append(
        f"<h4>Response: {done} {typed(schema) if media == JSON else f'<code>{media}</code>' if media else ''}</h4>"
    )
    if media == JSON:
        parts.append(fields(resolved(schema, document)))
    parts.append(f'<p class="errors">Errors: {", ".join(errors)}</p></section>')
    return "".join(parts)


def curl(method: str, path: str, described: dict[str, Any]) -> str:
    """Return a curl command that calls an operation."""
    words = ["curl"] + ([f"-X {method}"] if method not in ("GET", "POST") else [])
    words.append('"$MCFAIR' + re.sub(r"{(\w+)}", lambda name: name[1].upper(), path) + '"')
    lines = [" ".join(words)]
    if "security" in described:
        lines.append('-H "Authorization: Bearer $KEY"')
    if any(each["name"] == "Idempotency-Key" for each in described.get("parameters", [])):
        lines.append('-H "Idempotency-Key: $(uuidgen)"')
    if "requestBody" in described:
        example = described["requestBody"]["content"][JSON].get("example", {})
        lines += [f"-H 'Content-Type: {JSON}'", f"-d '{json.dumps(example, ensure_ascii=False)}'"]
    return " \\\n     ".join(lines)


def fields(schema: dict[str, Any]) -> str:
    """Render the fields of an object as a table; required fields are marked in request types only."""
    if "properties" not in schema:
        return ""
    required = schema.get("required", []) if schema.get("additionalProperties") is False else []
    rows = []
    for name, each in schema["properties"].items():
        notes = []
        if name in required:
            notes.append("required")
        elif each.get("default") is not None:
            notes.append(f"default {json.dumps(each['default'])}")
        notes += bounds(each)
        about = prose(each.get("description", ""))
        rows.append(
            f"<tr><td><code>{escape(name)}</code></td><td>{typed(each)}</td>"
            f"<td>{about}{'. ' if about and notes else ''}{escape(', '.join(notes))}</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"


def typed(schema: dict[str, Any]) -> str:
    """Render the name of a type, linked to its section if it has one."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(typed(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(json.dumps(each))}</code>" for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {typed(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {typed(schema['additionalProperties'])}"
    return escape(schema.get("format", schema.get("type", "anything")))


BOUNDS = {
    "minimum": "at least {:g}",
    "maximum": "at most {:,.10g}",
    "minLength": "at least {:,} character(s)",
    "maxLength": "at most {:,} characters",
    "minItems": "at least {:,}",
    "maxItems": "at most {:,}",
}


def bounds(schema: dict[str, Any]) -> list[str]:
    """Describe the limits of a value."""
    parts = [schema, *schema.get("anyOf", [])]
    return [text.format(part[name]) for part in parts for name, text in BOUNDS.items() if name in part]


def resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Resolve the reference of a schema, or of the members of a list."""
    schema = schema.get("items", schema) if schema.get("type") == "array" else schema
    name = schema.get("$ref", "").rsplit("/", 1)[-1]
    return document["components"]["schemas"].get(name, schema)  # type: ignore[no-any-return]


def badge(method: str) -> str:
    """Render an HTTP method."""
    return f'<b class="{method.lower()}">{method}</b>'


def prose(text: str) -> str:
    """Render a text with code in backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


STYLE = """
:root{--ink:#1d2433;--soft:#5b6475;--line:#dfe3ea;--back:#fff;--tint:#f5f7fa;--link:#0b62a8;
--get:#0b7a53;--post:#0b62a8;--put:#9a5b00;--delete:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8f0;--soft:#9aa5b8;--line:#2d3545;--back:#141821;--tint:#1c222e;
--link:#7cc0ff;--get:#5fd0a3;--post:#7cc0ff;--put:#f0b45c;--delete:#ff8f86}}
*{box-sizing:border-box}html{scroll-behavior:smooth;scroll-padding-top:1rem}
body{margin:0;font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--back);display:flex}
nav{position:sticky;top:0;height:100vh;overflow:auto;flex:0 0 24rem;padding:1.5rem 1rem;background:var(--tint);
border-right:1px solid var(--line);font-size:.85rem}
nav p{margin:1.2rem .5rem .3rem;color:var(--soft);font-weight:600}
nav a{display:flex;gap:.5rem;padding:.2rem .5rem;border-radius:.3rem;color:var(--ink);text-decoration:none}
nav a:hover{background:var(--line)}nav .home{font-size:1.1rem;font-weight:700;display:block}
nav b{flex:0 0 3.6rem}nav span{overflow-wrap:anywhere}
main{flex:1;min-width:0;max-width:56rem;padding:1.5rem 2.5rem 6rem}
h1{font-size:1.9rem;margin:.2rem 0 1rem}h2{margin:3rem 0 .5rem;font-size:1.4rem}
h3{font-size:1.05rem;margin:0 0 .4rem;display:flex;gap:.6rem;align-items:baseline;flex-wrap:wrap}
h4{margin:1.2rem 0 .3rem;font-size:.9rem;color:var(--soft)}
section{border-top:1px solid var(--line);padding:1.4rem 0 1.2rem}
small{color:var(--soft);font-weight:400;font-size:.85rem}a{color:var(--link)}
code,pre{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.88em}
pre{background:var(--tint);border:1px solid var(--line);border-radius:.4rem;padding:.8rem 1rem;white-space:pre-wrap;
overflow-wrap:anywhere;margin:.6rem 0}
table{border-collapse:collapse;table-layout:fixed;width:100%;font-size:.9rem}
td{border-top:1px solid var(--line);padding:.35rem .8rem .35rem 0;vertical-align:top}tr:first-child td{border-top:0}
td:first-child{width:11rem}td:nth-child(2):not(:last-child){width:13rem}
b{font-size:.75rem;letter-spacing:.03em}.get{color:var(--get)}.post{color:var(--post)}.put{color:var(--put)}
.delete{color:var(--delete)}.errors{color:var(--soft);font-size:.85rem}
@media(max-width:60rem){body{display:block}nav{position:static;height:auto;border-right:0}main{padding:1rem}
td{overflow-wrap:anywhere}td:first-child{width:30%}td:nth-child(2):not(:last-child){width:30%}}
"""
