"""Settle a claim: repeat the request until the store answers, even if the caller is cancelled meanwhile."""

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
"""Store errors that may go away by themselves."""

OK, COMPLETED = Verdict.OK, RecordState.COMPLETED


def store_error_of(error: BaseException) -> Any:
    """Return the store's error. If the caller was cancelled meanwhile, it is the cause of the cancellation."""
    return error if isinstance(error, Exception) else error.__cause__


class SettlingLease(Lease):
    """The part of an attempt that settles it."""

    engine: Engine
    job: Job
    key: Key
    settled: RecordState | None = None
    closed = False  # settled, or abandoned so that the lease expires: nothing is left to do
    since = 0.0  # when the last request was sent, on our own clock
    retry_until = math.inf  # how long a settlement is repeated, on our own clock

    def send(self, settlement: AnySettlement) -> Any:
        """Send the settlement once. Return what is to be awaited."""
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
        """Send the settlement until the store answers or `settle_timeout` has passed. A lost reply is not a failure.

        It runs to its end even if the caller is cancelled, and raises the cancellation afterwards. If a signal handler
        raises here, the same settlement is sent once more before the exception propagates. `sent` is a first try that
        was already made.
        """
        if not self.is_simple and self.inherited:
            self.refuse_inherited()
        engine, cancelled = self.engine, None
        try:
            try:
                [answer], cancelled = await (sent or engine.shield(self.send(settlement), self.hurry))
            except BaseException as error:
                if not isinstance(store_error_of(error), TRANSIENT):
                    raise
                answer, cancelled = await self._retry_settlement(settlement, error, self.since)
            self.on_settled(answer, state)
        except BaseException as error:
            self.settling = False
            if isinstance(error.__cause__, StoreError):  # cancelled, and the store did not answer
                self.engine.emit("unknown", self.key, self.record, error=repr(error.__cause__))
                self.abandon()
            if not isinstance(error, OncewardError) and not self.engine.runtime.supports_cancellation:
                await self._resend(settlement, state)
            raise
        if cancelled is not None:
            raise cancelled
        return answer

    async def _retry_settlement(
        self, settlement: AnySettlement, error: BaseException, since: float
    ) -> tuple[Answer, BaseException | None]:
        """Repeat a settlement whose first try failed with a transient error, also for a cancelled caller."""
        store_error = store_error_of(error)
        cancelled = None if error is store_error else error
        try:
            answer, later = await self.engine.shield(self.settle_again(settlement, store_error, since), self.hurry)
        except Exception as still:
            if cancelled is not None:
                raise cancelled from still
            raise
        if cancelled is not None:
            cancelled.__cause__ = None  # the store has recovered
        return answer, cancelled or later

    async def settle_again(self, settlement: AnySettlement, failure: Exception, since: float) -> Answer:
        """Repeat the settlement while the store fails with a transient error, until the time has passed."""
        runtime, policy = self.engine.runtime, self.job.policy
        allowed = policy.lease if policy.settle_timeout is None else policy.settle_timeout
        pause = 0.01
        while True:
            left = min(self.retry_until, since + allowed / SECOND) - runtime.monotonic()
            if left <= 0 or self.engine.closed:
                raise failure
            self.engine.emit("settle_retried", self.key, self.record, error=repr(failure))
            await runtime.sleep(min(left, pause * (0.5 + runtime.jitter())))
            pause = min(pause * 2, 2.0)
            try:
                return (await self.engine.store.settle([settlement], timeout=policy.call_timeout))[0]
            except TRANSIENT as error:
                failure = error

    def on_settled(self, answer: Answer, state: RecordState) -> None:
        engine = self.engine
        self.is_simple = False
        if answer.verdict is OK:
            self.settled = state
            if answer.record is not None:
                self.record = answer.record
            if state is not COMPLETED:
                self._emit_settled(state)
            else:
                wants = engine.wants
                if wants("completed"):
                    engine.emit_wanted("completed", self.key, replace(self.record, state=COMPLETED))
        self.closed = True
        engine.heartbeat.drop(self)

    async def _resend(self, settlement: AnySettlement, state: RecordState) -> None:
        """Send the settlement again after an interrupt: for the same bytes, the store gives the same answer."""
        if self.closed:
            return
        with suppress(StoreError):
            answers = await self.engine.store.settle([settlement], timeout=self.job.policy.call_timeout)
            self.on_settled(answers[0], state)

    def _emit_settled(self, state: RecordState) -> None:
        """Emit the event of a settlement as soon as it is known, whatever is raised afterwards."""
        record = self.record
        if state is RecordState.FREE:
            self.engine.emit("released", self.key, record)
        else:
            name = "parked" if record.state is RecordState.PARKED else "failed"
            self.engine.emit(name, self.key, record, reason="final" if record.final else "", error=record.error_type)

    def hurry(self) -> None:
        """Shorten the retries to one more call, because the caller was cancelled or interrupted."""
        self.retry_until = min(self.retry_until, self.engine.runtime.monotonic() + self.job.policy.call_timeout)

    def abandon(self) -> None:
        """Give up the claim without settling it: the lease expires."""
        self.closed = True
        self.engine.heartbeat.drop(self)

    def refuse_inherited(self) -> NoReturn:
        raise LeaseLost("this claim belongs to the parent process; a forked child does not own it", key=self.key.text)
