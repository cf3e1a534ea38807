"""Group failures by exception type and by the application's function that raised."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceward.observe.record_figures import is_final_failure
from onceward.protocol.listing import ListingFilter
from onceward.protocol.note import FRAME
from onceward.protocol.operation_names import SKIPPED
from onceward.protocol.record import Record, RecordState

from .listing import all_visible
from .model import FailureGroup, FailureGroups
from .record_view import key_row
from .times import time_of

if TYPE_CHECKING:
    from .admin import Admin

MAX_VISITED = 5_000
"""The latest failures that are grouped: enough to see what is wrong, and fast with a million of them."""


def group_id(record: Record) -> str:
    """Return the id of the group that the failure belongs to."""
    return hashlib.sha256(repr((record.error_type, frame_of(record))).encode()).hexdigest()[:16]


def frame_of(record: Record) -> str:
    """Return `module.function` without the line, which changes with every edit of the file."""
    return record.note.get(FRAME, "").rpartition(":")[0]


async def failed_records(admin: Admin, wanted: ListingFilter) -> tuple[list[Record], int, bool]:
    """Return the latest failures and parked attempts, the store's time, and whether there are more."""
    failed = (RecordState.FAILED, RecordState.PARKED)
    states = tuple(state for state in wanted.states if state in failed) or failed
    records, now, more = await all_visible(admin, replace(wanted, states=states), limit=MAX_VISITED)
    return [one for one in records if one.error_type and one.error_type != SKIPPED], now, more


async def failure_groups(admin: Admin, wanted: ListingFilter) -> FailureGroups:
    """Return the groups of the latest failures, the largest first."""
    records, now, more = await failed_records(admin, wanted)
    return FailureGroups(grouped(records, now), len(records), more, time_of(now))


def grouped(records: Iterable[Record], now: int) -> list[FailureGroup]:
    by_id: dict[str, list[Record]] = {}
    for record in records:
        by_id.setdefault(group_id(record), []).append(record)
    groups = [_group(id, members, now) for id, members in by_id.items()]
    return sorted(groups, key=lambda one: (-one.count, one.error_type, one.frame))


def _group(id: str, members: list[Record], now: int) -> FailureGroup:
    latest = max(members, key=lambda one: one.updated_at)
    return FailureGroup(
        id=id,
        error_type=latest.error_type,
        frame=frame_of(latest),
        count=len(members),
        final=sum(is_final_failure(one, now) for one in members),
        first_seen=time_of(min(one.updated_at for one in members)),
        last_seen=time_of(latest.updated_at),
        scopes=tuple(sorted({one.scope for one in members})),
        sample=key_row(latest, now),
    )
