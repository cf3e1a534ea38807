"""What is asked about many records at once, and the audit trail. A call looks at few of them, so that claims pass.

All of it walks over the index. That is quick for thousands and takes seconds for millions.
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

LOOKS: Final = 500
"""Ids in one call: the server does nothing else meanwhile, for about a millisecond."""

ENOUGH: Final = 1 << 20
"""Bytes in one answer, whatever the results weigh."""

SIZE: Final = Struct("<I")
CURSOR: Final = Struct("<H")
ROW: Final = Struct("<HI")
PURGED: Final = Struct("<IIH")
ENTRY: Final = Struct("<3QI2B4I")


class Walks(Protocol):
    """The store, as far as it is needed here."""

    name: str

    async def walk(self, name: str, arguments: Sequence[bytes], seconds: float, *, again: bool = True) -> Any: ...
    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]: ...


class Patience:
    """How long a walk may still take."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds

    def left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise StoreUnavailable(
                f"{self._name}: not all records could be looked at within {self._seconds:.3g} s",
                hint="ask for less, or allow more time",
            )
        return left


def looked(ids: Sequence[bytes], data: bytes) -> list[Answer]:
    [now] = TIME.unpack_from(data)
    at, answers = TIME.size, []
    for id in ids:
        [size] = SIZE.unpack_from(data, at)
        at += SIZE.size
        found = records.record(id, data, at) if size else None
        answers.append(Answer(Verdict.ABSENT if found is None else Verdict.OK, found, now))
        at += size
    return answers


# ── walks over the records ──────────────────────────────────────────────────────────────────────────────────────────


async def scan(store: Walks, wanted: Filter, cursor: bytes | None, limit: int, timeout: float) -> Page:
    """Records in the order of the index, from behind the cursor on."""
    patience = Patience(store.name, timeout)
    found: list[Record] = []
    unreadable: list[str] = []
    while True:
        some, broken, cursor, now = await _some(store, wanted, cursor, limit - len(found), patience, light=False)
        found += some
        unreadable += broken
        if cursor is None or len(found) >= limit:
            return Page(found, cursor, now, tuple(unreadable))


async def first(store: Walks, wanted: Filter, order: SortOrder, limit: int, timeout: float) -> Page:
    """The first records of an order. All are looked at without their results; the chosen ones are then read."""
    patience = Patience(store.name, timeout)
    best: list[Record] = []
    unreadable: list[str] = []
    now = 0
    async for some, broken, at in _all(store, wanted, patience):
        now = at
        unreadable += broken
        best = heapq.nsmallest(limit, [*best, *some], key=SORT_KEYS[order])
    answers = await store.read([record.id for record in best], timeout=patience.left())
    return Page([answer.record for answer in answers if answer.record is not None], None, now, tuple(unreadable))


async def counts(store: Walks, timeout: float) -> dict[tuple[str, RecordState], int]:
    counted: Counter[tuple[str, RecordState]] = Counter()
    async for some, _, _ in _all(store, Filter(), Patience(store.name, timeout)):
        counted.update((record.scope, record.state) for record in some)
    return dict(counted)


async def _all(store: Walks, wanted: Filter, patience: Patience) -> AsyncIterator[tuple[list[Record], list[str], int]]:
    cursor: bytes | None = None
    while True:
        some, broken, cursor, now = await _some(store, wanted, cursor, LOOKS, patience, light=True)
        yield some, broken, now
        if cursor is None:
            return


async def _some(
    store: Walks, wanted: Filter, cursor: bytes | None, most: int, patience: Patience, *, light: bool
) -> tuple[list[Record], list[str], bytes | None, int]:
    """What one call finds, what of it cannot be read, and where to go on."""
    arguments = (
        cursor or b"",
        b"%d" % LOOKS,
        b"%d" % most,
        b"%d" % ENOUGH,
        b"light" if light else b"full",
        b"".join(b"%d" % NUMBERS[state] for state in wanted.states),
        *_maybe(wanted.scope),
        *_maybe(wanted.key),
        b"%d" % (wanted.updated_before or 0),
    )
    data = await store.walk("walk", arguments, patience.left())
    [now] = TIME.unpack_from(data)
    [size] = CURSOR.unpack_from(data, TIME.size)
    at = TIME.size + CURSOR.size + size
    cursor = data[at - size : at] or None
    found: list[Record] = []
    unreadable: list[str] = []
    while at < len(data):
        named, length = ROW.unpack_from(data, at)
        at += ROW.size
        id = data[at : at + named]
        try:
            found.append(records.record(id, data, at + named))
        except StoreBroken:
            unreadable.append(f"id:{id.hex()}")
        at += named + length
    return found, unreadable, cursor, now


def _maybe(words: str | None) -> tuple[bytes, bytes]:
    return (b"0", b"") if words is None else (b"1", records.text(words))


# ── purge ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def purge(store: Walks, limit: int, timeout: float, signed: bytes) -> int:
    """Once over all ids; records that expired by themselves have left theirs behind."""
    patience = Patience(store.name, timeout)
    gone = entry = 0
    cursor = b""
    while gone < limit:
        arguments = (signed, cursor, b"%d" % LOOKS, b"%d" % (limit - gone), b"%d" % entry)
        data = await store.walk("purge", arguments, patience.left(), again=False)
        some, entry, size = PURGED.unpack_from(data)
        gone += some
        cursor = data[PURGED.size : PURGED.size + size]
        if not cursor:
            break
    while await store.walk("trim", (b"%d" % LOOKS,), patience.left()):
        pass
    return gone


# ── the audit trail ─────────────────────────────────────────────────────────────────────────────────────────────────


async def audit(store: Walks, wanted: AuditFilter, limit: int, timeout: float) -> list[AuditEntry]:
    """The newest first."""
    patience = Patience(store.name, timeout)
    found: list[AuditEntry] = []
    before = 0
    while len(found) < limit:
        data = await store.walk("trail", (b"%d" % before, b"%d" % LOOKS), patience.left())
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
