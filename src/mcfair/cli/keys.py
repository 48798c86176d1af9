"""The commands on the API keys of the service: add, list and revoke."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ..errors import StoreError
from .service_options import DEFAULT_STORE, STORE
from .stores import readable

if TYPE_CHECKING:
    from ..service.wire import KeyInfo

__all__ = ["keys"]

keys = typer.Typer(help="Manage the API keys of the service: add, list, revoke.", no_args_is_help=True)


@keys.command("add")
def add_key(
    name: Annotated[str, typer.Argument(help="Label of the key, such as the program that will use it.")],
    scope: Annotated[list[str], typer.Option(help="rank, feedback, read or admin; repeatable.")],
    store: STORE = DEFAULT_STORE,
) -> None:
    """Create an API key and print it. Only a hash is stored, so it is shown only once."""
    from ..service.calls import key_request

    request = key_request(name, scope)  # type: ignore[arg-type]  # before a store is created for it
    with open_admin(store) as service:
        added = service.add_key(request.name, request.scopes)
    print(added.key)
    sys.stderr.write(f"mcfair: created key {added.info.id} ({name}) with scope {', '.join(added.info.scopes)}\n")


@keys.command("list")
def list_keys(store: STORE = DEFAULT_STORE) -> None:
    """List the API keys, without their secrets."""
    from ..service.core.keys import key_info
    from ..service.stores import open_reader

    with readable(store), open_reader(store) as reader:
        found = [key_info(key) for key in reader.all_keys()]
    for key in found:
        print(describe_key(key))


@keys.command("revoke")
def revoke_key(
    id: Annotated[str, typer.Argument(help="Id of the key, as listed.")], store: STORE = DEFAULT_STORE
) -> None:
    """Revoke an API key."""
    from ..service.stores import open_reader

    with open_reader(store):  # refuses a store that does not exist, where the next line would create one
        pass
    with open_admin(store) as service:
        print(describe_key(service.revoke_key(id)))


@contextlib.contextmanager
def open_admin(store: str) -> Iterator[Any]:
    """Open a store for changes: through the running server if there is one, else directly."""
    from ..service.stores import is_shared, locate, read_lock_note

    note = None if is_shared(store) else read_lock_note(locate(store))
    if note is None:
        from ..service.ranker import Ranker

        with Ranker(store, warm=False) as ranker:
            yield ranker
        return
    from ..service.client import Client

    try:
        known = msgspec.json.decode(note, type=dict[str, str])
    except msgspec.MsgspecError:
        raise StoreError(f"{locate(store)} is in use by a process that is not `mcfair serve`: stop it first") from None
    with Client(known["url"], known["token"]) as client:
        yield client


def describe_key(key: KeyInfo) -> str:
    """Describe an API key in one line; what would not be printed as one, in a name of an older store, is escaped."""
    name = key.name if key.name.isprintable() else repr(key.name)
    revoked = "" if key.revoked is None else f", revoked {key.revoked:%Y-%m-%d}"
    return f"{key.id}  {name}: {', '.join(key.scopes)} (created {key.created:%Y-%m-%d}{revoked})"
