"""The one flow of all work: claim → run → record, or replay.

    look up the key ── completed ──→ Replayed
        │ not completed
    claim the key ── refused ──→ Replayed, Running, Mismatch, Failed, Parked
        │ owned                                    (or unprotected, as declared: store down, no key, test mode,
        │                                           mode off; in observe mode, also instead of refused)
    verify first? ── the effect has happened ──→ Replayed        (only after a crash, with `verify`;
        │                                                         inconclusive: Parked, no attempts left: Failed)
        │ no
    run the handler ── it raised ──→ Failed; with `park` or `verify`, Parked if the effect is unknown
        │ it returned
    record the result ── no answer, or taken over ──→ Unknown
        │
    Executed

A decorated function, `run` and `map` call `execute`. A `with` block, a lock, an HTTP request, a queue delivery, a saga
and a slot of a schedule do the same steps themselves, because their work is called in another way: `claim` or
`claim_one`, then their work, then `conclude.settle_returned` or `settle_raised`. After an exception they call
`abandon`.

The engine passes the handler's exceptions as values until the client raises them, because a StopIteration raised
through a coroutine would become a RuntimeError.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CoroutineType
from typing import Any, TypeVar

from onceward.errors import NOT_DOWN, ConfigurationError, ResultError, StoreError
from onceward.keys.small import SMALL_BYTES
from onceward.protocol.outcome import Executed, Outcome, Replayed, Running
from onceward.protocol.policy import Policy
from onceward.results.codec import unpacked_size

from . import switch
from .abandon import abandon
from .acquire import Refusal, acquire, emit_no_answer, reentry_error, wait_for_key
from .attempt import NEW, REFUSED, UNKNOWN, UNPROTECTED, WAITING, Attempt
from .conclude import is_closing, settle_raised, settle_returned, verify_first
from .engine import Engine
from .error_text import message_of
from .job import NO_KEY, Job
from .refusal import replayed_outcome
from .rollout import run_observed

T = TypeVar("T")

MODE_OFF = "mode off"


async def execute(engine: Engine, job: Job) -> Outcome[Any]:
    """Run the job once, or return the outcome that explains why it did not run."""
    transactions = engine.open_transactions
    if transactions.finders and is_protected(engine, job):
        connection = transactions.to_join(engine, job)
        if connection is not None:
            from .within import execute_in  # imported here: few programs need it

            return await execute_in(engine, connection, job)
    replayed = lookup_outcome(engine, job)
    if replayed is not None:
        return replayed
    attempt = Attempt(engine, job)
    try:
        refused = await claim_one(attempt)
        return await perform(attempt) if refused is None else refused
    except BaseException as error:
        await abandon([attempt], error)
        raise


def lookup_outcome(engine: Engine, job: Job) -> Replayed[Any] | None:
    """Return the outcome of a completed key. None: the key must be claimed, or a lookup would block the event loop.

    A lookup writes nothing. If a sliding window must be extended, the store finds nothing, and the claim extends it.
    """
    key, look = job.key, engine.lookup
    if look is None or switch.off or key is NO_KEY or not engine.rollout.enforces:
        return None
    engine.runtime.check()  # before a lookup that may block
    if engine.stopping or not engine.prepared:  # leave it to the claim, which raises or opens the store
        return None
    try:
        done = look(key.id, job.fingerprint)
    except StoreError:  # the claim gets the same error, and handles it
        return None
    if done is None:
        return None
    data = done.result
    if not job.policy.store_result:
        value = None
    elif data is None or (engine.runtime.supports_cancellation and unpacked_size(data) > SMALL_BYTES):
        return None  # the claim says why the result was not stored, or decodes a large one in a worker thread
    else:
        try:
            value = job.codec.decode(data, key.id, done.cycle)
        except ResultError:  # the claim gets the same error, and says what is wrong
            return None
    if engine.wants("skipped"):
        engine.emit_wanted("skipped", key, done, reason=job.policy.reasons.done)
    if engine.history is not None and engine.history.all:
        engine.history.replayed(key.id, done)
    return replayed_outcome(job, done, value)


async def claim_one(attempt: Attempt) -> Outcome[Any] | None:
    """Claim the key, and wait for it if declared. Return why it was refused. None: it is OWNED, or UNPROTECTED."""
    [refusal] = await claim(attempt.engine, [attempt])
    if attempt.state is WAITING:
        refusal = await wait_for_key(attempt)
    if isinstance(refusal, Exception):
        raise refusal
    return refusal


async def claim(engine: Engine, attempts: Sequence[Attempt], *, may_wait: bool = True) -> list[Refusal]:
    """Claim the keys in one call. An attempt without a refusal is OWNED, WAITING (if it may), or UNPROTECTED.

    This function decides whether work runs without a claim. If the store is down and the policy does not say `run`,
    it raises the store's error. If a record is damaged, RecordBroken is the refusal of its attempt. Either every job
    has a key, or none has (NO_KEY).

    Once the store has answered that another worker runs the key, a later outage always raises an error: running
    unprotected would be a second run.
    """
    if switch.off or attempts[0].key is NO_KEY:
        return run_unprotected(attempts, "disabled" if switch.off else "no key")
    if engine.rollout.mode == "off":
        return run_unprotected(attempts, MODE_OFF)
    observes = not engine.rollout.enforces
    if engine.open_transactions.finders:
        for one in attempts:
            engine.open_transactions.check_claim(engine, one.job)
    engine.claims_in_flight.add(id(attempts))  # before checking whether this client is stopping
    try:
        engine.runtime.check()
        if engine.stopping or not engine.prepared:
            await engine.ready()
        refusals = await acquire(engine, attempts, may_wait=may_wait and not observes)
        if not observes:
            return refusals
        for index, one in enumerate(attempts):
            refusal = refusals[index]
            if isinstance(refusal, StoreError) and one.state is UNKNOWN:
                [refusals[index]] = without_store(engine, [one], refusal)
        return run_observed(attempts, refusals)
    except StoreError as error:
        return without_store(engine, attempts, error)
    finally:
        engine.claims_in_flight.discard(id(attempts))


def without_store(engine: Engine, attempts: Sequence[Attempt], error: StoreError) -> list[Refusal]:
    """Let the work run without a claim if its policy says so, or in observe mode. Otherwise raise the error."""
    error.with_key(attempts[0].key.text)
    for one in attempts:
        if one.state is NEW:  # the store could not be opened
            emit_no_answer(engine, one.key, error)
    reason = f"store down: {message_of(error)}"
    if not engine.rollout.enforces:
        return run_unprotected(attempts, reason)
    if isinstance(error, NOT_DOWN) or any(one.job.policy.on_store_down != "run" for one in attempts):
        raise error
    run_unprotected([one for one in attempts if one.state is not REFUSED], reason)
    return [reentry_error(engine, one.job) if one.state is REFUSED else None for one in attempts]


def is_protected(engine: Engine, job: Job) -> bool:
    """Return whether this job needs a claim: it has a key, and Onceward is neither disabled nor switched off."""
    return not switch.off and job.key is not NO_KEY and engine.rollout.mode != "off"


def run_unprotected(attempts: Sequence[Attempt], reason: str) -> list[Refusal]:
    """Let the work run without a claim. Emit an ERROR event for each, unless Onceward was switched off."""
    for one in attempts:
        one.unprotect(reason)
        if reason != "disabled":
            one.engine.emit("switched_off" if reason == MODE_OFF else "unprotected", one.key, reason=reason)
    return [None for _ in attempts]


async def perform(attempt: Attempt) -> Outcome[Any]:
    """Run the handler of an attempt that is OWNED or UNPROTECTED, and settle it, whatever happens."""
    with attempt:
        if attempt.record.ask_first and attempt.engine.rollout.enforces:
            settled = await verify_first(attempt)
            if settled is not None:
                return settled
        attempt.begin()
        try:
            value = call_handler(attempt.job)
            if attempt.job.is_async and hasattr(value, "__await__"):
                value = await value
            if attempt.engine.open_transactions.finders and attempt.state is not UNPROTECTED:
                attempt.engine.open_transactions.check_returned(attempt)
        except BaseException as error:  # noqa: BLE001 (settled, then returned as a value or raised again)
            return await settle_raised(attempt, error, closing=is_closing(error))
        return await settle_returned(attempt, value)


def call_handler(job: Job) -> Any:
    """Call the handler; the caller awaits an async one. Not a coroutine, because StopIteration must propagate."""
    value = job.call(*job.args, **job.kwargs)
    if type(value) is CoroutineType and not job.is_async:
        value.close()
        raise ConfigurationError(
            "the function returned a coroutine, which a sync call cannot await; it was not started",
            key=job.key.text,
            hint="use AsyncOnce, or once.aio",
        )
    return value


def value_or_raise(outcome: Outcome[T], policy: Policy) -> T:
    """Return what a call of the decorated function returns for this outcome, or raise what it raises.

    With `skip` it returns None; the overloads of `@once` declare that.
    """
    kind = type(outcome)
    if kind is Executed or (kind is Replayed and outcome.stored and policy.on_done == "replay"):  # type: ignore[union-attr]  # it is a Replayed
        return outcome.value  # type: ignore[return-value]  # T may itself be None
    if isinstance(outcome, Replayed) and policy.on_done != "replay":
        if policy.on_done == "raise":
            raise outcome.already_done()
        return None  # type: ignore[return-value]  # the overloads of @once say T | None
    if isinstance(outcome, Running) and policy.on_running == "skip":
        return None  # type: ignore[return-value]  # the overloads of @once say T | None
    try:
        value: T = outcome.unwrap()
    finally:
        del outcome  # the raised exception's traceback refers to this frame: avoid a reference cycle
    return value
