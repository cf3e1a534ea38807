"""An event about an entity, as the user hands it over, and the state of an entity, as the user gets it."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar

from msgspec import Struct

from onceward.protocol.ordering import AnyOrdering, Ordering

T = TypeVar("T")


class Deleted(Enum):
    """Instead of a value: the entity is gone."""

    DELETED = "deleted"

    def __repr__(self) -> str:
        return "deleted"


deleted: Final = Deleted.DELETED
"""The value of an event that deletes its entity."""

Gone = Literal[Deleted.DELETED]


class StateEvent(Struct, Generic[T], frozen=True):
    """One event for `apply_many`. `event_id` names the event itself, whichever message brings it.

    `payload` is what makes its content, if that is not the value: without what the delivery adds to it.
    """

    entity: Any
    ordering: AnyOrdering
    value: T | Gone
    event_id: Any = None
    payload: Any = None


class Known(Struct, frozen=True):
    """A message or an event that was here: which message brought it, since when it is known, and until when."""

    message_id: str
    created_at: datetime
    expires_at: datetime


class Current(Struct, Generic[T], frozen=True):
    """The state of an entity: the newest value, where it stands, and when it was applied here.

    `deleted` True: the newest event deleted it, and `value` is None.
    """

    entity: str
    value: T | None
    ordering: Ordering
    updated_at: datetime
    deleted: bool = False
