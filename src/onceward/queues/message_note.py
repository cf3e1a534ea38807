"""What the record of work from a queue notes of its message; and the records of messages that mean no work."""

from __future__ import annotations

from typing import Final

from onceward.protocol.record import Record

MESSAGE: Final = "message"
"""The name of the parameter, and of the note, that has the message, or its id."""

QUEUE: Final = "queue"
BODY: Final = "body"
OF_MESSAGES: Final = ".message"
"""What the operation of a record ends in that is a note of a message, and no work."""


def is_set_aside(record: Record) -> bool:
    """Whether this is the note of a message that could not be done and had no dead letter queue to go to."""
    operation = record.scope.partition("@")[0].partition("/")[2]
    return operation.endswith(OF_MESSAGES) and {MESSAGE, QUEUE, BODY} <= record.note.keys()
