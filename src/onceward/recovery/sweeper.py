"""Finish what nobody delivers again: lapsed, retryable and half-done work whose input was kept.

A pass looks through the unfinished records and delivers what is due, one after another, as if it had come again: the
claim decides who does it, so any number of workers share the work without knowing of each other. Each goes through a
page in an order of its own, so that they rarely ask for the same.
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

from .decision import UNFINISHED, Recovered, Recovery, RecoveryStatus, belongs_to, standing_of

PAGE = 100
SCAN = 30.0  # seconds for a page: it may come from a table without end

UNREADABLE = "the record holds what no Onceward writes; it was skipped → onceward show, or forget it by force"

Deliver = Callable[[Record], Coroutine[Any, Any, Outcome[Any]] | None]
"""The delivery of a record from its stored input; None: it has none, or nobody here knows the operation."""

Tell = Callable[[Recovered], None]


class Sweeper:
    """What every pass needs. `app` is whose records are looked at."""

    def __init__(self, engine: Engine, app: str, deliver: Deliver, tell: Tell | None = None) -> None:
        self.engine = engine
        self.app = app
        self.deliver = deliver
        self.tell: Tell = tell or (lambda _: None)

    async def sweep(self) -> Recovery:
        """One pass through all that is unfinished."""
        found = Recovery()
        cursor = None
        await self.engine.ready()
        while not self.engine.stopping:
            page: Page = await self.engine.store.scan(
                Filter(states=UNFINISHED), cursor=cursor, limit=PAGE, timeout=SCAN
            )
            await self._page(page, found)
            cursor = page.cursor
            if cursor is None:
                break
        return found

    async def until_idle(self) -> Recovery:
        """Passes until one finds nothing to do: what a first attempt leaves due at once is tried again."""
        total = Recovery()
        while not self.engine.stopping:
            found = await self.sweep()
            total.add(found)
            if not found.found_work:
                break
        return total

    async def until_stopped(self, pool: WorkerPool, every: float) -> Recovery:
        """Passes with a rest between them, until the engine stops. A store that is down is asked again.

        Where a pass takes long, the rest is as long: half of the time at most is spent looking.
        """
        total = Recovery()
        monotonic = self.engine.runtime.monotonic
        while not self.engine.stopping:
            since, rest = monotonic(), every
            try:
                total.add(await self.sweep())
                rest = max(every, monotonic() - since)
            except Stopping:
                break
            except StoreError as error:
                self.tell(Recovered("", self.engine.store.name, error=format_error(error)))
                rest = max(every, STORE_RETRY_DELAY)
            await pool.sleep(rest, lambda: self.engine.stopping)
        return total

    async def _page(self, page: Page, found: Recovery) -> None:
        jitter = self.engine.runtime.jitter
        for key in page.unreadable:
            found.unreadable += 1
            self.tell(Recovered(key, "", error=UNREADABLE))
        for record in sorted(page.records, key=lambda _: jitter()):
            if self.engine.stopping:
                return
            if not belongs_to(self.app, record):
                continue
            match standing_of(record, page.now):
                case RecoveryStatus.DUE:
                    await self._due(record, found)  # what is wrong with one record is told, and stops no other
                case RecoveryStatus.RUNNING:
                    found.running += 1
                case RecoveryStatus.WAITING:
                    found.waiting += 1
                case RecoveryStatus.PARKED:
                    found.waiting_for_a_person += 1
                case RecoveryStatus.OVER:
                    pass

    def _delivery(self, record: Record) -> Coroutine[Any, Any, Outcome[Any]] | None:
        """Binding the arguments, making the key: code of the user's own, of a newer version than what it is given."""
        try:
            return self.deliver(record)
        except OncewardError:
            raise
        except Exception as error:
            raise ConfigurationError(f"its kept input no longer fits: {format_error(error)}", key=record.key) from error

    async def _due(self, record: Record, found: Recovery) -> None:
        try:
            delivery = self._delivery(record)
            if delivery is None:
                found.leave(record)
                return
            outcome = await delivery
            told = Recovered(record.key, record.scope, outcome)
            if isinstance(outcome, Failed) and outcome.final and outcome.attempt == record.attempt:
                why = f"no attempt is left as it is declared now: {outcome.error}"  # so that nothing was tried
                told = Recovered(record.key, record.scope, error=why)
        except (Stopping, StoreUnavailable, StoreFull):
            raise
        except OncewardError as error:  # of this record alone: also StoreBroken, if it was damaged meanwhile
            told = Recovered(record.key, record.scope, error=format_error(error))
        found.count(told)
        if not told.elsewhere:
            self.tell(told)
