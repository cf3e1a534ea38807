"""The record of a message that cannot be done and has no dead letter queue to go to: PARKED, for a person."""

from __future__ import annotations

import hashlib

from onceward.engine.job import Job
from onceward.keys.key import Scope, make_key
from onceward.protocol.policy import Policy
from onceward.results.codec import Codec

from .message import Message
from .message_note import BODY, MESSAGE, OF_MESSAGES, QUEUE

LONGEST_NOTE = 500  # characters of an id on a record


def noted(message: Message, queue: str) -> dict[str, str]:
    """Where the work of a record came from."""
    return {MESSAGE: message.id[:LONGEST_NOTE], QUEUE: queue[:LONGEST_NOTE]}


def parked_job(message: Message, queue: str, of: Scope, policy: Policy, codec: Codec) -> Job:
    """Its key is the message, not the work: under the key of the work there may be a record, and of another payload."""
    body = f"sha256:{hashlib.sha256(message).hexdigest()}"
    scope = Scope(of.app, f"{of.operation}{OF_MESSAGES}", of.tenant)
    key = make_key(scope, [queue, message.id, body], message.id or body)  # senders use an id twice
    return Job(key, policy, codec, note={**noted(message, queue), BODY: body})
