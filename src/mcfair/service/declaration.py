"""Declarations of operations: their fields, and the decorator that collects them in a table."""

import re
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from . import wire

JSON = "application/json"
NDJSON = "application/x-ndjson"


class Operation(Struct, frozen=True, kw_only=True):
    """An operation: its route, scope, request and response types, and the function that executes it.

    The docstring of `function` is the documentation of the operation; its arguments are what `runs` it, the path
    parameters and the body, or the options, which are the parameters of the query string. The engine executes
    operations one at a time; a `Reading` of background work reads the store beside it. `request` is the documented
    type of the body, `decode_as` the type it is decoded to. `errors` are statuses that only some operations respond
    with.

    An `idempotent` operation accepts an Idempotency-Key. One that is not `repeatable` must not be retried if it may
    have been executed. A `probe` is always admitted, so it must need little; a `rooted` operation receives the
    path under which the application is mounted. `aliases` are further paths, for clients of another API.
    """

    function: Callable[..., Any]
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    tag: str
    scope: wire.Scope | None
    request: Any = None
    decode_as: Any = None
    options: Any = None
    response: Any = None
    status: int = 200
    media_type: str = JSON
    errors: tuple[int, ...] = ()
    example: Any = None
    idempotent: bool = False
    repeatable: bool = True
    runs: Literal["engine", "background"] = "engine"
    probe: bool = False
    rooted: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the operation, and its operationId."""
        return self.function.__name__

    @property
    def parameters(self) -> dict[str, str]:
        """Descriptions of the path parameters by name."""
        types = self.function.__annotations__
        return {name: types[name].__metadata__[0].description for name in re.findall(r"{(\w+)}", self.path)}

    @property
    def error_statuses(self) -> list[int]:
        """Error statuses of the operation, ascending."""
        codes = {400, 500, 503, *self.errors}
        if self.scope is not None:
            codes |= {401, 403}
        if self.parameters:
            codes.add(404)
        if self.request is not None:
            codes |= {408, 413, 415}
        return sorted(codes)


def operation(
    method: Any, path: str, tag: str, scope: wire.Scope | None, table: dict[str, Operation], **options: Any
) -> Callable[..., Any]:
    """Declare an operation; the annotations of its function are the types of its body and its response."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        types = function.__annotations__
        found: dict[str, Any] = {"request": types.get("body"), "decode_as": types.get("body")}
        found["options"] = types.get("options")
        found["response"] = None if "media_type" in options else types["return"]
        function.reading = method == "GET" or scope == "read"  # type: ignore[attr-defined]
        table[function.__name__] = Operation(
            function=function, method=method, path=path, tag=tag, scope=scope, **found | options
        )
        return function

    return declare
