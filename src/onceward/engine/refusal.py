"""The outcome of a claim that was refused: replayed, running, mismatch, failed or parked."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from onceward.errors import AlreadyDone, ResultError, VersionSkew
from onceward.keys.fingerprint import differing_arguments
from onceward.protocol.cells import attempts_used_up
from onceward.protocol.outcome import Failed, Mismatch, Outcome, Parked, Replayed, Running
from onceward.protocol.policy import SECOND
from onceward.protocol.record import CompletedRecord, Record
from onceward.protocol.requests import Answer, Verdict
from onceward.protocol.resolved import is_abandoned
from onceward.protocol.unstored import COMPLETED_WITHOUT, unstored_reason
from onceward.results.reader import UndeclaredClass

from .engine import Engine
from .job import Job

MAX_NAMED_ARGUMENTS = 10  # listed in one log line


async def refusal_outcome(engine: Engine, job: Job, answer: Answer, *, waited: bool = False) -> Outcome[Any]:
    """Return the outcome of a refused claim. Emit an event for each."""
    outcome = await _outcome(engine, job, answer, waited=waited)
    if not engine.rollout.enforces:  # it runs anyway, which the caller reports
        return outcome
    if engine.history is not None:
        engine.history.refused(answer, outcome.arguments if isinstance(outcome, Mismatch) else ())
    if isinstance(outcome, Mismatch):
        engine.emit("mismatch", job.key, answer.record, reason=outcome.reason, error=_mismatch_text(outcome))
    else:
        engine.emit("skipped", job.key, answer.record, reason=outcome.reason)
    if waited and job.policy.wait and isinstance(outcome, Running) and not engine.stopping:
        engine.emit("claim_failed", job.key, answer.record, reason="wait limit")
    return outcome


async def _outcome(engine: Engine, job: Job, answer: Answer, *, waited: bool) -> Outcome[Any]:
    record = answer.record
    text, reasons = job.key.text, job.policy.reasons
    if record is None or answer.verdict is Verdict.SKEW:
        raise VersionSkew(
            "the record was written by a newer Onceward; left alone", key=text, hint="upgrade this process"
        )
    match answer.verdict:
        case Verdict.REPLAY:
            return await _replayed(engine, job, record)
        case Verdict.RUNNING:
            return Running(
                key=text,
                reason=reasons.running,
                attempt=record.attempt,
                token=record.token,
                retry_after=lease_left(answer),
                owner=record.owner,
                waited=waited,
            )
        case Verdict.MISMATCH:
            names = differing_arguments(record.arguments, job.arguments) if record.arguments and job.arguments else ()
            return Mismatch(
                key=text, reason=reasons.mismatch, attempt=record.attempt, token=record.token, arguments=names
            )
        case Verdict.FAILED:
            given_up = record.retry_at is None or attempts_used_up(record.attempt, job.policy.max_attempts)
            due = None if given_up else max(0, (record.retry_at or 0) - answer.now) / SECOND
            return Failed(
                key=text,
                reason=reasons.failed,
                attempt=record.attempt,
                token=record.token,
                error_type=record.error_type,
                error=record.error,
                final=record.final or given_up,
                abandoned=is_abandoned(record),
                retry_after=due,
            )
        case _:  # parked by its owner, or by the store when a claim found its lease expired (`take_over` in cells.py)
            return Parked(
                key=text,
                reason=reasons.parked,
                attempt=record.attempt,
                token=record.token,
                error_type=record.error_type,
                error=record.error,
            )


async def _replayed(engine: Engine, job: Job, record: Record) -> Outcome[Any]:
    """Return the outcome of a completed key, with its stored result or the reason why there is none."""
    value = None
    if record.result is not None and job.policy.store_result:
        try:
            value = await engine.decode(job.codec, record.result, record.id, record.cycle)
        except UndeclaredClass as error:
            if job.codec.is_declared:
                raise error.with_key(job.key.text) from error.__cause__
            return replace(replayed_outcome(job, record, None), stored=False, unstored=_undeclared_text(error))
        except ResultError as error:
            if job.codec.lacks_result(record.result):
                return replace(replayed_outcome(job, record, None), stored=False, unstored=COMPLETED_WITHOUT)
            raise error.with_key(job.key.text) from error.__cause__
    outcome = replayed_outcome(job, record, value)
    return outcome if outcome.stored else replace(outcome, unstored=unstored_reason(record.note))


def _undeclared_text(error: UndeclaredClass) -> str:
    """Return why a block cannot return the stored result: its class has not been imported in this process."""
    return f"in a form that this process can read: {str(error).partition(' →')[0]}; pass type= with its class"


def _mismatch_text(outcome: Mismatch[Any]) -> str:
    """Return the log text of a mismatch: the names of the arguments, never their values, and how to fix it."""
    names = ", ".join(outcome.arguments[:MAX_NAMED_ARGUMENTS]) + (
        " and more" if len(outcome.arguments) > MAX_NAMED_ARGUMENTS else ""
    )
    which = f", which differs in: {names}" if names else ""
    return (
        f"the key was used before with another payload{which}; nothing was run → use a new key for new work, "
        "or declare which arguments belong to the fingerprint; if the client's fingerprint_key has changed, every "
        "earlier payload counts as different"
    )


def lease_left(answer: Answer) -> float | None:
    """Return the seconds until the owner's lease ends, by the store's clock. None: there is no lease."""
    record = answer.record
    if record is None or record.lease_until is None:
        return None
    return max(0, record.lease_until - answer.now) / SECOND


def refusal_error(outcome: Outcome[object]) -> BaseException:
    """Return the exception for an outcome of a claim that was not acquired."""
    if isinstance(outcome, Replayed):
        return outcome.already_done()
    try:
        outcome.unwrap()
    except Exception as error:  # noqa: BLE001 (it is the return value)
        return error.with_traceback(None)
    return AlreadyDone("the key was already completed", key=outcome.key)


def replayed_outcome(job: Job, done: CompletedRecord, value: Any) -> Replayed[Any]:
    """Return the outcome for a completed key."""
    return Replayed(
        key=job.key.text,
        value=value,
        reason=job.policy.reasons.done,
        attempt=done.attempt,
        token=done.token,
        stored=bool(done.stored) and done.result is not None,
        declared=not job.policy.store_result,
    )
