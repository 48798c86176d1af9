"""How Sphinx builds the site: `make docs`.

The source folder is the repository itself, so that README.md, CONTRIBUTING.md and CHANGELOG.md are pages of the site
and every relative link means the same on a code host and here. Nothing is fetched when a page is viewed.
"""

from __future__ import annotations

import re
import sys
import warnings
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pygments.lexers.special import TextLexer
from sphinx.util.inspect import signature as read_signature
from sphinx.util.inspect import stringify_signature

import mcfair as mf

sys.path.insert(0, str(Path(__file__).parent))

import make_reference

from mcfair.errors import RenamedAttribute

if TYPE_CHECKING:
    from sphinx.application import Sphinx

warnings.simplefilter("ignore", mf.MCFairWarning)  # autodoc looks at attributes that have a new name

project = "mcfair"
author = "the authors of mcfair"
release = version = installed_version("mcfair")

extensions = ["myst_nb", "sphinx.ext.autodoc", "numpydoc"]
root_doc = "docs/index"
include_patterns = ["*.md", "benchmarks/*.md", "studies/**/*.md", "docs/**"]
exclude_patterns = ["**/.*", ".*", "build", "docs/results", "docs/**/*.py"]

# --- Markdown --------------------------------------------------------------------------------------------------------

myst_heading_anchors = 4
nb_execution_mode = "off"  # the outputs of notebooks are committed, and tests execute them

# --- docstrings ------------------------------------------------------------------------------------------------------

numpydoc_show_class_members = False  # autodoc lists them
default_role = "py:obj"  # a name between single backquotes is code, and a link where it is documented
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
add_module_names = False

# --- HTML ------------------------------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"mcfair {release}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # summaries are fetched, which fails on pages from the file system
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"sidebar_hide_name": False}
pygments_style = "default"
pygments_dark_style = "github-dark"

START = '<!doctype html><meta charset="utf-8"><title>mcfair</title><meta http-equiv="refresh" content="0; url={url}">\n'


ARRAY = re.compile(r"[\w.~]*ndarray\[tuple\[[\w.~]*Any, \.\.\.\], [\w.~]*dtype\[[\w.~]*?(\w+)\]\]")
PART = re.compile(r"(?<== )(\w+)\((?:[^()]|\([^()]*\))+\)")


def shorten(app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str, returns: str) -> Any:
    """Shorten a signature: types of arrays, and defaults that are objects with parameters.

    autodoc finds no signature for a kernel; it is that of the function behind it.
    """
    if isinstance(value, mf.Kernel):
        signature = stringify_signature(read_signature(value.interpreted), unqualified_typehints=True)
    if signature is None:
        return None
    return PART.sub(r"\1(...)", ARRAY.sub(r"array[\1]", signature)), returns and ARRAY.sub(r"array[\1]", returns)


def skip_kernel(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the kernels of parts, which are another form of the method that is described, and old names."""
    return True if isinstance(value, mf.Kernel | RenamedAttribute) else None


def write_api_pages(app: Sphinx, config: Any) -> None:
    """Write the pages of the Python API, which are generated as a whole and not kept in the repository."""
    pages, folder = make_reference.api_pages(), make_reference.REFERENCE
    make_reference.write_pages(pages, folder)
    for path in folder.glob("api/*.md"):
        if path.relative_to(folder).as_posix() not in pages:  # of an earlier build
            path.unlink()


def complete_reference(app: Sphinx, docname: str, source: list[str]) -> None:
    """Insert what the comments on a page of the reference stand for."""
    if docname.startswith("docs/reference/"):
        source[0] = make_reference.completed(source[0])


def read_reference_again(app: Sphinx, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Have the pages of the reference read in every build: what is inserted depends on the code."""
    return [name for name in env.found_docs if name.startswith("docs/reference/")]


def add_navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append a table of contents to the index of a folder: the pages in the order in which it links them.

    It is no part of the page itself, which is to read well on a code host.
    """
    folder, _, name = docname.rpartition("/")
    if name != "index" or docname == root_doc or "{toctree}" in source[0]:
        return
    below = {each.removeprefix(f"{folder}/") for each in app.env.found_docs if each.startswith(f"{folder}/")} - {name}
    linked = [each for each in re.findall(r"\]\(([\w-]+)\.(?:md|ipynb)", source[0]) if each in below]
    ordered = [*dict.fromkeys(linked), *sorted(below - set(linked))]
    source[0] += "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(ordered) + "\n```\n"


def write_start_page(app: Sphinx, error: Exception | None) -> None:
    """Write an index.html that leads to the first page, which lies in docs/ as it does in the repository."""
    if error is None and app.builder.name == "html":
        Path(app.outdir, "index.html").write_text(START.format(url=f"{root_doc}.html"), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect the steps above."""
    app.add_lexer("csv", TextLexer)
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-skip-member", skip_kernel)
    app.connect("config-inited", write_api_pages)
    app.connect("env-get-outdated", read_reference_again)
    app.connect("source-read", complete_reference)
    app.connect("source-read", add_navigation)
    app.connect("build-finished", write_start_page)
