"""The claim of a saga: its journal, written under the fence, and its ends."""

from __future__ import annotations

from typing import Any

from onceward.engine.acquire import ask, take
from onceward.engine.attempt import Attempt
from onceward.engine.ending import after_value
from onceward.engine.unclaimed import Unclaimed
from onceward.errors import LeaseLost, StoreFull, StoreUnavailable
from onceward.protocol.outcome import Executed, Failed, Outcome, Parked, Unknown
from onceward.protocol.policy import SECOND
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, Fail, Park, Renewal, Verdict
from onceward.results.stored_input import DROPPED

from .journal import Journal, ParkSaga, journal_in, noted, without_results


class SagaClaim:
    """`journal` is what the next write will say; `raised` what a step raised last, here."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.journal = journal_in(attempt.record.note) or Journal(cycle=attempt.record.token)
        self.raised: BaseException | None = None
        self._unanswered = False

    def emit(self, name: str, reason: str, error: str = "") -> None:
        self.attempt.engine.emit(name, self.attempt.key, self.attempt.record, reason=reason, error=error)

    # ── writing ──

    async def write(self) -> None:
        """The journal as it is now, fenced. Nothing is done before it is known to be written."""
        attempt = self.attempt
        if isinstance(attempt, Unclaimed):
            return
        if attempt.inherited:
            attempt.refuse_inherited()
        record = attempt.record
        renewal = Renewal(attempt.key.id, record.token, record.nonce, attempt.job.policy.lease, noted(self.journal))
        cancelled = None
        if attempt.engine.answer is not None:
            answer = attempt.engine.answer(renewal)
        else:
            answer, cancelled = await attempt.engine.finish(self._surely(renewal), attempt.hurry)
        if answer.verdict is not Verdict.OK:
            raise LeaseLost("somebody else has taken the saga over; nothing was written", key=attempt.key.text)
        attempt.record = answer.record or record
        if cancelled is not None:
            raise cancelled
        if self._unanswered:
            await self._fence_off()

    async def _fence_off(self) -> None:
        """A write without an answer may still arrive, and would take the journal back: under a new token it cannot.

        It is a take-over like any other, and somebody else may be faster.
        """
        attempt, runtime = self.attempt, self.attempt.engine.runtime
        self._unanswered = False
        await attempt.lapse()
        since = runtime.monotonic()
        answer = await ask(attempt)
        if answer.verdict is not Verdict.ACQUIRED:
            raise LeaseLost("somebody else has taken the saga over", key=attempt.key.text)
        attempt.over = False
        take(attempt, since)

    async def _surely(self, renewal: Renewal) -> Answer:
        """Repeated until the store answers, as a settlement is: to the same words it gives the same answer."""
        attempt = self.attempt
        runtime, policy, pause = attempt.engine.runtime, attempt.job.policy, 0.01
        allowed = policy.lease if policy.settle_timeout is None else policy.settle_timeout
        ends = runtime.monotonic() + allowed / SECOND
        while True:
            try:
                return (await attempt.engine.store.renew([renewal], timeout=policy.call_timeout))[0]
            except (StoreUnavailable, StoreFull) as error:
                left = min(attempt.patience, ends) - runtime.monotonic()
                if left <= 0 or attempt.engine.closed:
                    raise
                self._unanswered = True
                self.emit("settle_retried", "journal", repr(error))
                await runtime.sleep(min(left, pause * (0.5 + runtime.jitter())))
                pause = min(pause * 2, 2.0)

    # ── ends ──

    async def complete(self, results: dict[str, Any]) -> Outcome[Any]:
        """All done. The record's result has what the steps returned; the journal and the input need it no more."""
        attempt = self.attempt
        if isinstance(attempt, Unclaimed):
            return Executed(key=attempt.key.text, value=results, reason=attempt.why)
        attempt.at_end = {**noted(without_results(self.journal)), **DROPPED}
        return await after_value(attempt, results)

    async def fail(self) -> Outcome[Any]:
        """Everything that was done is undone: FAILED for good, with what made it turn. The input stays, for a retry."""
        attempt, journal = self.attempt, self.journal
        record, policy = attempt.record, attempt.job.policy
        attempt.end(None)
        failure = Fail(
            attempt.key.id,
            record.token,
            record.nonce,
            journal.error_type or "Undone",
            journal.error,
            final=True,
            known=True,
            validity=policy.window.validity(record.claimed_at),
        )
        answer = await attempt.settle(failure, RecordState.FAILED)
        if answer.verdict is not Verdict.OK:
            return self.lost()
        return Failed(
            key=attempt.key.text,
            reason=policy.reasons.failed,
            attempt=record.attempt,
            token=record.token,
            error_type=failure.error_type,
            error=failure.error,
            final=True,
            exception=self.raised,
        )

    async def park(self, move: ParkSaga) -> Outcome[Any]:
        """A person has to say how a step ended, or to help it."""
        attempt, record = self.attempt, self.attempt.record
        attempt.end(None)
        note = noted(self.journal)  # what the last attempt raised is not written yet
        parking = Park(attempt.key.id, record.token, record.nonce, move.error_type, move.why, note)
        answer = await attempt.settle(parking, RecordState.PARKED)
        if answer.verdict is not Verdict.OK:
            return self.lost()
        return Parked(
            key=attempt.key.text,
            reason=attempt.job.policy.reasons.parked,
            attempt=record.attempt,
            token=record.token,
            error_type=move.error_type,
            error=move.why,
            exception=self.raised,
        )

    def lost(self) -> Outcome[Any]:
        """Somebody else has taken the saga over, and carries it on."""
        attempt, record = self.attempt, self.attempt.record
        attempt.abandon()
        self.emit("lost", "saga taken over")
        reason = attempt.job.policy.reasons.unknown
        return Unknown(key=attempt.key.text, reason=reason, attempt=record.attempt, token=record.token, lost=True)
