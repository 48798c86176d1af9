"""API keys: created, listed and revoked; only hashes of their secrets are stored."""

from __future__ import annotations

import hashlib
import secrets

from ...errors import NotFoundError
from ..stores import StoredKey
from ..wire import SCOPES, CreatedKey, KeyInfo, Scope
from .engine_state import EngineState
from .reports import to_datetime

KEY_PREFIX = "mcfair"


class KeyOperations(EngineState):
    """The operations on API keys."""

    def add_key(self, name: str, scopes: list[Scope]) -> CreatedKey:
        """Create an API key; only a hash of its secret is stored."""
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        ordered = [scope for scope in SCOPES if scope in scopes]
        stored = StoredKey(id, hash_secret(secret), name, " ".join(ordered), self.now(), None)
        self.store.add_key(stored)
        self.api_keys[id] = stored
        return CreatedKey(key=f"{KEY_PREFIX}_{id}_{secret}", info=key_info(stored))

    def keys(self) -> list[KeyInfo]:
        """Return every API key, without its secret."""
        return [key_info(key) for key in self.store.all_keys()]

    def revoke_key(self, id: str) -> KeyInfo:
        """Revoke an API key; revoking it again changes nothing."""
        if id not in self.api_keys:
            raise NotFoundError("there is no such key")
        self.store.revoke_key(id, self.now())
        self.api_keys = {key.id: key for key in self.store.all_keys()}
        return key_info(self.api_keys[id])


def hash_secret(secret: str) -> bytes:
    """Hash the secret of a key. It has 256 random bits, so a fast hash is sufficient."""
    return hashlib.sha256(secret.encode()).digest()


def key_info(key: StoredKey) -> KeyInfo:
    """Describe a key without its secret."""
    return KeyInfo(
        id=key.id,
        name=key.name,
        scopes=[scope for scope in SCOPES if scope in key.scopes.split()],
        created=to_datetime(key.created),
        revoked=None if key.revoked is None else to_datetime(key.revoked),
    )
