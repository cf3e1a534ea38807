"""The workers that are alive, as far as the store knows: those that hold a lease."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.protocol.record import Record
from onceward.protocol.transitions import Row, row_of

from .model import WorkerRow
from .record_view import key_row
from .times import time_of


def worker_rows(pending: Sequence[Record], now: int) -> list[WorkerRow]:
    """Return the owners of live leases, those that hold the most first."""
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
