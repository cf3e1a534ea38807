"""The main flow: claim → run → record, or replay.

    acquire the key ── not ours ──→ Replayed, Running, Mismatch, Failed, Parked
        │ ours
    ask first? ── the effect is there already ──→ Replayed        (only after a crash, under verify)
        │ no
    run the handler ── it raised ──→ Failed, or Parked where nobody can know
        │ it returned
    record the result ── no answer, or replaced ──→ Unknown
        │
    Executed

The handler's own exceptions travel as values until the face raises them, so that even StopIteration survives.
"""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from onceward.errors import ClaimError, ConfigurationError, StoreError, VersionSkew
from onceward.model.outcome import Executed, Failed, Outcome, Parked, Replayed, Unknown
from onceward.model.policy import SECOND, Policy, applied, inconclusive, not_applied
from onceward.model.record import AfterCrash, State, Verdict
from onceward.ports import JoinedStore

from . import switch
from .acquire import acquire
from .engine import Engine
from .held import Held, message_of
from .job import NO_KEY, Job
from .unclaimed import Unclaimed


async def execute(engine: Engine, job: Job) -> Outcome[Any]:
    """Do the job once, or say why it was not done now."""
    if switch.off:
        return await disabled(engine, job)
    if job.key is NO_KEY:
        return await unprotected(engine, job, "no key")
    try:
        found = await acquire(engine, job)
    except VersionSkew:
        raise
    except StoreError as error:
        if job.policy.on_store_down != "run":
            raise
        return await unprotected(engine, job, f"store down: {message_of(error)}")
    if isinstance(found, Held):
        return await perform(found)
    return found


async def perform(held: Held) -> Outcome[Any]:
    """Run the handler of a claim that we hold, and settle it, whatever happens."""
    with held:
        if held.record.ask_first:
            settled = await ask_first(held)
            if settled is not None:
                return settled
        job = held.job
        held.begin()
        try:
            value = job.call(*job.args, **job.kwargs)
            if job.awaits or type(value) is CoroutineType:
                value = await awaited(job, value)
        except BaseException as error:  # noqa: BLE001 (whatever was raised, the claim must end)
            return await after_error(held, error)
        return await after_value(held, value)


async def awaited(job: Job, value: Any) -> Any:
    """What the handler's awaitable gives. A blocking call cannot await, and a coroutine not begun is no result."""
    if job.awaits:
        return await value if hasattr(value, "__await__") else value
    value.close()
    raise ConfigurationError(
        "it returned a coroutine, which a blocking call cannot await; nothing of it was begun",
        key=job.key.text,
        hint="use AsyncOnce, or once.aio",
    )


async def after_value(held: Held, value: Any, *, reason: str = "executed") -> Outcome[Any]:
    """The handler returned (or was found to have done its work): record it."""
    held.end(None)
    if held.settled is not None:  # the handler completed its claim itself
        return _executed(held, value)
    if held.joined is not None:
        return await after_commit(held, held.joined, value)
    try:
        answer = await held.settle(held.completion(value), State.COMPLETED)
    except StoreError as error:
        return _unknown(held, value, repr(error))
    match answer.verdict:
        case Verdict.OK:
            return _executed(held, value, reason)
        case Verdict.CONFLICT:
            return _unknown(held, value, "completed before with another result")
        case Verdict.SKEW:
            return _unknown(held, value, "the record was rewritten by a newer Onceward")
        case _:
            held.engine.tell("lost", held.key, held.record, reason="result refused")
            return Unknown(
                key=held.key.text, value=value, attempt=held.record.attempt, token=held.record.token, lost=True
            )


async def after_commit(held: Held, joined: JoinedStore, value: Any) -> Outcome[Any]:
    """The result was written inside the caller's transaction: it counts if that was committed."""
    if joined.is_open():  # and keeps us from writing anything: the lease has to lapse
        held.engine.keeper.drop(held.hold)
        late = ConfigurationError(
            "your transaction is still open where the claim ends, so nobody can tell whether it will be committed",
            key=held.key.text,
            hint="commit before: `with once.claim(key) as claim, connection:`, in this order",
        )
        return _failed(held, late)
    try:
        done = await committed(held)
    except StoreError as error:
        return _unknown(held, value, repr(error))
    if done:
        return _executed(held, value)
    return await after_error(
        held, ClaimError("complete_in was called, but its transaction was rolled back", key=held.key.text)
    )


async def committed(held: Held) -> bool:
    answer = (await held.engine.store.read([held.key.id], timeout=held.job.policy.call_timeout))[0]
    record = answer.record
    if record is None or record.token != held.record.token or record.state is not State.COMPLETED:
        return False
    held.settled, held.record = State.COMPLETED, record
    held.engine.keeper.drop(held.hold)
    return True


async def after_error(held: Held, error: BaseException) -> Outcome[Any]:
    """The handler raised. What that means for the effect is declared; unless declared it is unknown."""
    policy = held.job.policy
    if held.job.awaits and isinstance(error, GeneratorExit):
        raise error  # a coroutine that is being closed cannot wait for the store: the lease lapses
    if held.end(error):
        return Unknown(key=held.key.text, attempt=held.record.attempt, token=held.record.token, lost=True)
    try:
        undecided = held.joined is not None and held.joined.is_open()
        if held.joined is not None and held.settled is None and not undecided:
            await committed(held)
        if held.settled is not None or held.hold.lost or held.unconfirmed or undecided:
            held.engine.keeper.drop(held.hold)
            outcome = _failed(held, error)
        else:
            outcome = await settle_error(held, error, policy)
    except StoreError as trouble:
        held.engine.keeper.drop(held.hold)
        held.engine.tell("unknown", held.key, held.record, reason="failure not recorded", error=repr(trouble))
        outcome = _failed(held, error)
    if not isinstance(error, Exception):
        raise error
    return outcome


async def settle_error(held: Held, error: BaseException, policy: Policy) -> Outcome[Any]:
    final, known = classify(error, policy)
    if not known and policy.after_crash is AfterCrash.PARK:
        return await park(held, type(error).__qualname__, message_of(error), error)
    if not known and policy.after_crash is AfterCrash.VERIFY:
        return await verify_error(held, error, policy)
    answer = await held.fail(error, final=final, known=known)
    if answer.verdict is Verdict.OK:
        held.engine.tell(
            "failed", held.key, answer.record, reason="final" if final else "", error=type(error).__qualname__
        )
    else:
        held.engine.tell("lost", held.key, held.record, reason="failure refused")
    return _failed(held, error)


def classify(error: BaseException, policy: Policy) -> tuple[bool, bool]:
    """(final, known not to have happened). A timeout or a BaseException says nothing unless it is named itself."""
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


async def verify_error(held: Held, error: BaseException, policy: Policy) -> Outcome[Any]:
    """Under verify an unknown outcome is looked up; by the next claimant if the effect may still be under way."""
    if policy.verify_after:
        held.engine.keeper.drop(held.hold)
        return _failed(held, error, retry_after=max(0.0, held.hold.ends - held.engine.world.monotonic()))
    finding = await look(held)
    if isinstance(finding, applied):
        return await after_value(held, finding.value, reason="verified")
    if finding is not_applied:
        answer = await held.fail(error, final=False, known=True)
        held.engine.tell("failed", held.key, answer.record, error=type(error).__qualname__)
        return _failed(held, error)
    return await park(held, type(error).__qualname__, message_of(error), error)


async def ask_first(held: Held) -> Outcome[Any] | None:
    """An earlier attempt fell silent: has its effect happened? None means that it has not, so run."""
    finding = await look(held)
    if isinstance(finding, applied):
        outcome = await after_value(held, finding.value, reason="verified")
        if not isinstance(outcome, Executed):
            return outcome
        record = held.record
        return Replayed(
            key=outcome.key, value=finding.value, reason="verified", attempt=record.attempt, token=record.token
        )
    if finding is not not_applied:
        why = "verify could not tell" if finding is inconclusive else f"verify answered {type(finding).__qualname__}"
        return await park(held, "Unverified", why, finding if isinstance(finding, Exception) else None)
    limit = held.job.policy.max_attempts
    if limit and held.record.attempt > limit:
        error = RuntimeError(f"attempt {held.record.attempt} would be more than the {limit} allowed")
        await held.fail(error, final=True, known=True)
        return Failed(
            key=held.key.text,
            attempt=held.record.attempt - 1,
            error_type="AttemptsUsedUp",
            error=str(error),
            final=True,
        )
    return None


async def look(held: Held) -> object:
    """Call the user's `find`. What it raises is its answer: it could not tell."""
    job = held.job
    find = job.policy.find
    if find is None:  # the record says verify, but this claimant has nothing to ask with
        return inconclusive
    try:
        finding = find(*job.args, **job.kwargs)
        if hasattr(finding, "__await__"):
            finding = await finding
    except Exception as error:  # noqa: BLE001 (see above)
        return error
    return finding


async def park(held: Held, error_type: str, text: str, error: BaseException | None) -> Outcome[Any]:
    answer = await held.park(error_type, text)
    if answer.verdict is Verdict.OK:
        held.engine.tell("parked", held.key, answer.record, error=error_type)
    else:
        held.engine.tell("lost", held.key, held.record, reason="parking refused")
    return Parked(
        key=held.key.text,
        attempt=held.record.attempt,
        token=held.record.token,
        error_type=error_type,
        error=text,
        exception=error,
    )


async def unprotected(engine: Engine, job: Job, reason: str) -> Outcome[Any]:
    """Run without a claim, because the user declared so. Loud: somebody should look at each of these."""
    engine.tell("unprotected", job.key, reason=reason)
    return await unguarded(job, "unprotected")


async def disabled(engine: Engine, job: Job) -> Outcome[Any]:
    """The test mode: as if it were not decorated, but for a claim to look at."""
    with Unclaimed(engine, job):
        return await unguarded(job, "disabled")


async def unguarded(job: Job, reason: str) -> Outcome[Any]:
    try:
        value = job.call(*job.args, **job.kwargs)
        if job.awaits or type(value) is CoroutineType:
            value = await awaited(job, value)
    except Exception as error:  # noqa: BLE001 (travels as a value like every handler's exception)
        return Failed(
            key=job.key.text,
            reason=reason,
            error_type=type(error).__qualname__,
            error=message_of(error),
            exception=error,
        )
    return Executed(key=job.key.text, value=value, reason=reason)


def _executed(held: Held, value: Any, reason: str = "executed") -> Outcome[Any]:
    held.engine.tell("completed", held.key, held.record)
    return Executed(key=held.key.text, value=value, reason=reason, attempt=held.record.attempt, token=held.record.token)


def _unknown(held: Held, value: Any, error: str) -> Outcome[Any]:
    held.engine.keeper.drop(held.hold)
    held.engine.tell("unknown", held.key, held.record, error=error)
    return Unknown(key=held.key.text, value=value, attempt=held.record.attempt, token=held.record.token)


def _failed(held: Held, error: BaseException, retry_after: float | None = None) -> Outcome[Any]:
    record = held.record
    if retry_after is None and record.retry_at is not None:
        retry_after = max(0, record.retry_at - record.updated_at) / SECOND
    return Failed(
        key=held.key.text,
        attempt=record.attempt,
        token=record.token,
        error_type=type(error).__qualname__,
        error=message_of(error),
        final=record.final,
        retry_after=retry_after,
        exception=error,
    )
