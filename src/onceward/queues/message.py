"""A message, and one delivery of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from msgspec import Struct


class Message(bytes):
    """The `body` of a message, with the metadata that the broker supplies.

    `id` is the transport id. It is the same at every delivery of this message and unique within its queue. It is empty
    if the sender set none and the broker assigns none. `headers` are those of the sender. `deliveries` counts the
    deliveries so far, this one included, as far as the broker reports it. In keys and fingerprints only the body
    counts, because the metadata describes the transport, not the work. The names of this module and class are part of
    stored fingerprints and must not change.
    """

    id: str
    headers: Mapping[str, str]
    deliveries: int

    def __new__(cls, body: bytes, id: str = "", headers: Mapping[str, str] | None = None, deliveries: int = 1) -> Self:
        """Create a message. Adapters call this."""
        self = super().__new__(cls, body)
        self.id, self.headers, self.deliveries = id, headers or {}, deliveries
        return self

    @property
    def body(self) -> bytes:
        """The body as plain bytes."""
        return bytes(memoryview(self))

    def __repr__(self) -> str:
        return f"<Message {self.id or 'without id'}, {len(self)} bytes, delivery {self.deliveries}>"


class Delivery(Struct, frozen=True, eq=False, gc=False):
    """One delivery of a message. `handle` is what the adapter needs to settle this delivery.

    `gc=False` is safe because neither field refers back to the delivery.
    """

    message: Message
    """What the broker delivered. A redelivery of it is another delivery of the same message."""
    handle: Any = None
