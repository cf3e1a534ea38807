"""Latest wins: the rules by which event deliveries become the state of their entities.

Two kinds of marks record which events are known: one for the message (the transport's id), one for the event itself (a
logical id, the same if it is published again). The state of an entity is the highest of all different events; a known
message or event changes nothing.

| delivery | decision | marks written | state changes |
|---|---|---|---|
| the entity was written by a newer version | SKEW | – | – |
| message known, with other content | MISMATCH | – | – |
| message known | DUPLICATE_MESSAGE | – | – |
| too far in the future | PARKED | – | – |
| event known, with other content | EVENT_MISMATCH | – | – |
| event known | DUPLICATE_EVENT | message | – |
| higher than the state, or there is none | APPLIED | both | yes |
| same order as the state | DUPLICATE_MESSAGE | both | – |
| lower than the state | STALE | both | – |

Marks belong to the entity, because a message may carry events of several entities. A store applies `decide` to the
deliveries of an entity in one atomic step: marks and state are written together or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypedDict

from msgspec import Struct

from .duration import Duration
from .ordering import CONTENT_BYTES

NO_MARK: Final = b""
"""The mark of a delivery without an id of this kind."""

_HASH_BYTES: Final = 16
_PREFIX_BYTES: Final = 24
_POSITION: Final = slice(None, -CONTENT_BYTES)  # an order without its content hash
_sha256 = hashlib.sha256


class LatestStateOptions(TypedDict, total=False):
    """Options of `once.state(…)`."""

    window: Duration
    """How long the ids of messages and events are remembered."""

    keep_deleted: Duration
    """How long a deleted entity rejects older events."""

    max_clock_skew: Duration | None
    """How far the time of an event may be ahead of the store's time; None for no limit."""


class EventDelivery(Struct, frozen=True, gc=False):
    """One delivery of an event. `value` None deletes the entity; before `not_before` (store time, µs) it is parked.

    `id` is the entity's id, 32 bytes; `message` and `event` are the marks, up to 40 bytes each; `trace` is the readable
    message id, stored with the marks; `event_name` is the readable event id, if it is a text.
    """

    id: bytes
    scope: str
    entity: str
    order: bytes
    value: bytes | None
    message: bytes = NO_MARK
    event: bytes = NO_MARK
    trace: str = ""
    not_before: int = 0
    event_name: str = ""


class Retention(Struct, frozen=True):
    """Retention in µs: `marks` for the ids of messages and events, `deleted` for deleted entities."""

    marks: int
    deleted: int


class EntityState(Struct, frozen=True, gc=False):
    """The state of an entity. `value` None: it was deleted, and its row expires at `expires_at`."""

    id: bytes
    scope: str
    entity: str
    order: bytes
    value: bytes | None
    updated_at: int
    expires_at: int | None = None


def page_of(found: list[EntityState], limit: int) -> tuple[list[EntityState], bytes | None]:
    """Return a page of entities in the order of their ids, and the cursor of the next page."""
    return found, found[-1].id if len(found) == limit else None


class DedupMark(Struct, frozen=True, gc=False):
    """A message or an event that was seen, remembered until it expires. `trace` is the id of that message."""

    id: bytes
    content: bytes
    trace: str
    created_at: int
    expires_at: int


def mark_of(entity: bytes, tier: bytes, name: bytes, text: str) -> bytes:
    """Return the mark of an id: the start of its text, then a hash that makes it unique.

    Most transports number their messages or start the id with the time. With the text first, the marks of a batch are
    neighbours in an index, so the batch writes to a few pages instead of one page each.
    """
    return text.encode()[:_PREFIX_BYTES] + _sha256(entity + tier + name).digest()[:_HASH_BYTES]


class LatestDecision(StrEnum):
    """What happened to a delivered event."""

    APPLIED = "applied"
    DUPLICATE_MESSAGE = "duplicate_message"
    DUPLICATE_EVENT = "duplicate_event"
    STALE = "stale"
    MISMATCH = "mismatch"
    EVENT_MISMATCH = "event_mismatch"
    PARKED = "parked"
    SKEW = "skew"


class LatestResult(Struct, frozen=True, gc=False):
    """The store's result for one delivery. `applied`: this delivery changed the value of the state.

    `conflict`: its order equals that of the state it was compared with, except for the content.
    """

    decision: LatestDecision
    applied: bool = False
    conflict: bool = False


APPLIED: Final = LatestResult(LatestDecision.APPLIED, applied=True)
DUPLICATE_MESSAGE: Final = LatestResult(LatestDecision.DUPLICATE_MESSAGE)
DUPLICATE_EVENT: Final = LatestResult(LatestDecision.DUPLICATE_EVENT)
STALE: Final = LatestResult(LatestDecision.STALE)
MISMATCH: Final = LatestResult(LatestDecision.MISMATCH)
EVENT_MISMATCH: Final = LatestResult(LatestDecision.EVENT_MISMATCH)
PARKED: Final = LatestResult(LatestDecision.PARKED)
SKEW: Final = LatestResult(LatestDecision.SKEW)


class LatestDecisions(NamedTuple):
    """The results in the order of the deliveries, and what the store has to write."""

    answers: list[LatestResult]
    updates: dict[bytes, EventDelivery]
    """By entity: the delivery that becomes the new state."""

    marks: dict[bytes, EventDelivery]
    """By mark: the delivery that created it."""


def decide(
    deliveries: Sequence[EventDelivery],
    orders: Mapping[bytes, bytes],
    marks: dict[bytes, bytes],
    now: int,
    closed: Collection[bytes] = (),
) -> LatestDecisions:
    """Decide about the deliveries one after the other, as if each had arrived alone.

    `orders` has the order of each entity's state and `marks` the content of each mark, if they exist and have not
    expired; new marks are added to `marks`. Entities in `closed` were written by a newer version of Onceward.
    """
    answers: list[LatestResult] = []
    updates: dict[bytes, EventDelivery] = {}
    new_marks: dict[bytes, EventDelivery] = {}
    for one in deliveries:
        id, order = one.id, one.order
        if closed and id in closed:
            answers.append(SKEW)
            continue
        if one.message or one.event or now < one.not_before:
            known = _check_marks(one, marks, new_marks, now)
            if known is not None:
                answers.append(known)
                continue
        update = updates.get(id)
        before = orders.get(id) if update is None else update.order
        if before is None or order > before:
            updates[id] = one
        answers.append(_result(order, before))
    return LatestDecisions(answers, updates, new_marks)


def _check_marks(
    one: EventDelivery, marks: dict[bytes, bytes], new_marks: dict[bytes, EventDelivery], now: int
) -> LatestResult | None:
    """Return what the marks and the time of a delivery decide, or None. Adds its new marks to both dicts."""
    message, event, content = one.message, one.event, one.order[-CONTENT_BYTES:]
    seen = marks.get(message) if message else None
    if seen is not None:
        return DUPLICATE_MESSAGE if _same_content(seen, content) else MISMATCH
    if now < one.not_before:
        return PARKED
    known = marks.get(event) if event else None
    if known is not None and not _same_content(known, content):
        return EVENT_MISMATCH
    if event and known is None:
        marks[event] = content
        new_marks[event] = one
    if message:
        marks[message] = content
        new_marks[message] = one
    return None if known is None else DUPLICATE_EVENT


def _same_content(seen: bytes, content: bytes) -> bool:
    """Compare two content hashes. Hashes of different encoder versions cannot be compared and count as equal."""
    return seen == content or seen[0] != content[0]


def _result(order: bytes, before: bytes | None) -> LatestResult:
    """Return the result of a delivery that no mark knows, given the order of the state before it."""
    if before is None:
        return APPLIED
    if order == before:
        return DUPLICATE_MESSAGE
    result = APPLIED if order > before else STALE
    if order[_POSITION] == before[_POSITION]:
        return LatestResult(result.decision, applied=result.applied, conflict=True)
    return result
