"""More stores that are broken on purpose: their decisions are right, but the way they execute them is wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from onceward.protocol import cells, transitions
from onceward.protocol.audit import AuditSignature
from onceward.protocol.ports import SORT_KEYS, Clock, Filter, Page, SortOrder
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, AnySettlement, ClaimRequest, Renewal, Verdict
from onceward.protocol.runtime import Runtime
from onceward.stores.memory.store import MemoryStore

A_MOMENT = 0.002
"""Seconds between a read and a write that ought to be atomic."""

T = TypeVar("T", ClaimRequest, AnySettlement)


class Hesitant(MemoryStore):
    """Can pause for a moment in the middle, in sync and async code, while others continue."""

    async def open(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def hesitate(self) -> None:
        await self._runtime.sleep(A_MOMENT)


class GetThenPut(Hesitant):
    """Reads, pauses and writes, without a lock."""

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        now = self._clock.now()
        seen = {request.id: self._records.get(request.id) for request in requests}
        await self.hesitate()
        steps = [transitions.claim(seen[request.id], request, now) for request in requests]
        for record, _ in steps:
            self._compare_and_set(self._records.get(record.id), record)
        return [Answer(verdict, record, now) for record, verdict in steps]


class LacksCapability(MemoryStore):
    """Does not say whether it keeps counters."""

    @property
    def counters(self) -> Any:
        raise AttributeError("counters")


class BatchJoinsOnTheKeyAlone(MemoryStore):
    """Decides a whole batch by the state before it, so that two requests for one key both win."""

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        with self._write_lock:  # so that nothing else is wrong
            now = self._clock.now()
            steps = [transitions.claim(self._records.get(request.id), request, now) for request in requests]
            for record, _ in steps:
                self._compare_and_set(self._records.get(record.id), record)
            return [Answer(verdict, record, now) for record, verdict in steps]


class AnswersInKeyOrder(MemoryStore):
    """Sorts a batch against deadlocks, and forgets to sort the answers back."""

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return await super().claim(sorted(requests, key=lambda one: one.id), timeout=timeout)


class PurgesYoungTokens(MemoryStore):
    """Purges without the margin for clocks that are set back."""

    def _purge(self, limit: int, signed: AuditSignature | None) -> int:
        now = self._clock.now()
        gone = [
            id
            for id, record in self._records.items()
            if transitions.row_of(record, now) in transitions.STARTS_NEW_CYCLE
        ]
        for id in gone[:limit]:
            del self._records[id]
        return len(gone[:limit])


class PurgesByAge(MemoryStore):
    """Deletes every record that was not updated for a month."""

    def _purge(self, limit: int, signed: AuditSignature | None) -> int:
        now = self._clock.now()
        gone = [id for id, record in self._records.items() if record.updated_at < now - cells.KEEP_UNFINISHED]
        for id in gone[:limit]:
            del self._records[id]
        return len(gone[:limit])


class PurgesReclaimedKeys(MemoryStore):
    """Remembers when a key expires, and does not check whether it was claimed again."""

    def _purge(self, limit: int, signed: AuditSignature | None) -> int:
        self._merge_expiries()
        gone = {
            id
            for end, _, id in self._expiry_heap
            if end < self._clock.now() - transitions.CLOCK_MARGIN and id in self._records
        }
        for id in gone:
            del self._records[id]
        return len(gone)

    def _sweep(self, now: int, most: int) -> None: ...


class PurgesNothing(MemoryStore):
    """Never deletes anything."""

    async def purge(self, limit: int, **how: Any) -> int:
        return 0


class PurgeDecidesThenDeletes(Hesitant):
    """Chooses records to delete, and deletes them later although they may have changed. Never sweeps."""

    def _sweep(self, now: int, most: int) -> None: ...

    async def purge(self, limit: int, **how: Any) -> int:
        now = self._clock.now()
        gone = [id for id, record in list(self._records.items()) if transitions.purgeable(record, now)][:limit]
        await self.hesitate()
        return sum(self._records.pop(id, None) is not None for id in gone)


class ForgetDeletes(MemoryStore):
    """Deletes the record and its token."""

    async def forget(self, ids: Sequence[bytes], **how: Any) -> list[Answer]:
        answers = await super().forget(ids, **how)
        for id, answer in zip(ids, answers, strict=True):
            if answer.verdict is Verdict.OK:
                self._records.pop(id, None)
        return answers


class ForgetsLiveOwners(MemoryStore):
    """Forgets records with a live owner, forced or not."""

    async def forget(self, ids: Sequence[bytes], **how: Any) -> list[Answer]:
        return await super().forget(ids, **{**how, "force": True})


class ScanSkipsAtPageEnds(MemoryStore):
    """Loses the record at each page's end."""

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        page = await super().scan(wanted, cursor=cursor, limit=limit, timeout=timeout)
        return Page(page.records[:-1], page.cursor, page.now) if page.cursor is not None else page


class ScanByOffset(MemoryStore):
    """Continues by offset, in an order that changes meanwhile."""

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        everything = await super().scan(wanted, cursor=None, limit=len(self._records) + 1, timeout=timeout)
        start = int(cursor or b"0")
        records = sorted(everything.records, key=lambda one: (one.updated_at, one.state, one.id))
        page = records[start : start + limit]
        return Page(page, b"%d" % (start + limit) if len(records) > start + limit else None, everything.now)


class ScanBeginsAnew(MemoryStore):
    """Starts again from the beginning if its last record was deleted."""

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        position = cursor if cursor in self._records else None
        return await super().scan(wanted, cursor=position, limit=limit, timeout=timeout)


class UsesSettingsOfTheFirstRequest(MemoryStore):
    """Applies the settings of the first request to the whole batch."""

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        alike = [replace(one, max_attempts=requests[0].max_attempts) for one in requests]
        return await super().claim(alike, timeout=timeout)


class ScanIgnoresAge(MemoryStore):
    """Ignores `updated_before`."""

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        return await super().scan(replace(wanted, updated_before=None), cursor=cursor, limit=limit, timeout=timeout)


class SortsWhatItFoundFirst(MemoryStore):
    """Takes the first records up to the limit, and sorts only those."""

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        page = await self.scan(wanted, cursor=None, limit=limit, timeout=timeout)
        return Page(sorted(page.records, key=SORT_KEYS[order]), None, page.now)


class CountsWithoutScopes(MemoryStore):
    """Counts the records of all scopes together."""

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        counted: dict[tuple[str, RecordState], int] = {}
        for (_, state), number in (await super().counts(timeout=timeout)).items():
            counted["", state] = counted.get(("", state), 0) + number
        return counted


class NotifiesNoWatcher(MemoryStore):
    """Accepts callbacks, and never calls them."""

    def wake(self, ids: object) -> None: ...


class RenewsWithoutStoring(MemoryStore):
    """Answers a renewal without storing it."""

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        before = dict(self._records)
        answers = await super().renew(renewals, timeout=timeout)
        self._records = before
        return answers


class CloneIsEmpty(MemoryStore):
    """Clones itself to an empty store."""

    def clone(self) -> MemoryStore:
        return MemoryStore(clock=self._clock)


class AnswersEmptyRequests(MemoryStore):
    """Returns an answer although there was no request."""

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        answers = await super().claim(requests, timeout=timeout)
        return answers or [Answer(Verdict.LOST, None, self._clock.now())]


class Nameless(MemoryStore):
    """Has an empty name."""

    def __init__(self, *, max_records: int | None = None, clock: Clock | None = None) -> None:
        super().__init__(max_records=max_records, clock=clock)
        self.name = ""


class UnlockedFiles(MemoryStore):
    """One file per record, read and written by all processes without a lock."""

    folder: Path

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return self._written_down(await super().claim(self._refreshed(requests), timeout=timeout))

    async def settle(self, settlements: Sequence[AnySettlement], **how: Any) -> list[Answer]:
        return self._written_down(await super().settle(self._refreshed(settlements), **how))

    def _refreshed(self, requests: Sequence[T]) -> Sequence[T]:
        for one in requests:
            file = self.folder / one.id.hex()
            if file.exists():
                self._records[one.id] = msgspec.msgpack.decode(file.read_bytes(), type=Record)
        time.sleep(A_MOMENT)
        return requests

    def _written_down(self, answers: list[Answer]) -> list[Answer]:
        for record in (answer.record for answer in answers if answer.record):
            new = self.folder / f"{record.id.hex()}.{os.getpid()}"
            new.write_bytes(msgspec.msgpack.encode(record))
            new.rename(self.folder / record.id.hex())
        return answers
