"""The parts of the house style that a machine can check; CONTRIBUTING.md has the rest."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import mcfair as mf

SOURCE = Path(mf.__file__).parent
ROOT = Path(__file__).parent.parent
FILES = sorted(SOURCE.rglob("*.py"))

LONGEST_FILE, LONGEST_FUNCTION, MOST_ARGUMENTS = 400, 60, 12

NOT_IMPERATIVE = (
    "give gives say says tell tells let lets have has take takes make makes forget forgets whether what who".split()  # noqa: SIM905
)
"""Openings that describe or personify instead of naming the effect: Return, Compute, Parse, Build, Write, …"""


def named(path):
    return path.relative_to(SOURCE).as_posix()


@cache
def trees():
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_kernel(node):
    return any("kernel" in ast.unparse(decorator) for decorator in node.decorator_list)


def is_property(node):
    return any(re.search(r"property|setter", ast.unparse(decorator)) for decorator in node.decorator_list)


def body_length(node):
    """Lines of a function without its signature and docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_docstrings_open_with_the_effect():
    wrong = []
    for path, tree in trees().items():
        for node in functions(tree):
            text = ast.get_docstring(node)
            if text and not is_property(node) and text.split()[0].strip(",;:.").lower() in NOT_IMPERATIVE:
                wrong.append(f"{named(path)}: {node.name}: {text.splitlines()[0]}")
    assert not wrong


PAGES = [*FILES, *sorted(ROOT.glob("tests/**/*.py")), *sorted(ROOT.glob("benchmarks/*.py")), ROOT / "conftest.py"]


def test_no_docstring_is_a_nominal_riddle():
    """A docstring that opens with "What …" or "Let …" names nothing that a reader could search for.

    Those of constants count, too: strings that stand alone after an assignment.
    """
    for path in PAGES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        alone = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
        texts = [each.value for each in alone if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        opened = ("What", "Who", "Whoever", "Whose", "Let", "Give", "Say", "Have", "Forget")
        assert [text.splitlines()[0] for text in texts if text.split()[:1] and text.split()[0] in opened] == [], path


@cache
def kernels():
    return [(path, node) for path, tree in trees().items() for node in functions(tree) if is_kernel(node)]


def test_kernels_are_annotated():
    assert len(kernels()) > 50
    for path, node in kernels():
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        assert all(each.annotation is not None for each in arguments), f"{named(path)}: {node.name}"
        assert node.returns is not None, f"{named(path)}: {node.name}"


def test_kernels_use_no_operation_that_differs_when_compiled():
    for path, node in kernels():
        for each in ast.walk(node):
            assert not isinstance(each, ast.Pow), f"{named(path)}: {node.name}: **"
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Name | ast.Attribute):
                called = each.func.id if isinstance(each.func, ast.Name) else each.func.attr
                assert called not in ("sum", "mean"), f"{named(path)}: {node.name}: {called}"


PRIVATE_WORDS = re.compile(
    r"\b(hall|desk|books|talks|trouble|patience|luck|knocks?|whose turn|good for nothing|forgets?|doubtful|hears?|"
    r"done last|is told)\b",
    re.IGNORECASE,
)
"""Words of a private dialect; CONTRIBUTING.md has the field's own for them."""


def test_texts_are_in_the_words_of_the_field():
    sources = [path for path in SOURCE.rglob("*") if path.suffix in (".py", ".toml", ".j2", ".css")]
    for path in [*sources, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if PRIVATE_WORDS.search(line)] == [], path


def test_a_class_name_exists_once():
    names = Counter(node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


def test_type_checks_are_not_switched_off():
    for path in FILES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            assert not re.search(r"#\s*type:\s*ignore(?!\[)", line), f"{named(path)}:{number}"
            assert "ignore[no-untyped-def]" not in line, f"{named(path)}:{number}"


TABLES = {"report/markup.py": 1, "experiments/identity.py": 1}
"""How often the formatter is switched off, for tables that it would destroy."""


def test_the_formatter_formats():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert text.count("fmt: skip") == TABLES.get(named(path), 0), path
        assert "fmt: off" not in text, path


def test_files_and_functions_are_short():
    for path in FILES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE, path
        for node in functions(trees()[path]):
            # A body of three dots is a declaration for type checking alone, such as the constructor of a dataclass.
            if is_kernel(node) or ast.unparse(node.body[-1]) == "...":
                continue
            assert body_length(node) <= LONGEST_FUNCTION, f"{named(path)}: {node.name}"
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            counted = [each for each in arguments if each.arg not in ("self", "cls")]
            assert len(counted) <= MOST_ARGUMENTS, f"{named(path)}: {node.name}"


def test_long_kernels_say_why():
    for path in FILES:
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in functions(trees()[path]):
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
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
                wrong = [text for text in texts if isinstance(text, str) and text in names]
                assert not wrong, f"{named(path)}:{node.lineno}: {wrong}"


# --- documentation of public names -----------------------------------------------------------------------------------

DOCUMENTED = [
    name for name in mf.__all__ if not (inspect.isclass(each := getattr(mf, name)) and issubclass(each, Exception))
]
"""Every public name but the exceptions, which are described by their sentence."""

RAISING_NOTHING = {"cndcg", "kernel", "ndcg", "uniform"}
"""Public functions that raise no error of this package."""


def public(name):
    """A public class, or the plain function behind a public function or kernel."""
    value = getattr(mf, name)
    return inspect.unwrap(value.interpreted if isinstance(value, mf.Kernel) else value)


def sections(value):
    """The sections of a numpydoc docstring by title, each as its lines."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", inspect.getdoc(value) or "", flags=re.MULTILINE)
    return dict(zip(parts[1::2], (text.splitlines() for text in parts[2::2]), strict=True))


def described(lines):
    """The names that a section describes: `a, b : type` at the margin describes a and b."""
    heads = [line.partition(" : ")[0] for line in lines if line and not line.startswith(" ")]
    return {name.strip().lstrip("*") for head in heads for name in head.split(",")}


def parameters(value):
    """The parameters of a function or constructor; those that a class inherits are described by its base."""
    names = set(inspect.signature(value).parameters)
    for base in value.__bases__ if inspect.isclass(value) else ():
        if base.__module__.startswith("mcfair."):
            names -= set(inspect.signature(base).parameters)
    return names


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_names_are_documented(name):
    value = public(name)
    found = sections(value)
    missing = parameters(value) - described(found.get("Parameters", []) + found.get("Attributes", []))
    assert not missing, f"no description of {sorted(missing)}"
    assert any(line.startswith(">>> ") for line in found.get("Examples", [])), "no example"
    if inspect.isfunction(value):
        assert "Returns" in found or value.__annotations__["return"] == "None", "no section Returns"
        assert ("Raises" in found) != (name in RAISING_NOTHING), "section Raises"


@pytest.mark.parametrize("name", [name for name in DOCUMENTED if isinstance(getattr(mf, name), mf.Kernel)])
def test_examples_of_kernels_run(name):
    """Kernels are no functions to pytest, which therefore does not collect their examples."""
    function = public(name)
    (examples,) = doctest.DocTestFinder().find(function, name, globs=dict(function.__globals__))
    assert doctest.DocTestRunner().run(examples).failed == 0
