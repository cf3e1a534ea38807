"""The end of a claim, as the store is told it: repeated until it is heard, whoever is cancelled meanwhile."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from msgspec.structs import replace

from onceward.errors import LeaseLost, OncewardError, StoreError, StoreFull, StoreUnavailable
from onceward.keys.key import Key
from onceward.protocol.policy import SECOND
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, AnySettlement, Verdict

from .engine import Engine
from .job import Job
from .lease import Lease

TRANSIENT = (StoreUnavailable, StoreFull)
"""Trouble that passes by itself; any other does not."""

OK, COMPLETED = Verdict.OK, RecordState.COMPLETED


def store_error_of(error: BaseException) -> Any:
    """What the store raised; also where the caller was cancelled meanwhile."""
    return error if isinstance(error, Exception) else error.__cause__


class SettlingLease(Lease):
    """The part of a claim that ends it."""

    engine: Engine
    job: Job
    key: Key
    settled: RecordState | None = None
    closed = False  # the store had the last word, or the lease has to lapse: nothing is left to be done
    since = 0.0  # when the store was asked last, on our own clock
    retry_until = math.inf  # until when, on our own clock, a settlement is repeated

    def send(self, settlement: AnySettlement) -> Any:
        """Tell the store, once: what is to be awaited."""
        if not self.is_simple and self.inherited:
            self.refuse_inherited()
        engine = self.engine
        self.settling, self.since = True, engine.runtime.monotonic()
        return engine.store.settle([settlement], timeout=self.job.policy.call_timeout)

    async def settle(
        self,
        settlement: AnySettlement,
        state: RecordState,
        sent: Awaitable[tuple[Sequence[Answer], BaseException | None]] | None = None,
    ) -> Answer:
        """Repeat until the store answers or `settle_timeout` is over; a reply that was lost is no failure.

        Runs to its end even if the caller is cancelled; the cancellation is raised afterwards. What a signal raises
        here is raised afterwards too: the same settlement is sent once more before. `sent`: what is awaited of a first
        try that was made before.
        """
        if not self.is_simple and self.inherited:
            self.refuse_inherited()
        engine, cancelled = self.engine, None
        try:
            if engine.answer is not None:
                self.settling = True
                answer = engine.answer(settlement)
            else:
                try:
                    [answer], cancelled = await (sent or engine.shield(self.send(settlement), self.hurry))
                except BaseException as error:
                    if not isinstance(store_error_of(error), TRANSIENT):
                        raise
                    answer, cancelled = await self._in_trouble(settlement, error, self.since)
            self.on_settled(answer, state)
        except BaseException as error:
            self.settling = False
            if isinstance(error.__cause__, StoreError):  # cancelled, and the store did not answer either
                self.engine.emit("unknown", self.key, self.record, error=repr(error.__cause__))
                self.abandon()
            if not isinstance(error, OncewardError) and not self.engine.runtime.supports_cancellation:
                await self._once_more(settlement, state)
            raise
        if cancelled is not None:
            raise cancelled
        return answer

    async def _in_trouble(
        self, settlement: AnySettlement, error: BaseException, since: float
    ) -> tuple[Answer, BaseException | None]:
        """The first try came to nothing. Trouble that passes is waited for, also for a caller who was cancelled."""
        trouble = store_error_of(error)
        cancelled = None if error is trouble else error
        try:
            answer, later = await self.engine.shield(self.settle_again(settlement, trouble, since), self.hurry)
        except Exception as still:
            if cancelled is not None:
                raise cancelled from still
            raise
        if cancelled is not None:
            cancelled.__cause__ = None  # the trouble has passed
        return answer, cancelled or later

    async def settle_again(self, settlement: AnySettlement, trouble: Exception, since: float) -> Answer:
        """It came to nothing, for a reason that may pass: repeat it."""
        runtime, policy = self.engine.runtime, self.job.policy
        allowed = policy.lease if policy.settle_timeout is None else policy.settle_timeout
        pause = 0.01
        while True:
            left = min(self.retry_until, since + allowed / SECOND) - runtime.monotonic()
            if left <= 0 or self.engine.closed:
                raise trouble
            self.engine.emit("settle_retried", self.key, self.record, error=repr(trouble))
            await runtime.sleep(min(left, pause * (0.5 + runtime.jitter())))
            pause = min(pause * 2, 2.0)
            try:
                return (await self.engine.store.settle([settlement], timeout=policy.call_timeout))[0]
            except TRANSIENT as error:
                trouble = error

    def on_settled(self, answer: Answer, state: RecordState) -> None:
        engine = self.engine
        self.is_simple = False
        if answer.verdict is OK:
            self.settled = state
            if answer.record is not None:
                self.record = answer.record
            if state is not COMPLETED:
                self._tell(state)
            else:
                wants = engine.wants
                if wants("completed"):
                    engine.emit_wanted("completed", self.key, replace(self.record, state=COMPLETED))
        self.closed = True
        engine.heartbeat.drop(self)

    async def _once_more(self, settlement: AnySettlement, state: RecordState) -> None:
        """Interrupted: nobody knows how far the store came, and to the same bytes it gives the same answer."""
        if self.closed:
            return
        with suppress(StoreError):
            answers = await self.engine.store.settle([settlement], timeout=self.job.policy.call_timeout)
            self.on_settled(answers[0], state)

    def _tell(self, state: RecordState) -> None:
        """The event of a settlement, told where it is known, whatever is raised afterwards."""
        record = self.record
        if state is RecordState.FREE:
            self.engine.emit("released", self.key, record)
        else:
            name = "parked" if record.state is RecordState.PARKED else "failed"
            self.engine.emit(name, self.key, record, reason="final" if record.final else "", error=record.error_type)

    def hurry(self) -> None:
        """The caller is cancelled or interrupted: one more call is tried, but nobody is kept for `settle_timeout`."""
        self.retry_until = min(self.retry_until, self.engine.runtime.monotonic() + self.job.policy.call_timeout)

    def abandon(self) -> None:
        """Nothing more can be said about it from here."""
        self.closed = True
        self.engine.heartbeat.drop(self)

    def refuse_inherited(self) -> NoReturn:
        raise LeaseLost("this claim belongs to the parent process; a fork does not inherit it", key=self.key.text)
