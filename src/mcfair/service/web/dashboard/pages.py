"""The pages of the dashboard: their addresses, who may see them, and their content.

A page is no operation of the API. It is for people: errors are pages as well, and a browser may sign in with a key.
Every page only reads. Texts of queries arrive in the body of a form, are hashed at once, and appear in no address, no
log and no page.
"""

from __future__ import annotations

import asyncio
import datetime
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec

from ....errors import NotFoundError, RequestError
from ... import wire
from ...operations import OPERATIONS
from ..auth import Authorizer
from ..layout import CONFINED, HTML, environment
from ..lifecycle import RequestClass
from ..operations import Operations
from ..requests import HTTPError, Receive, Request, check_body_headers, read_body
from ..responses import NO_STORE, Response, encode_headers
from ..sessions import Sessions
from .compare import CompareOptions, compare_view
from .formatting import format_time, plural, tie
from .items import items_view
from .overview import LENGTHS, complete, overview_view
from .queries import queries_view, query_view
from .reads import find_query_id, read_query, read_reasons, rule_changes
from .service_health import service_health

__all__ = ["Dashboard", "PageHandler"]

FORM = b"application/x-www-form-urlencoded"
MAX_FORM = 1 << 14
"""Maximum size of a form, in bytes: the longest query, every byte of it written as three."""

TARGET = "page-to-return-to"
"""Stands for the page to return to in a rendered form that asks for a key."""

SHOWN_CHANGES = 8
"""Versions of the rules on the overview."""

UNDER, OVER = (wire.ExposedItemsOptions(order=order, limit=8) for order in ("under", "over"))
"""Items on the page of items and groups."""

SPANS: dict[int, tuple[str, Literal["hour", "day"], datetime.timedelta]] = {
    24: ("24 hours", "hour", datetime.timedelta(hours=24)),
    168: ("7 days", "hour", datetime.timedelta(days=7)),
    672: ("28 days", "day", datetime.timedelta(days=28)),
    8_760: ("year", "day", datetime.timedelta(days=365)),
}
"""Periods of the overview by their hours: what they are called, by which periods they are drawn, and their length."""


class OverviewOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The query string of the overview: the hours to show, and seconds after which the page loads itself again."""

    hours: Literal[24, 168, 672, 8_760] = 168
    refresh: Annotated[int, msgspec.Meta(ge=2, le=3_600)] | None = None


QUERY_ID = re.compile(r"[0-9a-f]{32}")
RETURN_TO = re.compile(r"(queries(/[0-9a-f]{1,64})?|items|compare)?")
"""Pages to return to after signing in."""


class Page(NamedTuple):
    """A page: its method and path, the method of the dashboard that renders it, and whether it requires a session."""

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
    """Renders the pages of the dashboard.

    Parameters
    ----------
    operations
        The operations that pages read from.
    authorizer
        Checks API keys.
    """

    def __init__(self, operations: Operations, authorizer: Authorizer) -> None:
        self.operations, self.ranker = operations, operations.ranker
        self.sessions = Sessions(authorizer)
        self.routes = frozenset(page.path for page in PAGES)
        self.handlers = [PageHandler(self, page) for page in PAGES]
        self.headers = encode_headers(HTML, **CONFINED, **NO_STORE)
        self.sign_in_pages: dict[tuple[bool, str], bytes] = {}  # by depth of the page and by message, which are few
        environment().filters.update(time=format_time, plural=plural, tie=tie)

    async def show(
        self, request: Request, name: str, build: Callable[[], Any], status: int = 200, **values: Any
    ) -> Response:
        """Build the content of a page and render it, in a thread: charts take too long for the event loop."""
        return await asyncio.to_thread(lambda: self.respond(request, name, status, view=build(), **values))

    def respond(self, request: Request, name: str, status: int = 200, **values: Any) -> Response:
        """Render a template. Links are relative, because the application may be mounted anywhere."""
        base = "../" if request.path.count("/") > 1 else "./"
        body = environment().get_template(f"{name}.html.j2").render(base=base, page=name, **values)
        return Response(status, self.headers, body.encode())

    # --- pages -------------------------------------------------------------------------------------------------------

    async def overview(self, request: Request, **shared: Any) -> Response:
        """Render the overview."""
        options = wire.decode_options(OverviewOptions, request.query_string)
        label, resolution, span = SPANS[options.hours]
        periods = wire.HistoryOptions(resolution=resolution, limit=span // LENGTHS[resolution], groups=0)
        fairness, history = await asyncio.gather(self.read("fairness"), self.read("history", periods))
        changes = await self.ranker.executor.submit_async(rule_changes, SHOWN_CHANGES)
        health = service_health(self.operations)
        build = partial(overview_view, fairness, health, changes, complete(history, span), label)
        host = request.headers.get(b"host", b"127.0.0.1:8000").decode("latin-1")
        url = f"{request.scheme}://{host}{request.root_path}"
        return await self.show(request, "overview", build, url=url, spans=SPANS, options=options, **shared)

    async def queries(self, request: Request, status: int = 200, message: str = "", **shared: Any) -> Response:
        """Render the list of the most unfair queries."""
        options = wire.decode_options(wire.UnfairQueriesOptions, request.query_string)
        found, fairness = await asyncio.gather(self.read("unfair_queries", options), self.read("fairness"))
        build = partial(queries_view, found, fairness, options)
        return await self.show(request, "queries", build, status, message=message, **shared)

    async def find_query(self, request: Request, form: dict[str, str], **shared: Any) -> Response:
        """Find a query by its text or its id, and redirect to its page, whose address has the id alone."""
        text = form.get("query", "")
        try:
            wire.check_text("query", text, wire.MAX_QUERY)
            by_id = {"query_id": text} if QUERY_ID.fullmatch(text) else {"query": text}
            found = await self.ranker.executor.submit_async(find_query_id, **by_id)
        except NotFoundError:
            message = "No list has been ranked for a query of exactly this text. Spelling and case count."
            return await self.queries(request, 404, message, **shared)
        return redirect(f"queries/{found}")

    async def query(self, request: Request, **shared: Any) -> Response:
        """Render the page of a query."""
        reading = await self.ranker.executor.submit_async(read_query, request.parameters["query_id"])
        return await self.show(request, "query", partial(query_view, reading), **shared)

    async def items(self, request: Request, **shared: Any) -> Response:
        """Render the page of items and groups."""
        fairness, under, over = await asyncio.gather(
            self.read("fairness"), self.read("exposed_items", UNDER), self.read("exposed_items", OVER)
        )
        reasons: dict[str, dict[str, str]] = {}
        for query_id in dict.fromkeys(item.query_id for item in (*under.items, *over.items)):
            with suppress(NotFoundError):  # deleted meanwhile
                reasons[query_id] = await self.ranker.executor.submit_async(read_reasons, query_id)
        build = partial(items_view, fairness, under.items, over.items, reasons)
        return await self.show(request, "items", build, **shared)

    async def compare(self, request: Request, **shared: Any) -> Response:
        """Render the page that compares policies: lists of shadow mode, one replayed policy, and the experiment."""
        options = wire.decode_options(CompareOptions, request.query_string)
        report, message, status = None, "", 200
        try:
            found = await self.operations.compare(options.request())
        except RequestError as error:
            message, status = str(error).removeprefix(f"{error.field}: "), 400  # there is one field
            found = await self.operations.compare(CompareOptions().request())
        with suppress(NotFoundError):  # there is no experiment
            report = await self.read("experiment")  # last, because a comparison may be refused
        build = partial(compare_view, found, report)
        return await self.show(request, "compare", build, status, options=options, message=message, **shared)

    def read(self, name: str, *options: Any) -> Awaitable[Any]:
        """Execute an operation that reads the store in a thread of its own."""
        return asyncio.to_thread(OPERATIONS[name].function, self.ranker.executor, *options)

    # --- signing in --------------------------------------------------------------------------------------------------

    async def sign_in(self, request: Request, form: dict[str, str], **_: Any) -> Response:
        """Begin a session with the key of a form, and redirect to the page that was asked for."""
        page = form.get("page", "")
        target = page if RETURN_TO.fullmatch(page) else ""
        try:
            cookie = self.sessions.begin(request, form.get("key", "").strip())
        except HTTPError as error:
            return self.sign_in_page(request, error.status, target, str(error))
        return redirect(target or "./", cookie)

    async def sign_out(self, request: Request, **_: Any) -> Response:
        """End a session."""
        return redirect("./", self.sessions.end(request))

    def sign_in_page(self, request: Request, status: int, target: str, message: str = "") -> Response:
        """Return the form that asks for a key, rendered once: anybody may ask for it. The target is a page of ours."""
        kind = request.path.count("/") > 1, message
        if kind not in self.sign_in_pages:
            self.sign_in_pages[kind] = self.respond(request, "sign_in", target=TARGET, message=message).body
        return Response(status, self.headers, self.sign_in_pages[kind].replace(TARGET.encode(), target.encode()))

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
            page = self.respond(request, "problem", problem.status, title=title, detail=detail.detail)
        kept = [each for each in problem.headers if each[0] not in (b"content-type", b"content-length")]
        return Response(page.status, [*self.headers, *kept], page.body)


class PageHandler:
    """Handle requests for one page. Those that anybody may send take no place of others, as probes do."""

    def __init__(self, dashboard: Dashboard, page: Page) -> None:
        self.places: RequestClass | None = "page" if page.protected else None
        self.dashboard, self.page, self.method, self.path = dashboard, page, page.method, page.path
        self.render: Callable[..., Awaitable[Response]] = getattr(dashboard, page.render)

    def check(self, request: Request) -> None:
        """Validate the head of a request: where it comes from, and that it belongs to a session if one is required."""
        if self.method == "POST":
            check_same_site(request)
            check_body_headers(request.headers, FORM, MAX_FORM)
        if self.page.protected:
            self.dashboard.sessions.authorize(request)

    async def run(self, request: Request, receive: Receive, io_timeout: float) -> Response:
        """Read the form, if any, and render the page."""
        arguments: dict[str, Any] = {}
        if self.method == "POST":
            body, _ = await read_body(receive, io_timeout, MAX_FORM)
            arguments["form"] = parse_form(body)
        if self.page.protected:
            arguments["signed_in"] = self.dashboard.sessions.authorize(request)
        return await self.render(request, **arguments)


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


def redirect(location: str, cookie: str | None = None) -> Response:
    """Return a redirect to a page, relative to the present one; a cookie may be set with it."""
    headers = {"location": location, **NO_STORE} | ({} if cookie is None else {"set-cookie": cookie})
    return Response(303, encode_headers(None, **headers))
