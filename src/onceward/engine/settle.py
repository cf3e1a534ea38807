"""Settle a claim: complete, fail, park or release it, and write to its record while the work runs.

A settlement is built once and sent until the store answers (`retry.py`), even if the caller is cancelled meanwhile.
`conclude.py` decides how a claim is settled after its work; this file does it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from onceward.errors import (
    AlreadyCompleted,
    ClaimError,
    ConfigurationError,
    LeaseLost,
    OutcomeUnknown,
    StoreError,
    VersionSkew,
)
from onceward.keys.small import is_small
from onceward.protocol.capabilities import JoinedStore, Transactions
from onceward.protocol.note import FRAME
from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Answer, AnySettlement, Complete, Fail, Park, Release, Verdict
from onceward.protocol.runtime import Runtime
from onceward.protocol.unstored import unstored_note
from onceward.results.codec import Encoded

from .attempt import ABANDONED, LOST, RUNNING, SETTLED, SETTLING, UNKNOWN, UNPROTECTED, VERIFYING, Attempt
from .error_text import error_for_log, message_of, raised_in
from .retry import SettleLimit, ask_again

OK, COMPLETED = Verdict.OK, RecordState.COMPLETED


async def settle(attempt: Attempt, settlement: AnySettlement, state: RecordState) -> Answer:
    """Send the settlement until the store answers or `settle_timeout` has passed. `state` is the record's new state.

    It completes even if the caller is cancelled, and raises the cancellation afterwards. If the store does not
    answer, the attempt is UNKNOWN and the store's error is raised.
    """
    if attempt.state is UNPROTECTED:
        attempt.settled_as = state
        return Answer(OK, attempt.record, attempt.record.updated_at)
    if attempt.inherited or attempt.state is not RUNNING:
        _check_settleable(attempt)
    engine, timeout = attempt.engine, attempt.job.policy.call_timeout
    store, since = engine.store, engine.runtime.monotonic()
    cancelled: BaseException | None
    try:
        attempt.move(SETTLING)
        try:
            if engine.shields:
                answers, cancelled = await engine.shield(store.settle([settlement], timeout=timeout), attempt.hurry)
            else:
                answers, cancelled = await store.settle([settlement], timeout=timeout), None
        except BaseException as error:  # noqa: BLE001 (raised again, unless the store answers)
            answers, cancelled = await ask_again(
                lambda: store.settle([settlement], timeout=timeout), error, SettleLimit(attempt, since)
            )
        on_answer(attempt, answers[0], state)
    except BaseException as error:
        if attempt.state is SETTLING:
            attempt.move(UNKNOWN)
        if isinstance(error.__cause__, StoreError) and not isinstance(error, StoreError):  # the caller was cancelled
            engine.emit("unknown", attempt.key, attempt.record, error=repr(error.__cause__))
        engine.heartbeat.drop(attempt)
        raise
    if cancelled is not None:
        raise cancelled
    return answers[0]


def _check_settleable(attempt: Attempt) -> None:
    """Raise if this attempt no longer owns its claim, or if another call is settling it."""
    if attempt.inherited:
        attempt.refuse_inherited()
    if attempt.state in (LOST, ABANDONED):
        raise LeaseLost("this claim is no longer ours; nothing was changed", key=attempt.key.text)
    if attempt.state is SETTLING:
        raise ClaimError("another call is settling this claim", key=attempt.key.text, hint="wait for it first")


def on_answer(attempt: Attempt, answer: Answer, state: RecordState) -> None:
    """Apply the store's answer to a settlement. An OK is reported here, whatever is raised afterwards."""
    engine, claimed, history = attempt.engine, attempt.record, attempt.engine.history
    engine.heartbeat.drop(attempt)
    if answer.verdict is not OK:
        was_settled = attempt.settled_as is not None  # the work completes its claim twice
        attempt.move(SETTLED if was_settled else LOST if answer.verdict is Verdict.LOST else UNKNOWN)
        if history is not None and attempt.state is LOST:
            history.settled(claimed, claimed, answer, state)
        return
    attempt.move(SETTLED)
    attempt.settled_as = state
    if answer.record is not None:
        attempt.record = answer.record
    record = attempt.record
    if history is not None and (history.all or state is not COMPLETED or record.attempt > 1):
        history.settled(claimed, record, answer, state)
    if state is COMPLETED:
        if engine.wants("completed"):
            engine.emit_wanted("completed", attempt.key, replace(record, state=COMPLETED))
    elif state is RecordState.FREE:
        engine.emit("released", attempt.key, record)
    else:
        name = "parked" if record.state is RecordState.PARKED else "failed"
        engine.emit(name, attempt.key, record, reason="final" if record.final else "", error=record.error_type)


# ── the settlements ──


def record_result(attempt: Attempt, value: Any) -> Coroutine[Any, Any, Answer]:
    """Complete the claim with this value."""
    if attempt.engine.runtime.supports_cancellation and not is_small(value):
        return _record_large_result(attempt, value)
    encoded = attempt.job.codec.encode(value, attempt.record.id, attempt.record.cycle)
    return settle(attempt, completion(attempt, encoded), COMPLETED)


async def _record_large_result(attempt: Attempt, value: Any) -> Answer:
    """Complete the claim with a value that is encoded in a worker thread."""
    done, cancelled = await attempt.engine.runtime.shield(encoded_completion(attempt, value))
    try:
        answer = await settle(attempt, done, COMPLETED)
    except Exception as error:
        if cancelled is not None:
            raise cancelled from error
        raise
    if cancelled is not None:  # while it was encoded
        raise cancelled
    return answer


async def encoded_completion(attempt: Attempt, value: Any) -> Complete:
    """Encode the value, a large one in a worker thread, and return the completion. Retries send the same bytes."""
    job, record = attempt.job, attempt.record
    return completion(attempt, await attempt.engine.encode(job.codec, value, record.id, record.cycle))


def completion(attempt: Attempt, encoded: Encoded) -> Complete:
    """Return the completion with an encoded result."""
    job, record, data = attempt.job, attempt.record, encoded.data
    note = attempt.note_at_end
    largest = attempt.engine.max_result_bytes
    if data is None or (largest is not None and len(data) > largest):
        data, note = None, _note_without_result(attempt, encoded, note)
    window = job.policy.window
    return Complete(
        record.id,
        record.token,
        record.nonce,
        data,
        encoded.digest,
        data is not None,
        window.constant_validity or window.validity(record.claimed_at),
        note,
    )


def _note_without_result(attempt: Attempt, encoded: Encoded, note: dict[str, str]) -> dict[str, str]:
    """Return the note for a completion without its result. It says why, unless `store_result=False`."""
    if not attempt.job.policy.store_result:
        return note
    reason = encoded.public_reason or encoded.reason
    if encoded.data is not None:
        room = attempt.engine.max_result_bytes
        reason = f"it takes {len(encoded.data)} bytes, and a record of this store has room for {room}"
    attempt.engine.emit("result_not_stored", attempt.key, attempt.record, reason=reason)
    return {**note, **unstored_note(reason)}


async def fail(attempt: Attempt, error: BaseException, *, final: bool, known: bool, error_type: str = "") -> Answer:
    return await settle(
        attempt, failure(attempt, error, final=final, known=known, error_type=error_type), RecordState.FAILED
    )


def fail_later(attempt: Attempt, error: BaseException, *, final: bool, known: bool) -> None:
    """Let the heartbeat thread record the failure: the caller's open transaction blocks our write."""
    attempt.abandon()
    attempt.engine.heartbeat.settle_later(attempt, failure(attempt, error, final=final, known=known))


def failure(attempt: Attempt, error: BaseException, *, final: bool, known: bool, error_type: str = "") -> Fail:
    policy, record = attempt.job.policy, attempt.record
    return Fail(
        attempt.key.id,
        record.token,
        record.nonce,
        error_type or type(error).__qualname__,
        message_of(error),
        final,
        known,
        _retry_delay(attempt),
        policy.max_attempts,
        policy.window.validity(record.claimed_at),
        frame_note(error),
    )


def frame_note(error: BaseException | None) -> dict[str, str]:
    """Return the note that says which function raised, so that operators can group failures."""
    frame = raised_in(error)
    return {FRAME: frame} if frame else {}


def _retry_delay(attempt: Attempt) -> int:
    """Return the µs before the next attempt. A `retry_delay` that raises must not hide the work's failure."""
    try:
        return attempt.job.policy.delay_after(attempt.record.attempt)
    except Exception as error:  # noqa: BLE001 (it is the user's own function)
        attempt.engine.emit(
            "retry_delay_failed",
            attempt.key,
            attempt.record,
            reason="retried without a delay",
            error=error_for_log(error),
        )
        return 0


async def park(attempt: Attempt, error_type: str, error: str, raised: BaseException | None = None) -> Answer:
    record = attempt.record
    parking = Park(attempt.key.id, record.token, record.nonce, error_type, error, frame_note(raised))
    return await settle(attempt, parking, RecordState.PARKED)


async def release(attempt: Attempt) -> Answer:
    record = attempt.record
    return await settle(attempt, Release(attempt.key.id, record.token, record.nonce), RecordState.FREE)


async def expire_lease(attempt: Attempt) -> None:
    """End the lease now: the next claim then handles it as a crash. If the store fails, the lease expires later."""
    attempt.abandon()
    if attempt.state is not UNPROTECTED and not attempt.inherited:
        timeout = attempt.job.policy.call_timeout
        with suppress(StoreError):
            await attempt.engine.shield(attempt.engine.store.renew([attempt.renewal(0)], timeout=timeout))


# ── what the work may do with its claim ──


async def annotate(attempt: Attempt, note: dict[str, str]) -> None:
    """Write small metadata to the record now. It survives a takeover by another worker."""
    if attempt.state is UNPROTECTED:
        attempt.record = replace(attempt.record, note={**attempt.record.note, **note})
        return
    renewal, timeout = attempt.renewal(attempt.job.policy.lease, note), attempt.job.policy.call_timeout
    answer = raise_unless_ok(attempt, (await attempt.engine.store.renew([renewal], timeout=timeout))[0])
    written, known = answer.record, attempt.record
    if written is not None and (written.token, written.updated_at) >= (known.token, known.updated_at):
        attempt.record = written  # only if it is newer: a saga step may annotate while its saga writes


async def complete(attempt: Attempt, value: Any) -> None:
    """Record the result. Repeating it with an equal value succeeds."""
    refuse_by_hand(attempt)
    if attempt.state is VERIFYING:
        raise ConfigurationError(
            "verify's find cannot complete the claim", key=attempt.key.text, hint="return applied(value) instead"
        )
    attempt.result = value
    try:
        answer = await record_result(attempt, value)
    except StoreError as error:
        closed = "the client was closed before the work ended, so the store did not confirm the result"
        why = closed if attempt.engine.closed else "the store did not confirm the result in time"
        raise OutcomeUnknown(f"the work was done, but {why}", key=attempt.key.text, value=value) from error
    raise_unless_ok(attempt, answer)


async def complete_in(attempt: Attempt, connection: Any, value: Any) -> None:
    """Write the result in the caller's transaction. Raise if another worker took over: the caller rolls back."""
    refuse_by_hand(attempt)
    if attempt.state is UNPROTECTED:
        attempt.settled_as = COMPLETED
        return
    joined = join(attempt, connection, attempt.engine.runtime)
    await write_completion(attempt, joined, await encoded_completion(attempt, value))


def join(attempt: Attempt, connection: Any, runtime: Runtime) -> JoinedStore:
    """Join the caller's transaction, on the runtime that the caller's connection belongs to."""
    transactions = check_joinable(attempt)
    attempt.check()
    return transactions.join(connection, runtime)


def check_joinable(attempt: Attempt) -> Transactions:
    """Return what joins transactions of the store's database. Raise if this claim cannot be completed in one."""
    store = attempt.engine.store
    if store.transactions is None:
        raise ConfigurationError(
            f"{store.name} cannot join your transaction",
            key=attempt.key.text,
            hint="use sqlite:///…, postgresql://… or firestore://… for both",
        )
    if attempt.record.after_crash is not AfterCrash.RERUN:
        raise ConfigurationError(
            "effect and record commit together here, so a crash leaves none: after_crash must be 'rerun'",
            key=attempt.key.text,
        )
    return store.transactions


async def write_completion(attempt: Attempt, joined: JoinedStore, done: Complete) -> Answer:
    """Write the completion in the transaction that was joined. It counts once the caller has committed."""
    answer = raise_unless_ok(attempt, (await joined.settle([done], timeout=attempt.job.policy.call_timeout))[0])
    attempt.joined = joined
    await attempt.engine.renew_due(joined, but=attempt)
    return answer


def refuse_by_hand(attempt: Attempt) -> None:
    """Raise if the work must not complete this claim itself."""
    if attempt.integration is not None:
        attempt.integration.refuse_completion(attempt.key.text)
    if attempt.step is not None:
        raise ConfigurationError(
            "a step cannot complete its saga: other steps may remain",
            key=attempt.key.text,
            hint="return the step's result; the saga continues with the next step",
        )


def raise_unless_ok(attempt: Attempt, answer: Answer) -> Answer:
    match answer.verdict:
        case Verdict.OK:
            return answer
        case Verdict.CONFLICT:
            raise AlreadyCompleted("this claim was already completed with another result", key=attempt.key.text)
        case Verdict.SKEW:
            raise VersionSkew(
                "the record was written by a newer Onceward", key=attempt.key.text, hint="upgrade this process"
            )
        case _:
            raise LeaseLost("another worker owns this key now; nothing was changed", key=attempt.key.text)
