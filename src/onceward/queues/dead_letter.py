"""Build the PARKED record of a message that cannot be processed when there is no dead letter queue."""

from __future__ import annotations

import hashlib

from onceward.engine.job import Job
from onceward.keys.key import Scope, make_key
from onceward.protocol.message_note import BODY, MESSAGE, MESSAGE_SUFFIX, QUEUE
from onceward.protocol.policy import Policy
from onceward.results.codec import Codec

from .message import Message

MAX_NOTE_LENGTH = 500  # characters


def source_note(message: Message, queue: str) -> dict[str, str]:
    """Return the note that says which message and queue a record's work came from."""
    return {MESSAGE: message.id[:MAX_NOTE_LENGTH], QUEUE: queue[:MAX_NOTE_LENGTH]}


def parked_job(message: Message, queue: str, work_scope: Scope, policy: Policy, codec: Codec) -> Job:
    """Return the job whose record parks the message.

    Its key identifies the message, not the work: the key of the work may already have a record with another payload.
    """
    body = f"sha256:{hashlib.sha256(message).hexdigest()}"
    scope = Scope(work_scope.app, f"{work_scope.operation}{MESSAGE_SUFFIX}", work_scope.tenant)
    key = make_key(scope, [queue, message.id, body], message.id or body)  # with the body: senders may reuse an id
    return Job(key, policy, codec, note={**source_note(message, queue), BODY: body})
