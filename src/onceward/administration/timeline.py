"""The life of a key as a list of events. The record keeps its current attempt; earlier ones are in logs and audit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onceward.protocol.audit import AuditEntry
from onceward.protocol.record import Record, RecordState
from onceward.sagas.journal import Journal

from .audit_text import action_text
from .model import TimelineEvent
from .times import SECOND, span, time_of


def timeline(record: Record, now: int, audit: Sequence[AuditEntry], journal: Journal | None) -> list[TimelineEvent]:
    """Return what happened to the key, oldest first, then what is planned."""
    events = [*_events(record), *_manual(audit), *_steps(journal)]
    past = sorted((one for one in events if not one.planned), key=lambda one: one.at)
    return [*past, *sorted(_planned(record, now), key=lambda one: one.at)]


def _events(record: Record) -> Iterator[TimelineEvent]:
    owner = record.owner
    if record.created_at and record.created_at != record.claimed_at:
        yield TimelineEvent(time_of(record.created_at), "created", "claimed for the first time")
    if record.claimed_at:
        how = "claimed" if record.attempt <= 1 else f"claimed again, as attempt {record.attempt}"
        yield TimelineEvent(time_of(record.claimed_at), "claimed", how, owner)
    if record.renewed_at > record.claimed_at:
        yield TimelineEvent(time_of(record.renewed_at), "renewed", "renewed its lease for the last time", owner)
    if record.state in _ENDINGS:
        what, text = _ENDINGS[record.state]
        error = f": {record.error_type}: {record.error}" if record.error_type else ""
        final = ", permanently" if record.final else ""
        by = owner if record.nonce or record.state is RecordState.COMPLETED else ""
        yield TimelineEvent(time_of(record.updated_at), what, f"{text}{final}{error}", by)


_ENDINGS = {
    RecordState.COMPLETED: ("completed", "completed"),
    RecordState.FAILED: ("failed", "failed"),
    RecordState.PARKED: ("parked", "parked: it is unknown whether the effect happened"),
    RecordState.FREE: ("freed", "freed"),
}


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
        text = "the window ended" if ended else f"the window ends in {span(record.valid_until - now)}"
        yield TimelineEvent(time_of(record.valid_until), "window", text, planned=not ended)
