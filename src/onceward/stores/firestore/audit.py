"""The audit trail: one document per entry, written together with the change that it describes."""

from __future__ import annotations

import os
import time
from typing import Any, Final

import msgspec

from onceward.errors import RecordBroken
from onceward.protocol.audit import AUDIT_RETENTION, AuditEntry, AuditFilter, matches_filter

from . import values
from .calls import FirestoreCalls, FoundDocument, where
from .documents import EDITED, Changes
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


async def find_entries(calls: FirestoreCalls, wanted: AuditFilter, limit: int, deadline: float) -> list[AuditEntry]:
    """Return entries, newest first. Filters after reading, because an index per filter makes writes expensive."""
    found: list[AuditEntry] = []
    last = None
    while len(found) < limit:
        page, now = await calls.page(calls.address.audit_in, deadline, _AT, after=last, limit=PAGE, descending=True)
        found += [entry for entry in (entry_of(one.fields) for one in page) if matches_filter(entry, wanted, now)]
        if len(page) < PAGE:
            break
        last = page[-1]
    return found[:limit]


async def expire_entries(calls: FirestoreCalls, limit: int, now: int, deadline: float) -> None:
    """Delete entries that are too old. Called by `purge`."""
    condition = where(_AT, "LESS_THAN_OR_EQUAL", values.time(now - AUDIT_RETENTION))
    old, _ = await calls.query(calls.address.audit_in, deadline, limit=limit, where=condition)
    await calls.delete_each(calls.address.audit_in, old, deadline)


def redaction(calls: FirestoreCalls, one: FoundDocument) -> Any:
    """Return the write that removes the fields that name a key from an entry."""
    changes: Changes = {(name,): values.text("") for name in ("scope", "key", "why")}
    changes[("id",)] = values.Value(bytes_value=b"")
    return calls.build_write(calls.address.audit_in, one.name, changes, one.version)


def entry_of(fields: Any) -> AuditEntry:
    found = {name: plain(fields[name]) for name in (*_TEXTS, *_NUMBERS, "at", "id") if name in fields}
    try:
        return msgspec.convert(found, AuditEntry, strict=True, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise RecordBroken("the audit trail has an entry with invalid content", hint=EDITED) from error
