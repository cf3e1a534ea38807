"""Statements from a queue: a batch of messages is one merge. A message holds a statement, or several as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid5

import msgspec

from examples.learning.records import Incoming, Learning, incoming
from examples.learning.xapi import Invalid
from onceward import Failed, Mismatch, Once, Outcome, PayloadMismatch
from onceward.errors import SourceError
from onceward.queues import Batch, Consumer, Message, Queue

NAMELESS = UUID("5f0f2e0a-2f0b-4d0c-9d57-0f3d5a4b7c11")
"""Of statements that have no name but that of their message."""

Told = list[Incoming]


def consumer(learning: Learning, queue: Queue, once: Once, *, largest: int = 2_000) -> Consumer:
    """Runs until it is stopped. What contradicts a stored statement is parked in `once`, or dead-lettered."""
    batch = Batch(once, lambda events: stored(learning, events), name="statements", largest=largest)
    return Consumer(batch, queue, decode=read)


def read(message: Message) -> Told:
    """Raises `Invalid`: then the message is set aside, for a person to look at."""
    told = msgspec.json.decode(message.body)
    many = told if isinstance(told, list) else [told]
    return [incoming(one, id=_named(one, message, place)) for place, one in enumerate(many)]


def _named(told: Any, message: Message, place: int) -> str | None:
    """For a statement without an id: after its message, so that a redelivery has the same name."""
    if isinstance(told, dict) and told.get("id"):
        return None
    if not message.id:
        raise Invalid(
            "neither the statement nor its message has an id: a redelivery could not be told from another one"
        )
    return str(uuid5(NAMELESS, f"{message.id}/{place}"))


def stored(learning: Learning, events: Sequence[Told]) -> list[Outcome[None] | None]:
    """One merge for all that are alone in their message; those that came together go in together, or not at all."""
    alone = [event[0] for event in events if len(event) == 1]
    try:
        verdicts = iter(learning.store(alone).verdicts if alone else ())
    except SourceError:  # the warehouse refuses one of them: that one must not keep the others out
        return [_by_itself(learning, event) for event in events]
    return [
        _told(event, differs=next(verdicts) == "different") if len(event) == 1 else _by_itself(learning, event)
        for event in events
    ]


def _by_itself(learning: Learning, batch: Told) -> Outcome[None] | None:
    try:
        learning.store(batch, whole=True)
    except PayloadMismatch:
        return _told(batch, differs=True)
    except SourceError as error:
        return Failed(key=batch[0].id, error_type="SourceError", error=str(error), final=True)
    return None


def _told(batch: Told, *, differs: bool) -> Outcome[None] | None:
    return Mismatch(key=batch[0].id, arguments=("statement",)) if differs else None
