"""The pages of the dashboard: their addresses and who may see them; `rendering` has their content.

A page is no operation of the API. It is for people: errors are pages as well, and a browser may sign in with a key.
Every page only reads. Texts of queries arrive in the body of a form, are hashed at once, and appear in no address, no
log and no page.
"""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec

from ... import wire
from ...background.process import Reads
from ...background.worker import Reply
from ..auth import Authorizer
from ..lifecycle import RequestClass
from ..operations import respond
from ..requests import HTTPError, Receive, Request, check_body_headers, read_body
from ..responses import Response
from ..sessions import Sessions
from .rendering import PageRequest, redirect, render

FORM = b"application/x-www-form-urlencoded"
MAX_FORM = 1 << 14
"""Maximum size of a form, in bytes: the longest query, every byte of it written as three."""

TARGET = "page-to-return-to"
"""Stands for the page to return to in a rendered form that asks for a key."""

RETURN_TO = re.compile(r"(queries(/[0-9a-f]{1,64})?|items|compare)?")
"""Pages to return to after signing in."""


class Page(NamedTuple):
    """A page: its method and path, what renders it, and whether it requires a session."""

    method: str
    path: str
    render: str
    protected: bool = True


PAGES = (
    Page("GET", "/", "overview"),
    Page("GET", "/queries", "queries"),
    Page("POST", "/queries", "find_query"),
    Page("GET", "/queries/{query_id}", "query"),
    Page("GET", "/items", "items"),
    Page("GET", "/compare", "compare"),
    Page("POST", "/sign-in", "sign_in", protected=False),
    Page("POST", "/sign-out", "sign_out", protected=False),
)


class Dashboard:
    """The pages of the dashboard.

    Parameters
    ----------
    background
        Renders the pages.
    authorizer
        Checks API keys.
    """

    def __init__(self, background: Reads, authorizer: Authorizer) -> None:
        self.background, self.sessions = background, Sessions(authorizer)
        self.routes = frozenset(page.path for page in PAGES)
        self.handlers = [PageHandler(self, page) for page in PAGES]
        self.sign_in_pages: dict[tuple[bool, str], Reply] = {}  # by depth of the page and by message, which are few

    async def page(self, name: str, request: Request, signed_in: bool, form: dict[str, str]) -> Response:
        """Have a page rendered in the background."""
        host = request.headers.get(b"host", b"127.0.0.1:8000").decode("latin-1")
        page = PageRequest(
            base=base_of(request),
            url=f"{request.scheme}://{host}{request.root_path}",
            signed_in=signed_in,
            query_string=request.query_string,
            query_id=request.parameters.get("query_id", ""),
            form=form,
        )
        return respond(await self.background.ask(f"page {name}", {"page": page}))

    # --- signing in --------------------------------------------------------------------------------------------------

    async def sign_in(self, request: Request, form: dict[str, str]) -> Response:
        """Begin a session with the key of a form, and redirect to the page that was asked for."""
        page = form.get("page", "")
        target = page if RETURN_TO.fullmatch(page) else ""
        try:
            cookie = self.sessions.begin(request, form.get("key", "").strip())
        except HTTPError as error:
            return self.sign_in_page(request, error.status, target, str(error))
        return respond(redirect(target or "./", cookie))

    async def sign_out(self, request: Request, form: dict[str, str]) -> Response:
        """End a session."""
        return respond(redirect("./", self.sessions.end(request)))

    def sign_in_page(self, request: Request, status: int, target: str, message: str = "") -> Response:
        """Return the form that asks for a key, rendered once: anybody may ask for it. The target is a page of ours."""
        kind = request.path.count("/") > 1, message
        if kind not in self.sign_in_pages:
            page = PageRequest(base=base_of(request))
            self.sign_in_pages[kind] = render("sign_in", page, target=TARGET, message=message)
        form = self.sign_in_pages[kind]
        return respond(Reply(status, form.headers, form.body.replace(TARGET.encode(), target.encode())))

    def problem_page(self, request: Request, problem: Response) -> Response:
        """Render a problem response as a page; if a key is required, as the form that asks for one."""
        detail = msgspec.json.decode(problem.body, type=wire.Problem)
        if problem.status == 401:
            session_ended = b"cookie" in request.headers and "session" in detail.detail
            path = request.path.lstrip("/")
            target = path if RETURN_TO.fullmatch(path) else ""
            page = self.sign_in_page(request, 401, target, detail.detail if session_ended else "")
        else:
            title = HTTPStatus(problem.status).phrase
            page = respond(problem_reply(base_of(request), problem.status, title, detail.detail))
        kept = [each for each in problem.headers if each[0] not in (b"content-type", b"content-length")]
        headers = [each for each in page.headers if each[0] != b"content-length"]
        return Response(page.status, [*headers, *kept], page.body)


class PageHandler:
    """Handle requests for one page. Those that anybody may send take no place of others, as probes do."""

    def __init__(self, dashboard: Dashboard, page: Page) -> None:
        self.places: RequestClass | None = "page" if page.protected else None
        self.dashboard, self.page, self.method, self.path = dashboard, page, page.method, page.path

    def check(self, request: Request) -> None:
        """Validate the head of a request: where it comes from, and that it belongs to a session if one is required."""
        if self.method == "POST":
            check_same_site(request)
            check_body_headers(request.headers, FORM, MAX_FORM)
        if self.page.protected:
            self.dashboard.sessions.authorize(request)

    async def run(self, request: Request, receive: Receive, io_timeout: float) -> Response:
        """Read the form, if any, and render the page."""
        form: dict[str, str] = {}
        if self.method == "POST":
            body, _ = await read_body(receive, io_timeout, MAX_FORM)
            form = parse_form(body)
        if self.page.protected:
            signed_in = self.dashboard.sessions.authorize(request)
            return await self.dashboard.page(self.page.render, request, signed_in, form)
        end_or_begin = self.dashboard.sign_in if self.page.render == "sign_in" else self.dashboard.sign_out
        return await end_or_begin(request, form)


def check_same_site(request: Request) -> None:
    """Refuse a form of another site, or of another port of this one: browsers name the page that sent it.

    Over plain HTTP they send its origin only, which must be the Host header, so that a proxy has to pass on the port.
    """
    site, origin = request.headers.get(b"sec-fetch-site"), request.headers.get(b"origin")
    if site is not None:
        foreign = site not in (b"same-origin", b"none")
    else:
        scheme, _, named = (origin or b"").rpartition(b"//")
        host = scheme + b"//" + request.headers.get(b"host", b"")
        foreign = origin is not None and (not named or address_of(origin) != address_of(host))
    if foreign:
        detail = (
            "this form was sent by a page of another site, or a proxy does not pass on the Host header with its port"
        )
        raise HTTPError(403, detail, "Sec-Fetch-Site" if site else "Origin")


def address_of(origin: bytes) -> tuple[str | None, int | None]:
    """Return the host and the port of an origin, None for what it does not have.

    Examples
    --------
    >>> [address_of(origin) for origin in (b"http://Shop.example", b"https://[::1]:80", b"null", b"http://[")]
    [('shop.example', 80), ('::1', 80), (None, None), (None, None)]
    """
    try:
        found = urlsplit(origin.decode("latin-1"))
        return found.hostname, found.port or {"http": 80, "https": 443}.get(found.scheme)
    except ValueError:
        return None, None


def parse_form(body: bytes) -> dict[str, str]:
    """Parse the fields of a form; the last value counts if a field is repeated."""
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=8)
    except ValueError:
        raise HTTPError(400, "the body is not a form with few fields in UTF-8") from None
    return {name: values[-1] for name, values in fields.items()}


@lru_cache(64)
def problem_reply(base: str, status: int, title: str, detail: str) -> Reply:
    """Render a problem. Under overload many requests have the same one, and it is rendered by the event loop."""
    return render("problem", PageRequest(base=base), status, title=title, detail=detail)


def base_of(request: Request) -> str:
    """Return what links of a page begin with."""
    return "../" if request.path.count("/") > 1 else "./"
