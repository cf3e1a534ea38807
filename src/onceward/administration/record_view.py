"""Show a record to people: as a row of a list, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward.protocol.note import FRAME, user_notes
from onceward.protocol.record import AfterCrash, Record
from onceward.protocol.transitions import Row, row_of
from onceward.protocol.unstored import unstored_reason

from .model import KeyRow, WorkerRow
from .times import iso, time_of

_STATE_TEXTS = {
    Row.PENDING_LAPSED: "PENDING lapsed",
    Row.RELEASED_UNVERIFIED: "PENDING released",
    Row.FAILED_FINAL: "FAILED final",
}


_TIMES = ("created_at", "claimed_at", "updated_at", "renewed_at", "lease_until", "valid_until", "retry_at")


def state_text(record: Record, now: int) -> str:
    """Return the state, and whether its lease or window has expired."""
    row = row_of(record, now)
    if row in (Row.COMPLETED_EXPIRED, Row.FAILED_FINAL_EXPIRED, Row.FAILED_RETRYABLE_EXPIRED):
        return f"{record.state} expired"
    return _STATE_TEXTS.get(row, record.state.value)


def key_row(record: Record, now: int) -> KeyRow:
    """Return the record as a row of a list."""
    operation, _, tenant = record.scope.partition("@")
    return KeyRow(
        id=record.id.hex(),
        scope=record.scope,
        operation=operation,
        tenant=tenant,
        key=record.key,
        state=record.state,
        standing=state_text(record, now),
        attempt=record.attempt,
        token=record.token,
        owner=record.owner,
        created_at=time_of(record.created_at),
        claimed_at=time_of(record.claimed_at),
        updated_at=time_of(record.updated_at),
        renewed_at=time_of(record.renewed_at),
        lease_until=time_of(record.lease_until),
        retry_at=time_of(record.retry_at),
        valid_until=time_of(record.valid_until),
        error_type=record.error_type,
        error=record.error,
        error_frame=record.note.get(FRAME, ""),
        note=user_notes(record.note),
    )


def record_as_json(record: Record, now: int) -> dict[str, Any]:
    """Return a record as JSON, without its result."""
    return {
        "id": record.id.hex(),
        "scope": record.scope,
        "key": record.key,
        "state": record.state.value,
        "standing": state_text(record, now),
        "attempt": record.attempt,
        "token": record.token,
        "owner": record.owner,
        **{name: iso(getattr(record, name)) for name in _TIMES},
        "after_crash": AfterCrash(record.after_crash).name.lower(),
        "error_type": record.error_type,
        "error": record.error,
        "error_frame": record.note.get(FRAME, ""),
        "final": record.final,
        "stored": record.stored and record.result is not None,
        "result_bytes": len(record.result or b""),
        "unstored": unstored_reason(record.note),
        "note": user_notes(record.note),
    }


def worker_rows(pending: Sequence[Record], now: int) -> list[WorkerRow]:
    """Return the owners of live leases. The owner with the most leases is first."""
    by_owner: dict[str, list[Record]] = {}
    for record in pending:
        if row_of(record, now) is Row.PENDING_LIVE:
            by_owner.setdefault(record.owner, []).append(record)
    rows = [
        WorkerRow(
            owner,
            len(held),
            time_of(max(one.renewed_at for one in held)),
            key_row(min(held, key=lambda one: one.claimed_at), now),
        )
        for owner, held in by_owner.items()
    ]
    return sorted(rows, key=lambda one: (-one.running, one.owner))
