"""The records inside a MemoryStore, for tests that damage them.

The only place that knows where the store keeps them.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from onceward.protocol.record import Record


def records_of(store: Any) -> dict[bytes, Record]:
    found: dict[bytes, Record] = store._records
    return found


def expiry_entries_of(store: Any) -> int:
    """Return how many entries the store keeps to find records that have expired."""
    return len(store._expiry_heap)


def overwrite(store: Any, id: bytes, **fields: Any) -> None:
    """Change fields of a stored record, without the store's rules."""
    records = records_of(store)
    records[id] = replace(records[id], **fields)
