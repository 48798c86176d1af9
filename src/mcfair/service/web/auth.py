"""Authorization of requests by their heads: API keys and scopes; without keys, requests from this machine only."""

from __future__ import annotations

import hmac
import re
from functools import lru_cache
from ipaddress import ip_address

from ..ranker import Ranker
from ..wire import Scope
from .requests import HTTPError, Request

ADMIN: frozenset[Scope] = frozenset({"admin"})


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Return whether a host name or address certainly refers to this machine.

    Examples
    --------
    >>> [is_loopback(host) for host in ("localhost", "127.1.2.3", "[::1]", "::1", "example.org", "")]
    [True, True, True, True, False, False]
    """
    host = host.lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


@lru_cache(256)
def is_loopback_name(host: bytes) -> bool:
    """Return whether a Host header, which may have a port, refers to this machine."""
    return is_loopback(re.sub(r":\d*$", "", host.decode("latin-1")))


FORWARDED = re.compile(
    rb"^(forwarded|via|x-(forwarded|original|envoy)-.+|(.+-)?(real|client|connecting|remote)-ip)$", re.MULTILINE
)
"""Names of the headers that proxies add, one per line."""


@lru_cache(256)
def has_forwarded(names: bytes) -> bool:
    """Return whether a proxy has added its headers to those of a request, whose names are given one per line."""
    return FORWARDED.search(names) is not None


class Authorizer:
    """Authorize requests with the API keys of a ranker.

    Parameters
    ----------
    ranker
        The ranker that keeps the keys.
    admin_token
        A secret that is accepted like an API key of scope "admin".
    """

    def __init__(self, ranker: Ranker, admin_token: str | None = None) -> None:
        self.ranker, self.admin_token = ranker, admin_token

    def authorize(self, request: Request, scope: Scope) -> None:
        """Raise HTTPError unless a request has an API key with the scope.

        A service without keys accepts all requests from this machine, but none that a proxy forwards: they only seem
        to come from here.
        """
        if not self.requires_key(request):
            check_local(request)
            return
        scheme, _, key = request.headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        scopes = self.scopes_of(key.strip()) if scheme.lower() == "bearer" else None
        if scopes is None:
            detail = "the key is unknown or revoked" if scheme else "a key is required: Authorization: Bearer KEY"
            raise HTTPError(401, detail, www_authenticate="Bearer")
        if scope not in scopes and "admin" not in scopes:
            raise HTTPError(403, f"the key lacks the scope {scope!r}")
        request.caller = key.split("_")[1] if "_" in key else None  # the id of the key, which is not secret

    def requires_key(self, request: Request) -> bool:
        """Return whether a request needs a key: always, unless there are none and it comes from this machine."""
        return self.ranker.has_keys or not is_loopback(request.client)

    def scopes_of(self, key: str) -> frozenset[Scope] | None:
        """Return the scopes of a key or of the admin token; None if it is invalid."""
        if self.admin_token is not None and hmac.compare_digest(key.encode(), self.admin_token.encode()):
            return ADMIN
        return self.ranker.authenticate(key) if key.isascii() else None


def check_local(request: Request) -> None:
    """Refuse a request to a service without keys that was forwarded, or that was sent to another name.

    The check of the Host header defends against DNS rebinding: a web page whose name was made to resolve to this
    machine still sends its own name there.
    """
    if not is_loopback_name(request.headers.get(b"host", b"")):
        raise HTTPError(
            403, "the service has no keys and accepts only requests to localhost: see mcfair keys add", "Host"
        )
    if has_forwarded(b"\n".join(request.headers)):  # no name contains a line break
        raise HTTPError(
            403, "the service has no keys and accepts no requests through a proxy: see mcfair keys add", "Forwarded"
        )
