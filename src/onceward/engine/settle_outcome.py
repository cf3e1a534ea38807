"""Settle a claim after its work: completed, failed, parked if the effect is unknown, or not confirmed by the store."""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from onceward.errors import ClaimError, ConfigurationError, StoreError
from onceward.protocol.capabilities import JoinedStore
from onceward.protocol.outcome import Executed, Failed, Outcome, Parked, Unknown
from onceward.protocol.policy import SECOND, Policy, applied, inconclusive, not_applied
from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Answer, Verdict

from .attempt import Attempt
from .error_text import message_of

OK, COMPLETED = Verdict.OK, RecordState.COMPLETED


async def settle_returned(attempt: Attempt, value: Any, *, reason: str = "") -> Outcome[Any]:
    """Record the value that the handler returned, or that `verify` found."""
    attempt.result = value
    if attempt.job.policy.on_lost == "cancel":
        attempt.end(None)
    if attempt.settled is not None:  # the handler completed its claim itself
        return executed_outcome(attempt)
    if attempt.joined is not None:
        return await settle_joined(attempt, attempt.joined, value)
    try:
        answer = await attempt.record_result(value)
    except StoreError as error:
        return unconfirmed_outcome(attempt, value, error)
    return completion_outcome(attempt, value, answer, reason)


def unconfirmed_outcome(attempt: Attempt, value: Any, error: StoreError) -> Outcome[Any]:
    """Return the outcome of work that is done but whose result the store did not confirm."""
    return _report_unknown(attempt, value, repr(error))


def completion_outcome(attempt: Attempt, value: Any, answer: Answer, reason: str = "") -> Outcome[Any]:
    """Return the outcome for the store's answer to a completion."""
    if answer.verdict is OK:
        return executed_outcome(attempt, reason)
    match answer.verdict:
        case Verdict.CONFLICT:
            return _report_unknown(attempt, value, "completed before with another result")
        case Verdict.SKEW:
            return _report_unknown(attempt, value, "the record was rewritten by a newer Onceward")
        case _:
            attempt.engine.emit("lost", attempt.key, attempt.record, reason="result refused")
            return _unknown_outcome(attempt, value, lost=True)


async def settle_joined(attempt: Attempt, joined: JoinedStore, value: Any) -> Outcome[Any]:
    """Settle a claim whose result was written in the caller's transaction: it counts if that was committed."""
    if joined.is_open():
        late = ConfigurationError(
            "your transaction is still open at the end of the claim, so it is unknown whether it will be committed",
            key=attempt.key.text,
            hint=f"commit before the claim ends: `with once.claim(key) as claim, {joined.block}:`, in this order",
        )
        attempt.fail_later(late, final=False, known=False)
        return _failed_outcome(attempt, late)
    try:
        done = await check_committed(attempt)
    except StoreError as error:
        return _report_unknown(attempt, value, repr(error))
    if done:
        return executed_outcome(attempt)
    return await settle_raised(
        attempt, ClaimError("complete_in was called, but its transaction was rolled back", key=attempt.key.text)
    )


async def check_committed(attempt: Attempt) -> bool:
    """Return whether the caller's transaction was committed. It runs to its end even if the caller is cancelled."""
    answers, cancelled = await attempt.engine.shield(_read_after_commit(attempt))
    if cancelled is not None:
        raise cancelled
    record = answers[0].record
    if record is None or record.token != attempt.record.token or record.state is not RecordState.COMPLETED:
        return False
    attempt.settled, attempt.record = RecordState.COMPLETED, record
    attempt.abandon()
    attempt.engine.emit("completed", attempt.key, record)
    return True


async def _read_after_commit(attempt: Attempt) -> list[Answer]:
    """Read the record after the transaction has really ended: the reply to its COMMIT may have been lost."""
    store, timeout = attempt.engine.store, attempt.job.policy.call_timeout
    number = attempt.joined.number if attempt.joined is not None else None
    if number is not None and store.commits is not None:
        await store.commits.committed(number, timeout=timeout)
    return await store.read([attempt.key.id], timeout=timeout)


async def settle_raised(attempt: Attempt, error: BaseException) -> Outcome[Any]:
    """Settle a claim whose handler raised. The policy declares which errors mean that the effect did not happen."""
    policy = attempt.job.policy
    if attempt.job.is_async and isinstance(error, GeneratorExit):
        raise error  # a coroutine that is being closed cannot wait for the store: the lease expires
    if attempt.end(error):
        return _unknown_outcome(attempt, None, lost=True)
    try:
        undecided = attempt.joined is not None and attempt.joined.is_open()
        if attempt.joined is not None and attempt.settled is None and not undecided:
            await check_committed(attempt)
        if attempt.settled is not None or attempt.lost or attempt.unconfirmed:
            attempt.abandon()
            outcome = _failed_outcome(attempt, error)
        elif undecided:
            final, known = classify(error, policy)
            attempt.fail_later(error, final=final, known=known)
            outcome = _failed_outcome(attempt, error)
        else:
            outcome = await fail_park_or_verify(attempt, error, policy)
    except StoreError as store_error:
        attempt.abandon()
        attempt.engine.emit(
            "unknown", attempt.key, attempt.record, reason="failure not recorded", error=repr(store_error)
        )
        outcome = _failed_outcome(attempt, error)
    if not isinstance(error, Exception):
        raise error
    return outcome


async def fail_park_or_verify(attempt: Attempt, error: BaseException, policy: Policy) -> Outcome[Any]:
    final, known = classify(error, policy)
    if not known and policy.after_crash is AfterCrash.PARK:
        return await park(attempt, type(error).__qualname__, message_of(error), error)
    if not known and policy.after_crash is AfterCrash.VERIFY:
        return await verify_error(attempt, error, policy)
    answer = await attempt.fail(error, final=final, known=known)
    if answer.verdict is not Verdict.OK:
        attempt.engine.emit("lost", attempt.key, attempt.record, reason="failure refused")
    return _failed_outcome(attempt, error)


class SettledNothing(Exception):
    """Raised by work that reports that it settled nothing. It is not an error, so no policy setting applies to it."""


def classify(error: BaseException, policy: Policy) -> tuple[bool, bool]:
    """Return (final, known not to have happened).

    A timeout or a BaseException says nothing about the effect unless the policy names it explicitly.
    """
    if isinstance(error, SettledNothing):
        return False, False
    vague = TimeoutError if isinstance(error, TimeoutError) else None if isinstance(error, Exception) else BaseException
    final = _is_named(error, policy.final, vague)
    if not final and policy.retry is not None and vague is None:
        final = not isinstance(error, policy.retry)
    return final, final or _is_named(error, policy.not_applied, vague)


def _is_named(error: BaseException, types: tuple[type[BaseException], ...], vague: type[BaseException] | None) -> bool:
    if vague is TimeoutError:
        types = tuple(one for one in types if issubclass(one, TimeoutError))
    elif vague is BaseException:
        types = tuple(one for one in types if one is not BaseException)
    return isinstance(error, types)


async def verify_error(attempt: Attempt, error: BaseException, policy: Policy) -> Outcome[Any]:
    """Check with `find` whether the effect happened. With `verify_after`, leave that to the next claim."""
    if policy.verify_after:
        attempt.abandon()
        return _failed_outcome(attempt, error, retry_after=max(0.0, attempt.ends - attempt.engine.runtime.monotonic()))
    try:
        finding = await call_find(attempt)
    except BaseException as interrupt:
        if not (attempt.engine.runtime.supports_cancellation and isinstance(interrupt, GeneratorExit)):
            await attempt.expire_lease()  # the effect may have happened: the next claim calls `find` again
        raise
    if isinstance(finding, applied):
        return await settle_returned(attempt, finding.value, reason="verified")
    if finding is not_applied:
        await attempt.fail(error, final=False, known=True)
        return _failed_outcome(attempt, error)
    return await park(attempt, type(error).__qualname__, message_of(error), error)


async def call_find(attempt: Attempt) -> object:
    """Call the user's `find` and return its finding. An exception is returned: it means that `find` could not tell."""
    job = attempt.job
    find = job.policy.find
    if find is None:  # the record says verify, but this worker's policy has no `find`
        return inconclusive
    try:
        finding = find(*job.args, **job.kwargs)
        if hasattr(finding, "__await__"):
            finding = await (finding if attempt.engine.runtime.supports_cancellation else refuse_awaitable(finding))
    except Exception as error:  # noqa: BLE001 (see docstring)
        return error
    return finding


async def refuse_awaitable(finding: Any) -> object:
    """Return the error for a `find` that returned an awaitable in a sync call."""
    if isinstance(finding, CoroutineType):
        finding.close()
    return ConfigurationError("verify's find returned an awaitable, which a sync call cannot await")


async def park(attempt: Attempt, error_type: str, text: str, error: BaseException | None) -> Outcome[Any]:
    answer = await attempt.park(error_type, text)
    if answer.verdict is not Verdict.OK:
        attempt.engine.emit("lost", attempt.key, attempt.record, reason="parking refused")
    return Parked(
        key=attempt.key.text,
        reason=attempt.job.policy.reasons.parked,
        attempt=attempt.record.attempt,
        token=attempt.record.token,
        error_type=error_type,
        error=text,
        exception=error,
    )


def executed_outcome(attempt: Attempt, reason: str = "") -> Outcome[Any]:
    """Return the outcome of a claim whose result is recorded."""
    record = attempt.record
    return Executed(
        key=attempt.key.text,
        value=attempt.result,
        reason=reason or attempt.job.policy.reasons.executed,
        attempt=record.attempt,
        token=record.token,
    )


def _report_unknown(attempt: Attempt, value: Any, error: str) -> Outcome[Any]:
    attempt.abandon()
    attempt.engine.emit("unknown", attempt.key, attempt.record, error=error)
    return _unknown_outcome(attempt, value, lost=False)


def _unknown_outcome(attempt: Attempt, value: Any, *, lost: bool) -> Outcome[Any]:
    return Unknown(
        key=attempt.key.text,
        value=value,
        reason=attempt.job.policy.reasons.unknown,
        attempt=attempt.record.attempt,
        token=attempt.record.token,
        lost=lost,
    )


def _failed_outcome(attempt: Attempt, error: BaseException, retry_after: float | None = None) -> Outcome[Any]:
    record = attempt.record
    if retry_after is None and record.retry_at is not None:
        retry_after = max(0, record.retry_at - record.updated_at) / SECOND
    return Failed(
        key=attempt.key.text,
        reason=attempt.job.policy.reasons.failed,
        attempt=record.attempt,
        token=record.token,
        error_type=type(error).__qualname__,
        error=message_of(error),
        final=record.final,
        retry_after=retry_after,
        exception=error,
    )
