"""How a claim ends: with the result, with a failure, parked where nobody can know, or unknown."""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from onceward.errors import ClaimError, ConfigurationError, StoreError
from onceward.keys.weight import is_light
from onceward.protocol.capabilities import JoinedStore, RemembersCommits
from onceward.protocol.outcome import Executed, Failed, Outcome, Parked, Unknown
from onceward.protocol.policy import SECOND, Policy, applied, inconclusive, not_applied
from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Answer, Verdict

from .attempt import Attempt
from .error_text import message_of

OK, COMPLETED = Verdict.OK, RecordState.COMPLETED


def record_at_once(held: Attempt, value: Any) -> Attempt | Outcome[Any] | None:
    """The handler returned: record it, where nothing has to wait for that; else None. The claim, if all is well."""
    held.result = value
    answer_to = held.engine.answer
    if answer_to is None or not held.straight or not (value is None or is_light(value)):
        return None
    held.settling = True  # interrupted: whoever mends it sends the same once more
    try:
        answer = answer_to(held.settlement(held.job.codec.encode(value, held.key.id)))
        held.settled_as(answer, COMPLETED)
    except StoreError as error:
        return unconfirmed(held, value, error)
    return held if answer.verdict is OK else recorded(held, value, answer)


async def after_value(held: Attempt, value: Any, *, reason: str = "") -> Outcome[Any]:
    """The handler returned (or was found to have done its work): record it."""
    held.result = value
    if held.job.policy.on_lost == "cancel":
        held.end(None)
    if held.settled is not None:  # the handler completed its claim itself
        return executed(held)
    if held.joined is not None:
        return await after_commit(held, held.joined, value)
    try:
        answer = await held.record_result(value)
    except StoreError as error:
        return unconfirmed(held, value, error)
    return recorded(held, value, answer, reason)


def unconfirmed(held: Attempt, value: Any, error: StoreError) -> Outcome[Any]:
    """The work is done, but the store did not say that it has its result."""
    return _unknown(held, value, repr(error))


def recorded(held: Attempt, value: Any, answer: Answer, reason: str = "") -> Outcome[Any]:
    """What the store's answer to a completion means."""
    if answer.verdict is OK:
        return executed(held, reason)
    match answer.verdict:
        case Verdict.CONFLICT:
            return _unknown(held, value, "completed before with another result")
        case Verdict.SKEW:
            return _unknown(held, value, "the record was rewritten by a newer Onceward")
        case _:
            held.engine.tell("lost", held.key, held.record, reason="result refused")
            return _unconfirmed(held, value, lost=True)


async def after_commit(held: Attempt, joined: JoinedStore, value: Any) -> Outcome[Any]:
    """The result was written inside the caller's transaction: it counts if that was committed."""
    if joined.is_open():
        late = ConfigurationError(
            "your transaction is still open where the claim ends, so nobody can tell whether it will be committed",
            key=held.key.text,
            hint=f"commit before: `with once.claim(key) as claim, {joined.block}:`, in this order",
        )
        held.fail_later(late, final=False, known=False)
        return _failed(held, late)
    try:
        done = await committed(held)
    except StoreError as error:
        return _unknown(held, value, repr(error))
    if done:
        return executed(held)
    return await after_error(
        held, ClaimError("complete_in was called, but its transaction was rolled back", key=held.key.text)
    )


async def committed(held: Attempt) -> bool:
    """Whether the caller's transaction was; found out even if the caller is cancelled meanwhile."""
    answers, cancelled = await held.engine.finish(_once_decided(held))
    if cancelled is not None:
        raise cancelled
    record = answers[0].record
    if record is None or record.token != held.record.token or record.state is not RecordState.COMPLETED:
        return False
    held.settled, held.record = RecordState.COMPLETED, record
    held.let_lapse()
    held.engine.tell("completed", held.key, record)
    return True


async def _once_decided(held: Attempt) -> list[Answer]:
    """The record, not before the transaction has really ended: the answer to a COMMIT may be lost on its way."""
    store, timeout = held.engine.store, held.job.policy.call_timeout
    number = held.joined.number if held.joined is not None else None
    if number is not None and isinstance(store, RemembersCommits):
        await store.committed(number, timeout=timeout)
    return await store.read([held.key.id], timeout=timeout)


async def after_error(held: Attempt, error: BaseException) -> Outcome[Any]:
    """The handler raised. What that means for the effect is declared; unless declared it is unknown."""
    policy = held.job.policy
    if held.job.awaits and isinstance(error, GeneratorExit):
        raise error  # a coroutine that is being closed cannot wait for the store: the lease lapses
    if held.end(error):
        return _unconfirmed(held, None, lost=True)
    try:
        undecided = held.joined is not None and held.joined.is_open()
        if held.joined is not None and held.settled is None and not undecided:
            await committed(held)
        if held.settled is not None or held.lost or held.unconfirmed:
            held.let_lapse()
            outcome = _failed(held, error)
        elif undecided:
            final, known = classify(error, policy)
            held.fail_later(error, final=final, known=known)
            outcome = _failed(held, error)
        else:
            outcome = await settle_error(held, error, policy)
    except StoreError as trouble:
        held.let_lapse()
        held.engine.tell("unknown", held.key, held.record, reason="failure not recorded", error=repr(trouble))
        outcome = _failed(held, error)
    if not isinstance(error, Exception):
        raise error
    return outcome


async def settle_error(held: Attempt, error: BaseException, policy: Policy) -> Outcome[Any]:
    final, known = classify(error, policy)
    if not known and policy.after_crash is AfterCrash.PARK:
        return await park(held, type(error).__qualname__, message_of(error), error)
    if not known and policy.after_crash is AfterCrash.VERIFY:
        return await verify_error(held, error, policy)
    answer = await held.fail(error, final=final, known=known)
    if answer.verdict is not Verdict.OK:
        held.engine.tell("lost", held.key, held.record, reason="failure refused")
    return _failed(held, error)


class SettledNothing(Exception):
    """The work has said that it settled nothing: no error, so that nothing is declared of it."""


def classify(error: BaseException, policy: Policy) -> tuple[bool, bool]:
    """(final, known not to have happened). A timeout or a BaseException says nothing unless it is named itself."""
    if isinstance(error, SettledNothing):
        return False, False
    vague = TimeoutError if isinstance(error, TimeoutError) else None if isinstance(error, Exception) else BaseException
    final = _named(error, policy.final, vague)
    if not final and policy.retry is not None and vague is None:
        final = not isinstance(error, policy.retry)
    return final, final or _named(error, policy.not_applied, vague)


def _named(error: BaseException, types: tuple[type[BaseException], ...], vague: type[BaseException] | None) -> bool:
    if vague is TimeoutError:
        types = tuple(one for one in types if issubclass(one, TimeoutError))
    elif vague is BaseException:
        types = tuple(one for one in types if one is not BaseException)
    return isinstance(error, types)


async def verify_error(held: Attempt, error: BaseException, policy: Policy) -> Outcome[Any]:
    """Under verify an unknown outcome is looked up; by the next claimant if the effect may still be under way."""
    if policy.verify_after:
        held.let_lapse()
        return _failed(held, error, retry_after=max(0.0, held.ends - held.engine.world.monotonic()))
    try:
        finding = await look(held)
    except BaseException as interrupt:
        if not (held.engine.world.cancels and isinstance(interrupt, GeneratorExit)):
            await held.lapse()  # the effect may have happened: the next claimant asks again
        raise
    if isinstance(finding, applied):
        return await after_value(held, finding.value, reason="verified")
    if finding is not_applied:
        await held.fail(error, final=False, known=True)
        return _failed(held, error)
    return await park(held, type(error).__qualname__, message_of(error), error)


async def look(held: Attempt) -> object:
    """Call the user's `find`. What it raises is its answer: it could not tell."""
    job = held.job
    find = job.policy.find
    if find is None:  # the record says verify, but this claimant has nothing to ask with
        return inconclusive
    try:
        finding = find(*job.args, **job.kwargs)
        if hasattr(finding, "__await__"):
            finding = await (finding if held.engine.world.cancels else unawaitable(finding))
    except Exception as error:  # noqa: BLE001 (see above)
        return error
    return finding


async def unawaitable(finding: Any) -> object:
    """A blocking call cannot await what its `find` gave, so that is no answer."""
    if isinstance(finding, CoroutineType):
        finding.close()
    return ConfigurationError("verify's find returned an awaitable, which a blocking call cannot await")


async def park(held: Attempt, error_type: str, text: str, error: BaseException | None) -> Outcome[Any]:
    answer = await held.park(error_type, text)
    if answer.verdict is not Verdict.OK:
        held.engine.tell("lost", held.key, held.record, reason="parking refused")
    return Parked(
        key=held.key.text,
        reason=held.job.policy.reasons.parked,
        attempt=held.record.attempt,
        token=held.record.token,
        error_type=error_type,
        error=text,
        exception=error,
    )


def executed(held: Attempt, reason: str = "") -> Outcome[Any]:
    """The outcome of a claim whose result is recorded."""
    record = held.record
    return Executed(
        key=held.key.text,
        value=held.result,
        reason=reason or held.job.policy.reasons.executed,
        attempt=record.attempt,
        token=record.token,
    )


def _unknown(held: Attempt, value: Any, error: str) -> Outcome[Any]:
    held.let_lapse()
    held.engine.tell("unknown", held.key, held.record, error=error)
    return _unconfirmed(held, value, lost=False)


def _unconfirmed(held: Attempt, value: Any, *, lost: bool) -> Outcome[Any]:
    return Unknown(
        key=held.key.text,
        value=value,
        reason=held.job.policy.reasons.unknown,
        attempt=held.record.attempt,
        token=held.record.token,
        lost=lost,
    )


def _failed(held: Attempt, error: BaseException, retry_after: float | None = None) -> Outcome[Any]:
    record = held.record
    if retry_after is None and record.retry_at is not None:
        retry_after = max(0, record.retry_at - record.updated_at) / SECOND
    return Failed(
        key=held.key.text,
        reason=held.job.policy.reasons.failed,
        attempt=record.attempt,
        token=record.token,
        error_type=type(error).__qualname__,
        error=message_of(error),
        final=record.final,
        retry_after=retry_after,
        exception=error,
    )
