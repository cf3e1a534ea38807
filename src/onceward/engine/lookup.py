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


def lookup_completed(engine: Engine, job: Job) -> tuple[CompletedRecord, Any] | None:
    """Return the record of a completed key and its value.

    None: the key must be claimed, or a lookup would block the event loop.
    """
    look = engine.lookup
    if look is None and engine.opened and engine.shielded_type is not None and not (engine.closed or engine.stopping):
        return None  # a shortcut for the check below: the batcher checks the runtime too
    if switch.off or job.key is NO_KEY or not engine.is_ready() or look is None:
        return None
    key = job.key
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
            value = job.codec.decode(data, key.id)
        except ResultError as error:
            raise error.with_key(key.text) from error.__cause__
    if engine.wants("skipped"):
        engine.emit_wanted("skipped", key, done, reason=job.policy.reasons.done)
    return done, value


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
