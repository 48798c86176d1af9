"""Checks that an annotation cannot express, and conversions of requests."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import structs

from ...errors import RequestError, choices, field_names, hint_at, unknown
from .requests import (
    FIELDS_BESIDES_ITEMS,
    MAX_CELLS,
    MAX_ID,
    MAX_POLICY,
    MAX_QUERY,
    MAX_RANK,
    MAX_SESSION,
    Event,
    Feedback,
    ImportedQuery,
    Item,
    ItemsOnly,
    RankRequest,
    RawFeedback,
    RawRankRequest,
    fields_besides_items,
)
from .responses import EventResult

__all__ = [
    "as_builtin",
    "as_events",
    "as_items",
    "as_list",
    "check_cells",
    "check_id",
    "check_imports",
    "check_items",
    "check_label",
    "check_rank_request",
    "check_text",
    "convert",
    "decode_body",
    "decode_options",
    "encode",
    "encoder",
    "field_of",
    "is_finite",
    "read_items",
    "with_raw_items",
]

T = TypeVar("T")

encoder = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """Encode a value as JSON; NumPy scalars are encoded as numbers."""
    try:
        return msgspec.json.encode(value, enc_hook=to_builtin)
    except UnicodeEncodeError as error:
        raise RequestError(f"{error.object!r} is not valid Unicode") from None


def to_builtin(value: Any) -> Any:
    """Convert a value that JSON does not know; raise RequestError if it is not a NumPy scalar."""
    if hasattr(value, "item"):
        return as_builtin(value)
    raise RequestError(f"{value!r} cannot be sent: it is of type {type(value).__name__}")


def with_raw_items(request: RankRequest) -> RawRankRequest:
    """Return a request with its items encoded as JSON, as the HTTP interface receives them."""
    for i, item in enumerate(request.items):
        if item.prior is not None and not is_finite(item.prior):  # JSON has no nan: it would become no prior
            field = f"items[{i}].prior"
            raise RequestError(f"{field} = {item.prior!r} is not allowed: expected a number in [0, 1]", field)
    try:
        items = msgspec.Raw(msgspec.json.encode(request.items, enc_hook=to_builtin))
    except UnicodeEncodeError:
        check_items(request.items)
        raise
    return RawRankRequest(items=items, **dict(zip(FIELDS_BESIDES_ITEMS, fields_besides_items(request), strict=True)))


def read_items(items: msgspec.Raw) -> list[Item]:
    """Decode and validate raw items; errors name the same fields as if the whole request had been decoded."""
    read: list[Item] = decode_body(items_decoder, b'{"items":%b}' % items).items
    check_items(read)
    return read


items_decoder = msgspec.json.Decoder(ItemsOnly)


def decode_body(decoder: msgspec.json.Decoder[Any], body: bytes | bytearray) -> Any:
    """Decode a request body; raise RequestError with the field at fault."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        if decoder.type is Feedback:
            return read_events(decode_body(feedback_decoder, body))
        raise refusal(error, decoder.type) from None
    except msgspec.DecodeError as error:
        raise RequestError(f"the body is not JSON: {error}") from None
    except (UnicodeDecodeError, RecursionError):
        raise RequestError("the body is not JSON: it is not UTF-8, or nested too deeply") from None


feedback_decoder, event_decoder = msgspec.json.Decoder(RawFeedback), msgspec.json.Decoder(Event)


def read_events(batch: RawFeedback) -> Feedback:
    """Decode the events of a batch one by one; one that does not fit its type becomes its result, which is `invalid`.

    This takes a hundred times as long as decoding a batch without such an event at once.
    """
    events: list[Event | EventResult] = []
    for event in batch.events:
        try:
            events.append(decode_body(event_decoder, event))
        except RequestError as error:
            events.append(EventResult("invalid", str(error)))
    return Feedback(events=events)  # type: ignore[arg-type]


def decode_options(kind: type[T], query_string: bytes) -> T:
    """Decode the query string of a URL to typed options; raise RequestError with the parameter at fault."""
    try:
        pairs = parse_qsl(query_string.decode("ascii"), keep_blank_values=True, max_num_fields=100, errors="strict")
    except ValueError:
        raise RequestError("the query string cannot be decoded") from None
    values = dict(pairs)
    if len(values) < len(pairs):
        raise RequestError("a parameter of the query string is repeated")
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise refusal(error, kind, values) from None


def check_rank_request(request: RawRankRequest) -> None:
    """Check the lengths of a query, of a policy and of a session id."""
    check_text("query", request.query, MAX_QUERY)
    if request.policy is not None:
        check_text("policy", request.policy, MAX_POLICY)
    if request.session is not None:
        check_text("session", request.session, MAX_SESSION)


def check_cells(n: int, k: int, field: str = "k") -> None:
    """Check the number of items times ranks; `field` is the name of k in the request."""
    if n * k > MAX_CELLS:
        raise RequestError(
            f"{field} = {k} is not allowed for {n} items: expected at most {MAX_CELLS // n:,}, because items times "
            f"{field} may not exceed {MAX_CELLS:,}",
            field,
        )


def check_items(items: list[Item], field: str = "items") -> None:
    """Check the lengths of ids and groups, and that ids are distinct; `field` is their name in the request."""
    ids = [item.id for item in items]
    texts = ids + [item.group for item in items if item.group is not None]
    if len(set(ids)) == len(ids) and "".join(texts).isascii() and max(map(len, texts)) <= MAX_ID:
        return  # the common case in a few fast calls; the loop below finds what is wrong
    seen: set[str] = set()
    for i, item in enumerate(items):
        check_text(f"{field}[{i}].id", item.id, MAX_ID)
        if item.group is not None:
            check_text(f"{field}[{i}].group", item.group, MAX_ID)
        if item.id in seen:
            raise RequestError(
                f"{field}[{i}].id = {item.id!r} is a duplicate: ids must be distinct", f"{field}[{i}].id"
            )
        seen.add(item.id)


def check_imports(queries: list[ImportedQuery]) -> None:
    """Check the lengths of texts, that ids and ranks are distinct, and that nothing was clicked more than shown."""
    for i, given in enumerate(queries):
        check_text(f"queries[{i}].query", given.query, MAX_QUERY)
        ranks = max(rank for item in given.items for rank, _, _ in item.counts)
        if len(given.items) * ranks > MAX_CELLS:
            raise RequestError(
                f"queries[{i}] has {len(given.items):,} items at {ranks:,} ranks: expected at most {MAX_CELLS:,} items "
                "times ranks; import the items in several parts",
                f"queries[{i}].items",
            )
        seen: set[str] = set()
        for j, item in enumerate(given.items):
            field = f"queries[{i}].items[{j}]"
            check_text(f"{field}.id", item.id, MAX_ID)
            if item.group is not None:
                check_text(f"{field}.group", item.group, MAX_ID)
            if item.id in seen:
                raise RequestError(f"{field}.id = {item.id!r} is a duplicate: ids must be distinct", f"{field}.id")
            seen.add(item.id)
            if len({rank for rank, _, _ in item.counts}) < len(item.counts):
                raise RequestError(f"{field}.counts has a rank twice: ranks must be distinct", f"{field}.counts")
            for rank, shown, clicks in item.counts:
                if not 1 <= rank <= MAX_RANK:
                    raise RequestError(f"{field}.counts has rank {rank}: expected 1 to {MAX_RANK:,}", f"{field}.counts")
                if clicks > shown:
                    raise RequestError(
                        f"{field}.counts has {clicks:,} clicks at rank {rank}, where it was shown {shown:,} times: "
                        "expected at most as many",
                        f"{field}.counts",
                    )


def check_text(field: str, text: str, most: int) -> None:
    """Check that a text is valid Unicode and has at most `most` bytes."""
    if text.isascii() and len(text) <= most:
        return
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise RequestError(f"{field} is not valid Unicode: it contains a lone surrogate", field) from None
    if size > most:
        raise RequestError(f"{field} has {size:,} bytes: expected at most {most:,}", field)


def check_id(field: str, id: Any) -> str:
    """Check the type and the length of an id that becomes part of a URL."""
    if not (isinstance(id, str) and id):
        raise RequestError(f"{field} = {id!r} is not allowed: expected a text", field)
    check_text(field, id, MAX_ID)
    return id


def check_label(field: str, text: str) -> None:
    """Check that a label can be printed in one line: no control characters, line separators or lone surrogates."""
    if not text.isprintable():
        raise RequestError(f"{field} = {text!r} is not allowed: expected printable characters", field)


def convert(kind: type[T], value: Any) -> T:
    """Convert plain data to a typed request; raise RequestError with the field at fault."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise refusal(error, kind, value) from None


def refusal(error: msgspec.ValidationError, kind: Any, value: Any = None) -> RequestError:
    """Return the error for a request that msgspec refuses: the field at fault, what is allowed, what was got."""
    field, message = field_of(str(error))
    path = re.findall(r"[^.\[\]]+", str(error).partition(" - at `$")[2].rstrip("`"))
    if wrong := re.fullmatch(r"Invalid enum value '?(.*?)'?", message, re.DOTALL):
        words = " or ".join(map(repr, choices(hint_at(kind, path))))
        message = f"Invalid enum value {reprlib.repr(wrong[1])}: expected {words}"
    elif surplus := re.fullmatch(r".*unknown field `(.*)`", message, re.DOTALL):
        message = unknown("field", surplus[1][:80], field_names(hint_at(kind, path)))
    elif "got" not in message and isinstance(value, dict) and field in value:
        message += f", got {reprlib.repr(value[field])}"
    if field and not (field.isprintable() and len(field) <= MAX_ID):  # it may contain a name that the client chose
        field = ascii(field[:80])[1:-1]
    return RequestError(f"{field}: {message}" if field else message, field)


def field_of(message: str) -> tuple[str | None, str]:
    """Split a validation message of msgspec into the name of the field and the message.

    Examples
    --------
    >>> field_of("Expected `float` <= 1.0 - at `$.items[3].prior`")
    ('items[3].prior', 'Expected `float` <= 1.0')
    >>> field_of("Object missing required field `query`")
    ('query', 'Object missing required field `query`')
    """
    text, _, path = message.partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    named = re.search(r"field `([^`]+)`", text)
    if named:
        path = f"{path}.{named[1]}" if path else named[1]
    return path or None, text


def as_items(items: Iterable[Item | str | dict[str, Any]]) -> list[Item]:
    """Convert items from any form that the Python interface accepts."""
    return [
        item
        if isinstance(item, Item)
        else Item(id=item)
        if isinstance(item, str)
        else as_struct(Item, "items", i, item)
        for i, item in enumerate(as_list("items", items))
    ]


def as_struct(kind: type[T], field: str, i: int, given: Any) -> T:
    """Convert one of the dicts in a list; errors name its position."""
    if not isinstance(given, dict):
        allowed = f"expected {'an id, ' if kind is Item else ''}a dict or an instance of {kind.__name__}"
        raise RequestError(f"{field}[{i}] = {reprlib.repr(given)} is not allowed: {allowed}", f"{field}[{i}]")
    try:
        for name, value in given.items():
            if isinstance(value, str):
                check_text(str(name), value, MAX_ID)
        return convert(kind, {name: as_builtin(value) for name, value in given.items()})
    except RequestError as error:
        raise RequestError(f"{field}[{i}].{error}", f"{field}[{i}].{error.field}") from None


def as_list(field: str, values: Iterable[T]) -> list[T]:
    """Return what an iterable yields; a text is not taken for a list of its characters."""
    if isinstance(values, Iterable) and not isinstance(values, str | bytes):
        return list(values)
    raise RequestError(f"{field} = {reprlib.repr(values)} is not allowed: expected a list", field)


def is_finite(value: Any) -> bool:
    """Return whether a value is a finite number."""
    try:
        return math.isfinite(value)
    except TypeError:
        return False


def as_builtin(value: Any) -> Any:
    """Convert a NumPy scalar to a Python one; return anything else unchanged."""
    return value.item() if hasattr(value, "item") else value


def as_events(events: Iterable[Event | dict[str, Any]]) -> list[Event | None]:
    """Convert events from any form that the Python interface accepts; one whose impression is None becomes None."""
    given = [structs.asdict(event) if isinstance(event, Event) else event for event in as_list("events", events)]
    return [
        None
        if isinstance(event, dict) and event.get("impression", "") is None
        else as_struct(Event, "events", i, event)
        for i, event in enumerate(given)
    ]
