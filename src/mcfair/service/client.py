"""Speak to a service over HTTP, with `Client` in plain code and `AsyncClient` in asyncio; no retry counts twice.

All that decides stands in `Talks`, once: generators that yield what to send or how long to wait, are given what came
of it, and return the answer. The two clients only carry it out.
"""

from __future__ import annotations

import asyncio
import email.utils
import inspect
import math
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from functools import wraps
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from ..errors import ConflictError, MCFairError, NotFoundError, RequestError, SettingError, UnavailableError
from ..service import wire

if TYPE_CHECKING:
    import httpx

    from ..policies.base import Policy

__all__ = ["AsyncClient", "Client"]

T = TypeVar("T")
P = ParamSpec("P")

RETRIED = (408, 429, 502, 503, 504)
REFUSALS: dict[int, type[MCFairError]] = {404: NotFoundError, 409: ConflictError}

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
"""Seconds: the most to wait after the first failure, doubled after each, and after any."""

DICE = random.SystemRandom()
"""Not the common generator: programs that seed it would all wait equally long, and get other numbers themselves."""


# --- what is said ----------------------------------------------------------------------------------------------------


class Send(NamedTuple):
    """A request to send; `stream` leaves the body of a good answer to be read by and by."""

    method: str
    path: str
    content: bytes | None = None
    headers: Mapping[str, str] = {}
    stream: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Answer(NamedTuple):
    """What came back; `response` only if its body is still to be read."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    response: httpx.Response | None = None

    def problem(self) -> wire.Problem | None:
        """Give what the service says went wrong; nothing if it is not the service that speaks."""
        try:
            return msgspec.json.decode(self.content, type=wire.Problem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def __str__(self) -> str:
        problem = self.problem()
        return f"{self.status}, {problem.detail if problem else excerpt(self.content)}"


class Lost(NamedTuple):
    """No answer came; if it was `sent`, what was asked for may have been done."""

    reason: str
    sent: bool

    def __str__(self) -> str:
        return self.reason


Talk: TypeAlias = Generator[Send | float, Any, T]
"""Yields requests, for which it is given an `Answer` or `Lost`, and seconds to wait; returns what was wanted."""


class Talks:
    """All that can be asked of a service."""

    def __init__(self, address: str, patience: float) -> None:
        self.address = address
        self.patience = patience

    # --- ranking and feedback

    def rank(
        self,
        query: str,
        items: Iterable[wire.Item | str | dict[str, Any]],
        k: int = 10,
        *,
        policy: Policy | str | None = None,
        explain: bool = False,
        defer_exposure: bool = False,
        shadow: bool = False,
        key: str | None = None,
    ) -> Talk[wire.Ranking]:
        """Rank the candidates of a query.

        Parameters
        ----------
        query
            The text of the query.
        items
            The candidates: ids, or items with a prior relevance and a group.
        k
            The most items to show.
        policy
            What to rank by, such as "MCFair(alpha=100)", instead of the policy in force.
        explain
            Give the terms of every score.
        defer_exposure
            Count nothing as seen until `shown` says so.
        shadow
            Return the items in the order given, and record what would have been shown.
        key
            Names this request: sent again with the same key, it is answered as before and counts once. A new one is
            made for each call unless given.
        """
        key = secrets.token_hex(16) if key is None else key
        if not is_word(key) or len(key) > wire.MAX_KEY:
            raise RequestError(
                f"key = {key!r} is not allowed: expected 1 to {wire.MAX_KEY} visible ASCII characters", "key"
            )
        request = wire.RankRequest(
            query=query,
            items=[wire.as_item(item) for item in items],
            k=k,
            policy=None if policy is None else str(policy),
            explain=explain,
            defer_exposure=defer_exposure,
            shadow=shadow,
        )
        for i, item in enumerate(request.items):
            if item.prior is not None and not math.isfinite(item.prior):  # JSON has no nan: it would become no prior
                field = f"items[{i}].prior"
                raise RequestError(f"{field} = {item.prior!r} is not allowed: expected a number in [0, 1]", field)
        send = Send("POST", "/v1/rank", encoded(request), {"Idempotency-Key": key})
        advice = f"; with key={key!r} it can be sent again and counts once"
        return (yield from self.ask(send, wire.Ranking, advice=advice))

    def feedback(self, events: Iterable[wire.Event | dict[str, Any]]) -> Talk[list[wire.EventResult]]:
        """Report clicks and what was shown, as many as there are; what became of each comes back in order.

        An event that an attempt without an answer had brought already is a `duplicate`: it counts once.
        """
        return (yield from self.report("/v1/feedback", events))

    def retract(self, events: Iterable[wire.Event | dict[str, Any]]) -> Talk[list[wire.EventResult]]:
        """Undo events: the same that `feedback` takes."""
        return (yield from self.report("/v1/retract", events))

    def click(self, impression: str, item: str) -> Talk[wire.EventResult]:
        """Report a click on an item of an impression."""
        return (yield from self.report("/v1/feedback", [wire.Event(impression=impression, item=item)]))[0]

    def shown(self, impression: str, ranks: Iterable[int] | None = None) -> Talk[wire.EventResult]:
        """Report which ranks of an impression were seen, all if they are not given."""
        seen = None if ranks is None else list(ranks)
        event = wire.Event(impression=impression, type="shown", ranks=seen)
        return (yield from self.report("/v1/feedback", [event]))[0]

    # --- what is known

    def explain(self, impression: str) -> Talk[wire.Explanation]:
        """Explain why the items of an impression stand where they stand."""
        return (yield from self.ask(Send("GET", path("impressions", impression, "explain")), wire.Explanation))

    def query_state(self, query: str | None = None, *, query_id: str | None = None) -> Talk[wire.QueryState]:
        """Give what was observed of a query, named by its text or its id."""
        if (query is None) == (query_id is None):
            raise RequestError("expected a query or a query_id, one of the two", "query")
        if query is None:
            return (yield from self.ask(Send("GET", path("queries", str(query_id))), wire.QueryState))
        lookup = encoded(wire.QueryLookup(query))
        return (yield from self.ask(Send("POST", "/v1/queries/lookup", lookup), wire.QueryState))

    def fairness(self) -> Talk[wire.Fairness]:
        """Give the fairness over all queries, and of each group."""
        return (yield from self.ask(Send("GET", "/v1/fairness"), wire.Fairness))

    def usage(self) -> Talk[wire.Usage]:
        """Say how much is stored."""
        return (yield from self.ask(Send("GET", "/v1/usage"), wire.Usage))

    def ready(self) -> Talk[bool]:
        """Say whether the service takes requests, without waiting until it does."""
        outcome = yield Send("GET", "/readyz")
        return isinstance(outcome, Answer) and outcome.status == 200

    def export(self) -> Talk[httpx.Response]:
        """Begin to read all that is stored."""
        answer = yield from self.answered(Send("GET", "/v1/export", stream=True))
        assert answer.response is not None
        return answer.response

    # --- settings, deletion, keys

    def policy(self) -> Talk[wire.PolicyInForce]:
        """Say how lists are made now."""
        return (yield from self.ask(Send("GET", "/v1/policy"), wire.PolicyInForce))

    def change_policy(self, /, **changes: Any) -> Talk[wire.PolicyInForce]:
        """Change how lists are made, such as `policy="MCFair(alpha=10)"` or `half_life=86400`; the rest stays."""
        change = wire.convert(wire.PolicyChange, changes)
        return (yield from self.ask(Send("PUT", "/v1/policy", encoded(change)), wire.PolicyInForce))

    def delete_query(self, query_id: str) -> Talk[None]:
        """Forget a query and all that was observed of it."""
        yield from self.answered(Send("DELETE", path("queries", query_id)), gone_is_done=True)

    def delete_item(self, item: str) -> Talk[int]:
        """Forget an item in every query; says in how many it was, or still was if it had to be sent again."""
        send = Send("POST", "/v1/items/delete", encoded(wire.ItemDeletion(item)))
        return (yield from self.ask(send, wire.Deleted)).queries

    def reset(self) -> Talk[int]:
        """Forget everything that was observed; says of how many queries."""
        send = Send("POST", "/v1/reset", encoded(wire.Reset("reset")))
        # A second reset would take what came after the first with it.
        return (yield from self.ask(send, wire.Deleted, repeat=False)).queries

    def keys(self) -> Talk[list[wire.KeyInfo]]:
        """List the keys there are, without their secrets."""
        return (yield from self.ask(Send("GET", "/v1/keys"), list[wire.KeyInfo]))

    def add_key(self, name: str, scopes: Iterable[wire.Scope]) -> Talk[wire.KeyAdded]:
        """Make a key; its secret is in the answer and nowhere else."""
        request = wire.convert(wire.KeyRequest, {"name": name, "scopes": list(scopes)})
        # A second key would leave the first behind, good for ever and known to nobody.
        return (yield from self.ask(Send("POST", "/v1/keys", encoded(request)), wire.KeyAdded, repeat=False))

    def revoke_key(self, id: str) -> Talk[wire.KeyInfo]:
        """Make a key good for nothing, at once and for good."""
        return (yield from self.ask(Send("DELETE", path("keys", id)), wire.KeyInfo))

    # --- how it is said

    def report(self, where: str, events: Iterable[wire.Event | dict[str, Any]]) -> Talk[list[wire.EventResult]]:
        """Send events in as many batches as it takes; sent twice, they count once."""
        results: list[wire.EventResult] = []
        for batch in batches(map(encoded, wire.as_events(events))):
            body = b'{"events":[' + b",".join(batch) + b"]}"
            answer = yield from self.ask(Send("POST", where, body), wire.FeedbackAnswer)
            if len(answer.results) != len(batch):
                raise MCFairError(f"{where} answered {len(answer.results)} results for {len(batch)} events")
            results += answer.results
        return results

    def ask(self, send: Send, kind: type[T], *, repeat: bool = True, advice: str = "") -> Talk[T]:
        """Ask for an answer of some type."""
        answer = yield from self.answered(send, repeat=repeat, advice=advice)
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self.foreign(send, answer, str(error)) from None

    def answered(
        self, send: Send, *, repeat: bool = True, gone_is_done: bool = False, advice: str = ""
    ) -> Talk[Answer]:
        """Send a request until it is answered or patience is at its end.

        Without `repeat` it is not sent again once it may have been done. With `gone_is_done`, not to be found after an
        attempt without an answer means that this attempt has deleted it.
        """
        begun, tries, unsure = monotonic(), 0, False
        while True:
            outcome: Answer | Lost = yield send
            tries += 1
            if isinstance(outcome, Answer) and outcome.status not in RETRIED:
                if gone_is_done and unsure and outcome.status == 404:
                    return outcome
                return self.good(send, outcome)
            unsure = unsure or maybe_done(outcome)
            if unsure and not repeat:
                raise MCFairError(f"{send} of {self.address}: {outcome}; whether it was done is not known")
            wait = pause(outcome, tries)
            if monotonic() - begun + wait > self.patience:
                after = f"after {tries} tries in {monotonic() - begun:.1f} s" if tries > 1 else "at the first try"
                raise UnavailableError(f"{send} of {self.address} failed {after}: {outcome}{advice}", wait)
            yield wait

    def good(self, send: Send, answer: Answer) -> Answer:
        """Return a good answer; raise what another one says."""
        if 200 <= answer.status < 300:
            return answer
        problem = answer.problem()
        if problem is None:
            raise self.foreign(send, answer, "is the address right?")
        if answer.status in REFUSALS:
            raise REFUSALS[answer.status](problem.detail)
        if answer.status < 500:
            raise RequestError(problem.detail, problem.field)
        raise MCFairError(f"{send} of {self.address} failed: {answer}")

    def foreign(self, send: Send, answer: Answer, why: str) -> MCFairError:
        """Say that an answer cannot be the service's own, such as the page of a proxy."""
        kind = answer.headers.get("content-type", "no type")
        return MCFairError(
            f"{send} of {self.address} got {answer.status} and {kind}, not an answer of the service "
            f"({why}): {excerpt(answer.content)}"
        )


def maybe_done(outcome: Answer | Lost) -> bool:
    """Say whether what was asked for may have been done: the service itself answers 503 only if it was not."""
    if isinstance(outcome, Lost):
        return outcome.sent
    return not (outcome.status in (408, 429) or (outcome.status == 503 and outcome.problem() is not None))


def pause(outcome: Answer | Lost, tries: int) -> float:
    """Choose seconds to wait: at random, so that clients that failed together do not come back together."""
    seconds = DICE.uniform(0, min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries - 1, 10)))
    return seconds + (retry_after(outcome.headers.get("retry-after", "")) if isinstance(outcome, Answer) else 0.0)


def retry_after(text: str) -> float:
    """Read a Retry-After, in seconds or as a date.

    Examples
    --------
    >>> retry_after("3"), retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), retry_after("soon")
    (3.0, 0.0, 0.0)
    """
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except ValueError:
            return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def batches(events: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut events into batches that the service takes."""
    batch: list[bytes] = []
    size, room = 0, wire.MAX_BODY - 100
    for event in events:
        if batch and (len(batch) == wire.MAX_EVENTS or size + len(event) + 1 > room):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += len(event) + 1
    if batch:
        yield batch


def encoded(value: Any) -> bytes:
    """Write a value as JSON."""
    try:
        return msgspec.json.encode(value, enc_hook=plain)
    except UnicodeEncodeError as error:
        raise RequestError(f"{error.object!r} is not valid Unicode") from None


def plain(value: Any) -> Any:
    """Turn a NumPy scalar into a plain one."""
    if hasattr(value, "item"):
        return value.item()
    raise RequestError(f"{value!r} cannot be sent: it is of type {type(value).__name__}")


def is_word(text: str) -> bool:
    """Whether a text can stand in a header: visible ASCII characters."""
    return text.isascii() and text.isprintable() and bool(text) and " " not in text


def path(*names: str) -> str:
    """Make a path of names, whatever characters they have."""
    return "/v1/" + "/".join(quote(name, safe="") for name in names)


def excerpt(content: bytes) -> str:
    """Show how a body begins, in one line."""
    text = " ".join(content[:300].decode(errors="replace").split())
    return repr(text[:80]) if text else "an empty body"


class Lines:
    """Takes lines of JSON out of a stream.

    Only a line feed ends a line: `httpx` and `str.splitlines` would also cut at U+2028, which JSON leaves as it is.
    """

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, chunk: bytes) -> Iterator[Any]:
        """Give the lines that are complete now."""
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        for line in filter(None, lines):
            try:
                yield msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise MCFairError(f"the export has a line that is not JSON ({error}): {excerpt(line)}") from None


def broken_off(error: Exception) -> UnavailableError:
    """Say that an export did not come to its end."""
    return UnavailableError(f"the export broke off: {error or type(error).__name__}; begin again")


# --- who says it -----------------------------------------------------------------------------------------------------


def blocking(talk: Callable[Concatenate[Talks, P], Talk[T]]) -> Callable[Concatenate[Client, P], T]:
    """Make a method of `Client`."""

    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(talk(self._talks, *args, **kwargs))

    return described(method, talk, "{}")


def awaitable(
    talk: Callable[Concatenate[Talks, P], Talk[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Make a method of `AsyncClient`."""

    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(talk(self._talks, *args, **kwargs))

    return described(method, talk, "Coroutine[Any, Any, {}]")


Method = TypeVar("Method", bound=Callable[..., Any])


def described(method: Method, talk: Callable[..., Any], returns: str) -> Method:
    """Give a method the name, text and signature of its talk, less the generator it returns."""
    wraps(talk)(method)
    signature = inspect.signature(talk)
    answer = str(signature.return_annotation).removeprefix("Talk[").removesuffix("]")
    method.__signature__ = signature.replace(return_annotation=returns.format(answer))  # type: ignore[attr-defined]
    return method


def options(address: str, key: str | None, timeout: float) -> dict[str, Any]:
    """Check the settings of a client, and say them as httpx takes them."""
    try:
        import httpx
    except ImportError:
        raise SettingError("a client needs httpx: pip install 'mcfair[client]'") from None
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL as error:
        raise SettingError(f"address = {address!r} is not allowed: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingError(f"address = {address!r} is not allowed: expected one such as http://127.0.0.1:8000")
    if key is not None and not is_word(key):
        raise SettingError("key is empty or has characters that no key has")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    return {"base_url": url, "headers": headers, "timeout": timeout}


def request(http: httpx.Client | httpx.AsyncClient, send: Send) -> httpx.Request:
    """Make a request for httpx."""
    return http.build_request(send.method, send.path, content=send.content, headers=dict(send.headers))


def lost(error: httpx.RequestError) -> Lost:
    """Say what httpx met, and whether the request may have left."""
    import httpx

    unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return Lost(f"{type(error).__name__}{f' ({error})' if str(error) else ''}", sent=not unsent)


class Client:
    """A client of a service.

    Connection errors, timeouts and the answers 408, 429, 502, 503 and 504 are met by trying again, with waits that
    grow and heed Retry-After. It is safe: `rank` names each request with a key, and everything else gives the same done
    once or twice; `add_key` and `reset`, which do not, are sent again only if they surely were not done.

    Parameters
    ----------
    address
        Where the service is, such as http://127.0.0.1:8000.
    key
        The API key, if the service wants one.
    timeout
        Seconds in which the service must connect, take a request and answer it, each.
    patience
        No attempt begins later than so many seconds after the first; 0 is one attempt.

    Examples
    --------
    >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     ranking = client.rank("red shoes", ["sku1", "sku2", "sku3"])
    ...     client.click(ranking.impression, ranking.items[0].id)
    """

    def __init__(self, address: str, key: str | None = None, *, timeout: float = 5.0, patience: float = 30.0) -> None:
        settings = options(address, key, timeout)
        import httpx

        self._http = httpx.Client(**settings)
        self._talks = Talks(address, patience)

    rank = blocking(Talks.rank)
    feedback = blocking(Talks.feedback)
    retract = blocking(Talks.retract)
    click = blocking(Talks.click)
    shown = blocking(Talks.shown)
    explain = blocking(Talks.explain)
    query_state = blocking(Talks.query_state)
    fairness = blocking(Talks.fairness)
    usage = blocking(Talks.usage)
    ready = blocking(Talks.ready)
    policy = blocking(Talks.policy)
    change_policy = blocking(Talks.change_policy)
    delete_query = blocking(Talks.delete_query)
    delete_item = blocking(Talks.delete_item)
    reset = blocking(Talks.reset)
    keys = blocking(Talks.keys)
    add_key = blocking(Talks.add_key)
    revoke_key = blocking(Talks.revoke_key)

    def export(self) -> Iterator[dict[str, Any]]:
        """Read all that is stored, line by line."""
        import httpx

        response, lines = self._run(self._talks.export()), Lines()
        try:
            for chunk in response.iter_bytes():
                yield from lines.feed(chunk)
            yield from lines.feed(b"\n")
        except httpx.RequestError as error:
            raise broken_off(error) from error
        finally:
            response.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _run(self, talk: Talk[T]) -> T:
        """Carry a talk out."""
        outcome: Answer | Lost | None = None
        while True:
            try:
                step = talk.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, Send):
                outcome = self._send(step)
            else:
                time.sleep(step)

    def _send(self, send: Send) -> Answer | Lost:
        import httpx

        try:
            response = self._http.send(request(self._http, send), stream=True)
            if send.stream and response.is_success:
                return Answer(response.status_code, response.headers, b"", response)
            try:
                return Answer(response.status_code, response.headers, response.read())
            finally:
                response.close()
        except httpx.RequestError as error:
            return lost(error)


class AsyncClient:
    """A client of a service for asyncio; all as in `Client`."""

    def __init__(self, address: str, key: str | None = None, *, timeout: float = 5.0, patience: float = 30.0) -> None:
        settings = options(address, key, timeout)
        import httpx

        self._http = httpx.AsyncClient(**settings)
        self._talks = Talks(address, patience)

    rank = awaitable(Talks.rank)
    feedback = awaitable(Talks.feedback)
    retract = awaitable(Talks.retract)
    click = awaitable(Talks.click)
    shown = awaitable(Talks.shown)
    explain = awaitable(Talks.explain)
    query_state = awaitable(Talks.query_state)
    fairness = awaitable(Talks.fairness)
    usage = awaitable(Talks.usage)
    ready = awaitable(Talks.ready)
    policy = awaitable(Talks.policy)
    change_policy = awaitable(Talks.change_policy)
    delete_query = awaitable(Talks.delete_query)
    delete_item = awaitable(Talks.delete_item)
    reset = awaitable(Talks.reset)
    keys = awaitable(Talks.keys)
    add_key = awaitable(Talks.add_key)
    revoke_key = awaitable(Talks.revoke_key)

    async def export(self) -> AsyncIterator[dict[str, Any]]:
        """Read all that is stored, line by line."""
        import httpx

        response, lines = await self._run(self._talks.export()), Lines()
        try:
            async for chunk in response.aiter_bytes():
                for line in lines.feed(chunk):
                    yield line
            for line in lines.feed(b"\n"):
                yield line
        except httpx.RequestError as error:
            raise broken_off(error) from error
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()

    async def _run(self, talk: Talk[T]) -> T:
        """Carry a talk out."""
        outcome: Answer | Lost | None = None
        while True:
            try:
                step = talk.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, Send):
                outcome = await self._send(step)
            else:
                await asyncio.sleep(step)

    async def _send(self, send: Send) -> Answer | Lost:
        import httpx

        try:
            response = await self._http.send(request(self._http, send), stream=True)
            if send.stream and response.is_success:
                return Answer(response.status_code, response.headers, b"", response)
            try:
                return Answer(response.status_code, response.headers, await response.aread())
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            return lost(error)
