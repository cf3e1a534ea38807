"""Recognise records whose attempt an operator resolved. Only `resolve` settles a record without an owner's nonce."""

from __future__ import annotations

from .note import SAGA
from .record import NO_OWNER, Record, RecordState


def is_resolved_as_applied(record: Record) -> bool:
    """Return whether an operator, not a worker, completed the record."""
    return record.state is RecordState.COMPLETED and record.nonce == NO_OWNER


def is_abandoned(record: Record) -> bool:
    """Return whether an operator decided that the work must not run again. A saga that ended is a failure instead."""
    settled = record.state is RecordState.FAILED and record.final and record.nonce == NO_OWNER
    return settled and not record.note.get(SAGA)
