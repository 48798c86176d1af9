"""The Python of the pages can be pasted at the prompt of Python."""

import ast

import pytest
from page_blocks import ROOT, find_pages, parse_blocks

COMPOUND = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef)


def find_fault(text):
    """Return the first line that a prompt would refuse, or None.

    A prompt ends a compound statement at the first empty line, and needs one to end it.
    """
    lines = text.splitlines()
    statements = ast.parse(text).body
    for statement, after in zip(statements, [*statements[1:], None], strict=True):
        if not isinstance(statement, COMPOUND):
            continue
        within = lines[statement.lineno - 1 : statement.end_lineno]
        if "" in within:
            return within[within.index("") + 1]
        if after is not None and lines[statement.end_lineno] != "":
            return lines[statement.end_lineno]
    return None


def test_faults_are_found():
    assert find_fault("for i in 'ab':\n    print(i)\n\nprint(1)\n") is None
    assert find_fault("for i in 'ab':\n    print(i)\nprint(1)\n") == "print(1)"
    assert find_fault("def f():\n    a = 1\n\n    return a\n") == "    return a"


@pytest.mark.parametrize("page", find_pages())
def test_blocks_can_be_pasted(page):
    """Classes of the other pages are written in an editor: an empty line in them is no fault."""
    blocks = parse_blocks((ROOT / page).read_text(encoding="utf-8"))
    pasted = [block.text for block in blocks if block.language == "python" and "file" not in block.comments]
    if not page.startswith(("README", "docs/tutorial/")):
        pasted = [text for text in pasted if not any(isinstance(each, ast.ClassDef) for each in ast.parse(text).body)]
    assert [fault for text in pasted if (fault := find_fault(text)) is not None] == []
