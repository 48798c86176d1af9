"""The parts of the house style that a machine can check; CONTRIBUTING.md has the rest."""

import ast
import importlib
import pkgutil
import re
from collections import Counter
from pathlib import Path

import pytest

import mcfair as mf

SOURCE = Path(mf.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}

LONGEST_FILE, LONGEST_FUNCTION, MOST_ARGUMENTS = 400, 60, 12

NOT_IMPERATIVE = (
    "give gives say says tell tells let lets have has take takes make makes forget forgets whether".split()  # noqa: SIM905
)
"""Openings that describe or personify instead of naming the effect: Return, Compute, Parse, Build, Write, …"""

IN_REBUILDING = {"service"}
"""Packages whose files and functions are not measured: their inside is being rebuilt."""


def named(path):
    return path.relative_to(SOURCE).as_posix()


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_kernel(node):
    return any("kernel" in ast.unparse(decorator) for decorator in node.decorator_list)


def is_property(node):
    return any(re.search(r"property|setter", ast.unparse(decorator)) for decorator in node.decorator_list)


def measured():
    return [path for path in FILES if path.relative_to(SOURCE).parts[0] not in IN_REBUILDING]


def body_length(node):
    """Lines of a function without its signature and docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("path", FILES, ids=named)
def test_docstrings_open_with_the_effect(path):
    wrong = []
    for node in functions(TREES[path]):
        text = ast.get_docstring(node)
        if text and not is_property(node) and text.split()[0].strip(",;:.").lower() in NOT_IMPERATIVE:
            wrong.append(f"{node.name}: {text.splitlines()[0]}")
    assert not wrong


@pytest.mark.parametrize("path", FILES, ids=named)
def test_kernels_are_annotated(path):
    for node in functions(TREES[path]):
        if is_kernel(node):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            assert all(each.annotation is not None for each in arguments), node.name
            assert node.returns is not None, node.name


@pytest.mark.parametrize("path", FILES, ids=named)
def test_kernels_use_no_operation_that_differs_when_compiled(path):
    for node in functions(TREES[path]):
        if is_kernel(node):
            for each in ast.walk(node):
                assert not isinstance(each, ast.Pow), f"{node.name}: **"
                if isinstance(each, ast.Call) and isinstance(each.func, ast.Name | ast.Attribute):
                    called = each.func.id if isinstance(each.func, ast.Name) else each.func.attr
                    assert called not in ("sum", "mean"), f"{node.name}: {called}"


def test_a_class_name_exists_once():
    names = Counter(node.name for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


def test_type_checks_are_not_switched_off():
    for path in FILES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            assert not re.search(r"#\s*type:\s*ignore(?!\[)", line), f"{named(path)}:{number}"
            assert "ignore[no-untyped-def]" not in line, f"{named(path)}:{number}"


TABLES = {"report/markup.py": 1, "experiments/identity.py": 1}
"""How often the formatter is switched off, for tables that it would destroy."""


@pytest.mark.parametrize("path", measured(), ids=named)
def test_the_formatter_formats(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("fmt: skip") == TABLES.get(named(path), 0)
    assert "fmt: off" not in text


@pytest.mark.parametrize("path", measured(), ids=named)
def test_files_and_functions_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE
    for node in functions(TREES[path]):
        if is_kernel(node):
            continue
        assert body_length(node) <= LONGEST_FUNCTION, node.name
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        assert len([each for each in arguments if each.arg not in ("self", "cls")]) <= MOST_ARGUMENTS, node.name


def test_long_kernels_say_why():
    for path in measured():
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in functions(TREES[path]):
            if is_kernel(node) and (body_length(node) > LONGEST_FUNCTION or len(node.args.args) > MOST_ARGUMENTS):
                first = min(decorator.lineno for decorator in node.decorator_list)
                explained = (
                    lines[first - 2].startswith("#") or "one function" in (ast.get_docstring(node) or "").lower()
                )
                assert explained, f"{named(path)}: {node.name}"


def test_no_function_hides_a_module():
    for info in pkgutil.walk_packages([str(SOURCE)], "mcfair."):
        if info.name == "mcfair.__main__":
            continue
        module = importlib.import_module(info.name)
        parent, _, name = info.name.rpartition(".")
        assert getattr(importlib.import_module(parent), name) is module, info.name


def test_nothing_tests_for_the_name_of_a_part_or_of_a_dataset():
    """Behaviour that depends on a part belongs to its class, and on a dataset to the catalogue."""
    names = {name for base in (mf.Policy, mf.ClickModel, mf.Estimator) for name in mf.registered(base)} | {"mq2008"}
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
                wrong = [text for text in texts if isinstance(text, str) and text in names]
                assert not wrong, f"{named(path)}:{node.lineno}: {wrong}"
