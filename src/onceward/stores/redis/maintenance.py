"""Scans, counts, purge and the audit trail. Each call visits few records, so that claims are not delayed.

All of them walk over the whole index: fast for thousands of records, seconds for millions.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from struct import Struct
from typing import Any, Final, Protocol

import msgspec

from onceward.errors import StoreBroken, StoreUnavailable
from onceward.protocol.audit import AuditEntry, AuditFilter, matches_filter
from onceward.protocol.ports import SORT_KEYS, Filter, Page, SortOrder
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, Verdict

from . import records
from .records import NUMBERS, STATES, TIME

IDS_PER_CALL: Final = 500
"""The server does nothing else during a call, for about a millisecond."""

MAX_REPLY_BYTES: Final = 1 << 20
"""Limits a reply, however large the results are."""

SIZE: Final = Struct("<I")
CURSOR: Final = Struct("<H")
ROW: Final = Struct("<HI")
PURGED: Final = Struct("<IIH")
ENTRY: Final = Struct("<3QI2B4I")


class ScriptRunner(Protocol):
    """The parts of the store that this module needs."""

    name: str

    async def run_on_index(
        self, name: str, arguments: Sequence[bytes], timeout: float, *, retryable: bool = True
    ) -> Any: ...
    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]: ...


class CallDeadline:
    """The time left for an operation that takes several calls."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds

    def left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise StoreUnavailable(
                f"{self._name}: not all records could be visited within {self._seconds:.3g} s",
                hint="narrow the request, or allow more time",
            )
        return left


def decode_records(ids: Sequence[bytes], data: bytes) -> list[Answer]:
    [now] = TIME.unpack_from(data)
    at, answers = TIME.size, []
    for id in ids:
        [size] = SIZE.unpack_from(data, at)
        at += SIZE.size
        found = records.decode_record(id, data, at) if size else None
        answers.append(Answer(Verdict.ABSENT if found is None else Verdict.OK, found, now))
        at += size
    return answers


# ── scans ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def scan(store: ScriptRunner, wanted: Filter, cursor: bytes | None, limit: int, timeout: float) -> Page:
    """Return records in the order of the index, after the cursor."""
    deadline = CallDeadline(store.name, timeout)
    found: list[Record] = []
    unreadable: list[str] = []
    while True:
        some, broken, cursor, now = await _scan_page(store, wanted, cursor, limit - len(found), deadline, light=False)
        found += some
        unreadable += broken
        if cursor is None or len(found) >= limit:
            return Page(found, cursor, now, tuple(unreadable))


async def first(store: ScriptRunner, wanted: Filter, order: SortOrder, limit: int, timeout: float) -> Page:
    """Return the first records of an order. Visit all without their results, then read the chosen ones."""
    deadline = CallDeadline(store.name, timeout)
    best: list[Record] = []
    unreadable: list[str] = []
    now = 0
    async for some, broken, at in _scan_all(store, wanted, deadline):
        now = at
        unreadable += broken
        best = heapq.nsmallest(limit, [*best, *some], key=SORT_KEYS[order])
    answers = await store.read([record.id for record in best], timeout=deadline.left())
    return Page([answer.record for answer in answers if answer.record is not None], None, now, tuple(unreadable))


async def counts(store: ScriptRunner, timeout: float) -> dict[tuple[str, RecordState], int]:
    counted: Counter[tuple[str, RecordState]] = Counter()
    async for some, _, _ in _scan_all(store, Filter(), CallDeadline(store.name, timeout)):
        counted.update((record.scope, record.state) for record in some)
    return dict(counted)


async def _scan_all(
    store: ScriptRunner, wanted: Filter, deadline: CallDeadline
) -> AsyncIterator[tuple[list[Record], list[str], int]]:
    cursor: bytes | None = None
    while True:
        some, broken, cursor, now = await _scan_page(store, wanted, cursor, IDS_PER_CALL, deadline, light=True)
        yield some, broken, now
        if cursor is None:
            return


async def _scan_page(
    store: ScriptRunner, wanted: Filter, cursor: bytes | None, max_records: int, deadline: CallDeadline, *, light: bool
) -> tuple[list[Record], list[str], bytes | None, int]:
    """Return what one call finds, the ids that cannot be decoded, the next cursor and the time."""
    arguments = (
        cursor or b"",
        b"%d" % IDS_PER_CALL,
        b"%d" % max_records,
        b"%d" % MAX_REPLY_BYTES,
        b"light" if light else b"full",
        b"".join(b"%d" % NUMBERS[state] for state in wanted.states),
        *_encode_optional(wanted.scope),
        *_encode_optional(wanted.key),
        b"%d" % (wanted.updated_before or 0),
    )
    data = await store.run_on_index("scan", arguments, deadline.left())
    [now] = TIME.unpack_from(data)
    [size] = CURSOR.unpack_from(data, TIME.size)
    at = TIME.size + CURSOR.size + size
    cursor = data[at - size : at] or None
    found: list[Record] = []
    unreadable: list[str] = []
    while at < len(data):
        id_size, length = ROW.unpack_from(data, at)
        at += ROW.size
        id = data[at : at + id_size]
        try:
            found.append(records.decode_record(id, data, at + id_size))
        except StoreBroken:
            unreadable.append(f"id:{id.hex()}")
        at += id_size + length
    return found, unreadable, cursor, now


def _encode_optional(value: str | None) -> tuple[bytes, bytes]:
    return (b"0", b"") if value is None else (b"1", records.encode_text(value))


# ── purge ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def purge(store: ScriptRunner, limit: int, timeout: float, signed: bytes) -> int:
    """Visit all ids once. Also removes the ids of records that expired by themselves."""
    deadline = CallDeadline(store.name, timeout)
    purged = entry = 0
    cursor = b""
    while purged < limit:
        arguments = (signed, cursor, b"%d" % IDS_PER_CALL, b"%d" % (limit - purged), b"%d" % entry)
        data = await store.run_on_index("purge", arguments, deadline.left(), retryable=False)
        some, entry, size = PURGED.unpack_from(data)
        purged += some
        cursor = data[PURGED.size : PURGED.size + size]
        if not cursor:
            break
    while await store.run_on_index("trim_audit", (b"%d" % IDS_PER_CALL,), deadline.left()):
        pass
    return purged


# ── the audit trail ─────────────────────────────────────────────────────────────────────────────────────────────────


async def audit(store: ScriptRunner, wanted: AuditFilter, limit: int, timeout: float) -> list[AuditEntry]:
    """Return audit entries, newest first."""
    deadline = CallDeadline(store.name, timeout)
    found: list[AuditEntry] = []
    before = 0
    while len(found) < limit:
        data = await store.run_on_index("read_audit", (b"%d" % before, b"%d" % IDS_PER_CALL), deadline.left())
        now, before = (TIME.unpack_from(data, at)[0] for at in (0, TIME.size))
        at = 2 * TIME.size
        while at < len(data):
            [size] = SIZE.unpack_from(data, at)
            entry = _entry(data, at + SIZE.size)
            at += SIZE.size + size
            if matches_filter(entry, wanted, now):
                found.append(entry)
        if not before:
            break
    return found[:limit]


def _entry(data: bytes, at: int) -> AuditEntry:
    when, token_before, token_after, count, state_before, state_after, *sizes = ENTRY.unpack_from(data, at)
    at += ENTRY.size
    texts = []
    for size in sizes:
        texts.append(data[at : at + size])
        at += size
    signed, id, scope, key = texts
    verb, who, why, detail = msgspec.json.decode(signed, type=tuple[str, str, str, str])
    return AuditEntry(
        when, verb, who, why, detail, id, scope.decode(), key.decode(), _state(state_before), _state(state_after),
        token_before, token_after, count,
    )  # fmt: skip


def _state(number: int) -> str:
    return STATES[number].value if number < len(STATES) else ""
