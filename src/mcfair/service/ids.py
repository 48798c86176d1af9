"""Unforgeable ids: query ids are keyed hashes of the text, impression ids are signed log positions."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct

__all__ = ["IdSigner"]

POSITION = struct.Struct(">H5s5s")  # first 16 bits of the query id, query number, sequence number
MAC_BYTES = 9  # with the position 21 bytes, which are 28 base64 characters without padding


class IdSigner:
    """Create and validate ids with the secret of a store."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def query(self, text: str) -> bytes:
        """Return the id of a query: a keyed hash of its text, so that the text need not be stored."""
        return hashlib.blake2b(text.encode(), digest_size=16, key=self.secret, person=b"query").digest()

    def impression(self, query: bytes, number: int, seq: int) -> str:
        """Return the id of an impression.

        It begins with 16 bits of the query id, so that requests can be routed by query without its text.
        """
        position = query[:2] + number.to_bytes(5, "big") + seq.to_bytes(5, "big")
        return base64.urlsafe_b64encode(position + self.mac(position)).decode()

    def position(self, impression: str) -> tuple[int, int] | None:
        """Return the query number and the log sequence number of an impression id; None if it was not signed here."""
        try:
            raw = base64.b64decode(impression.encode("ascii"), altchars=b"-_", validate=True)
        except ValueError:
            return None
        size = POSITION.size
        if len(raw) != size + MAC_BYTES or not hmac.compare_digest(raw[size:], self.mac(raw[:size])):
            return None
        _, number, seq = POSITION.unpack(raw[:size])
        return int.from_bytes(number, "big"), int.from_bytes(seq, "big")

    def mac(self, position: bytes) -> bytes:
        """Compute the message authentication code of a log position."""
        return hashlib.blake2b(position, digest_size=MAC_BYTES, key=self.secret, person=b"impression").digest()
