"""A record in readable form: aware datetimes, and the value decoded on access."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from onceward.protocol.note import user_notes
from onceward.protocol.record import Record, RecordState
from onceward.protocol.unstored import unstored_reason
from onceward.results.codec import Codec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Entry:
    """What `read` returns: one record, at the time it was read."""

    __slots__ = ("_codec", "now", "record")

    def __init__(self, record: Record, now: int, codec: Codec) -> None:
        self.record = record
        self.now = now
        self._codec = codec

    @property
    def state(self) -> RecordState:
        """PENDING, COMPLETED, FAILED, PARKED or FREE."""
        return self.record.state

    @property
    def key(self) -> str:
        """The readable key. Long keys are shortened in it."""
        return self.record.key

    @property
    def scope(self) -> str:
        """The scope, written as `app/operation` or `app/operation@tenant`."""
        return self.record.scope

    @property
    def attempt(self) -> int:
        """The number of the current or last attempt, starting with 1."""
        return self.record.attempt

    @property
    def token(self) -> int:
        """The fencing token of the last claim. Each claim of the key has a larger one."""
        return self.record.token

    @property
    def owner(self) -> str:
        """The host and process that made the last attempt."""
        return self.record.owner

    @property
    def note(self) -> dict[str, str]:
        """The metadata that the work wrote to its record."""
        return user_notes(self.record.note)

    @property
    def error(self) -> str:
        """`Type: message` of the last failure, or ""."""
        return f"{self.record.error_type}: {self.record.error}" if self.record.error_type else ""

    @property
    def value(self) -> Any:
        """The stored result, decoded on each access; None if none was stored (see `stored`)."""
        record = self.record
        return None if record.result is None else self._codec.decode(record.result, record.id, record.cycle)

    @property
    def stored(self) -> bool:
        """Whether the record is completed and has a stored result."""
        return self.record.state is RecordState.COMPLETED and self.record.stored and self.record.result is not None

    @property
    def unstored(self) -> str:
        """Why the result of a completed record was not stored; "" if it was, or if storing it was turned off."""
        return unstored_reason(self.record.note)

    @property
    def created_at(self) -> datetime:
        """When the key was first claimed, by the store's clock."""
        return time_of(self.record.created_at)

    @property
    def claimed_at(self) -> datetime:
        """When the current or last attempt began."""
        return time_of(self.record.claimed_at)

    @property
    def updated_at(self) -> datetime:
        """When the record last changed."""
        return time_of(self.record.updated_at)

    @property
    def lease_until(self) -> datetime | None:
        """When another worker may take over, unless the owner renews its lease. None if there is no lease."""
        return None if self.record.lease_until is None else time_of(self.record.lease_until)

    @property
    def valid_until(self) -> datetime | None:
        """When the window ends, so that the key can run again. None if it does not end, or has not begun."""
        return None if self.record.valid_until is None else time_of(self.record.valid_until)

    def __repr__(self) -> str:
        return f"<Entry {self.record.scope} {self.record.key}: {self.record.state}, attempt {self.record.attempt}>"


def time_of(instant: int) -> datetime:
    return _EPOCH + timedelta(microseconds=instant)
