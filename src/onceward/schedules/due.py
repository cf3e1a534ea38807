"""What is due of a schedule right now: a pure function of its open slots, their records and the store's time.

    nobody began it, on time                → run it
    nobody began it, late                   → catch_up decides: run it, or it is missed
    begun, and its owner fell silent        → run it again, as after any crash
    failed, and it was asked to be retried  → run it again when it is due
    running                                 → look again when its lease ends
    completed, failed for good, parked      → settled

Late runs go oldest first and one at a time across all runners; what is on time waits for none of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum

from msgspec import Struct

from onceward.protocol.record import Record
from onceward.protocol.transitions import Row, row_of

from .definition import MISSED_AFTER_GRACES, Slots

POLL_INTERVAL = 1_000_000
"""µs until the next look while a late run of somebody else has to end first."""


class SlotStatus(Enum):
    """How a slot stands."""

    UNBEGUN = "unbegun"
    RUNNING = "running"
    SILENT = "silent"
    FAILED = "failed"
    SETTLED = "settled"


class SlotAction(Enum):
    """What is to be done about a slot."""

    SETTLED = "settled"
    RUN_NOW = "run now"
    RUN_LATE = "run late"
    WAIT = "wait"
    MISSED = "missed"


STATUS_OF_ROW = {
    Row.NONE: SlotStatus.UNBEGUN,
    Row.FREE: SlotStatus.UNBEGUN,  # somebody made it free, so that it runs again
    Row.PENDING_LIVE: SlotStatus.RUNNING,
    Row.PENDING_LAPSED: SlotStatus.SILENT,
    Row.RELEASED_UNVERIFIED: SlotStatus.SILENT,
    Row.FAILED_RETRYABLE: SlotStatus.FAILED,
}
"""All other rows are settled. One whose window is over was run: it is no missed one."""


class OpenSlot(Struct, frozen=True):
    """A slot that is not known to be settled, and its record."""

    slot: int
    record: Record | None
    ours: bool = False  # this runner is at it, whatever the store says
    settled: bool = False  # seen to be before: what is settled stays so


class Agenda(Struct, frozen=True):
    """What follows. `considered`: up to here all is settled or given up; `missed` are those given up on the way."""

    now: tuple[int, ...]
    late: int | None
    considered: int
    missed: tuple[int, ...]
    settled: tuple[int, ...]
    look_at: int | None


def status_of(one: OpenSlot, now: int) -> SlotStatus:
    if one.settled:
        return SlotStatus.SETTLED
    return SlotStatus.RUNNING if one.ours else STATUS_OF_ROW.get(row_of(one.record, now), SlotStatus.SETTLED)


def agenda(open_slots: Sequence[OpenSlot], slots: Slots, now: int, considered: int) -> Agenda:
    """What is due at `now`, of slots in order that are all at or before it."""
    known = [(one, status_of(one, now)) for one in open_slots]
    caught_up = _slots_to_catch_up(known, slots, now)
    fates = [_action_for(one, how, slots, now, caught_up=one.slot in caught_up) for one, how in known]
    of_fate = {
        fate: [one.slot for one, its in zip(open_slots, fates, strict=True) if its is fate] for fate in SlotAction
    }
    backlog = of_fate[SlotAction.RUN_LATE]
    looks = [
        _check_at(one, how, slots) for (one, how), fate in zip(known, fates, strict=True) if fate is SlotAction.WAIT
    ]
    blocked = bool(backlog) and any(_is_late_run(one, how, slots) for one, how in known)
    if blocked:
        looks.append(now + POLL_INTERVAL)
    for one, fate in zip(open_slots, fates, strict=True):
        if fate not in (SlotAction.SETTLED, SlotAction.MISSED):
            break
        considered = one.slot
    return Agenda(
        now=tuple(of_fate[SlotAction.RUN_NOW]),
        late=backlog[0] if backlog and not blocked else None,
        considered=considered,
        missed=tuple(slot for slot in of_fate[SlotAction.MISSED] if slot <= considered),
        settled=tuple(of_fate[SlotAction.SETTLED]),
        look_at=min((look for look in looks if look is not None), default=None),
    )


def _action_for(one: OpenSlot, how: SlotStatus, slots: Slots, now: int, *, caught_up: bool) -> SlotAction:
    late_by = now - one.slot
    if how is SlotStatus.SETTLED:
        return SlotAction.SETTLED
    if how is SlotStatus.RUNNING:
        return SlotAction.WAIT
    if how is SlotStatus.UNBEGUN:
        if late_by <= slots.grace:
            return SlotAction.RUN_NOW
        if caught_up:
            return SlotAction.RUN_LATE
        return SlotAction.MISSED if late_by > MISSED_AFTER_GRACES * slots.grace else SlotAction.WAIT
    if late_by > slots.catch_up_age:
        return SlotAction.MISSED
    waits = one.record is not None and one.record.retry_at is not None and one.record.retry_at > now
    return SlotAction.WAIT if waits else SlotAction.RUN_LATE


def _check_at(one: OpenSlot, how: SlotStatus, slots: Slots) -> int | None:
    """When something may have changed about a slot that has to wait."""
    if how is SlotStatus.UNBEGUN:
        return one.slot + MISSED_AFTER_GRACES * slots.grace + 1
    if one.ours or one.record is None:
        return None
    return one.record.lease_until if how is SlotStatus.RUNNING else one.record.retry_at


def _slots_to_catch_up(known: Sequence[tuple[OpenSlot, SlotStatus]], slots: Slots, now: int) -> Collection[int]:
    """The late ones that nobody began and that are to be run all the same."""
    unbegun = [one.slot for one, how in known if how is SlotStatus.UNBEGUN]
    late = [slot for slot in unbegun if slots.grace < now - slot <= slots.catch_up_age]
    if not late or slots.catch_up == "none":
        return ()
    if slots.catch_up == "all":
        return frozenset(late[-slots.catch_up_count :])
    newer = known[-1][0].slot > late[-1]  # it has run, it runs, or it is just due
    return () if newer else late[-1:]


def _is_late_run(one: OpenSlot, how: SlotStatus, slots: Slots) -> bool:
    """Whether it is a late run that is under way: the next late one waits for it."""
    if how is not SlotStatus.RUNNING:
        return False
    return one.record is None or one.record.claimed_at - one.slot > slots.grace
