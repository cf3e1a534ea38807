"""Scans, counts, purge and the audit trail. Each call visits few keys, so that claims are not delayed.

Records have no index. So scans and counts visit all keys of the database, also those of other applications: that
is fast for thousands of keys and takes seconds for millions. They use the server's SCAN. It may return a record twice,
if the server shrinks its table of keys in the meantime.
"""

from __future__ import annotations

import heapq
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from struct import Struct
from typing import TYPE_CHECKING, Final

import msgspec

from onceward.errors import ConfigurationError, RecordBroken, StoreUnavailable
from onceward.protocol.audit import AuditEntry, AuditFilter, matches_filter
from onceward.protocol.ports import SORT_KEYS, Filter, Page, SortOrder
from onceward.protocol.record import Record, RecordState

from . import records
from .records import NUMBERS, STATES

if TYPE_CHECKING:
    from .store import RedisStore

KEYS_PER_CALL: Final = 500
"""The server does nothing else during a call, for about a millisecond."""

MAX_REPLY_BYTES: Final = 1 << 20
"""Limits a reply, however large the results are."""

ENTRY: Final = Struct("<3QI2B4I")
START = END = b"0"  # cursors of SCAN
MAX_POSITION_DIGITS: Final = 20

_special = re.compile(rb"[\\*?\[\]^]")


def key_pattern(prefix: bytes) -> bytes:
    """Return the pattern for SCAN that matches the keys with this prefix."""
    return _special.sub(rb"\\\g<0>", prefix) + b"*"


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


# ── scans ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class ScanCursor(msgspec.Struct, array_like=True, frozen=True):
    """Where a scan continues: at this cursor of SCAN, without the ids that it has already returned for it.

    SCAN returns all keys of some buckets of the server's table, which may be more than a page.
    """

    at: bytes = START
    returned: list[bytes] = []


class ScanStep(msgspec.Struct):
    """What one call found: records, ids of records that cannot be decoded, and where to continue (None: the end)."""

    records: list[Record]
    unreadable: list[str]
    cursor: ScanCursor | None
    now: int


_encode_cursor = msgspec.msgpack.Encoder().encode
_decode_signed = msgspec.json.Decoder(tuple[str, str, str, str]).decode
_decode_cursor = msgspec.msgpack.Decoder(ScanCursor).decode


async def scan(store: RedisStore, wanted: Filter, cursor: bytes | None, limit: int, timeout: float) -> Page:
    deadline = CallDeadline(store.name, timeout)
    found: list[Record] = []
    unreadable: list[str] = []
    position = ScanCursor() if cursor is None else _position_of(cursor)
    while True:
        step = await _scan_step(store, wanted, position, limit - len(found), deadline, light=False)
        found += step.records
        unreadable += step.unreadable
        if step.cursor is None:
            return Page(found, None, step.now, tuple(unreadable))
        position = step.cursor
        if len(found) >= limit:
            return Page(found, _encode_cursor(position), step.now, tuple(unreadable))


def _position_of(cursor: bytes) -> ScanCursor:
    try:
        position = _decode_cursor(cursor)
    except (ValueError, RecursionError) as error:
        raise not_a_cursor() from error
    if not is_scan_position(position.at):
        raise not_a_cursor()
    return position


def is_scan_position(at: bytes) -> bool:
    """Return whether SCAN accepts the position: it must be an unsigned number of 64 bits."""
    return at.isdigit() and len(at) <= MAX_POSITION_DIGITS and int(at) < 1 << 64


def not_a_cursor() -> ConfigurationError:
    return ConfigurationError("this is not a cursor of this store", hint="start with the first page")


async def first(store: RedisStore, wanted: Filter, order: SortOrder, limit: int, timeout: float) -> Page:
    """Return the first records of an order. Visit all without their results, then read the chosen ones."""
    deadline = CallDeadline(store.name, timeout)
    best: list[Record] = []
    unreadable: list[str] = []
    now = 0
    async for step in _scan_all(store, wanted, deadline):
        now = step.now
        unreadable += step.unreadable
        unique = {record.id: record for record in (*best, *step.records)}
        best = heapq.nsmallest(limit, unique.values(), key=SORT_KEYS[order])
    answers = await store.read([record.id for record in best], timeout=deadline.left())
    return Page([answer.record for answer in answers if answer.record is not None], None, now, tuple(unreadable))


async def counts(store: RedisStore, timeout: float) -> dict[tuple[str, RecordState], int]:
    counted: Counter[tuple[str, RecordState]] = Counter()
    async for step in _scan_all(store, Filter(), CallDeadline(store.name, timeout)):
        counted.update((record.scope, record.state) for record in step.records)
    return dict(counted)


async def _scan_all(store: RedisStore, wanted: Filter, deadline: CallDeadline) -> AsyncIterator[ScanStep]:
    cursor: ScanCursor | None = ScanCursor()
    while cursor is not None:
        step = await _scan_step(store, wanted, cursor, KEYS_PER_CALL, deadline, light=True)
        yield step
        cursor = step.cursor


async def _scan_step(
    store: RedisStore, wanted: Filter, cursor: ScanCursor, max_records: int, deadline: CallDeadline, *, light: bool
) -> ScanStep:
    arguments = (
        store.record_keys,
        cursor.at,
        b"%d" % KEYS_PER_CALL,
        b"%d" % max_records,
        b"%d" % MAX_REPLY_BYTES,
        b"light" if light else b"full",
        b"".join(b"%d" % NUMBERS[state] for state in wanted.states),
        *_encode_optional(wanted.scope),
        *_encode_optional(wanted.key),
        *_encode_optional(wanted.prefix),
        b"%d" % (wanted.updated_before or 0),
        *cursor.returned,
    )
    now, following, *rows = await store.run_on_store("scan", arguments, deadline.left())
    found: list[Record] = []
    unreadable: list[str] = []
    for id, data in zip(rows[::2], rows[1::2], strict=True):
        try:
            found.append(records.decode_record(id, data))
        except RecordBroken:
            unreadable.append(f"id:{id.hex()}")
    if following is None:  # the step has more records than requested
        return ScanStep(found, unreadable, ScanCursor(cursor.at, cursor.returned + rows[::2]), now)
    return ScanStep(found, unreadable, None if following == END else ScanCursor(following), now)


def _encode_optional(value: str | None) -> tuple[bytes, bytes]:
    return (b"0", b"") if value is None else (b"1", records.encode_text(value))


# ── purge ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def purge(store: RedisStore, limit: int, timeout: float, signed: bytes) -> int:
    """Delete old audit entries. With a test's clock also visit all records, because none of them expires by itself."""
    deadline = CallDeadline(store.name, timeout)
    purged = 0 if store.clock is None else await _purge_records(store, limit, deadline, signed)
    while await store.run_on_store("trim_audit", (b"%d" % KEYS_PER_CALL,), deadline.left()):
        pass
    return purged


async def _purge_records(store: RedisStore, limit: int, deadline: CallDeadline, signed: bytes) -> int:
    purged = entry = 0
    cursor = START
    while purged < limit:
        numbers = (b"%d" % KEYS_PER_CALL, b"%d" % (limit - purged), b"%d" % entry)
        arguments = (signed, store.record_keys, cursor, *numbers)
        some, entry, cursor = await store.run_on_store("purge", arguments, deadline.left(), retryable=False)
        purged += some
        if cursor == END:
            break
    return purged


# ── the audit trail ─────────────────────────────────────────────────────────────────────────────────────────────────


async def audit(store: RedisStore, wanted: AuditFilter, limit: int, timeout: float) -> list[AuditEntry]:
    """Return audit entries, newest first."""
    deadline = CallDeadline(store.name, timeout)
    found: list[AuditEntry] = []
    before = 0
    while len(found) < limit:
        position = (b"%d" % before, b"%d" % KEYS_PER_CALL)
        now, before, *entries = await store.run_on_store("read_audit", position, deadline.left())
        found += [entry for entry in map(entry_or_stub, entries) if matches_filter(entry, wanted, now)]
        if not before:
            break
    return found[:limit]


def decode_entry(data: bytes) -> AuditEntry:
    """Decode an entry as it is stored."""
    try:
        when, token_before, token_after, count, state_before, state_after, *sizes = ENTRY.unpack_from(data)
        at = ENTRY.size
        texts = []
        for size in sizes:
            texts.append(data[at : at + size])
            at += size
        if at > len(data):
            raise ValueError("the entry is shorter than its sizes say")
        signed, id, scope, key = texts
        verb, who, why, detail = _decode_signed(signed)
        return AuditEntry(
            when, verb, who, why, detail, id, scope.decode(), key.decode(), _state(state_before), _state(state_after),
            token_before, token_after, count,
        )  # fmt: skip
    except records.INVALID as broken:
        raise RecordBroken("the audit trail has an entry with invalid content", hint=records.EDITED) from broken


def entry_or_stub(data: bytes) -> AuditEntry:
    """Decode an entry. One with invalid content is listed as `unreadable`, so that it does not hide the others."""
    try:
        return decode_entry(data)
    except RecordBroken:
        return decode_entry(UNREADABLE_ENTRY)


def redact_entry(data: bytes) -> bytes:
    """Return a stored entry without its id, scope, key and reason. The entry must be valid."""
    *head, size, _, _, _ = ENTRY.unpack_from(data)
    verb, who, _, detail = _decode_signed(data[ENTRY.size : ENTRY.size + size])
    signed = msgspec.json.encode([verb, who, "", detail])
    return ENTRY.pack(*head, len(signed), 0, 0, 0) + signed


def _unreadable_entry() -> bytes:
    signed = msgspec.json.encode(["unreadable", "", "", "its content was invalid"])
    return ENTRY.pack(0, 0, 0, 1, NO_STATE, NO_STATE, len(signed), 0, 0, 0) + signed


NO_STATE: Final = 255
"""The number of a missing state, as in `lua/audit.lua`."""

UNREADABLE_ENTRY: Final = _unreadable_entry()
"""An erasure replaces each entry with invalid content by this one. It keeps nothing, not even the time."""


def _state(number: int) -> str:
    return STATES[number].value if number < len(STATES) else ""
