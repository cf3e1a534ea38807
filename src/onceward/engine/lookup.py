"""Look up completed keys before claiming: most calls for a completed key need nothing else."""

from __future__ import annotations

from typing import Any

from onceward.errors import ResultError, StoreError
from onceward.keys.small import SMALL_BYTES
from onceward.protocol.outcome import Replayed
from onceward.protocol.record import CompletedRecord
from onceward.results.codec import unpacked_size

from . import switch
from .engine import Engine
from .job import NO_KEY, Job


def lookup_outcome(engine: Engine, job: Job) -> Replayed[Any] | None:
    """Return the outcome of a completed key. None: the key must be claimed, or a lookup would block the event loop.

    A lookup writes nothing. If a sliding window must be extended, the store finds nothing, and the claim extends it.
    """
    key, look = job.key, engine.lookup
    if look is None or switch.off or key is NO_KEY or not engine.rollout.enforces or not engine.is_ready():
        return None
    try:
        done = look(key.id, job.fingerprint)
    except StoreError:  # the claim meets the same error, and handles it
        return None
    if done is None:
        return None
    data = done.result
    if not job.policy.store_result:
        value = None
    elif data is None:
        return None  # the claim reads the full record, which says why the result was not stored
    elif engine.runtime.supports_cancellation and unpacked_size(data) > SMALL_BYTES:
        return None
    else:
        try:
            value = job.codec.decode(data, key.id, done.cycle)
        except ResultError:  # the claim meets the same error, and says what is wrong
            return None
    if engine.wants("skipped"):
        engine.emit_wanted("skipped", key, done, reason=job.policy.reasons.done)
    if engine.history is not None and engine.history.all:
        engine.history.replayed(key.id, done)
    return replayed_outcome(job, done, value)


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
