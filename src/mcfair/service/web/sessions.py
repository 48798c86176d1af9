"""Sessions of browsers: a key is sent once, in the body of a form, and a signed cookie stands for it from then on.

A session is good for reading pages and for nothing else: every operation of the API requires the key itself, so that a
foreign page that makes a browser send its cookie changes nothing. The cookie holds no secret of the key, and is not
stored: any instance over the same store accepts it, until it expires or the key is revoked.
"""

from __future__ import annotations

import hmac
import re
import time

from .auth import Authorizer
from .requests import HTTPError, Request

COOKIE = "mcfair_session"
SESSION = re.compile(rb"(?:^|;) *%b=([0-9A-Za-z.-]+) *(?:;|$)" % COOKIE.encode())
"""The cookie in its header, in time proportional to its length: strangers may send anything. Cookies of
`http.cookies` may be quoted, and several versions of Python need the square of that time for quotes."""

SESSION_SECONDS = 12 * 3600
"""How long a session lasts, in seconds."""

TOKEN = "admin-token"
"""The name of the admin token, which has no id."""


class Sessions:
    """Begin, check and end the sessions of browsers.

    Parameters
    ----------
    authorizer
        Checks API keys; a session has the scopes that its key has now.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer

    def begin(self, request: Request, key: str) -> str:
        """Return the cookie of a new session; raise HTTPError unless the key may read."""
        scopes = self.authorizer.scopes_of(key)
        if scopes is None:
            raise HTTPError(401, "the key is unknown or revoked", "key")
        check_readable(scopes)
        name = TOKEN if key == self.authorizer.admin_token else key.split("_")[1]
        expires = int(time.time()) + SESSION_SECONDS
        return self.cookie(request, f"{name}.{expires}.{self.sign(name, expires)}", SESSION_SECONDS)

    def end(self, request: Request) -> str:
        """Return the cookie that ends a session."""
        return self.cookie(request, "", 0)

    def cookie(self, request: Request, value: str, seconds: int) -> str:
        """Return a Set-Cookie header: not readable by scripts, and not sent with requests from other sites."""
        secure = "; Secure" if request.scheme == "https" else ""
        path = request.root_path or "/"
        return f"{COOKIE}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"

    def sign(self, name: str, expires: int) -> str:
        """Sign a session with the secret of the store; one of the admin token ends with the process."""
        secret = (self.authorizer.admin_token or "") if name == TOKEN else ""
        return self.authorizer.ranker.sign(f"{name} {expires} {secret}".encode(), b"session").hex()

    def authorize(self, request: Request) -> bool:
        """Return whether a request for a page belongs to a session; raise HTTPError if it is not allowed.

        Without keys it needs none on this machine, as for the API; a key in the Authorization header does as well.
        """
        value = cookie_value(request)
        if b"authorization" in request.headers or not value or not self.authorizer.requires_key(request):
            self.authorizer.authorize(request, "read")
            return False
        name, _, rest = value.partition(".")
        expires, _, signature = rest.partition(".")
        valid = expires.isascii() and expires.isdigit() and len(expires) < 16
        if not valid or not hmac.compare_digest(signature.encode(), self.sign(name, int(expires)).encode()):
            raise HTTPError(401, "the session is not valid: sign in again")
        scopes = self.authorizer.ranker.scopes_of(name) if name != TOKEN else frozenset({"admin"})
        if time.time() >= int(expires) or scopes is None:
            raise HTTPError(401, "the session has ended: sign in again")
        check_readable(scopes)
        return True


def check_readable(scopes: frozenset[str]) -> None:
    """Raise HTTPError unless scopes allow reading."""
    if not scopes & {"read", "admin"}:
        raise HTTPError(403, "the key lacks the scope 'read', which the dashboard requires", "key")


def cookie_value(request: Request) -> str:
    """Return the session cookie of a request; empty if there is none."""
    found = SESSION.search(request.headers.get(b"cookie", b""))
    return "" if found is None else found[1].decode()
