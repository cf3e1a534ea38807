"""Clean up after a call that was interrupted by a cancellation, or by an exception from a signal handler.

    nothing of the work was begun   → release the key; a verification that is due stays on the record
    the work was running            → let the lease expire: the next claim handles it as a crash
    the claim has ended             → nothing

Work that is cancelled or interrupted in its handler is settled before (`conclude.settle_raised`). What is left for this
file was interrupted before, between or inside our own steps. It is treated like a crash of that call: one release, if
the store answers, otherwise the lease expires.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import CO_COROUTINE

from onceward.errors import StoreError
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Release, Verdict

from .attempt import CLAIMING, OWNED, VERIFYING, Attempt
from .engine import Engine
from .retry import store_error_of


async def abandon(attempts: Sequence[Attempt], error: BaseException) -> None:
    """Leave no key locked by work that has not started. It never raises: the caller raises `error` afterwards."""
    for one in attempts:
        one.__exit__()
    own = [one for one in attempts if not one.inherited]  # a forked child owns nothing of its parent
    owned = [one for one in own if one.state is OWNED or (one.state is VERIFYING and one.record.ask_first)]
    release_later([one for one in own if one.state is CLAIMING and one.nonce])
    for one in attempts:
        one.abandon()
    if owned and owned[0].engine.runtime.supports_cancellation and isinstance(error, GeneratorExit):
        release_later(owned)  # a coroutine that is being closed cannot wait for the store
    elif owned:
        await _release(owned[0].engine, owned)


async def _release(engine: Engine, attempts: Sequence[Attempt]) -> None:
    """Release keys that we own, in one call that completes even if the caller is cancelled."""
    releases = [Release(one.key.id, one.record.token, one.record.nonce) for one in attempts]
    timeout = min(one.job.policy.call_timeout for one in attempts)
    engine.claims_in_flight.add(id(attempts))
    try:
        answers, _ = await engine.shield(engine.store.settle(releases, timeout=timeout))
    except BaseException as error:
        release_later(attempts)
        if isinstance(store_error_of(error), StoreError):
            return
        raise
    finally:
        engine.claims_in_flight.discard(id(attempts))
    for one, answer in zip(attempts, answers, strict=True):
        if answer.verdict is Verdict.OK:
            engine.emit("released", one.key, one.record)
            if engine.history is not None:
                engine.history.settled(one.record, one.record, answer, RecordState.FREE)


def closes_coroutine(attempt: Attempt, error: BaseException | None) -> bool:
    """Return whether an async block ends because its coroutine is being closed: it can no longer await anything.

    An async generator that is being closed can.
    """
    trace = None if error is None else error.__traceback__
    if not isinstance(error, GeneratorExit) or trace is None or trace.tb_next is not None:
        return False
    return attempt.engine.runtime.supports_cancellation and bool(trace.tb_frame.f_code.co_flags & CO_COROUTINE)


def release_later(attempts: Sequence[Attempt]) -> None:
    """Let the heartbeat thread release claims that were or may have been granted: the store does not respond now."""
    for one in attempts:
        one.engine.heartbeat.reconcile(one, one.key.id, one.lease)
