"""SQLiteStore: records in a file that several processes share.

Every verb reads the rows, lets `model.transitions` decide and writes what changed. It looks first without a lock: if
nothing has to be written (a replay, somebody else is running), none is taken at all, and one record is written by one
statement that holds only if the record is still the one that was seen. Everything else is a transaction.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from onceward.errors import ConfigurationError
from onceward.model import transitions
from onceward.model.record import Answer, ClaimRequest, Done, Renewal, State, Verdict
from onceward.ports import AnyRequest, Clock, Filter, Page, World
from onceward.stores.clock import WallClock
from onceward.stores.grouping import Grouping
from onceward.stores.watchers import Watchers

from . import upkeep
from .joined import SQLiteJoined, check_connection
from .link import MEMORY, Allowance, Cursor, Link
from .rows import GLIMPSE, Glimpse
from .table import OURS, Found, create, free, ids_of, judge, swap, write
from .url import absolute, checked_synchronous, name_of

T = TypeVar("T")


class SQLiteStore(Grouping, Watchers):
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
        self._world: World | None = None
        self._link = Link(self._path, self.name, self._synchronous, migrate=migrate)
        self._link.on_fork = self._waiting.clear

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

    async def open(self, world: World) -> None:
        await world.offload(self._link.open)
        self._world = world
        self.group(world)

    async def close(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            await world.offload(self._link.close)

    # ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────

    def glance(self, id: bytes, fingerprint: bytes) -> Done | None:
        row = self._link.peek(GLIMPSE, id)
        if row is None:
            return None
        done = Glimpse(*row)
        return done if transitions.replays(done, fingerprint, self._clock.now()) else None

    async def send(self, requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        """Claims, renewals and settlements, in one transaction."""
        answers = await self._turn(timeout, self._apply, requests, ids_of(requests))
        if self._waiting:
            self.wake(one.id for one in requests if not isinstance(one, ClaimRequest | Renewal))
        return answers

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        return await self._turn(timeout, self._read, ids)

    async def forget(self, ids: Sequence[bytes], *, force: bool, timeout: float) -> list[Answer]:
        answers = await self._turn(timeout, self._forget, ids, force)
        self.wake(ids)
        return answers

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        return await self._turn(timeout, self._scan, wanted, cursor, limit, Allowance.of(timeout).deadline)

    async def counts(self, *, timeout: float) -> dict[tuple[str, State], int]:
        return await self._turn(timeout, self._counts, Allowance.of(timeout).deadline)

    async def purge(self, limit: int, *, timeout: float) -> int:
        """In chunks, each a turn and a transaction of its own, so that claims pass in between."""
        allowance = Allowance.of(timeout)
        gone = 0
        while gone < limit:
            most = min(limit - gone, upkeep.CHUNK)
            tried, purged = await self._turn_of(allowance, self._purge, most, allowance.deadline)
            gone += purged
            if tried < most or not purged:
                break
        return gone

    def join(self, connection: Any, world: World) -> SQLiteJoined:
        """The store within the caller's own transaction, on a connection of theirs to the same file."""
        if self.inline:
            raise ConfigurationError(
                f"{self.name} is one private connection: no transaction can join it", hint="use a file"
            )
        check_connection(connection, self._link.file, self.name)
        return SQLiteJoined(connection, world, self._clock, self.name)

    # ── the same, blocking, with the connection in hand ─────────────────────────────────────────────────────────

    def _turn(self, timeout: float, work: Callable[..., T], *arguments: Any) -> Coroutine[Any, Any, T]:
        return self._turn_of(Allowance.of(timeout), work, *arguments)

    def _turn_of(self, allowance: Allowance, work: Callable[..., T], *arguments: Any) -> Coroutine[Any, Any, T]:
        """Where this world lets a call block; what is in memory does not, and a closed store only says so."""
        offload = _at_once if self._world is None or self.inline else self._world.offload
        return offload(self._link.turn, allowance, work, *arguments)

    def _apply(self, cursor: Cursor, requests: Sequence[AnyRequest], ids: Sequence[bytes]) -> list[Answer]:
        """Judged by what is seen without the lock first: what changes nothing takes none, and one record is swapped."""
        found = OURS.fetch(cursor, ids)
        answers, changes = judge(found, transitions.apply, requests, self._clock.now())
        if not changes or self._written(cursor, found, answers):
            return answers
        return self._link.write(cursor, self._apply_locked, requests, ids)

    def _written(self, cursor: Cursor, found: Found, answers: Sequence[Answer]) -> bool:
        """One statement writes one record, or nothing if it changed meanwhile. Several need a transaction."""
        record = answers[0].record
        if len(answers) > 1 or record is None:
            return False
        before = found.get(record.id)
        done = create(cursor, record) if before is None else swap(cursor, before, record)
        if done:
            self._link.look_after_writing()
        return done

    def _apply_locked(self, cursor: Cursor, requests: Sequence[AnyRequest], ids: Sequence[bytes]) -> list[Answer]:
        found = OURS.fetch(cursor, ids)
        answers, _ = judge(found, transitions.apply, requests, self._clock.now())  # the time after waiting for the lock
        write(cursor, found, answers)
        return answers

    def _read(self, cursor: Cursor, ids: Sequence[bytes]) -> list[Answer]:
        found = OURS.fetch(cursor, ids)
        now = self._clock.now()
        return [Answer(Verdict.OK if id in found else Verdict.ABSENT, found.get(id), now) for id in ids]

    def _forget(self, cursor: Cursor, ids: Sequence[bytes], force: bool) -> list[Answer]:  # noqa: FBT001 (offloaded)
        return self._link.write(cursor, self._free, ids, force)

    def _free(self, cursor: Cursor, ids: Sequence[bytes], force: bool) -> list[Answer]:  # noqa: FBT001 (offloaded)
        return free(cursor, ids, self._clock.now(), force=force)

    def _scan(self, cursor: Cursor, wanted: Filter, after: bytes | None, limit: int, deadline: float) -> Page:
        with upkeep.bounded(cursor, deadline):
            return upkeep.scan(cursor, wanted, after, limit, self._clock.now())

    def _counts(self, cursor: Cursor, deadline: float) -> dict[tuple[str, State], int]:
        with upkeep.bounded(cursor, deadline):
            return upkeep.counts(cursor)

    def _purge(self, cursor: Cursor, limit: int, deadline: float) -> tuple[int, int]:
        with upkeep.bounded(cursor, deadline):
            ids = upkeep.candidates(cursor, self._clock.now(), limit)
        return len(ids), self._link.write(cursor, self._delete, ids) if ids else 0

    def _delete(self, cursor: Cursor, ids: list[bytes]) -> int:
        return upkeep.purge(cursor, ids, self._clock.now())


async def _at_once(call: Callable[..., T], *arguments: Any) -> T:
    return call(*arguments)


def _with_settings(path: str, synchronous: str, clock: Clock, migrate: bool) -> SQLiteStore:  # noqa: FBT001 (pickled)
    return SQLiteStore(path, synchronous=synchronous, clock=clock, migrate=migrate)
