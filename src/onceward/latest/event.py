"""The types that users pass to and get from `once.state(…)`: events, and the state of an entity."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar

from msgspec import Struct

from onceward.errors import MissingKey
from onceward.keys.canonical import canonical
from onceward.keys.key import is_empty
from onceward.protocol.latest import mark_of
from onceward.protocol.ordering import AnyOrdering, Ordering

T = TypeVar("T")


class Deleted(Enum):
    """The type of `deleted`."""

    DELETED = "deleted"

    def __repr__(self) -> str:
        return "deleted"


deleted: Final = Deleted.DELETED
"""The value of an event that deletes its entity."""

DeletedValue = Literal[Deleted.DELETED]


class DerivedId(Struct, frozen=True):
    """An event id, `text`, that you computed from a part of the payload, because the producer sends none.

    Other content under the same derived id is another event, not a mismatch.
    """

    text: str


class StateEvent(Struct, Generic[T], frozen=True):
    """One event for `apply_many`: the `entity`, the `ordering` of the event, and the new `value` (or `deleted`).

    `event_id` identifies the event itself, whichever message delivers it. Pass `payload` if the value also holds data
    that differs between deliveries: it is the content without that data, and is compared instead of the value and the
    times.
    """

    entity: Any
    ordering: AnyOrdering
    value: T | DeletedValue
    event_id: Any = None
    payload: Any = None


class Known(Struct, frozen=True):
    """A message or an event that was applied before.

    `message_id` is the transport's id. It is known from `created_at` until `expires_at`.
    """

    message_id: str
    created_at: datetime
    expires_at: datetime


class Current(Struct, Generic[T], frozen=True):
    """The state of an `entity`: its latest value, the `ordering` of that event, and when it was applied (`updated_at`).

    If the latest event deleted the entity, `deleted` is true and `value` is None.
    """

    entity: str
    value: T | None
    ordering: Ordering
    updated_at: datetime
    deleted: bool = False


def event_mark(id: bytes, event_id: Any, digest: bytes = b"") -> bytes:
    """Return the mark of an event. With a derived id, its content is part of its identity."""
    name = event_name(event_id)
    if isinstance(event_id, DerivedId):
        return mark_of(id, b"derived", canonical(name, root="event_id") + digest, name)
    if is_empty(event_id):
        raise MissingKey("the event id is empty", hint="pass None for an event without an id")
    return mark_of(id, b"event", canonical(event_id, root="event_id"), name)


def event_name(event_id: Any) -> str:
    """Return the event id if it is readable text, otherwise ""."""
    given = event_id.text if isinstance(event_id, DerivedId) else event_id
    return given if type(given) is str else ""
