"""SQLiteStore: records in a file that several processes share.

Every verb reads the rows, lets `protocol.transitions` decide and writes what changed. It looks first without a lock: if
nothing has to be written (a replay, somebody else is running), none is taken at all, and one record is written by one
statement that holds only if the record is still the one that was seen. Everything else is a transaction.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from onceward.errors import ConfigurationError
from onceward.protocol import transitions
from onceward.protocol.audit import AuditEntry, AuditFilter, Signature, purge_entry
from onceward.protocol.capabilities import Schema
from onceward.protocol.ports import Clock, Filter, Page, SortOrder
from onceward.protocol.record import Done, Record, RecordState
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, Renewal, Seen, Verdict
from onceward.protocol.runtime import Runtime
from onceward.stores.caller_connection import driver_connection, transaction_block
from onceward.stores.clock import WallClock
from onceward.stores.group_commit import GroupCommit
from onceward.stores.watchers import Watchers

from . import audit
from . import errors as faults
from . import maintenance as upkeep
from .cache import RecordCache, StaleCache
from .connection import MEMORY, Allowance, Cursor, SQLiteConnection
from .counters import SQLiteCounters
from .joined import SQLiteJoined, check_connection
from .latest import SQLiteLatest
from .rows import GLIMPSE, glimpse_of
from .schema import LATEST, examine
from .table import OURS, Found, create, free, ids_of, judge, sign, swap, write
from .url import absolute, checked_synchronous, name_of

T = TypeVar("T")


class SQLiteStore(SQLiteLatest, SQLiteCounters, GroupCommit, Watchers):
    """A SQLite file, in WAL mode. `synchronous="FULL"` keeps what was acknowledged through a power cut.

    `":memory:"` is one shared connection for one process, without joining.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "FULL",
        clock: Clock | None = None,
        migrate: bool = True,
    ) -> None:
        super().__init__()
        self.inline = os.fspath(path) == MEMORY
        self._path = MEMORY if self.inline else absolute(os.fspath(path))
        self.name = name_of(self._path)
        self._synchronous = checked_synchronous(synchronous)
        self._clock = clock or WallClock()
        self._migrate = migrate
        self._runtime: Runtime | None = None
        self._link = SQLiteConnection(self._path, self.name, self._synchronous, migrate=migrate)
        self._link.on_fork = self._waiting.clear
        self._recall = RecordCache()

    @property
    def clock(self) -> Clock:
        """What tells the time here, for those who answer in the store's place."""
        return self._clock

    def twin(self) -> SQLiteStore:
        return self if self.inline else _with_settings(*self._settings())

    def __reduce__(self) -> tuple[Any, ...]:
        """Only the settings travel: the other process opens a connection of its own."""
        if self.inline:
            raise ConfigurationError(
                f"{self.name} belongs to one process and cannot be sent to another", hint="use a file"
            )
        return _with_settings, self._settings()

    def _settings(self) -> tuple[str, str, Clock, bool]:
        return self._path, self._synchronous, self._clock, self._migrate

    async def open(self, runtime: Runtime) -> None:
        await runtime.offload(self._link.open)
        self._runtime = runtime
        if not self.inline:  # what is in memory waits for nothing, and may not make anybody wait
            self.open_batcher(runtime)

    async def close(self) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.offload(self._link.close)

    # ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────

    def lookup(self, id: bytes, fingerprint: bytes) -> Done | None:
        row = self._link.peek(GLIMPSE, id)
        if not row:
            if row is not None:
                self._recall.missed(id)
            return None
        done = glimpse_of(row)
        return done if done is not None and transitions.replays(done, fingerprint, self._clock.now()) else None

    async def send(self, requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        """Claims, renewals and settlements, in one transaction."""
        answers = await self._turn(timeout, self._apply, requests, ids_of(requests))
        if self._waiting:
            self.wake(one.id for one in requests if not isinstance(one, ClaimRequest | Renewal))
        return answers

    async def settle(
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: Signature | None = None
    ) -> list[Answer]:
        if signed is None:
            return await super().settle(settlements, timeout=timeout)
        ids = ids_of(settlements)
        answers = await self._turn(timeout, self._settle_signed, signed, settlements, ids)
        self.wake(ids)
        return answers

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        return await self._turn(timeout, self._read, ids)

    async def forget(
        self,
        ids: Sequence[bytes],
        *,
        force: bool,
        timeout: float,
        seen: Mapping[bytes, Seen] | None = None,
        signed: Signature | None = None,
    ) -> list[Answer]:
        answers = await self._turn(timeout, self._forget, ids, force, seen or {}, signed)
        self.wake(ids)
        return answers

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        return await self._turn(timeout, self._scan, wanted, cursor, limit, Allowance.of(timeout).deadline)

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        return await self._turn(timeout, self._first, wanted, order, limit, Allowance.of(timeout).deadline)

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        return await self._turn(timeout, self._counts, Allowance.of(timeout).deadline)

    async def purge(self, limit: int, *, timeout: float, signed: Signature | None = None) -> int:
        """In chunks, each a turn and a transaction of its own, so that claims pass in between."""
        allowance = Allowance.of(timeout)
        gone = entry = 0
        while gone < limit:
            most = min(limit - gone, upkeep.CHUNK)
            tried, purged, entry = await self._turn_of(allowance, self._purge, most, allowance.deadline, signed, entry)
            gone += purged
            if tried < most or not purged:
                break
        await self._turn_of(allowance, self._purge_audit)
        return gone

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return await self._turn(timeout, self._audit, wanted, limit, Allowance.of(timeout).deadline)

    async def schema(self, runtime: Runtime, *, timeout: float) -> Schema:
        return await runtime.offload(self._examine, timeout)

    async def migrate(self, runtime: Runtime) -> None:
        """As opening does, unless it was told not to."""
        other = SQLiteStore(self._path, synchronous=self._synchronous, clock=self._clock)
        await other.open(runtime)
        await other.close()

    def join(self, connection: Any, runtime: Runtime) -> SQLiteJoined:
        """The store within the caller's own transaction, on a connection of theirs to the same file."""
        if self.inline:
            raise ConfigurationError(
                f"{self.name} is one private connection: no transaction can join it", hint="use a file"
            )
        own = driver_connection(connection, runtime)
        check_connection(own, self._link.file, self.name)
        return SQLiteJoined(own, runtime, self._clock, self.name, block=transaction_block(connection), given=connection)

    # ── the same, blocking, with the connection in hand ─────────────────────────────────────────────────────────

    def _turn(self, timeout: float, work: Callable[..., T], *arguments: Any) -> Coroutine[Any, Any, T]:
        return self._turn_of(Allowance.of(timeout), work, *arguments)

    def _turn_of(self, allowance: Allowance, work: Callable[..., T], *arguments: Any) -> Coroutine[Any, Any, T]:
        """Where this world lets a call block; what is in memory does not, and a closed store only says so."""
        offload = _at_once if self._runtime is None or self.inline else self._runtime.offload
        return offload(self._link.turn, allowance, work, *arguments)

    def _apply(self, cursor: Cursor, requests: Sequence[AnyRequest], ids: Sequence[bytes]) -> list[Answer]:
        """Judged by what is seen without the lock first: what changes nothing takes none, and one record is swapped."""
        if len(requests) == 1:
            answer = self._recalled(cursor, requests[0])
            if answer is not None:
                return [answer]
        elif not all(isinstance(one, ClaimRequest) for one in requests):  # something will change: no look before
            return self._write_all(cursor, requests, ids)
        found = OURS.fetch(cursor, ids)
        answers, changes = judge(found, transitions.apply, requests, self._clock.now())
        if not changes or self._written(cursor, found, answers):
            return answers
        return self._write_all(cursor, requests, ids)

    def _recalled(self, cursor: Cursor, request: AnyRequest) -> Answer | None:
        """Without reading first, by what we recall of the record. None: it is not so any more, or nothing changes."""
        recalled = self._recall.before((request,))
        if not recalled:
            return None
        before, now = recalled[request.id], self._clock.now()
        record, verdict = transitions.apply(before, request, now)
        if record is None or record == before or not self._wrote(cursor, before, record):
            return None
        return Answer(verdict, record, now)

    def _written(self, cursor: Cursor, found: Found, answers: Sequence[Answer]) -> bool:
        """One statement writes one record, or nothing if it changed meanwhile. Several need a transaction."""
        record = answers[0].record
        if len(answers) > 1 or record is None:
            return False
        return self._wrote(cursor, found.get(record.id), record)

    def _wrote(self, cursor: Cursor, before: Record | None, record: Record) -> bool:
        done = create(cursor, record) if before is None else swap(cursor, before, record)
        if done:
            self._link.look_after_writing()
            self._recall.keep(record)
        return done

    def _write_all(self, cursor: Cursor, requests: Sequence[AnyRequest], ids: Sequence[bytes]) -> list[Answer]:
        try:
            answers = self._link.write(cursor, self._apply_locked, requests, ids, self._recall.before(requests))
        except StaleCache:
            answers = self._link.write(cursor, self._apply_locked, requests, ids, {})
        for answer in answers:
            self._recall.keep(answer.record)
        return answers

    def _apply_locked(
        self,
        cursor: Cursor,
        requests: Sequence[AnyRequest],
        ids: Sequence[bytes],
        recalled: Mapping[bytes, Record | None],
    ) -> list[Answer]:
        unknown = [id for id in ids if id not in recalled] if recalled else ids
        found = OURS.fetch(cursor, unknown) if unknown else {}
        found.update((id, record) for id, record in recalled.items() if record is not None)
        answers, _ = judge(found, transitions.apply, requests, self._clock.now())  # the time after waiting for the lock
        write(cursor, found, answers, recalled)
        return answers

    def _settle_signed(
        self, cursor: Cursor, signed: Signature, settlements: Sequence[AnySettlement], ids: Sequence[bytes]
    ) -> list[Answer]:
        return self._link.write(cursor, self._apply_signed, signed, settlements, ids)

    def _apply_signed(
        self, cursor: Cursor, signed: Signature, settlements: Sequence[AnySettlement], ids: Sequence[bytes]
    ) -> list[Answer]:
        found = OURS.fetch(cursor, ids)
        answers, changes = judge(found, transitions.settle, settlements, self._clock.now())
        if changes:
            write(cursor, found, answers)
            sign(cursor, signed, found, answers)
        return answers

    def _examine(self, timeout: float) -> Schema:
        if self.inline:
            return Schema(LATEST, LATEST, 1, ())
        try:
            return examine(self._path, timeout)
        except sqlite3.Error as error:
            raise faults.explain(error, self.name, self._path) from error

    def _read(self, cursor: Cursor, ids: Sequence[bytes]) -> list[Answer]:
        found = OURS.fetch(cursor, ids)
        now = self._clock.now()
        return [Answer(Verdict.OK if id in found else Verdict.ABSENT, found.get(id), now) for id in ids]

    def _forget(self, cursor: Cursor, *what: Any) -> list[Answer]:
        return self._link.write(cursor, self._free, *what)

    def _free(
        self,
        cursor: Cursor,
        ids: Sequence[bytes],
        force: bool,  # noqa: FBT001 (offloaded)
        seen: Mapping[bytes, Seen],
        signed: Signature | None,
    ) -> list[Answer]:
        return free(cursor, ids, self._clock.now(), force=force, seen=seen, signed=signed)

    def _scan(self, cursor: Cursor, wanted: Filter, after: bytes | None, limit: int, deadline: float) -> Page:
        with upkeep.bounded(cursor, deadline):
            return upkeep.scan(cursor, wanted, after, limit, self._clock.now())

    def _first(self, cursor: Cursor, wanted: Filter, order: SortOrder, limit: int, deadline: float) -> Page:
        with upkeep.bounded(cursor, deadline):
            return upkeep.first(cursor, wanted, order, limit, self._clock.now())

    def _counts(self, cursor: Cursor, deadline: float) -> dict[tuple[str, RecordState], int]:
        with upkeep.bounded(cursor, deadline):
            return upkeep.counts(cursor)

    def _purge(
        self, cursor: Cursor, limit: int, deadline: float, signed: Signature | None, entry: int
    ) -> tuple[int, int, int]:
        """How many looked purgeable, how many went, and the number of the audit entry that counts them."""
        with upkeep.bounded(cursor, deadline):
            ids = upkeep.candidates(cursor, self._clock.now(), limit)
        gone, entry = self._link.write(cursor, self._delete, ids, signed, entry) if ids else (0, entry)
        return len(ids), gone, entry

    def _delete(self, cursor: Cursor, ids: list[bytes], signed: Signature | None, entry: int) -> tuple[int, int]:
        now = self._clock.now()
        gone = upkeep.purge(cursor, ids, now)
        if signed is not None and gone:
            if entry:
                audit.raise_count(cursor, entry, gone, now)
            else:
                entry = audit.write(cursor, [purge_entry(signed, gone, now)])
        return gone, entry

    def _purge_audit(self, cursor: Cursor) -> None:
        now = self._clock.now()
        if audit.has_old(cursor, now):
            self._link.write(cursor, audit.purge, now, upkeep.CHUNK)

    def _audit(self, cursor: Cursor, wanted: AuditFilter, limit: int, deadline: float) -> list[AuditEntry]:
        with upkeep.bounded(cursor, deadline):
            return audit.find(cursor, wanted, limit, self._clock.now())


async def _at_once(call: Callable[..., T], *arguments: Any) -> T:
    return call(*arguments)


def _with_settings(path: str, synchronous: str, clock: Clock, migrate: bool) -> SQLiteStore:  # noqa: FBT001 (pickled)
    return SQLiteStore(path, synchronous=synchronous, clock=clock, migrate=migrate)
