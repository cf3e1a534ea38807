"""The history of a key: what happened to it before its current attempt. The record keeps only the current attempt.

History is written in the background and never decides anything: a killed process loses what it had not written. An
event holds no payload, result or key text. Its error text is that of the record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, Protocol

from msgspec import Struct
from msgspec.structs import astuple, replace

from .record import RecordState

HistoryMode = Literal["problems", "all", "off"]
"""Which events a client writes. `problems`: those of calls that failed, were taken over, parked or refused."""

MODES: Final[tuple[HistoryMode, ...]] = ("problems", "all", "off")

MAX_EVENTS: Final = 50
"""How many events a store keeps per key. The oldest are dropped."""

EVENT_NAMES: Final = {
    "claimed": "a worker claimed the key",
    "taken_over": "a worker claimed the key after the lease of another worker had expired",
    "renewed": "the worker renewed its lease",
    "completed": "the result was recorded",
    "replayed": "a delivery got the stored result",
    "failed": "the work raised",
    "released": "the worker gave the key up before its work began",
    "mismatch": "a delivery was refused, because its payload differs",
    "parked": "it is unknown whether the effect happened",
    "lost": "the worker lost the key to another one, and could not record its result",
}
"""Every event and its description."""

PROBLEMS: Final = frozenset({"taken_over", "failed", "parked", "mismatch", "lost"})
"""The events that are always problems. Every event of a second or later attempt is written as well."""

SUMMED: Final = frozenset({"renewed", "replayed", "mismatch"})
"""Events that may happen many times under one token. They are one event, with a count and the last time."""


class HistoryEvent(Struct, frozen=True):
    """One event. `id`, `token` and `name` identify it, so that writing it again changes nothing.

    - `id`: the record. `token`: that of the ownership during which it happened.
    - `at`, `last_at`: the store's time of the first and of the last occurrence (µs since 1970). `count`: how many.
    - `attempt`, `owner`: of the record at that time.
    - `error_type`, `error`: the error, as on the record.
    - `retry_at`: when a failure may be retried; 0 if it may not.
    - `detail`: the previous owner of a key that was taken over, the arguments that differ, or `final`.
    """

    id: bytes
    token: int
    name: str
    at: int
    last_at: int = 0
    count: int = 1
    attempt: int = 0
    owner: str = ""
    error_type: str = ""
    error: str = ""
    retry_at: int = 0
    detail: str = ""

    @property
    def last(self) -> int:
        """The time of the last occurrence."""
        return max(self.at, self.last_at)


def column_values(event: HistoryEvent) -> list[Any]:
    """Return the values of all fields, in order. The last time is never missing."""
    return list(astuple(event if event.last_at == event.last else replace(event, last_at=event.last)))


class Lifetime(Protocol):
    """The fields of a record that say which events belong to it."""

    @property
    def state(self) -> RecordState: ...
    @property
    def token(self) -> int: ...
    @property
    def cycle(self) -> int: ...


def belongs_to(event: HistoryEvent, record: Lifetime | None) -> bool:
    """Return whether an event may still be written.

    It was collected some time ago. If the key has been purged, forgotten or erased since then, it must not come back.
    """
    if record is None:
        return False
    return event.token >= (record.token if record.state is RecordState.FREE else record.cycle)


def add_event(events: Iterable[HistoryEvent], new: HistoryEvent) -> list[HistoryEvent]:
    """Return the events with the new one, at most MAX_EVENTS, oldest first. Equal summed events are added up.

    A repeated write, because a reply was lost, has the same last time and is not added again.
    """
    kept = {(one.token, one.name): one for one in events}
    stored = kept.get((new.token, new.name))
    if stored is None:
        kept[new.token, new.name] = new
    elif new.name in SUMMED and new.last != stored.last:
        kept[new.token, new.name] = replace(
            stored, at=min(stored.at, new.at), last_at=max(stored.last, new.last), count=stored.count + new.count
        )
    return sorted(kept.values(), key=order_of)[-MAX_EVENTS:]


def order_of(event: HistoryEvent) -> tuple[int, int, str]:
    """Return the position of an event in its history: by its last occurrence."""
    return event.last, event.token, event.name
