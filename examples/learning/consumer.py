"""Consumes statements from a queue: one merge per batch of messages. A message holds one statement or a list."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID, uuid5

import msgspec

from examples.learning.records import IncomingStatement, Learning, parse_statement
from examples.learning.xapi import Invalid
from onceward import Failed, Mismatch, Once, Outcome, PayloadMismatch
from onceward.errors import SourceError
from onceward.queues import Batch, Consumer, Message, Queue

MESSAGE_NAMESPACE = UUID("5f0f2e0a-2f0b-4d0c-9d57-0f3d5a4b7c11")
"""For the ids of statements without an id, which are derived from their message."""

StatementBatch = list[IncomingStatement]


def consumer(learning: Learning, queue: Queue, once: Once, *, largest: int = 2_000, lenient: bool = False) -> Consumer:
    """Return the consumer. Statements that contradict a stored one are dead-lettered, or parked in `once`."""
    batch = Batch(once, lambda events: store_events(learning, events), name="statements", largest=largest)
    return Consumer(batch, queue, decode=partial(decode_message, lenient=lenient))


def decode_message(message: Message, *, lenient: bool = False) -> StatementBatch:
    """Decode the statements of a message. Raise `Invalid` to dead-letter or park the message."""
    body = msgspec.json.decode(message.body)
    statements = body if isinstance(body, list) else [body]
    return [
        parse_statement(one, id=_derived_id(one, message, index), lenient=lenient)
        for index, one in enumerate(statements)
    ]


def _derived_id(statement: Any, message: Message, index: int) -> str | None:
    """Return the id for a statement without one, derived from its message so that a redelivery has the same id."""
    if isinstance(statement, dict) and statement.get("id"):
        return None
    if not message.id:
        raise Invalid("neither the statement nor its message has an id, so a redelivery could not be recognised")
    return str(uuid5(MESSAGE_NAMESPACE, f"{message.id}/{index}"))


def store_events(learning: Learning, events: Sequence[StatementBatch]) -> list[Outcome[None] | None]:
    """Merge all single statements in one call. The statements of a list are stored together or not at all."""
    single = [event[0] for event in events if len(event) == 1]
    try:
        verdicts = iter(learning.store(single).verdicts if single else ())
    except SourceError:  # the warehouse rejects one of them, which must not block the others
        return [_store_alone(learning, event) for event in events]
    return [
        _mismatch_outcome(event, differs=next(verdicts) == "different")
        if len(event) == 1
        else _store_alone(learning, event)
        for event in events
    ]


def _store_alone(learning: Learning, batch: StatementBatch) -> Outcome[None] | None:
    try:
        learning.store(batch, whole=True)
    except PayloadMismatch:
        return _mismatch_outcome(batch, differs=True)
    except SourceError as error:
        return Failed(key=batch[0].id, error_type="SourceError", error=str(error), final=True)
    return None


def _mismatch_outcome(batch: StatementBatch, *, differs: bool) -> Outcome[None] | None:
    return Mismatch(key=batch[0].id, arguments=("statement",)) if differs else None
