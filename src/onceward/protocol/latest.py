"""Newest wins: the rule by which deliveries of events become the state of their entities.

Two tiers of marks say whether an event is known: one for the message (the transport's id), one for the event itself
(a logical id, the same when it is published again). They decide what an outcome is called, never what the state is:
the state of an entity is that of the highest order among all deliveries that were accepted.

| delivery | answer | marks | state |
|---|---|---|---|
| the entity was written by a newer version | SKEW | – | – |
| message known, with other content | MISMATCH | – | – |
| message known | DUPLICATE_MESSAGE | – | if higher |
| too far in the future | PARKED | – | – |
| event known | DUPLICATE_EVENT | message | if higher |
| higher than the state, or there is none | APPLIED | both | yes |
| the very order of the state | DUPLICATE_MESSAGE | both | – |
| lower | STALE | both | – |

Marks belong to the entity: a message may carry events of several. A store applies `decide` to the deliveries of an entity
in one atomic step: marks and state are written together or not at all.
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
"""Of a delivery that has no id in this tier."""

_HASH: Final = 16
_NEAR: Final = 24
_PLACE: Final = slice(None, -CONTENT_BYTES)  # all of an order but the content
_sha256 = hashlib.sha256


class LatestStateOptions(TypedDict, total=False):
    """What may be declared about a state."""

    window: Duration
    """How long a message or an event is known."""

    keep_deleted: Duration
    """How long a deleted entity keeps older events out."""

    max_clock_skew: Duration | None
    """How far the time of an event may be ahead of the store's; None: as far as it likes."""


class EventDelivery(Struct, frozen=True, gc=False):
    """One event on its way to the store. `value` None deletes; until `not_before` (store time, µs) it is parked.

    `id` is the entity's, 32 bytes; `message` and `event` are the marks, up to 40 bytes; `trace` is the message id for
    people, kept beside the marks.
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


class Retention(Struct, frozen=True):
    """For how long, in µs: `marks` the ids of messages and events, `deleted` what is left of a deleted entity."""

    marks: int
    deleted: int


class EntityState(Struct, frozen=True, gc=False):
    """The state of an entity. `value` None: deleted, and forgotten at `expires_at`."""

    id: bytes
    scope: str
    entity: str
    order: bytes
    value: bytes | None
    updated_at: int
    expires_at: int | None = None


def page_of(found: list[EntityState], limit: int) -> tuple[list[EntityState], bytes | None]:
    """A page of entities in the order of their ids, and where the next one begins."""
    return found, found[-1].id if len(found) == limit else None


class DedupMark(Struct, frozen=True, gc=False):
    """A message or an event that is known until it expires. `trace` is the message that brought it."""

    id: bytes
    content: bytes
    trace: str
    created_at: int
    expires_at: int


def mark_of(entity: bytes, tier: bytes, name: bytes, text: str) -> bytes:
    """The mark of an id: a hash makes it the only one, and its text comes first, so that neighbours stay neighbours.

    Most transports count their messages or put the time in front: a batch then writes to a few pages of an index
    instead of one page each.
    """
    return text.encode()[:_NEAR] + _sha256(entity + tier + name).digest()[:_HASH]


class LatestDecision(StrEnum):
    """What an event is called."""

    APPLIED = "applied"
    DUPLICATE_MESSAGE = "duplicate_message"
    DUPLICATE_EVENT = "duplicate_event"
    STALE = "stale"
    MISMATCH = "mismatch"
    PARKED = "parked"
    SKEW = "skew"


class LatestResult(Struct, frozen=True, gc=False):
    """The store's answer to one delivery. `applied`: the value of the state is this one's now, and was not before.

    `conflict`: in everything but the content it ties with the state that it met.
    """

    decision: LatestDecision
    applied: bool = False
    conflict: bool = False


APPLIED: Final = LatestResult(LatestDecision.APPLIED, applied=True)
DUPLICATE_MESSAGE: Final = LatestResult(LatestDecision.DUPLICATE_MESSAGE)
DUPLICATE_EVENT: Final = LatestResult(LatestDecision.DUPLICATE_EVENT)
STALE: Final = LatestResult(LatestDecision.STALE)
MISMATCH: Final = LatestResult(LatestDecision.MISMATCH)
PARKED: Final = LatestResult(LatestDecision.PARKED)
SKEW: Final = LatestResult(LatestDecision.SKEW)


class LatestDecisions(NamedTuple):
    """The answers in the order of the deliveries, and what has to be written for them."""

    answers: list[LatestResult]
    updates: dict[bytes, EventDelivery]
    """By entity: the delivery whose value and order are the state now."""

    marks: dict[bytes, EventDelivery]
    """By mark: the delivery that claimed it."""


def decide(
    deliveries: Sequence[EventDelivery],
    orders: Mapping[bytes, bytes],
    marks: dict[bytes, bytes],
    now: int,
    closed: Collection[bytes] = (),
) -> LatestDecisions:
    """Judge the deliveries one after the other, as if each had come alone.

    `orders` has the order of each entity's state and `marks` the content under each mark, as far as they are there and
    not expired; marks are added as they are claimed. `closed` entities were written by a newer version.
    """
    answers: list[LatestResult] = []
    updates: dict[bytes, EventDelivery] = {}
    claimed: dict[bytes, EventDelivery] = {}
    for one in deliveries:
        id, order = one.id, one.order
        if closed and id in closed:
            answers.append(SKEW)
            continue
        name: LatestResult | None = None
        if one.message or one.event or now < one.not_before:
            name = _recognised(one, marks, claimed, now)
            if name is not None and (name is MISMATCH or name is PARKED):
                answers.append(name)
                continue
        mine = updates.get(id)
        before = orders.get(id) if mine is None else mine.order
        if before is None or order > before:
            updates[id] = one
            if name is None and (before is None or order[_PLACE] != before[_PLACE]):
                answers.append(APPLIED)
                continue
        answers.append(_named(name, order, before))
    return LatestDecisions(answers, updates, claimed)


def _recognised(
    one: EventDelivery, marks: dict[bytes, bytes], claimed: dict[bytes, EventDelivery], now: int
) -> LatestResult | None:
    """What its marks and its time say about a delivery; claims those of them that are new."""
    message, event, content = one.message, one.event, one.order[-CONTENT_BYTES:]
    seen = marks.get(message) if message else None
    if seen is not None:
        same = seen == content or seen[0] != content[0]  # of another encoder version, they cannot be compared
        return DUPLICATE_MESSAGE if same else MISMATCH
    if now < one.not_before:
        return PARKED
    name: LatestResult | None = None
    if event:
        if event in marks:
            name = DUPLICATE_EVENT
        else:
            marks[event] = content
            claimed[event] = one
    if message:
        marks[message] = content
        claimed[message] = one
    return name


def _named(name: LatestResult | None, order: bytes, before: bytes | None) -> LatestResult:
    """What the delivery is called, given the order that it met."""
    if before is None:
        return APPLIED if name is None else LatestResult(name.decision, applied=True)
    conflict = order != before and order[_PLACE] == before[_PLACE]
    if order > before:
        if name is None:
            return LatestResult(LatestDecision.APPLIED, applied=True, conflict=True) if conflict else APPLIED
        if order[-CONTENT_BYTES:] == before[-CONTENT_BYTES:]:  # published again: later, but nothing new
            return name
        return LatestResult(name.decision, applied=True, conflict=conflict)
    if name is None:
        name = DUPLICATE_MESSAGE if order == before else STALE
    return LatestResult(name.decision, conflict=True) if conflict else name
