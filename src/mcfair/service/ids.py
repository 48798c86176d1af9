"""Names that cannot be forged: of queries, made of their text, and of impressions, made of where they are stored."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct

__all__ = ["Names"]

PLACE = struct.Struct(">H5s5s")  # slot, query, sequence number
MAC = 9  # bytes; with the place 21, which is 28 letters without padding


class Names:
    """Makes and reads names with the secret of a store."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def query(self, text: str) -> bytes:
        """Name a query by a keyed hash of its text, which is stored nowhere."""
        return hashlib.blake2b(text.encode(), digest_size=16, key=self.secret, person=b"query").digest()

    def impression(self, query: bytes, number: int, seq: int) -> str:
        """Name an impression. The first 16 bits are the query's, so that requests can be routed without its text."""
        place = query[:2] + number.to_bytes(5, "big") + seq.to_bytes(5, "big")
        return base64.urlsafe_b64encode(place + self.mac(place)).decode()

    def place(self, impression: str) -> tuple[int, int] | None:
        """Find the number of the query and of the entry in its log; None if the name was not made here."""
        try:
            raw = base64.b64decode(impression.encode("ascii"), altchars=b"-_", validate=True)
        except ValueError:
            return None
        if len(raw) != PLACE.size + MAC or not hmac.compare_digest(raw[PLACE.size :], self.mac(raw[: PLACE.size])):
            return None
        _, number, seq = PLACE.unpack(raw[: PLACE.size])
        return int.from_bytes(number, "big"), int.from_bytes(seq, "big")

    def mac(self, place: bytes) -> bytes:
        """Seal a place."""
        return hashlib.blake2b(place, digest_size=MAC, key=self.secret, person=b"impression").digest()
