"""The claim of a saga: writes its journal with the fencing token, and settles its record."""

from __future__ import annotations

from typing import Any

from onceward.engine.acquire import request_claim, start_heartbeat
from onceward.engine.attempt import Attempt
from onceward.engine.settle_outcome import settle_returned
from onceward.engine.unclaimed import Unclaimed
from onceward.errors import LeaseLost, StoreFull, StoreUnavailable
from onceward.protocol.outcome import Executed, Failed, Outcome, Parked, Unknown
from onceward.protocol.policy import SECOND
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, Fail, Park, Renewal, Verdict
from onceward.results.stored_input import INPUT_REMOVED

from .journal import Journal, ParkSaga, journal_from, note_of, without_results


class SagaClaim:
    """`journal` is what the next write stores; `raised` is the last error that a step raised in this process."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.journal = journal_from(attempt.record.note) or Journal(cycle=attempt.record.token)
        self.raised: BaseException | None = None
        self._unanswered = False

    def emit(self, name: str, reason: str, error: str = "") -> None:
        self.attempt.engine.emit(name, self.attempt.key, self.attempt.record, reason=reason, error=error)

    # ── writing ──

    async def write(self) -> None:
        """Write the current journal, fenced by the token. The saga does nothing before the write is confirmed."""
        attempt = self.attempt
        if isinstance(attempt, Unclaimed):
            return
        if attempt.inherited:
            attempt.refuse_inherited()
        record = attempt.record
        renewal = Renewal(attempt.key.id, record.token, record.nonce, attempt.job.policy.lease, note_of(self.journal))
        answer, cancelled = await attempt.engine.shield(self._renew_until_answered(renewal), attempt.hurry)
        if answer.verdict is not Verdict.OK:
            raise LeaseLost("another worker has taken over the saga; nothing was written", key=attempt.key.text)
        attempt.record = answer.record or record
        if cancelled is not None:
            raise cancelled
        if self._unanswered:
            await self._reclaim()

    async def _reclaim(self) -> None:
        """Claim the saga again, so that an unanswered write cannot overwrite a later journal: its token is then stale.

        This is an ordinary takeover, and another worker may win it.
        """
        attempt, runtime = self.attempt, self.attempt.engine.runtime
        self._unanswered = False
        await attempt.expire_lease()
        since = runtime.monotonic()
        answer = await request_claim(attempt)
        if answer.verdict is not Verdict.ACQUIRED:
            raise LeaseLost("another worker has taken over the saga", key=attempt.key.text)
        attempt.closed = False
        start_heartbeat(attempt, since)

    async def _renew_until_answered(self, renewal: Renewal) -> Answer:
        """Repeat the write until the store answers, as for a settlement: the same request gets the same answer."""
        attempt = self.attempt
        runtime, policy, pause = attempt.engine.runtime, attempt.job.policy, 0.01
        allowed = policy.lease if policy.settle_timeout is None else policy.settle_timeout
        ends = runtime.monotonic() + allowed / SECOND
        while True:
            try:
                return (await attempt.engine.store.renew([renewal], timeout=policy.call_timeout))[0]
            except (StoreUnavailable, StoreFull) as error:
                left = min(attempt.retry_until, ends) - runtime.monotonic()
                if left <= 0 or attempt.engine.closed:
                    raise
                self._unanswered = True
                self.emit("settle_retried", "journal", repr(error))
                await runtime.sleep(min(left, pause * (0.5 + runtime.jitter())))
                pause = min(pause * 2, 2.0)

    # ── settling ──

    async def complete(self, results: dict[str, Any]) -> Outcome[Any]:
        """Complete the record: all steps are done. Its result holds what the steps returned.

        The results in the journal and the stored input are therefore dropped.
        """
        attempt = self.attempt
        if isinstance(attempt, Unclaimed):
            return Executed(key=attempt.key.text, value=results, reason=attempt.why)
        attempt.at_end = {**note_of(without_results(self.journal)), **INPUT_REMOVED}
        return await settle_returned(attempt, results)

    async def fail(self) -> Outcome[Any]:
        """Fail the record finally, with the error that started the compensation: all steps are undone.

        The stored input stays, for a retry.
        """
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
        """Park the record: an operator must resolve a step."""
        attempt, record = self.attempt, self.attempt.record
        attempt.end(None)
        note = note_of(self.journal)  # the error of the last attempt is not written yet
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
        """Return the outcome after another worker has taken over the saga."""
        attempt, record = self.attempt, self.attempt.record
        attempt.abandon()
        self.emit("lost", "saga taken over")
        reason = attempt.job.policy.reasons.unknown
        return Unknown(key=attempt.key.text, reason=reason, attempt=record.attempt, token=record.token, lost=True)
