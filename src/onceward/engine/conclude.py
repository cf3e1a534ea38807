"""How work ends: decide what is recorded after it returned or raised, and which outcome its caller gets.

it returned ── completed ──→ Executed          no answer, or taken over ──→ Unknown
it raised   ── failed ──→ Failed               with `park` or `verify`, Parked if the effect is unknown
"""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from onceward.errors import ClaimError, ConfigurationError, StoreError
from onceward.protocol.capabilities import JoinedStore
from onceward.protocol.outcome import Executed, Failed, Outcome, Parked, Replayed, Unknown
from onceward.protocol.policy import SECOND, Policy, applied, inconclusive, not_applied
from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Answer, Verdict

from . import settle
from .attempt import LOST, RUNNING, SETTLED, SETTLING, UNPROTECTED, VERIFYING, Attempt
from .error_text import message_of
from .retry import settle_error_text

STOP_CHECK_INTERVAL = 0.5
"""Seconds between checks for a stopping client while `verify` waits."""


# ── the work returned ──


async def settle_returned(attempt: Attempt, value: Any, *, reason: str = "") -> Outcome[Any]:
    """Record the value that the handler returned, or that `verify` found."""
    attempt.result = value
    if not attempt.engine.rollout.enforces:
        attempt.hurry()  # in the mode observe, the store must not delay the call
    if attempt.canceller is not None:
        attempt.end(None)
    if attempt.state is SETTLED or attempt.state is UNPROTECTED:  # the handler completed its claim itself, or has none
        return executed_outcome(attempt)
    if attempt.state is LOST:  # the work itself detected it
        return _unknown_outcome(attempt, value, lost=True)
    if attempt.joined is not None:
        return await _settle_joined(attempt, attempt.joined, value)
    try:
        answer = await settle.record_result(attempt, value)
    except StoreError as error:
        return unconfirmed_outcome(attempt, value, error)
    if answer.verdict is Verdict.OK:
        return executed_outcome(attempt, reason)
    return completion_outcome(attempt, value, answer, reason)


def completion_outcome(attempt: Attempt, value: Any, answer: Answer, reason: str = "") -> Outcome[Any]:
    """Return the outcome for the store's answer to a completion."""
    match answer.verdict:
        case Verdict.OK:
            return executed_outcome(attempt, reason)
        case Verdict.CONFLICT:
            return _report_unknown(attempt, value, "completed before with another result")
        case Verdict.SKEW:
            return _report_unknown(attempt, value, "the record was rewritten by a newer Onceward")
        case _:
            attempt.engine.emit("lost", attempt.key, attempt.record, reason="result refused")
            return _unknown_outcome(attempt, value, lost=True)


def unconfirmed_outcome(attempt: Attempt, value: Any, error: BaseException) -> Outcome[Any]:
    """Return the outcome of work that is done but whose result the store did not confirm."""
    return _report_unknown(attempt, value, settle_error_text(attempt.engine, error), closed=attempt.engine.closed)


async def _settle_joined(attempt: Attempt, joined: JoinedStore, value: Any) -> Outcome[Any]:
    """Settle a claim whose result was written in the caller's transaction: it counts if that was committed."""
    if joined.is_open():
        late = ConfigurationError(
            "your transaction is still open at the end of the claim, so it is unknown whether it will be committed",
            key=attempt.key.text,
            hint=f"commit before the claim ends: `with once.claim(key) as claim, {joined.block}:`, in this order",
        )
        settle.fail_later(attempt, late, final=False, known=False)
        return _failed_outcome(attempt, late)
    try:
        done = await check_committed(attempt)
    except StoreError as error:
        return unconfirmed_outcome(attempt, value, error)
    if done is None:
        return _report_unknown(attempt, value, "forgotten or claimed again before the commit could be checked")
    if done:
        return executed_outcome(attempt)
    return await settle_raised(
        attempt, ClaimError("complete_in was called, but its transaction was rolled back", key=attempt.key.text)
    )


async def check_committed(attempt: Attempt) -> bool | None:
    """Return whether the caller's transaction was committed. None: unknown, because we no longer own the record.

    It completes even if the caller is cancelled.
    """
    (committed, answer), cancelled = await attempt.engine.shield(_read_after_commit(attempt))
    if cancelled is not None:
        raise cancelled
    record, own = answer.record, attempt.record
    if record is not None and record.token == own.token:
        committed = record.state is RecordState.COMPLETED
    elif record is not None and record.cycle == own.cycle and record.state is not RecordState.FREE:
        committed = False  # another worker took over, which is impossible once it is completed
    if committed:
        attempt.move(SETTLING)
        ours = record if record is not None and record.token == own.token else None
        settle.on_answer(attempt, Answer(Verdict.OK, ours, answer.now), RecordState.COMPLETED)
    return committed


async def _read_after_commit(attempt: Attempt) -> tuple[bool | None, Answer]:
    """Return whether the transaction was committed, if the store knows, and then the record.

    It waits until the transaction has really ended: the reply to its COMMIT may have been lost.
    """
    store, timeout = attempt.engine.store, attempt.job.policy.call_timeout
    number = attempt.joined.number if attempt.joined is not None else None
    committed = None
    if number is not None and store.commits is not None:
        committed = await store.commits.committed(number, timeout=timeout)
    return committed, (await store.read([attempt.key.id], timeout=timeout))[0]


# ── the work raised ──


def is_closing(error: BaseException) -> bool:
    """Return whether the coroutine that caught this error is being closed, so that it can no longer await anything.

    Python raises the GeneratorExit of `close()` in each coroutine anew, so its traceback ends in the one that awaits.
    If an awaited function raised it, the traceback continues into that function.
    """
    return isinstance(error, GeneratorExit) and (error.__traceback__ is None or error.__traceback__.tb_next is None)


async def settle_raised(attempt: Attempt, error: BaseException, *, closing: bool = True) -> Outcome[Any]:
    """Settle a claim whose handler raised. The policy declares which errors mean that the effect did not happen.

    `closing`: an async handler's GeneratorExit means that the coroutine is being closed. Only the code that awaits the
    handler itself can tell (`is_closing`): in a `with` block, both look the same.
    """
    if attempt.state is UNPROTECTED:
        if not isinstance(error, Exception):
            raise error
        return _failed_outcome(attempt, error)
    if attempt.job.is_async and isinstance(error, GeneratorExit) and closing:
        attempt.abandon()
        raise error  # a coroutine that is being closed cannot wait for the store: the lease expires
    if attempt.end(error):
        if attempt.state is RUNNING:  # otherwise the work has seen it itself
            attempt.move(LOST)
        return _unknown_outcome(attempt, None, lost=True)
    if not isinstance(error, Exception) or not attempt.engine.rollout.enforces:
        attempt.hurry()  # the caller was cancelled or interrupted: do not keep it for the whole `settle_timeout`
    try:
        outcome = await _record_error(attempt, error)
    except StoreError as store_error:
        attempt.abandon()
        why = settle_error_text(attempt.engine, store_error)
        attempt.engine.emit("unknown", attempt.key, attempt.record, reason="failure not recorded", error=why)
        outcome = _failed_outcome(attempt, error)
    if not isinstance(error, Exception):
        raise error
    return outcome


async def _record_error(attempt: Attempt, error: BaseException) -> Outcome[Any]:
    """Record the error as the policy declares, unless the claim is already settled or can no longer be settled."""
    joined, policy = attempt.joined, attempt.job.policy
    is_open = joined is not None and joined.is_open()
    if joined is not None and attempt.state is RUNNING and not is_open:
        await check_committed(attempt)
    if attempt.lost and attempt.state is RUNNING:
        attempt.move(LOST)
    if attempt.is_ended or attempt.state is SETTLING:  # settled, or another call settles it now
        return _failed_outcome(attempt, error)
    final, known = classify(error, policy)
    if is_open:
        settle.fail_later(attempt, error, final=final, known=known)
        return _failed_outcome(attempt, error)
    known_or_observed = known or not attempt.engine.rollout.enforces
    if not known_or_observed and policy.after_crash is AfterCrash.PARK:
        return await park(attempt, type(error).__qualname__, message_of(error), error)
    if not known_or_observed and policy.after_crash is AfterCrash.VERIFY:
        return await _verify_error(attempt, error, policy)
    answer = await settle.fail(attempt, error, final=final, known=known)
    if answer.verdict is not Verdict.OK:
        attempt.engine.emit("lost", attempt.key, attempt.record, reason="failure refused")
    return _failed_outcome(attempt, error)


class SettledNothing(Exception):
    """Raised by work to report that it settled nothing. It is not an error, so no policy setting applies to it."""


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


async def park(attempt: Attempt, error_type: str, text: str, error: BaseException | None) -> Outcome[Any]:
    """Park the record: an operator must decide whether the effect has happened."""
    answer = await settle.park(attempt, error_type, text, error)
    if answer.verdict is not Verdict.OK:
        attempt.engine.emit("lost", attempt.key, attempt.record, reason="parking refused")
        return _unknown_outcome(attempt, None, lost=True) if error is None else _failed_outcome(attempt, error)
    return Parked(
        key=attempt.key.text,
        reason=attempt.job.policy.reasons.parked,
        attempt=attempt.record.attempt,
        token=attempt.record.token,
        error_type=error_type,
        error=text,
        exception=error,
    )


# ── verify ──


async def verify_first(attempt: Attempt) -> Outcome[Any] | None:
    """Check with `find` whether the effect of an earlier, crashed attempt has happened. None: it has not, so run."""
    attempt.move(VERIFYING)
    await _wait_before_find(attempt)
    finding = await _call_find(attempt)
    if isinstance(finding, applied):
        outcome = await settle_returned(attempt, finding.value, reason="verified")
        if not isinstance(outcome, Executed):
            return outcome
        record = attempt.record
        return Replayed(
            key=outcome.key, value=finding.value, reason="verified", attempt=record.attempt, token=record.token
        )
    if finding is not not_applied:
        why = "verify could not tell" if finding is inconclusive else f"verify answered {type(finding).__qualname__}"
        return await park(attempt, "Unverified", why, finding if isinstance(finding, Exception) else None)
    limit = attempt.job.policy.max_attempts
    if limit and attempt.record.attempt > limit:
        error = RuntimeError(f"attempt {attempt.record.attempt} would be more than the {limit} allowed")
        await settle.fail(attempt, error, final=True, known=True, error_type="AttemptsUsedUp")
        return Failed(
            key=attempt.key.text,
            reason=attempt.job.policy.reasons.failed,
            attempt=attempt.record.attempt - 1,
            error_type="AttemptsUsedUp",
            error=str(error),
            final=True,
        )
    return None


async def _wait_before_find(attempt: Attempt) -> None:
    """Wait until no earlier attempt can still take effect. The heartbeat keeps the key meanwhile."""
    engine = attempt.engine
    left = attempt.job.policy.wait_before_find / SECOND
    until = engine.runtime.monotonic() + left
    while left > 0:
        if engine.stopping:
            engine.refuse_to_claim()
        await engine.runtime.sleep(min(left, STOP_CHECK_INTERVAL))
        left = until - engine.runtime.monotonic()


async def _verify_error(attempt: Attempt, error: BaseException, policy: Policy) -> Outcome[Any]:
    """Check with `find` whether the effect happened. With `verify_after`, leave that to the next claim."""
    if policy.verify_after:
        attempt.abandon()
        return _failed_outcome(attempt, error, retry_after=max(0.0, attempt.ends - attempt.engine.runtime.monotonic()))
    attempt.move(VERIFYING)
    try:
        finding = await _call_find(attempt)
    except BaseException as interrupt:
        if attempt.engine.runtime.supports_cancellation and isinstance(interrupt, GeneratorExit):
            attempt.abandon()  # a coroutine that is being closed cannot wait for the store: the lease expires
        else:
            await settle.expire_lease(attempt)  # the effect may have happened: the next claim calls `find` again
        raise
    if isinstance(finding, applied):
        return await settle_returned(attempt, finding.value, reason="verified")
    if finding is not_applied:
        await settle.fail(attempt, error, final=False, known=True)
        return _failed_outcome(attempt, error)
    return await park(attempt, type(error).__qualname__, message_of(error), error)


async def _call_find(attempt: Attempt) -> object:
    """Call the user's `find` and return its finding. An exception is returned: it means that `find` could not tell."""
    job = attempt.job
    find = job.policy.find
    if find is None:  # the record says verify, but this worker's policy has no `find`
        return inconclusive
    try:
        finding = find(*job.args, **job.kwargs)
        if hasattr(finding, "__await__"):
            if not attempt.engine.runtime.supports_cancellation:
                if isinstance(finding, CoroutineType):
                    finding.close()
                return ConfigurationError("verify's find returned an awaitable, which a sync call cannot await")
            finding = await finding
    except Exception as error:  # noqa: BLE001 (see docstring)
        return error
    return finding


# ── outcomes ──


def executed_outcome(attempt: Attempt, reason: str = "") -> Outcome[Any]:
    """Return the outcome of work that is done and recorded, or that is done without a claim."""
    if attempt.state is UNPROTECTED:
        return Executed(key=attempt.key.text, value=attempt.result, reason=_unprotected_reason(attempt))
    record = attempt.record
    return Executed(
        key=attempt.key.text,
        value=attempt.result,
        reason=reason or attempt.job.policy.reasons.executed,
        attempt=record.attempt,
        token=record.token,
    )


def _unprotected_reason(attempt: Attempt) -> str:
    return "disabled" if attempt.unprotected == "disabled" else "unprotected"


def _report_unknown(attempt: Attempt, value: Any, error: str, *, closed: bool = False) -> Outcome[Any]:
    attempt.abandon()
    attempt.engine.emit("unknown", attempt.key, attempt.record, error=error)
    return _unknown_outcome(attempt, value, lost=False, closed=closed)


def _unknown_outcome(attempt: Attempt, value: Any, *, lost: bool, closed: bool = False) -> Outcome[Any]:
    if not attempt.engine.rollout.enforces:  # the caller gets what the work returned
        return executed_outcome(attempt)
    return Unknown(
        key=attempt.key.text,
        value=value,
        reason=attempt.job.policy.reasons.unknown,
        attempt=attempt.record.attempt,
        token=attempt.record.token,
        lost=lost,
        closed=closed,
    )


def _failed_outcome(attempt: Attempt, error: BaseException, retry_after: float | None = None) -> Outcome[Any]:
    if attempt.state is UNPROTECTED:
        return Failed(
            key=attempt.key.text,
            reason=_unprotected_reason(attempt),
            error_type=type(error).__qualname__,
            error=message_of(error),
            exception=error,
        )
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
