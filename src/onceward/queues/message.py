"""What a broker hands out: a message, and one delivery of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from msgspec import Struct


class Message(bytes):
    """The body, with what the broker says about it.

    `id` is the transport id: the same at every delivery of this message, and no other message's of this queue; empty
    if its sender gave none and the broker has none. `deliveries` is how often it was handed out, this time included,
    as far as the broker tells. As an argument of a key or a fingerprint it is its body alone: the rest tells about the
    way that it took, not about the work. (Its module and name are part of stored fingerprints: they stay.)
    """

    id: str
    headers: Mapping[str, str]
    deliveries: int

    def __new__(cls, body: bytes, id: str = "", headers: Mapping[str, str] | None = None, deliveries: int = 1) -> Self:
        """A message as an adapter makes it."""
        self = super().__new__(cls, body)
        self.id, self.headers, self.deliveries = id, headers or {}, deliveries
        return self

    @property
    def body(self) -> bytes:
        """The plain bytes."""
        return bytes(memoryview(self))

    def __repr__(self) -> str:
        return f"<Message {self.id or 'without id'}, {len(self)} bytes, delivery {self.deliveries}>"


class Delivery(Struct, frozen=True, eq=False, gc=False):
    """A message in our hand. `handle` is whatever the adapter needs to say what becomes of this very delivery.

    (Neither leads back to it, so the garbage collector need not look.)
    """

    message: Message
    handle: Any = None
