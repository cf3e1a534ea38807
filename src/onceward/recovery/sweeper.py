"""Finish work that is not delivered again: crashed, retryable and half-done work whose input was stored.

A pass scans the unfinished records and delivers what is due, one record after another, as a redelivery would. The claim
decides which worker runs it, so any number of workers can share the work without knowing of each other. Each worker
processes a page in random order, so that two rarely claim the same record.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from onceward.engine.engine import Engine
from onceward.engine.error_text import format_error
from onceward.errors import ConfigurationError, OncewardError, Stopping, StoreError, StoreFull, StoreUnavailable
from onceward.protocol.outcome import Failed, Outcome
from onceward.protocol.ports import Filter, Page
from onceward.protocol.record import Record
from onceward.protocol.runtime import WorkerPool
from onceward.schedules.runner import STORE_RETRY_DELAY

from .decision import UNFINISHED, Recovered, Recovery, RecoveryStatus, belongs_to, recovery_status

PAGE_SIZE = 100
SCAN_TIMEOUT = 30.0  # seconds for a page: the table may be very large

UNREADABLE = "the record has invalid content and was skipped → inspect it with `onceward show`, or forget it with force"

Deliver = Callable[[Record], Coroutine[Any, Any, Outcome[Any]] | None]
"""Returns the delivery of a record from its stored input; None if it has none, or its operation is unknown here."""

OnRecovered = Callable[[Recovered], None]


class Sweeper:
    """A recovery worker. It handles the records of the application `app`."""

    def __init__(self, engine: Engine, app: str, deliver: Deliver, on_result: OnRecovered | None = None) -> None:
        self.engine = engine
        self.app = app
        self.deliver = deliver
        self.on_result: OnRecovered = on_result or (lambda _: None)

    async def sweep(self) -> Recovery:
        """Scan all unfinished records once."""
        found = Recovery()
        cursor = None
        await self.engine.ready()
        while not self.engine.stopping:
            page: Page = await self.engine.store.scan(
                Filter(states=UNFINISHED), cursor=cursor, limit=PAGE_SIZE, timeout=SCAN_TIMEOUT
            )
            await self._page(page, found)
            cursor = page.cursor
            if cursor is None:
                break
        return found

    async def until_idle(self) -> Recovery:
        """Repeat passes until one runs nothing. Work that is due again after its first attempt is retried."""
        total = Recovery()
        while not self.engine.stopping:
            found = await self.sweep()
            total.add(found)
            if not found.found_work:
                break
        return total

    async def until_stopped(self, pool: WorkerPool, every: float) -> Recovery:
        """Repeat passes, with a sleep between them, until the engine stops. If the store is down, try again later.

        If a pass takes long, the sleep is as long: at most half of the time is spent scanning.
        """
        total = Recovery()
        monotonic = self.engine.runtime.monotonic
        while not self.engine.stopping:
            since, pause = monotonic(), every
            try:
                total.add(await self.sweep())
                pause = max(every, monotonic() - since)
            except Stopping:
                break
            except StoreError as error:
                self.on_result(Recovered("", self.engine.store.name, error=format_error(error)))
                pause = max(every, STORE_RETRY_DELAY)
            await pool.sleep(pause, lambda: self.engine.stopping)
        return total

    async def _page(self, page: Page, found: Recovery) -> None:
        jitter = self.engine.runtime.jitter
        for key in page.unreadable:
            found.unreadable += 1
            self.on_result(Recovered(key, "", error=UNREADABLE))
        for record in sorted(page.records, key=lambda _: jitter()):
            if self.engine.stopping:
                return
            if not belongs_to(self.app, record):
                continue
            match recovery_status(record, page.now):
                case RecoveryStatus.DUE:
                    await self._due(record, found)  # an error of one record is reported, and does not stop the others
                case RecoveryStatus.RUNNING:
                    found.running += 1
                case RecoveryStatus.WAITING:
                    found.waiting += 1
                case RecoveryStatus.PARKED:
                    found.waiting_for_a_person += 1
                case RecoveryStatus.OVER:
                    pass

    def _delivery(self, record: Record) -> Coroutine[Any, Any, Outcome[Any]] | None:
        """Return the delivery. Binding arguments and making the key run user code, perhaps newer than the input."""
        try:
            return self.deliver(record)
        except OncewardError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"its stored input no longer fits the function: {format_error(error)}", key=record.key
            ) from error

    async def _due(self, record: Record, found: Recovery) -> None:
        try:
            delivery = self._delivery(record)
            if delivery is None:
                found.add_redelivery(record)
                return
            outcome = await delivery
            result = Recovered(record.key, record.scope, outcome)
            if isinstance(outcome, Failed) and outcome.final and outcome.attempt == record.attempt:
                why = f"no attempt is left with the current max_attempts: {outcome.error}"  # nothing was tried
                result = Recovered(record.key, record.scope, error=why)
        except (Stopping, StoreUnavailable, StoreFull):
            raise
        except OncewardError as error:  # about this record alone: also StoreBroken, if it was damaged in the meantime
            result = Recovered(record.key, record.scope, error=format_error(error))
        found.count(result)
        if not result.elsewhere:
            self.on_result(result)
