"""The claim of a saga: writes its journal with the fencing token, and settles its record."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from onceward.engine.acquire import send_claims
from onceward.engine.attempt import OWNED, UNPROTECTED, Attempt
from onceward.engine.conclude import settle_returned
from onceward.engine.retry import SettleLimit, ask_again
from onceward.engine.settle import settle
from onceward.errors import LeaseLost, OutcomeParked, StoreError
from onceward.protocol.hints import resolve_hint
from onceward.protocol.outcome import Failed, Outcome, Parked, Unknown
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Fail, Park, Verdict
from onceward.results.stored_input import INPUT_REMOVED

from .journal import Direction, Journal, ParkSaga, journal_from, note_of, without_results


class SagaClaim:
    """`journal` is what the next write stores; `raised` is the last error that a step raised in this process."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.journal = journal_from(attempt.record.note) or Journal(cycle=attempt.record.token)
        self.raised: BaseException | None = None

    def emit(self, name: str, reason: str, error: str = "") -> None:
        self.attempt.engine.emit(name, self.attempt.key, self.attempt.record, reason=reason, error=error)

    # ── writing ──

    async def write(self) -> None:
        """Write the current journal, fenced by the token. The saga does nothing before the write is confirmed."""
        attempt = self.attempt
        if attempt.state is UNPROTECTED:
            return
        if attempt.inherited:
            attempt.refuse_inherited()
        engine, timeout = attempt.engine, attempt.job.policy.call_timeout
        renewal, since = attempt.renewal(attempt.job.policy.lease, note_of(self.journal)), engine.runtime.monotonic()
        cancelled: BaseException | None
        unanswered = False
        try:
            answers, cancelled = await engine.shield(engine.store.renew([renewal], timeout=timeout), attempt.hurry)
        except BaseException as error:  # noqa: BLE001 (raised again, unless the store answers)
            unanswered, limit = True, SettleLimit(attempt, since, "journal")
            answers, cancelled = await ask_again(lambda: engine.store.renew([renewal], timeout=timeout), error, limit)
        if answers[0].verdict is not Verdict.OK:
            raise LeaseLost("another worker has taken over the saga; nothing was written", key=attempt.key.text)
        attempt.record = answers[0].record or attempt.record
        if cancelled is not None:
            raise cancelled
        if unanswered:
            await self._reclaim()

    async def _reclaim(self) -> None:
        """Claim the saga again, so that an unanswered write cannot overwrite a later journal: its token is then stale.

        This is an ordinary takeover, and another worker may win it.
        """
        attempt, engine = self.attempt, self.attempt.engine
        timeout = attempt.job.policy.call_timeout
        engine.heartbeat.drop(attempt)
        with suppress(StoreError):
            await engine.shield(engine.store.renew([attempt.renewal(0)], timeout=timeout))
        again, since = Attempt(engine, attempt.job), engine.runtime.monotonic()
        await send_claims(engine, [again])
        if again.state is not OWNED:
            raise LeaseLost("another worker has taken over the saga", key=attempt.key.text)
        engine.heartbeat.drop(again)
        attempt.record, attempt.nonce = again.record, again.nonce
        engine.heartbeat.take(attempt, since)

    # ── settling ──

    async def complete(self, results: dict[str, Any]) -> Outcome[Any]:
        """Complete the record: all steps are done. Its result holds what the steps returned.

        The results in the journal and the stored input are therefore dropped.
        """
        attempt = self.attempt
        attempt.note_at_end = {**note_of(without_results(self.journal)), **INPUT_REMOVED}
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
        answer = await settle(attempt, failure, RecordState.FAILED)
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
        answer = await settle(attempt, parking, RecordState.PARKED)
        if answer.verdict is not Verdict.OK:
            return self.lost()
        return Parked(
            key=attempt.key.text,
            reason=attempt.job.policy.reasons.parked,
            attempt=record.attempt,
            token=record.token,
            error_type=move.error_type,
            error=move.why,
            exception=self._parked_error(move),
        )

    def _parked_error(self, move: ParkSaga) -> OutcomeParked:
        """Return what the caller gets. The step's own error, which an undone saga raises, is only its cause."""
        progress = "half undone" if self.journal.direction is Direction.COMPENSATING else "half done"
        error = OutcomeParked(
            f"the saga is {progress} ({move.error_type}: {move.why})",
            key=self.attempt.key.text,
            reason=self.attempt.job.policy.reasons.parked,
            hint=f"find out what happened to that step, then say so: {resolve_hint(self.attempt.key.text)}; in Python, "
            "saga.resolve(applied(value) or not_applied, …)",
        )
        error.__cause__ = self.raised
        return error

    def lost(self) -> Outcome[Any]:
        """Return the outcome after another worker has taken over the saga."""
        attempt, record = self.attempt, self.attempt.record
        attempt.abandon()
        self.emit("lost", "saga taken over")
        reason = attempt.job.policy.reasons.unknown
        return Unknown(key=attempt.key.text, reason=reason, attempt=record.attempt, token=record.token, lost=True)
