"""The notebooks of the gallery: their code runs, prints what is stored, and nothing in them names a machine."""

import ast
import contextlib
import io
import json
import linecache
import re
import types
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "gallery"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
INDEX = (FOLDER / "index.md").read_text(encoding="utf-8")

MOST_CELLS, MOST_BYTES = 15, 300_000
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind):
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def printed(cell):
    """The text that a cell has printed, as it is stored."""
    return "".join("".join(each["text"]) for each in cell["outputs"] if each["output_type"] == "stream")


def images(cell):
    return [each["data"]["image/png"] for each in cell["outputs"] if "image/png" in each.get("data", {})]


def run_cell(source, name, space):
    """Execute a cell as a notebook does; return the value of its last expression, None if it shows none."""
    # Kernels and the identity of a policy are made from source text, which Python looks up by the name of the file.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    tree = ast.parse(source, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";") else None
    exec(compile(tree, name, "exec"), space)
    return None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), space)


def test_the_gallery_has_eight_examples_and_lists_each_of_them_once():
    assert len(NOTEBOOKS) == 8
    rows = re.findall(r"^\| !\[[^\]]+\]\(thumbnails/([\w-]+)\.png\) \| \[([^\]]+)\]\(([\w-]+)\.ipynb\) \|", INDEX, re.M)
    assert sorted(name for _, _, name in rows) == [path.stem for path in NOTEBOOKS]
    for picture, title, name in rows:
        assert picture == name
        assert (FOLDER / "thumbnails" / f"{name}.png").stat().st_size < 30_000
        heading = "".join(cells(FOLDER / f"{name}.ipynb", "markdown")[0]["source"]).splitlines()[0]
        assert heading.startswith(f"# {title}")


@each_notebook
def test_code_runs_and_prints_what_is_stored(path, tmp_path, monkeypatch):
    import matplotlib as mpl  # here, because every process collects this file
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    space = types.ModuleType("__notebook__").__dict__
    with mpl.rc_context(), contextlib.ExitStack() as stack:
        stack.callback(plt.close, "all")
        for number, cell in enumerate(cells(path, "code"), start=1):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                shown = run_cell("".join(cell["source"]), f"<{path.stem} {number}>", space)
            assert out.getvalue() == printed(cell), f"cell {number}"
            assert len(plt.get_fignums()) + hasattr(shown, "_repr_png_") == len(images(cell)), f"cell {number}"
            plt.close("all")


@each_notebook
def test_notebook_is_small_and_names_no_machine(path):
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert len(notebook["cells"]) <= MOST_CELLS
    assert len(text) <= MOST_BYTES
    assert notebook["metadata"] == METADATA
    assert all(set(cell["metadata"]) <= {"mystnb"} for cell in notebook["cells"])
    words = re.sub(r'"image/png": "[^"]*"', "", text)
    assert not re.search(r"/(home|root|tmp|usr|work|Users)\b|\b20\d\d-\d\d-\d\d\b|\d\d:\d\d:\d\d|0x[0-9a-f]{6}", words)


@each_notebook
def test_numbers_of_the_findings_were_printed(path):
    """Every number of the findings stands in an output, or in the code or prose above."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    above = "\n".join("".join(cell["source"]) for cell in notebook["cells"][:-1])
    above += "\n".join(printed(cell) for cell in cells(path, "code"))
    known = {number.replace(",", "").lstrip("+-") for number in re.findall(r"[+-]?\d[\d,]*(?:\.\d+)?", above)}
    found = "".join(notebook["cells"][-1]["source"]).split("## Try next")[0]
    numbers = re.findall(r"\d[\d,]*(?:\.\d+)?", re.sub(r"`[^`]*`", "", found))
    assert [each for each in numbers if each.strip(",").replace(",", "") not in known] == []
