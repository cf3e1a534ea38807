"""The fields that records of queue work note about their message, and how to recognise records of parked messages."""

from __future__ import annotations

from typing import Final

from .record import Record

MESSAGE: Final = "message"
"""Name of the handler's parameter that receives the message, and of the note that holds its id."""

QUEUE: Final = "queue"
BODY: Final = "body"
MESSAGE_SUFFIX: Final = ".message"
"""Ending of the operation name of records that park a message instead of describing work."""


def is_parked_message(record: Record) -> bool:
    """Return whether the record parks a message that could not be processed and had no dead letter queue."""
    operation = record.scope.partition("@")[0].partition("/")[2]
    return operation.endswith(MESSAGE_SUFFIX) and {MESSAGE, QUEUE, BODY} <= record.note.keys()
