"""What the service says of itself: the OpenAPI document, made from the types, and a page for people made from that."""

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

from .http import JSON, PROBLEM
from .wire import MAX_KEY, Problem, Scope

__all__ = ["KEY_PATTERN", "Call", "openapi", "page"]

KEY_PATTERN = rf"^[!-~]{{1,{MAX_KEY}}}$"
"""What an Idempotency-Key looks like: visible ASCII characters."""


class Call(Struct, frozen=True, kw_only=True):
    """One call of the service, as the router, the check of keys and the documents need it.

    The documentation of `work` is that of the call; `reads` is what a body is decoded to if that is not `takes`, which
    is documented; `also` has the refusals that not every call knows.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    group: str
    scope: Scope | None
    work: Callable[..., Any]
    takes: Any = None
    reads: Any = None
    gives: Any = None
    status: int = 200
    media: str = JSON
    also: tuple[int, ...] = ()
    example: Any = None
    keyed: bool = False

    @property
    def parameters(self) -> list[str]:
        """Names in the path."""
        return re.findall(r"{(\w+)}", self.path)

    @property
    def refusals(self) -> list[int]:
        """Which refusals to be ready for."""
        codes = {400, 500, 503, *self.also}
        if self.scope is not None:
            codes |= {401, 403}
        if self.parameters:
            codes.add(404)
        if self.takes is not None:
            codes |= {408, 413, 415}
        return sorted(codes)


# --- the document ----------------------------------------------------------------------------------------------------

ABOUT = """Fair ranking while relevance is still being learnt.

An application sends a query and its candidates and gets a ranked list; later it reports what was clicked. The service \
keeps count, so the next list is better informed and fairer."""

MEANINGS = {
    400: "The request is malformed or asks for something that is not allowed; `field` names the part at fault.",
    401: "A key is missing, unknown or revoked.",
    403: "The key is not good for this call; or, without keys, the Host header is not a loopback name.",
    404: "There is no such thing.",
    408: "The body did not arrive in time.",
    409: "The request contradicts an earlier one, such as another request with the same key.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    500: "Something unexpected happened, and was logged.",
    503: "The service cannot answer now, and nothing was done: send the same request again after Retry-After seconds.",
}


def openapi(calls: Iterable[Call], version: str) -> dict[str, Any]:
    """Describe calls as OpenAPI 3.1 has it."""
    calls = list(calls)
    kinds = [kind for call in calls for kind in (call.takes, call.gives) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        [Problem, *kinds], ref_template="#/components/schemas/{name}"
    )  # fmt: skip
    schema_of = dict(zip(map(repr, [Problem, *kinds]), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        paths.setdefault(call.path, {})[call.method.lower()] = operation(call, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "mcfair", "version": version, "description": ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": group} for group in dict.fromkeys(call.group for call in calls)],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {str(code): refusal(code) for code in MEANINGS},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def operation(call: Call, schema_of: dict[str, Any]) -> dict[str, Any]:
    """Describe one call."""
    summary, _, more = (inspect.getdoc(call.work) or "").partition("\n\n")
    described: dict[str, Any] = {"operationId": call.work.__name__, "tags": [call.group], "summary": summary}
    if more:
        described["description"] = " ".join(more.split())
    if call.scope is not None:
        described["security"] = [{"key": [call.scope]}]
    parameters = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in call.parameters]
    if call.keyed:
        schema = {"type": "string", "pattern": KEY_PATTERN}
        about = "Makes it safe to send a request again: the same key and body give the same answer, and count once."
        parameters.append({"name": "Idempotency-Key", "in": "header", "description": about, "schema": schema})
    if parameters:
        described["parameters"] = parameters
    if call.takes is not None:
        body = {"schema": schema_of[repr(call.takes)]}
        if call.example is not None:
            body["example"] = call.example
        described["requestBody"] = {"required": True, "content": {JSON: body}}
    answer: dict[str, Any] = {"description": HTTPStatus(call.status).phrase}
    if call.gives is not None or call.media != JSON:
        answer["content"] = {call.media: {"schema": schema_of[repr(call.gives)] if call.gives else TEXT}}
    refusals = {str(code): {"$ref": f"#/components/responses/{code}"} for code in call.refusals}
    described["responses"] = {str(call.status): answer} | refusals
    return described


TEXT = {"type": "string"}


def refusal(code: int) -> dict[str, Any]:
    """Describe an answer that is a problem."""
    described: dict[str, Any] = {
        "description": MEANINGS[code],
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if code == 503:
        described["headers"] = {
            "Retry-After": {"description": "whole seconds", "schema": {"type": "integer", "minimum": 1}}
        }
    if code == 401:
        described["headers"] = {"WWW-Authenticate": {"schema": TEXT}}
    return described


# --- the page --------------------------------------------------------------------------------------------------------


def page(document: dict[str, Any]) -> str:
    """Render a document as one page that needs nothing else: no script, no font, no picture."""
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
    calls = "".join(
        f"<h2>{escape(group)}</h2>" + "".join(call_section(*each, document) for each in members)
        for group, members in groups.items()
    )
    kinds = "".join(
        f'<section id="{name}"><h3>{name}</h3><p>{prose(schema.get("description", ""))}</p>{fields(schema)}</section>'
        for name, schema in sorted(schemas.items())
    )
    codes = "".join(f"<tr><td>{code}</td><td>{prose(text)}</td></tr>" for code, text in MEANINGS.items())
    about = "".join(f"<p>{prose(part)}</p>" for part in info["description"].split("\n\n"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{STYLE}</style></head><body>"
        f'<nav><a class="home" href="#top">{escape(info["title"])} <small>{escape(info["version"])}</small></a>{menu}'
        '<p>Types</p><a href="#types"><span>all types</span></a></nav>'
        f'<main id="top"><h1>{escape(info["title"])} API</h1>{about}{START}'
        f"<h2>Refusals</h2><p>{REFUSALS}</p><table>{codes}</table>"
        f'{calls}<h2 id="types">Types</h2>{kinds}</main></body></html>'
    )


START = """<p>The examples take the address and the key from the shell. A service without keys needs none, and only
answers on the machine it runs on. The <a href="/openapi.json">OpenAPI document</a> says all of this to machines.</p>
<pre>export MCFAIR=http://127.0.0.1:8000
export KEY=&hellip;   # from: mcfair keys add</pre>"""

REFUSALS = (
    "Whatever goes wrong, the answer is a problem as RFC 9457 has it, of type <code>application/problem+json</code>: "
    'a <a href="#Problem">Problem</a>. Under 500 the request is at fault, from 500 on the service is.'
)


def call_section(method: str, path: str, described: dict[str, Any], document: dict[str, Any]) -> str:
    """Render one call: what it does, how to make it, what goes in and what comes out."""
    scopes = [scope for each in described.get("security", []) for scope in each["key"]]
    parts = [
        f'<section id="{described["operationId"]}"><h3>{badge(method)} <code>{escape(path)}</code>'
        f"<small>{f'scope {scopes[0]}' if scopes else 'no key'}</small></h3><p>{prose(described['summary'])}"
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
        parts.append(f"<h4>Body: {typed(schema)}</h4>{fields(resolved(schema, document))}")
    done, *refusals = described["responses"]
    (media, content), *_ = described["responses"][done].get("content", {"": {}}).items() or [("", {})]
    schema = content.get("schema", {})
    parts.append(
        f"<h4>Answer: {done} {typed(schema) if media == JSON else f'<code>{media}</code>' if media else ''}</h4>"
    )
    if media == JSON:
        parts.append(fields(resolved(schema, document)))
    parts.append(f'<p class="refusals">Refusals: {", ".join(refusals)}</p></section>')
    return "".join(parts)


def curl(method: str, path: str, described: dict[str, Any]) -> str:
    """Write a call as a shell command."""
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
    """Render the fields of an object as a table; which ones are required matters where others are forbidden."""
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
    """Name a type, with a link where it has a section of its own."""
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
    """Say which values are allowed."""
    parts = [schema, *schema.get("anyOf", [])]
    return [text.format(part[name]) for part in parts for name, text in BOUNDS.items() if name in part]


def resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference, also that of the members of a list."""
    schema = schema.get("items", schema) if schema.get("type") == "array" else schema
    name = schema.get("$ref", "").rsplit("/", 1)[-1]
    return document["components"]["schemas"].get(name, schema)  # type: ignore[no-any-return]


def badge(method: str) -> str:
    """Render the name of a method."""
    return f'<b class="{method.lower()}">{method}</b>'


def prose(text: str) -> str:
    """Render a text in which `names` stand in backticks."""
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
.delete{color:var(--delete)}.refusals{color:var(--soft);font-size:.85rem}
@media(max-width:60rem){body{display:block}nav{position:static;height:auto;border-right:0}main{padding:1rem}
td{overflow-wrap:anywhere}td:first-child{width:30%}td:nth-child(2):not(:last-child){width:30%}}
"""
