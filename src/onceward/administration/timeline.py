"""The life of a key as one list: its history, its record, the audit trail and the steps of its saga.

The record keeps the current attempt only. Earlier attempts are in the history, which is written in the background, so
the latest events of a worker may be missing. `gaps` says what else is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from onceward.protocol.audit import AuditEntry, AuditFilter
from onceward.protocol.history import MAX_EVENTS, HistoryEvent
from onceward.protocol.ports import Store
from onceward.protocol.record import Record, RecordState
from onceward.runtime.background import WRITE_INTERVAL
from onceward.sagas.journal import Journal

from .audit_text import action_text
from .model import TimelineEvent
from .times import SECOND, moment, span, time_of

TIMEOUT: Final = 10.0
MAX_ENTRIES: Final = 50

_CLAIMS: Final = ("claimed", "taken_over")
_SAME: Final = {"taken_over": "claimed", "created": "claimed"}
"""Events that say the same about one claim: the timeline shows only one of them."""

_BY_CALLERS: Final = ("replayed", "mismatch")
"""Deliveries to a key that already has an owner. Their sender is not known."""

_AFTER_A_CRASH: Final = ("Lapsed", "AttemptsUsedUp")
"""The error types of a key that a claim parks because its owner stopped renewing. That claim's sender is not known."""

_ENDINGS: Final = {
    RecordState.COMPLETED: "completed",
    RecordState.FAILED: "failed",
    RecordState.PARKED: "parked",
    RecordState.FREE: "freed",
}
_ORDER: Final = ("created", *_CLAIMS, "step", "renewed", "mismatch", "lost", *_ENDINGS.values(), "released", "replayed")
"""The order of events at the same time. Actions of operators come last."""


class KeyLife(Struct, frozen=True):
    """What is known about the life of a key: the audit trail, the timeline, and what the timeline does not show."""

    audit: list[AuditEntry]
    timeline: list[TimelineEvent]
    gaps: list[str]


async def read_life(store: Store, record: Record, now: int, journal: Journal | None) -> KeyLife:
    """Read the audit trail and the history of a record, and merge them with it."""
    audit = await store.audit(AuditFilter(id=record.id), limit=MAX_ENTRIES, timeout=TIMEOUT)
    history = None
    if store.history is not None:
        history = await store.history.read_history(record.id, limit=MAX_EVENTS, timeout=TIMEOUT)
    return KeyLife(audit, timeline(record, now, audit, journal, history or ()), gaps(record, history))


def timeline(
    record: Record,
    now: int,
    audit: Sequence[AuditEntry],
    journal: Journal | None,
    history: Sequence[HistoryEvent] = (),
) -> list[TimelineEvent]:
    """Return what happened to the key, oldest first, then what is planned."""
    events = [*_merged(record, audit, history), *_manual(audit), *_steps(journal)]
    planned = sorted(_planned(record, now), key=lambda one: one.at)
    past = sorted([*events, *(one for one in planned if not one.planned)], key=_position)
    return [*past, *(one for one in planned if one.planned)]


def event_as_json(event: TimelineEvent) -> dict[str, Any]:
    return {**asdict(event), "at": event.at.isoformat()}


def event_line(event: TimelineEvent) -> str:
    """Return the line for `explain`."""
    by = f" (by {event.who})" if event.who and event.who not in event.text else ""
    return f"{event.at:%Y-%m-%d %H:%M:%S} UTC  {event.text}{by}"


def gaps(record: Record, history: Sequence[HistoryEvent] | None) -> list[str]:
    """Return what the timeline does not show, in sentences. If `history` is None, the store keeps no history."""
    if history is None:
        return ["This store keeps no history of keys: only the current attempt is shown."]
    lines = []
    claims = {one.attempt for one in history if one.name in _CLAIMS and one.token >= record.cycle}
    missing = record.attempt - len(claims | {record.attempt})
    if len(history) >= MAX_EVENTS:
        lines.append(f"Only the latest {MAX_EVENTS} events of a key are kept.")
    elif missing > 0:
        lines.append(
            f"Events of {missing} earlier attempt{'s' if missing > 1 else ''} are not shown: they were not written "
            'before the process ended, or its client has history="off".'
        )
    if not any(one.name == "replayed" for one in history):
        lines.append('Only clients with history="all" record replays, renewals and calls without problems.')
    lines.append(
        f"Workers write events every {WRITE_INTERVAL:.0f} s, so the latest may be missing; "
        "a killed process loses the events that it has not written."
    )
    return lines


# ── the record and its history ──


def _merged(record: Record, audit: Sequence[AuditEntry], history: Sequence[HistoryEvent]) -> list[TimelineEvent]:
    """Return the events of the history, and those of the record that the history lacks."""
    known = {(_kind(one.name), at) for one in history for at in _times_of(one)}
    own = [
        one for one in _of_record(record, audit) if not {(_kind(one.name), at) for at in (one.at, one.token)} & known
    ]
    events = [_with_last_renewal(one, record) for one in history]
    merged = sorted([*own, *events], key=lambda one: (one.at, one.token))
    owners: list[HistoryEvent] = []  # in the order of their claims
    shown = []
    for event in merged:
        before = next((one.owner for one in reversed(owners) if one.attempt == event.attempt - 1), "")
        who = "" if event.name in _BY_CALLERS or _is_parked_by_next(event) else event.owner
        shown.append(TimelineEvent(time_of(event.at), event.name, _text(event, before), who))
        if event.name in _CLAIMS:
            owners.append(event)
    return shown


def _times_of(event: HistoryEvent) -> tuple[int, int]:
    """Return what identifies a claim or an ending: its time, or its token, which a manual change raises."""
    return event.at, event.token


def _kind(name: str) -> str:
    return _SAME.get(name, name)


def _with_last_renewal(event: HistoryEvent, record: Record) -> HistoryEvent:
    """Return the event with the time of the record's last renewal, which may be later than the last write."""
    is_current = event.name == "renewed" and event.token == record.token
    return replace(event, last_at=max(event.last, record.renewed_at)) if is_current else event


def _of_record(record: Record, audit: Sequence[AuditEntry]) -> Iterator[HistoryEvent]:
    """Return what the record says about its current attempt."""

    def event(name: str, at: int, owner: str = record.owner) -> HistoryEvent:
        return HistoryEvent(
            record.id, record.token, name, at, attempt=record.attempt, owner=owner,
            error_type=record.error_type, error=record.error, detail="final" if record.final else "",
        )  # fmt: skip

    if record.created_at and record.created_at != record.claimed_at:
        yield replace(event("created", record.created_at, ""), token=record.cycle)
    if record.claimed_at:
        yield event("claimed", record.claimed_at)
    if record.renewed_at > record.claimed_at:
        yield replace(event("renewed", record.renewed_at), count=0)
    if record.state in _ENDINGS and not any(entry.token_after == record.token for entry in audit):
        has_owner = bool(record.nonce) or record.state is RecordState.COMPLETED
        yield event(_ENDINGS[record.state], record.updated_at, record.owner if has_owner else "")


def _position(event: TimelineEvent) -> tuple[object, int]:
    return event.at, _ORDER.index(event.what) if event.what in _ORDER else len(_ORDER)


# ── texts ──


def _text(event: HistoryEvent, before: str) -> str:
    """Return the event in words. `before` is the owner of the previous attempt, if known."""
    return _TEXTS[event.name](event, before) if event.name in _TEXTS else event.name


def _claimed(event: HistoryEvent, _before: str) -> str:
    return "claimed" if event.attempt <= 1 else f"claimed again, as attempt {event.attempt}"


def _taken_over(event: HistoryEvent, before: str) -> str:
    previous = event.detail or before or "another worker"
    return f"taken over from {previous}, whose lease had expired, as attempt {event.attempt}"


def _renewed(event: HistoryEvent, _before: str) -> str:
    if not event.count:
        return "last renewed its lease"
    return f"renewed its lease {_times(event)}"


def _failed(event: HistoryEvent, _before: str) -> str:
    final = ", permanently" if event.detail == "final" else ""
    retry = f"; may be retried from {moment(event.retry_at)}" if event.retry_at > event.at + SECOND else ""
    return f"failed{final}{_error(event)}{retry}"


def _parked(event: HistoryEvent, _before: str) -> str:
    if not _is_parked_by_next(event):
        return f"parked: it is unknown whether the effect happened{_error(event)}"
    left = "; no attempt is left" if event.error_type == "AttemptsUsedUp" else ""
    owner = event.owner or "its owner"
    return f"parked by the next delivery: the lease of {owner} had expired, so the effect may have happened{left}"


def _is_parked_by_next(event: HistoryEvent) -> bool:
    return event.name == "parked" and event.error_type in _AFTER_A_CRASH


def _mismatch(event: HistoryEvent, _before: str) -> str:
    which = f", which differs in {event.detail}" if event.detail else ""
    return f"refused a delivery with another payload{which}: {_times(event)}"


def _error(event: HistoryEvent) -> str:
    return f": {event.error_type}{f': {event.error}' if event.error else ''}" if event.error_type else ""


def _times(event: HistoryEvent) -> str:
    return "once" if event.count == 1 else f"{event.count} times, the last time at {moment(event.last)}"


_TEXTS: Final[dict[str, Callable[[HistoryEvent, str], str]]] = {
    "created": lambda *_: "claimed for the first time",
    "claimed": _claimed,
    "taken_over": _taken_over,
    "renewed": _renewed,
    "failed": _failed,
    "parked": _parked,
    "mismatch": _mismatch,
    "replayed": lambda event, _: f"replayed {_times(event)}",
    "released": lambda *_: "released before its work began",
    "lost": lambda *_: "lost the key to another worker, so its result was not recorded",
}


# ── what is not in the history ──


def _manual(audit: Sequence[AuditEntry]) -> Iterator[TimelineEvent]:
    for entry in audit:
        why = f": {entry.why}" if entry.why else ""
        text = f"{action_text(entry)}, {entry.state_before} → {entry.state_after}{why}"
        yield TimelineEvent(time_of(entry.at), entry.verb, text, entry.who)


def _steps(journal: Journal | None) -> Iterator[TimelineEvent]:
    for step in journal.entries if journal is not None else ():
        yield TimelineEvent(time_of(step.token), "step", f"step {step.name}: {step.progress}")


def _planned(record: Record, now: int) -> Iterator[TimelineEvent]:
    if record.state is RecordState.PENDING and record.lease_until is not None:
        ended = record.lease_until <= now
        text = "the lease expired" if ended else f"the lease expires in {span(record.lease_until - now)}"
        yield TimelineEvent(time_of(record.lease_until), "lease", text, planned=not ended)
    if record.state is RecordState.FAILED and record.retry_at is not None and record.retry_at > now + SECOND:
        text = f"it may be retried in {span(record.retry_at - now)}"
        yield TimelineEvent(time_of(record.retry_at), "retry", text, planned=True)
    if record.valid_until is not None:
        ended = record.valid_until <= now
        left = "" if ended else f" in {span(record.valid_until - now)}"
        if record.state is RecordState.FAILED and not record.final:
            text = f"the failure {'was' if ended else 'is'} forgotten{left}"
        else:
            text = f"the window {'ended' if ended else 'ends'}{left}"
        yield TimelineEvent(time_of(record.valid_until), "window", text, planned=not ended)
