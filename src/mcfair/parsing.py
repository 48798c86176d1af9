"""Parts from their texts: `MCFair(alpha=10)`, families of them, and `ndcg@5`."""

from __future__ import annotations

import ast
import itertools
import re
from typing import Any

from .errors import unknown
from .parts import AnyPart, parameter_types, registered, shortened

__all__ = ["as_part", "parse_part", "parse_parts"]

LONGEST_INTEGER = 4096
"""Bits of the largest whole number that is parsed: Python does not write much larger ones in messages."""


def parse_part(base: type[AnyPart], text: str) -> AnyPart:
    """Parse a part of one kind from its text, as its repr writes it.

    A bare name means every default, words need no quotes, and `name@5` is short for `name(k=5)`.
    """
    cls, values = parse_call(base, text)
    return cls(**values)


def parse_parts(base: type[AnyPart], text: str) -> list[AnyPart]:
    """Parse a family of parts: a list of values is one part for each value, the last parameter changing fastest."""
    cls, values = parse_call(base, text)
    options = [value if isinstance(value, list) else [value] for value in values.values()]
    if not all(options):
        raise base.kind.error(f"cannot parse {base.kind.name} {shortened(text)}: a list of values is empty")
    return [cls(**dict(zip(values, chosen, strict=True))) for chosen in itertools.product(*options)]


def as_part(base: type[AnyPart], value: Any) -> AnyPart:
    """Return a part given as itself or as its text."""
    if isinstance(value, base):
        return value
    if isinstance(value, str):
        return parse_part(base, value)
    raise base.kind.error(f"expected {base.kind.article} {base.kind.name} or its text, got {shortened(value)}")


def parse_call(base: type[AnyPart], text: str) -> tuple[type[AnyPart], dict[str, Any]]:
    """Parse the class and the parameters of a part's text."""
    kind = base.kind
    short = re.fullmatch(r"\s*(\w+)@(\d+)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    source = f"{short[1]}(k={short[2]}{', ' + short[3] if short[3] else ''})" if short else text.strip()
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    call = ast.Call(func=tree, args=[], keywords=[]) if isinstance(tree, ast.Name) else tree
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise kind.error(f"cannot parse {kind.name} {shortened(text)}: expected Name or Name(parameter=value, ...)")
    name = call.func.id
    known = registered(base) if name not in kind.registry else kind.registry
    if name not in known:
        hint = "; one of your own needs @mf.register, and must be imported first, as `--plugin FILE` does"
        raise kind.error(unknown(kind.name, name[:80], known) + hint)
    cls: Any = known[name]
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        first = next(iter(parameter_types(cls)), None)
        hint = f", as in {name}({first}=...)" if first else f"; {name} has none"
        raise kind.error(f"cannot parse {kind.name} {shortened(text)}: every parameter needs its name{hint}")
    values: dict[str, Any] = {}
    for each in call.keywords:
        if each.arg in values:
            raise kind.error(f"cannot parse {kind.name} {shortened(text)}: {each.arg} occurs twice")
        values[str(each.arg)] = literal(each.value, source)
    return cls, values


def literal(node: ast.expr, text: str) -> Any:
    """Return a value as written: a number, inf, a quoted string, a bare word, or a list or tuple of such."""
    if isinstance(node, ast.List | ast.Tuple):
        values = [literal(each, text) for each in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    source = ast.get_source_segment(text, node) or ""
    if source in ("inf", "-inf"):
        return float(source)
    try:
        value = ast.literal_eval(node)
    except (ValueError, RecursionError, MemoryError):
        return source
    return source[:80] if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER else value
