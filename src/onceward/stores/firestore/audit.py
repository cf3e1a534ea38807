"""The audit trail: an entry a document, written together with the change that it tells of."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from onceward.protocol.audit import KEEP_AUDIT, AuditEntry, AuditFilter, is_wanted

from . import values
from .calls import FirestoreCalls, after, in_order, where
from .documents import Changes
from .values import plain

PAGE: Final = 200
"""Entries read at a time: each is billed."""

_TEXTS: Final = ("verb", "who", "why", "detail", "scope", "key", "state_before", "state_after")
_NUMBERS: Final = ("token_before", "token_after", "count")
_AT: Final = ("at",)


def writing(calls: FirestoreCalls, entry: AuditEntry) -> Any:
    """The entry as a write. Names rise with time, so that entries of one instant keep their order."""
    changes: Changes = {
        _AT: values.time(entry.at),
        ("id",): values.Value(bytes_value=entry.id),
        (calls.place.layout.expiry,): values.time(entry.at + KEEP_AUDIT),
        **{(name,): values.text(getattr(entry, name)) for name in _TEXTS},
        **{(name,): values.number(getattr(entry, name)) for name in _NUMBERS},
    }
    name = f"{time.time_ns():020d}-{os.urandom(4).hex()}"
    return calls.writing(calls.place.audit_in, name, changes, None)


async def find(
    calls: FirestoreCalls, wanted: AuditFilter, limit: int, now: int | None, deadline: float
) -> list[AuditEntry]:
    """The newest first. What is not wanted is read all the same: an index for every question would cost each write."""
    found: list[AuditEntry] = []
    more: dict[str, Any] = {}
    while len(found) < limit:
        page, read_at = await calls.query(
            calls.place.audit_in, deadline, limit=PAGE, order_by=in_order(_AT, descending=True), **more
        )
        entries = [_entry(one.fields) for one in page]
        found += [entry for entry in entries if is_wanted(entry, wanted, read_at if now is None else now)]
        if len(page) < PAGE:
            break
        last = values.Value(reference_value=calls.path(calls.place.audit_in, page[-1].name))
        more = {"start_at": after(page[-1].fields["at"], last)}
    return found[:limit]


async def expire(calls: FirestoreCalls, limit: int, now: int, deadline: float) -> None:
    """Entries that are too old, by the way of a purge."""
    condition = where(_AT, "LESS_THAN_OR_EQUAL", values.time(now - KEEP_AUDIT))
    old, _ = await calls.query(calls.place.audit_in, deadline, limit=limit, where=condition)
    if old:
        await calls.write_each([calls.deleting(calls.place.audit_in, one.name, one.version) for one in old], deadline)


def _entry(fields: Any) -> AuditEntry:
    held = {name: plain(fields[name]) for name in (*_TEXTS, *_NUMBERS, "at", "id") if name in fields}
    return AuditEntry(**held)
