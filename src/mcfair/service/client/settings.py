"""Checks of the settings of a client."""

from __future__ import annotations

import math
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from ...errors import SettingError
from ..calls import is_visible_ascii
from .exchange import SansIOClient
from .routing import Instances

__all__ = ["build_context", "build_headers", "build_protocol"]


def build_protocol(
    address: str | Sequence[str], *, rank_deadline: float, cooldown: float, **settings: Any
) -> SansIOClient:
    """Build the exchanges of a client from its settings."""
    try:
        import httpcore  # noqa: F401
    except ImportError:
        raise SettingError("the client needs httpcore: pip install 'mcfair[client]'") from None
    addresses = [address] if isinstance(address, str) else list(address)
    if not addresses or len(set(addresses)) < len(addresses):
        raise SettingError(f"address = {addresses!r} is not allowed: expected one URL or several distinct ones")
    if not (rank_deadline > 0 and math.isfinite(rank_deadline)):
        raise SettingError(f"rank_deadline = {rank_deadline!r} is not allowed: expected a positive number")
    instances = Instances([check_address(each) for each in addresses], cooldown)
    return SansIOClient(instances, rank_deadline=rank_deadline, **settings)


def build_headers(key: str | None) -> dict[str, str]:
    """Return the headers of every request."""
    if key is None:
        return {}
    if not is_visible_ascii(key):
        raise SettingError("key is not allowed: expected visible ASCII characters")
    return {"Authorization": f"Bearer {key}"}


def build_context(protocol: SansIOClient, verify: ssl.SSLContext | bool) -> ssl.SSLContext | None:
    """Return the TLS context; None if no address needs one. Loading certificates takes longer than a request."""
    if isinstance(verify, ssl.SSLContext):
        return verify
    if not any(address.startswith("https") for address in protocol.instances.addresses):
        return None
    import httpcore

    context = httpcore.default_ssl_context()
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def check_address(address: str) -> str:
    """Check the URL of an instance; return it without a slash at the end."""
    try:
        url = urlsplit(address)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        valid = valid and not (url.query or url.fragment) and address.isascii() and address.isprintable()
    except ValueError:
        valid = False
    if not valid or " " in address:
        raise SettingError(f"address = {address!r} is not allowed: expected a URL such as http://127.0.0.1:8000")
    return address.rstrip("/")
