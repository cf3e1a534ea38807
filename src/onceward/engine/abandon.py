"""Clean up after a call that was interrupted by a cancellation, or by an exception from a signal handler.

    the work has not started        → release the key
    the work was running            → let the lease expire: the next claim handles it as a crash
    the claim has ended             → nothing

A cancelled call of an async client settles its claim before the cancellation gets here. The remaining cases are
treated like a crash of that call: one attempt to release the key. If it fails, the lease expires.
"""

from __future__ import annotations

from collections.abc import Sequence

from onceward.errors import StoreError
from onceward.protocol.requests import Release

from .attempt import CLAIMING, OWNED, VERIFYING, Attempt
from .engine import Engine


async def abandon(attempts: Sequence[Attempt], error: BaseException) -> None:
    """Leave no key locked by work that has not started. It never raises: the caller raises `error` afterwards."""
    for one in attempts:
        one.__exit__()
    owned = [one for one in attempts if one.state is OWNED or one.state is VERIFYING]
    unanswered = [one for one in attempts if one.state is CLAIMING and one.nonce]
    for one in attempts:
        one.abandon()
    if owned and owned[0].engine.runtime.supports_cancellation and isinstance(error, GeneratorExit):
        release_later(owned)  # a coroutine that is being closed cannot wait for the store
    elif owned:
        await _release(owned[0].engine, owned)
    release_later(unanswered)


async def _release(engine: Engine, attempts: Sequence[Attempt]) -> None:
    """Release keys that we own, in one call that completes even if the caller is cancelled."""
    releases = [Release(one.key.id, one.record.token, one.record.nonce) for one in attempts]
    timeout = min(one.job.policy.call_timeout for one in attempts)
    engine.claims_in_flight.add(id(attempts))
    try:
        await engine.shield(engine.store.settle(releases, timeout=timeout))
    except StoreError:
        release_later(attempts)
        return
    finally:
        engine.claims_in_flight.discard(id(attempts))
    for one in attempts:
        engine.emit("released", one.key, one.record)


def release_later(attempts: Sequence[Attempt]) -> None:
    """Let the heartbeat thread release claims that were or may have been granted: the store does not respond now."""
    for one in attempts:
        one.engine.heartbeat.reconcile(one, one.key.id, one.lease)
