"""The marks of events: by their own id, or by an id that was derived from a part of their content."""

from __future__ import annotations

from typing import Any

from onceward.errors import MissingKey
from onceward.keys.canonical import canonical
from onceward.keys.key import is_empty
from onceward.protocol.latest import mark_of

from .event import DerivedId


def event_mark(id: bytes, event_id: Any, digest: bytes = b"") -> bytes:
    """Return the mark of an event. With a derived id, its content is part of its identity."""
    name = event_name(event_id)
    if isinstance(event_id, DerivedId):
        return mark_of(id, b"derived", canonical(name, root="event_id") + digest, name)
    if is_empty(event_id):
        raise MissingKey("the event id is empty", hint="pass None for an event without an id")
    return mark_of(id, b"event", canonical(event_id, root="event_id"), name)


def event_name(event_id: Any) -> str:
    """Return the readable event id, or "" if it is not a text."""
    given = event_id.text if isinstance(event_id, DerivedId) else event_id
    return given if type(given) is str else ""
