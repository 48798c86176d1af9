"""HTML pages in one layout: the templates, the stylesheet, and the headers that confine a page to this service.

Pages are rendered here and need no script. Their stylesheet is part of them, and the Content-Security-Policy names its
hash, so that a browser applies nothing else and fetches nothing from anywhere, whatever the data contains.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from ...errors import SettingError

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
except ImportError:
    raise SettingError("the service needs jinja2: pip install 'mcfair[service]'") from None


HTML = "text/html; charset=utf-8"

STYLE = files(__package__).joinpath("templates", "style.css").read_text(encoding="utf-8")
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

CONFINED = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}
"""Headers of every page: no scripts, no frames, nothing from elsewhere."""


@cache
def environment() -> Environment:
    """Return the templates of the HTTP interface. Values are escaped unless they are marked up already."""
    made = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shared: dict[str, Any] = {"style": Markup(STYLE), "version": version("mcfair"), "base": "./", "signed_in": False}
    made.globals.update(shared)
    return made
