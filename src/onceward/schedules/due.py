"""Decide what is due of a schedule: a pure function of its open slots, their records and the store's time.

    not started, on time                → run it
    not started, late                   → catch_up decides: run it, or it is missed
    started, and its lease has expired  → run it again, as after any crash
    failed, and declared to be retried  → run it again when the retry is due
    running                             → check again when its lease ends
    completed, finally failed, parked   → settled

Late runs start oldest first, one at a time across all runners. Runs that are on time do not wait for them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum

from msgspec import Struct

from onceward.protocol.record import Record
from onceward.protocol.transitions import Row, row_of

from .definition import MISSED_AFTER_GRACES, Slots

POLL_INTERVAL = 1_000_000
"""µs until the next check while a late run of another runner must end first."""


class SlotStatus(Enum):
    """The state of a slot."""

    NOT_STARTED = "not started"
    RUNNING = "running"
    EXPIRED = "expired"  # started, but its worker no longer holds the lease
    FAILED = "failed"
    SETTLED = "settled"


class SlotAction(Enum):
    """What the runner does about a slot."""

    SETTLED = "settled"
    RUN_NOW = "run now"
    RUN_LATE = "run late"
    WAIT = "wait"
    MISSED = "missed"


STATUS_OF_ROW = {
    Row.NONE: SlotStatus.NOT_STARTED,
    Row.FREE: SlotStatus.NOT_STARTED,  # it was forgotten, so that it runs again
    Row.PENDING_LIVE: SlotStatus.RUNNING,
    Row.PENDING_LAPSED: SlotStatus.EXPIRED,
    Row.RELEASED_UNVERIFIED: SlotStatus.EXPIRED,
    Row.FAILED_RETRYABLE: SlotStatus.FAILED,
}
"""All other rows are settled. A slot whose window has ended was run, so it is not missed."""


class OpenSlot(Struct, frozen=True):
    """A slot that is not known to be settled, and its record."""

    slot: int
    record: Record | None
    ours: bool = False  # this runner is running it, whatever the store says
    settled: bool = False  # this runner saw it settled before, and that is final


class Agenda(Struct, frozen=True):
    """What to do now: start the slots in `now`, and the slot `late`; check again at `check_at`.

    All slots up to `considered` are settled or missed; `missed` are those that became so with this decision.
    """

    now: tuple[int, ...]
    late: int | None
    considered: int
    missed: tuple[int, ...]
    settled: tuple[int, ...]
    check_at: int | None


def status_of(one: OpenSlot, now: int) -> SlotStatus:
    if one.settled:
        return SlotStatus.SETTLED
    return SlotStatus.RUNNING if one.ours else STATUS_OF_ROW.get(row_of(one.record, now), SlotStatus.SETTLED)


def agenda(open_slots: Sequence[OpenSlot], slots: Slots, now: int, considered: int) -> Agenda:
    """Return what to do at `now`. The open slots are in order, and none is later than `now`."""
    known = [(one, status_of(one, now)) for one in open_slots]
    to_catch_up = _slots_to_catch_up(known, slots, now)
    actions = [_action_for(one, status, slots, now, catch_up=one.slot in to_catch_up) for one, status in known]
    by_action: dict[SlotAction, list[int]] = {action: [] for action in SlotAction}
    for one, action in zip(open_slots, actions, strict=True):
        by_action[action].append(one.slot)
    backlog = by_action[SlotAction.RUN_LATE]
    waiting = [pair for pair, action in zip(known, actions, strict=True) if action is SlotAction.WAIT]
    checks = [_check_at(one, status, slots) for one, status in waiting]
    blocked = bool(backlog) and any(_is_late_run(one, status, slots) for one, status in known)
    if blocked:
        checks.append(now + POLL_INTERVAL)
    for one, action in zip(open_slots, actions, strict=True):
        if action not in (SlotAction.SETTLED, SlotAction.MISSED):
            break
        considered = one.slot
    return Agenda(
        now=tuple(by_action[SlotAction.RUN_NOW]),
        late=backlog[0] if backlog and not blocked else None,
        considered=considered,
        missed=tuple(slot for slot in by_action[SlotAction.MISSED] if slot <= considered),
        settled=tuple(by_action[SlotAction.SETTLED]),
        check_at=min((at for at in checks if at is not None), default=None),
    )


def _action_for(one: OpenSlot, status: SlotStatus, slots: Slots, now: int, *, catch_up: bool) -> SlotAction:
    late_by = now - one.slot
    if status is SlotStatus.SETTLED:
        return SlotAction.SETTLED
    if status is SlotStatus.RUNNING:
        return SlotAction.WAIT
    if status is SlotStatus.NOT_STARTED:
        if late_by <= slots.grace:
            return SlotAction.RUN_NOW
        if catch_up:
            return SlotAction.RUN_LATE
        return SlotAction.MISSED if late_by > MISSED_AFTER_GRACES * slots.grace else SlotAction.WAIT
    if late_by > slots.catch_up_age:
        return SlotAction.MISSED
    retry_later = one.record is not None and one.record.retry_at is not None and one.record.retry_at > now
    return SlotAction.WAIT if retry_later else SlotAction.RUN_LATE


def _check_at(one: OpenSlot, status: SlotStatus, slots: Slots) -> int | None:
    """Return when the status of a waiting slot may change, if that is known."""
    if status is SlotStatus.NOT_STARTED:
        return one.slot + MISSED_AFTER_GRACES * slots.grace + 1
    if one.ours or one.record is None:
        return None
    return one.record.lease_until if status is SlotStatus.RUNNING else one.record.retry_at


def _slots_to_catch_up(known: Sequence[tuple[OpenSlot, SlotStatus]], slots: Slots, now: int) -> Collection[int]:
    """Return the late slots that were not started and that catch_up= declares to be run."""
    not_started = [one.slot for one, status in known if status is SlotStatus.NOT_STARTED]
    late = [slot for slot in not_started if slots.grace < now - slot <= slots.catch_up_age]
    if not late or slots.catch_up == "none":
        return ()
    if slots.catch_up == "all":
        return frozenset(late[-slots.catch_up_count :])
    has_later_slot = known[-1][0].slot > late[-1]  # that one has run, is running, or is due now
    return () if has_later_slot else late[-1:]


def _is_late_run(one: OpenSlot, status: SlotStatus, slots: Slots) -> bool:
    """Return whether this is a late run that has not ended. The next late run waits for it."""
    if status is not SlotStatus.RUNNING:
        return False
    return one.record is None or one.record.claimed_at - one.slot > slots.grace
