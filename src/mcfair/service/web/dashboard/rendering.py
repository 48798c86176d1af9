"""The content of the pages of the dashboard: each is one read in the background, rendered there as well."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec

from ....errors import NotFoundError, RequestError
from ... import operations, wire
from ...background.worker import Read, Reading, Reply
from ..layout import CONFINED, HTML, environment
from ..responses import NO_STORE, encode_headers
from .compare import CompareOptions, compare_view
from .formatting import format_time, plural, tie
from .items import items_view
from .overview import LENGTHS, complete, overview_view
from .queries import queries_view, query_view
from .reads import find_query_id, read_query, read_reasons, rule_changes

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

HEADERS = encode_headers(HTML, **CONFINED, **NO_STORE)


class PageRequest(msgspec.Struct, kw_only=True):
    """A request for a page: where links are relative to, and what it was given."""

    base: str
    url: str = ""
    """Address of the service, as the browser has it."""
    signed_in: bool = False
    query_string: bytes = b""
    query_id: str = ""
    form: dict[str, str] = {}


def render(name: str, page: PageRequest, status: int = 200, **values: Any) -> Reply:
    """Render a template. Links are relative, because the application may be mounted anywhere."""
    templates = environment()
    templates.filters.update(time=format_time, plural=plural, tie=tie)
    text = templates.get_template(f"{name}.html.j2").render(
        base=page.base, page=name, signed_in=page.signed_in, **values
    )
    return Reply(status, HEADERS, text.encode())


def redirect(location: str, cookie: str | None = None) -> Reply:
    """Return a redirect to a page, relative to the present one; a cookie may be set with it."""
    headers = {"location": location, **NO_STORE} | ({} if cookie is None else {"set-cookie": cookie})
    return Reply(303, encode_headers(None, **headers), b"")


def overview(reading: Reading, page: PageRequest) -> Reply:
    """Render the overview."""
    options = wire.decode_options(OverviewOptions, page.query_string)
    label, resolution, span = SPANS[options.hours]
    periods = wire.HistoryOptions(resolution=resolution, limit=span // LENGTHS[resolution], groups=0)
    points = complete(operations.history(reading, periods), span)
    changes = rule_changes(reading.store, SHOWN_CHANGES)
    view = overview_view(operations.fairness(reading), changes, points, label)
    return render("overview", page, view=view, url=page.url, spans=SPANS, options=options)


def queries(reading: Reading, page: PageRequest, status: int = 200, message: str = "") -> Reply:
    """Render the list of the most unfair queries."""
    options = wire.decode_options(wire.UnfairQueriesOptions, page.query_string)
    view = queries_view(operations.unfair_queries(reading, options), operations.fairness(reading), options)
    return render("queries", page, status, view=view, message=message)


def find_query(reading: Reading, page: PageRequest) -> Reply:
    """Find a query by its text or its id, and redirect to its page, whose address has the id alone."""
    text = page.form.get("query", "")
    try:
        wire.check_text("query", text, wire.MAX_QUERY)
        by_id = {"query_id": text} if QUERY_ID.fullmatch(text) else {"query": text}
        return redirect(f"queries/{find_query_id(reading.store, **by_id)}")
    except NotFoundError:
        message = "No list has been ranked for a query of exactly this text. Spelling and case count."
        return queries(reading, page, 404, message)


def query(reading: Reading, page: PageRequest) -> Reply:
    """Render the page of a query."""
    return render("query", page, view=query_view(read_query(reading, page.query_id)))


def items(reading: Reading, page: PageRequest) -> Reply:
    """Render the page of items and groups."""
    under, over = (operations.exposed_items(reading, each).items for each in (UNDER, OVER))
    reasons: dict[str, dict[str, str]] = {}
    for query_id in dict.fromkeys(item.query_id for item in (*under, *over)):
        with suppress(NotFoundError):  # deleted meanwhile
            reasons[query_id] = read_reasons(reading.store, query_id)
    return render("items", page, view=items_view(operations.fairness(reading), under, over, reasons))


def compare(reading: Reading, page: PageRequest) -> Reply:
    """Render the page that compares policies: lists of shadow mode, one replayed policy, and the experiment."""
    options = wire.decode_options(CompareOptions, page.query_string)
    report, message, status = None, "", 200
    try:
        found = operations.compare(reading, options.request())
    except RequestError as error:
        message, status = str(error).removeprefix(f"{error.field}: "), 400  # there is one field
        found = operations.compare(reading, CompareOptions().request())
    with suppress(NotFoundError):  # there is no experiment
        report = operations.experiment(reading)
    return render("compare", page, status, view=compare_view(found, report), options=options, message=message)


PAGES: tuple[Callable[..., Reply], ...] = (overview, queries, find_query, query, items, compare)
PAGE_READS = {f"page {page.__name__}": Read(page, {"page": PageRequest}) for page in PAGES}
"""Reads of the pages by name."""
