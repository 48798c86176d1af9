"""The runner of pages: each convention holds, and a page that breaks its word fails for that reason."""

import page_runner
import pytest
from page_blocks import check_languages, find_pages, parse_blocks
from page_runner import PageError, compare, run_page, split_commands


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs a text as a page."""
    monkeypatch.setattr(page_runner, "ROOT", tmp_path)

    def run_text(text, name="page.md"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        run_page(name, tmp_path / name.removesuffix(".md"))

    return run_text


def python(code, output="", language="python"):
    return f"```{language}\n{code}\n```\n" + (f"\n```text\n{output}\n```\n" if output else "")


def console(code, output=""):
    return python(code, output, "console")


def test_blocks_share_a_namespace_and_a_folder(run):
    run(
        python("x = 1\nopen('note', 'w').write('there')")
        + console("cat note\necho ' second'", "there second")
        + python("print(x, __name__)", "1 __main__")
    )


def test_a_wrong_output_fails(run):
    with pytest.raises(PageError, match=r"(?s)page.md:6: another output.*-2\n\+1"):
        run(python("print(1)", "2"))


def test_values_are_printed_where_pages_are_typed_at_a_prompt(run):
    loop = python("for i in range(2):\n    str(i)\n\nprint('end')", "end")
    run(loop)
    with pytest.raises(PageError, match=r"(?s)README.md:9: another output.*\+'0'\n\+'1'\n end"):
        run(loop, "README.md")


def test_an_error_of_a_block_fails_at_its_line(run):
    with pytest.raises(PageError, match=r"(?s)page.md:4: .*line 5, in <module>\n    1 / 0\n.*ZeroDivisionError"):
        run("# Title\n\n" + python("x = 1\n1 / 0"))


def test_a_command_that_fails_is_reported(run):
    with pytest.raises(PageError, match=r"page.md:2: false: exit status 1"):
        run(console("true\nfalse\ntrue"))


def test_warnings_are_printed_as_in_a_script(run):
    run(python("import warnings\nwarnings.warn('careful')", "…UserWarning: careful\n…"))


def test_classes_of_a_page_have_a_source(run):
    run(python("class A:\n    x = 1") + python("import inspect\nprint(inspect.getsource(A))", "class A:\n    x = 1"))


def test_variables_go_from_command_to_command_and_to_python(run):
    run(
        console("WORD='two words'\necho $WORD", "two words")
        + python("import os; print(os.environ['WORD'])", "two words")
    )


def test_files_are_written_and_can_be_imported(run):
    text = "<!-- file: own/settings.py -->\n" + python("value = 7")
    run(text + python("from own.settings import value\nprint(value)", "7"))


def test_what_is_not_run_is_not_run(run):
    run("<!-- not run: it cannot end well -->\n" + python("1 / 0"))


def test_data_that_is_missing_skips_the_block(run, monkeypatch):
    monkeypatch.setitem(page_runner.DATA, "MQ2008", None)
    run("<!-- needs: MQ2008 -->\n" + python("1 / 0"))


def test_data_that_is_there_is_linked(run, monkeypatch, tmp_path):
    (tmp_path / "folds" / "Fold1").mkdir(parents=True)
    monkeypatch.setitem(page_runner.DATA, "MQ2008", tmp_path / "folds")
    run("<!-- needs: MQ2008 -->\n" + console("ls MQ2008", "Fold1"))


def test_unknown_data_fails(run):
    with pytest.raises(PageError, match="needs 'MQ2009'; known: MQ2008"):
        run("<!-- needs: MQ2009 -->\n" + python("pass"))


SERVER = """
import sys
from http.server import HTTPServer, SimpleHTTPRequestHandler
HTTPServer(("127.0.0.1", int(sys.argv[2])), SimpleHTTPRequestHandler).serve_forever()
"""


def test_background_commands_have_ports_of_their_own(run):
    fetch = "from urllib.request import urlopen\nprint(urlopen('http://127.0.0.1:8001/note').read(), 'port=8001')"
    run(
        f"<!-- file: server.py -->\n{python(SERVER)}"
        + console("echo hello > note\npython server.py --port 8001 &  # in the background")
        + python(fetch, r"b'hello\n' port=8001")
    )


def test_a_service_without_an_ampersand_fails_at_once(run):
    with pytest.raises(PageError, match="needs an & at the end"):
        run(console("mcfair serve  # on port 8000"))


def test_a_command_that_is_killed_ends(run):
    command = "bash -c 'trap \"echo ended > note; exit\" TERM; echo on; while true; do sleep 0.05; done' &"
    run(console(f"{command}\nsleep 0.3\nkill %1\ncat note", "ended"))


def test_the_service_is_ready_for_the_next_command(run):
    ask = "import mcfair as mf\nwith mf.Client('http://127.0.0.1:8000') as service:\n    print(service.ready())"
    run(
        console("mcfair serve --store memory: &\ncurl -s http://127.0.0.1:8000/readyz -o note -w '%{http_code}'", "200")
        + python(ask, "True")
    )


def test_continued_lines_and_here_documents_are_one_command():
    text = "# a comment\necho a \\\n  b\ncat > f <<'END'\nx # y\nEND\n\necho c  # why\n"
    assert split_commands(text) == ["echo a \\\n  b", "cat > f <<'END'\nx # y\nEND", "echo c  # why"]


@pytest.mark.parametrize(
    ("expected", "printed"),
    [("a…c", "abc"), ("a\n…\nc", "a\nb\nb\nc"), ("a\n…", "a"), ("a", "a  \n\n"), ("(a|b)", "(a|b)")],
)
def test_dots_stand_for_anything(expected, printed):
    compare(expected, printed)


@pytest.mark.parametrize(("expected", "printed"), [("a…c", "a\nc"), ("a", "a\nb"), ("a\nb", "a"), ("…x", "y")])
def test_dots_stand_for_no_more(expected, printed):
    with pytest.raises(PageError):
        compare(expected, printed)


def test_a_text_block_further_down_is_no_output(run):
    run(python("print(1)") + "\nThe file:\n\n```text\nanything\n```\n")


@pytest.mark.parametrize("language", ["", "py", "pycon", "Python"])
def test_an_unknown_language_fails(language):
    with pytest.raises(ValueError, match=r"page.md:2: a block of .*allowed: python, console"):
        check_languages("page.md", parse_blocks(f"```{language}\n1 / 0\n```\n"))


def test_a_directive_is_for_the_pages_of_the_site_alone():
    blocks = parse_blocks("```{toctree}\na\n```\n")
    check_languages("docs/reference/parts.md", blocks)
    with pytest.raises(ValueError, match="a directive"):
        check_languages("docs/how-to/audit.md", blocks)


@pytest.mark.parametrize("text", ["```python\nx", "<!-- not run: no -->\n\nwords\n", "<!-- file: a -->\n"])
def test_an_open_fence_and_a_lonely_comment_fail(text):
    with pytest.raises(ValueError, match=r"line \d"):
        parse_blocks(text)


def test_indented_blocks_are_found():
    (block,) = parse_blocks("- one:\n\n  ```python\n  if x:\n      y\n  ```\n")
    assert block.text == "if x:\n    y\n"


def test_pages_are_found(tmp_path):
    (tmp_path / "docs" / "new").mkdir(parents=True)
    for name in ("README.md", "CONTRIBUTING.md", "docs/index.md", "docs/new/page.md"):
        (tmp_path / name).write_text("")
    assert find_pages(tmp_path) == ["README.md", "CONTRIBUTING.md", "docs/index.md", "docs/new/page.md"]
