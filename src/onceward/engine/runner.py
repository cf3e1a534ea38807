"""The one flow of all work: claim → run → record, or replay.

    look up the key ── completed ──→ Replayed
        │ not completed
    claim the key ── refused ──→ Replayed, Running, Mismatch, Failed, Parked
        │ owned                                    (or unprotected, as declared: store down, no key, test mode,
        │                                           mode off; in the mode observe, also instead of refused)
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
`claim_one`, then their work, then `conclude.settle_returned` or `settle_raised`. After an exception they `abandon`.

The handler's exceptions are passed as values until the client raises them, because a StopIteration raised
through a coroutine would become a RuntimeError.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CoroutineType
from typing import Any

from onceward.errors import NOT_DOWN, ConfigurationError, StoreError
from onceward.protocol.outcome import Outcome

from . import switch
from .abandon import abandon
from .acquire import Refusal, acquire, emit_no_answer, reentry_error, wait_for_key
from .attempt import NEW, REFUSED, UNPROTECTED, WAITING, Attempt
from .conclude import is_closing, settle_raised, settle_returned, verify_first
from .engine import Engine
from .error_text import message_of
from .job import NO_KEY, Job
from .lookup import lookup_outcome
from .rollout import run_observed

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

    This is where it is decided that work runs without a claim. If the store is down and the policy does not say
    `run`, its error is raised. Either every job has a key, or none has (NO_KEY).

    Later, once the store has answered that another worker runs the key, an outage is always raised: running
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
    engine.claims_in_flight.add(id(attempts))  # before the check whether this client stops
    try:
        if not engine.is_ready():
            await engine.ready()
        refusals = await acquire(engine, attempts, may_wait=may_wait and not observes)
        return run_observed(attempts, refusals) if observes else refusals
    except StoreError as error:
        return without_store(engine, attempts, error)
    finally:
        engine.claims_in_flight.discard(id(attempts))


def without_store(engine: Engine, attempts: Sequence[Attempt], error: StoreError) -> list[Refusal]:
    """Let the work run without a claim if that is declared, or in the mode observe. Otherwise raise the error."""
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
    """Let the work run without a claim. Emit an ERROR event for each, unless it was switched off deliberately."""
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
    """Call the handler; the caller awaits an async one. Not a coroutine, because StopIteration must get through."""
    value = job.call(*job.args, **job.kwargs)
    if type(value) is CoroutineType and not job.is_async:
        value.close()
        raise ConfigurationError(
            "the function returned a coroutine, which a sync call cannot await; it was not started",
            key=job.key.text,
            hint="use AsyncOnce, or once.aio",
        )
    return value
