"""A store wrapper that records every request and its answer."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from time import monotonic_ns
from typing import Any

from onceward.errors import StoreBroken
from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature
from onceward.protocol.capabilities import DelegatedCapabilities, Lookup
from onceward.protocol.ports import Filter, Page, Store
from onceward.protocol.record import CompletedRecord, RecordState
from onceward.protocol.requests import Answer, AnySettlement, ClaimRequest, ExpectedRecord, Renewal, Verdict
from onceward.protocol.runtime import Runtime

from .log import Log
from .operation import Forget, Read, Request, Scan, partial_record
from .operation import Lookup as LookupRequest


class Recorder(DelegatedCapabilities):
    """Wraps any `store`, and writes each request of each batch to the `log` as one operation.

    `by` names the caller; the default is the task or thread. `late_effects` says whether a request whose call raised
    may still take effect later: true for a server, false for a file. An interrupted call (cancelled task, Ctrl-C) may
    always take effect later. `purge` and `counts` are not recorded: an expired record may be missing at any time. The
    recorder does not support the caller's own transactions, because it would not see their commit.
    """

    def __init__(self, store: Store, log: Log, *, by: str = "", late_effects: bool = True) -> None:
        self.name = store.name
        self.inline = store.inline
        self._store = store
        self._log = log
        self._by = by
        self._late_effects = late_effects

    def clone(self) -> Store:
        clone = self._store.clone()
        if clone is self._store:
            return self
        return Recorder(clone, self._log, by=f"{self._by} (clone)" if self._by else "", late_effects=self._late_effects)

    async def open(self, runtime: Runtime) -> None:
        await self._store.open(runtime)

    async def close(self) -> None:
        await self._store.close()

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return await self._recorded(requests, lambda: self._store.claim(requests, timeout=timeout))

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        return await self._recorded(renewals, lambda: self._store.renew(renewals, timeout=timeout))

    async def settle(
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: AuditSignature | None = None
    ) -> list[Answer]:
        return await self._recorded(
            settlements, lambda: self._store.settle(settlements, timeout=timeout, signed=signed)
        )

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        return await self._recorded([Read(id) for id in ids], lambda: self._store.read(ids, timeout=timeout))

    async def forget(
        self,
        ids: Sequence[bytes],
        *,
        force: bool,
        timeout: float,
        seen: Mapping[bytes, ExpectedRecord] | None = None,
        signed: AuditSignature | None = None,
    ) -> list[Answer]:
        requests = [Forget(id, force, (seen or {}).get(id)) for id in ids]
        return await self._recorded(
            requests, lambda: self._store.forget(ids, force=force, timeout=timeout, seen=seen, signed=signed)
        )

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        called = monotonic_ns()
        page = await self._store.scan(wanted, cursor=cursor, limit=limit, timeout=timeout)
        answered = monotonic_ns()
        numbers = self._log.called(called, self._who(), [Scan(record.id) for record in page.records])
        self._log.answered(answered, numbers, [Answer(Verdict.OK, record, page.now) for record in page.records])
        return page

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        return await self._store.counts(timeout=timeout)

    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        return await self._store.purge(limit, timeout=timeout, signed=signed)

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return await self._store.audit(wanted, limit=limit, timeout=timeout)

    @property
    def lookup(self) -> Lookup | None:
        return None if self._store.lookup is None else self._lookup

    @property
    def transactions(self) -> None:
        """None: the recorder would not see the commit of the caller's transaction."""

    def _lookup(self, id: bytes, fingerprint: bytes, /) -> CompletedRecord | None:
        look = self._store.lookup
        if look is None:
            return None
        called = monotonic_ns()
        done = look(id, fingerprint)
        answered = monotonic_ns()
        if done is not None:
            numbers = self._log.called(called, self._who(), [LookupRequest(id, fingerprint)])
            self._log.answered(answered, numbers, [Answer(Verdict.REPLAY, partial_record(id, done), 0)])
        return done

    async def _recorded(
        self, requests: Sequence[Request], call: Callable[[], Coroutine[Any, Any, list[Answer]]]
    ) -> list[Answer]:
        numbers = self._log.called(monotonic_ns(), self._who(), requests)
        try:
            answers = await call()
        except BaseException as error:
            late_effects = self._late_effects or not isinstance(error, Exception)
            self._log.raised(monotonic_ns(), numbers, f"{type(error).__name__}: {error}", late_effects=late_effects)
            raise
        if len(answers) != len(requests):
            wrong = f"{self.name}: {len(answers)} answers to {len(requests)} requests"
            self._log.raised(monotonic_ns(), numbers, wrong, late_effects=self._late_effects)
            raise StoreBroken(wrong, hint="the store must return one answer per request, in order")
        self._log.answered(monotonic_ns(), numbers, answers)
        return answers

    def _who(self) -> str:
        if self._by:
            return self._by
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        return f"{os.getpid()} {task.get_name() if task else threading.current_thread().name}"
