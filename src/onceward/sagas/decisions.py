"""What an operator may decide about a saga that waits: pure functions of its journal.

`applied`, `not_applied` and `abandon` are about the open step, the one that blocks the saga. Afterwards the saga
continues by itself: with its next delivery, or by a recovery worker.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from onceward.errors import NotAcquired
from onceward.protocol.note import SAGA
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Resolution

from .definition import StepKind
from .journal import (
    Direction,
    Journal,
    JournalEntry,
    StepProgress,
    compensating,
    step_done,
    step_not_done,
    step_undone,
    with_entry,
)

ABANDONED_BY_OPERATOR: Final = "an operator abandoned it"

REQUEUED_LEASE: Final = 0
"""The lease of a saga that an operator leaves to the next worker. It expires immediately, so the saga waits without a
time limit, like one whose worker crashed. A retryable failure would be purged after 30 days, together with the
journal of what the saga has done."""


class SagaDecision(Struct, frozen=True):
    """The journal after an operator's decision; None: the saga starts again. `over`: the saga ends as it is."""

    journal: Journal | None
    over: bool = False


def resolve_open_step(journal: Journal, resolution: Resolution, result: bytes | None = None) -> SagaDecision:
    """Apply what an operator found out about the open step.

    applied       the step is done (or, while compensating, undone)
    not applied   the step is not done; it gets all of its attempts again
    abandon       undo the saga. If the effect of the step is unknown, the saga settles it first. If the saga can no
                  longer be undone, it ends as it is

    Without an open step only `abandon` has an effect.
    """
    entry = journal.open_step
    if entry is None:
        return _abandon_between_steps(journal) if resolution is Resolution.ABANDON else SagaDecision(journal)
    undo = entry.progress is StepProgress.UNDOING
    if resolution is Resolution.APPLIED:
        if undo:
            return SagaDecision(step_undone(journal, entry.name))
        return SagaDecision(step_done(journal, entry.name, result))
    if resolution is Resolution.ABANDON:
        if journal.direction is Direction.COMPENSATING or entry.kind is StepKind.RETRIABLE:
            return SagaDecision(journal, over=True)
        if entry.kind is StepKind.PIVOT and entry.progress is StepProgress.BEGUN:
            raise NotAcquired(
                f"step {entry.name} is the pivot, and may have been done: if it was, the saga cannot be undone",
                hint="find out, then resolve it as applied or not applied; to undo the rest: --not-applied --undo",
            )
        retried = with_entry(journal, replace(entry, attempts=0))
        return SagaDecision(
            compensating(retried, entry.error_type or "Abandoned", entry.error or ABANDONED_BY_OPERATOR)
        )
    return SagaDecision(with_entry(journal, _reset(entry)))


def _abandon_between_steps(journal: Journal) -> SagaDecision:
    if journal.direction is Direction.COMPENSATING:
        return SagaDecision(journal)
    if not journal.entries or any(entry.kind is not StepKind.COMPENSATABLE for entry in journal.entries):
        return SagaDecision(journal, over=True)
    return SagaDecision(compensating(journal, "Abandoned", ABANDONED_BY_OPERATOR))


def reject_open_step(journal: Journal) -> SagaDecision:
    """Record that the open step was not done and is no longer wanted: the steps before it are undone."""
    entry = journal.open_step
    if entry is None:
        return _abandon_between_steps(journal)
    if journal.direction is Direction.COMPENSATING and entry.progress is StepProgress.UNDOING:
        raise NotAcquired(
            f"the saga is being undone already; the undo of step {entry.name} blocks it", hint="retry, or resolve it"
        )
    if entry.kind is StepKind.RETRIABLE:
        raise NotAcquired(
            f"step {entry.name} is retriable: the steps before it can no longer be undone",
            hint="retry, or abandon: then the saga ends as it is",
        )
    error = entry.error_type or "Abandoned", entry.error or ABANDONED_BY_OPERATOR
    rejected = step_not_done(journal, entry.name, *error, final=True)
    return SagaDecision(rejected if journal.direction is Direction.COMPENSATING else compensating(rejected, *error))


def retry_open_step(journal: Journal) -> SagaDecision:
    """Give the open step all of its attempts again. A saga that was undone starts again, in a new cycle."""
    if journal.undone:
        return SagaDecision(None)
    entry = journal.open_step
    if entry is None:
        return SagaDecision(journal)
    return SagaDecision(with_entry(journal, replace(entry, attempts=0, undo_attempts=0, final=False)))


def is_requeued(record: Record) -> bool:
    """Return whether an operator has let this saga continue, and no worker has claimed it since."""
    if record.state is not RecordState.PENDING or record.lease_until is None or not record.note.get(SAGA):
        return False
    return record.lease_until - record.renewed_at == REQUEUED_LEASE


def remaining_effects(journal: Journal) -> list[str]:
    """Return the names of the steps that have taken effect, or may have, and are not undone."""
    return [
        entry.name for entry in journal.entries if entry.progress not in (StepProgress.NOT_DONE, StepProgress.UNDONE)
    ]


def _reset(entry: JournalEntry) -> JournalEntry:
    """Reset the step to what it was before its first attempt: it certainly was not done (or not undone)."""
    if entry.progress is StepProgress.UNDOING:
        return replace(entry, progress=StepProgress.DONE, undo_attempts=0)
    return replace(entry, progress=StepProgress.NOT_DONE, attempts=0, final=False, unsure=False)
