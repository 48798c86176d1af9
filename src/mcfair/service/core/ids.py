"""Unforgeable ids: query ids are keyed hashes of the text, impression ids are encrypted log positions."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NamedTuple

SLOT_BYTES, TAG_BYTES, POSITION_BYTES = 2, 14, 14  # 30 bytes, which are 40 base64 characters without padding


class Position(NamedTuple):
    """The position of an impression: query number, sequence number in its log, and epoch of the engine that ranked it.

    An engine draws its epoch at random when it starts, and again when it drops its cache. After a store was restored
    from a backup or replaced by a standby, sequence numbers are assigned again, but under another epoch: an id given
    out for a lost impression matches no later one.
    """

    number: int
    seq: int
    epoch: int


class IdSigner:
    """Create and validate ids with the secret of a store.

    Impression ids use deterministic authenticated encryption (the SIV construction): a keyed hash of the position is
    both its authentication tag and the seed of the key stream that hides it. Ids have a fixed length, one spelling, and
    reveal neither how many queries there are nor how often one was ranked.
    """

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.keyed: dict[tuple[bytes, int], hashlib.blake2b] = {}  # hashes to which only the key was added

    def query(self, text: str) -> bytes:
        """Return the id of a query: a keyed hash of its text, so that the text need not be stored."""
        return self.keyed_hash(text.encode(), 16, b"query")

    def impression(self, query: bytes, position: Position) -> str:
        """Return the id of an impression.

        It begins with 16 bits of the query id, so that requests can be routed by query without its text.
        """
        number, seq, epoch = position
        slot = query[:SLOT_BYTES]
        plain = number.to_bytes(5, "big") + seq.to_bytes(5, "big") + epoch.to_bytes(4, "big")
        tag = self.keyed_hash(slot + plain, TAG_BYTES, b"impression")
        return base64.urlsafe_b64encode(slot + tag + self.encrypt(tag, plain)).decode()

    def position(self, impression: str) -> Position | None:
        """Return the position of an impression id; None if it was not created here or is spelled in another way.

        Base64 has several spellings of the same bytes, and only the one that `impression` returns is accepted.
        """
        try:
            raw = base64.urlsafe_b64decode(impression.encode("ascii"))
        except ValueError:
            return None
        if len(raw) != SLOT_BYTES + TAG_BYTES + POSITION_BYTES or base64.urlsafe_b64encode(raw).decode() != impression:
            return None
        slot, tag, hidden = raw[:SLOT_BYTES], raw[SLOT_BYTES:-POSITION_BYTES], raw[-POSITION_BYTES:]
        plain = self.encrypt(tag, hidden)
        if not hmac.compare_digest(tag, self.keyed_hash(slot + plain, TAG_BYTES, b"impression")):
            return None
        number, seq, epoch = plain[:5], plain[5:10], plain[10:]
        return Position(int.from_bytes(number, "big"), int.from_bytes(seq, "big"), int.from_bytes(epoch, "big"))

    def encrypt(self, tag: bytes, position: bytes) -> bytes:
        """Encrypt or decrypt a position with the key stream of its tag."""
        stream = self.keyed_hash(tag, POSITION_BYTES, b"position")
        return (int.from_bytes(position, "big") ^ int.from_bytes(stream, "big")).to_bytes(POSITION_BYTES, "big")

    def keyed_hash(self, content: bytes, size: int, purpose: bytes) -> bytes:
        """Return a hash that only the holder of the secret can compute, a different one for each purpose."""
        start = self.keyed.get((purpose, size))
        if start is None:
            start = hashlib.blake2b(digest_size=size, key=self.secret, person=purpose)
            self.keyed[purpose, size] = start
        hashed = start.copy()
        hashed.update(content)
        return hashed.digest()
