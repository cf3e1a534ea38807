"""The audit trail: one document per entry, written together with the change that it describes."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from onceward.protocol.audit import AUDIT_RETENTION, AuditEntry, AuditFilter, matches_filter

from . import values
from .calls import FirestoreCalls, FoundDocument, stable_order, start_after, where
from .documents import Changes
from .values import plain

PAGE: Final = 200
"""Entries per query. Each is billed."""

_TEXTS: Final = ("verb", "who", "why", "detail", "scope", "key", "state_before", "state_after")
_NUMBERS: Final = ("token_before", "token_after", "count")
_AT: Final = ("at",)


def entry_write(calls: FirestoreCalls, entry: AuditEntry) -> Any:
    """Return the write of an entry. Names grow with time, so that entries of the same time keep their order."""
    changes: Changes = {
        _AT: values.time(entry.at),
        ("id",): values.Value(bytes_value=entry.id),
        (calls.address.layout.expiry,): values.time(entry.at + AUDIT_RETENTION),
        **{(name,): values.text(getattr(entry, name)) for name in _TEXTS},
        **{(name,): values.number(getattr(entry, name)) for name in _NUMBERS},
    }
    name = f"{time.time_ns():020d}-{os.urandom(4).hex()}"
    return calls.build_write(calls.address.audit_in, name, changes, None)


async def find_entries(
    calls: FirestoreCalls, wanted: AuditFilter, limit: int, now: int | None, deadline: float
) -> list[AuditEntry]:
    """Return entries, newest first. Filters after reading, because an index per filter makes writes expensive."""
    found: list[AuditEntry] = []
    more: dict[str, Any] = {}
    while len(found) < limit:
        page, read_at = await calls.query(
            calls.address.audit_in, deadline, limit=PAGE, order_by=stable_order(_AT, descending=True), **more
        )
        entries = [entry_of(one.fields) for one in page]
        found += [entry for entry in entries if matches_filter(entry, wanted, read_at if now is None else now)]
        if len(page) < PAGE:
            break
        last = values.Value(reference_value=calls.path(calls.address.audit_in, page[-1].name))
        more = {"start_at": start_after(page[-1].fields["at"], last)}
    return found[:limit]


async def expire_entries(calls: FirestoreCalls, limit: int, now: int, deadline: float) -> None:
    """Delete entries that are too old. Called by `purge`."""
    condition = where(_AT, "LESS_THAN_OR_EQUAL", values.time(now - AUDIT_RETENTION))
    old, _ = await calls.query(calls.address.audit_in, deadline, limit=limit, where=condition)
    if old:
        await calls.write_each(
            [calls.build_delete(calls.address.audit_in, one.name, one.version) for one in old], deadline
        )


def redaction(calls: FirestoreCalls, one: FoundDocument) -> Any:
    """Return the write that removes the fields that name a key from an entry."""
    changes: Changes = {(name,): values.text("") for name in ("scope", "key", "why")}
    changes[("id",)] = values.Value(bytes_value=b"")
    return calls.build_write(calls.address.audit_in, one.name, changes, one.version)


def entry_of(fields: Any) -> AuditEntry:
    found = {name: plain(fields[name]) for name in (*_TEXTS, *_NUMBERS, "at", "id") if name in fields}
    return AuditEntry(**found)
