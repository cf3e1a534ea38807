"""List sagas with the progress of their steps."""

from __future__ import annotations

from onceward.errors import OncewardError
from onceward.protocol.record import Record
from onceward.sagas.journal import Direction, Journal, JournalEntry, StepProgress, journal_from

from .model import SagaRow, StepRow
from .record_view import key_row


def journal_or_none(record: Record) -> Journal | None:
    """Return the journal; None if the record is not a saga, or its journal cannot be read."""
    try:
        return journal_from(record.note)
    except OncewardError:  # written by a newer version, or damaged: `onceward explain` reports it
        return None


def saga_row(record: Record, now: int, journal: Journal) -> SagaRow:
    """Return the saga without the results of its steps, which are the application's."""
    blocking = journal.open_step
    return SagaRow(
        key_row(record, now),
        journal.direction.value,
        journal.undone,
        blocking.name if blocking is not None else "",
        [_step(line) for line in journal.entries],
        journal.error_type,
        journal.error,
    )


def _step(line: JournalEntry) -> StepRow:
    return StepRow(
        line.name, line.kind.value, line.progress.value, line.attempts, line.undo_attempts, line.error_type, line.error
    )


def sentence(journal: Journal) -> str:
    """Return the sentence for `explain`."""
    where = (
        "was undone"
        if journal.undone
        else "is being undone"
        if journal.direction is Direction.COMPENSATING
        else "runs forward"
    )
    steps = ", ".join(_step_text(line) for line in journal.entries)
    return f"It is a saga that {where}: {steps}." if steps else f"It is a saga that {where}."


def saga_sentences(record: Record) -> list[str]:
    """Return what to add to an explanation if the record is a saga."""
    try:
        journal = journal_from(record.note)
    except OncewardError as error:
        return [f"It is a saga whose steps cannot be read: {error}."]
    return [] if journal is None else [sentence(journal)]


def _step_text(line: JournalEntry) -> str:
    attempts = line.undo_attempts if line.progress in (StepProgress.UNDOING, StepProgress.UNDONE) else line.attempts
    return f"{line.name} {line.progress}{f' in {attempts} attempts' if attempts > 1 else ''}"
