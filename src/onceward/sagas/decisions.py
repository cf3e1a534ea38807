"""What a person may say about a saga that waits: pure functions of its journal.

`applied`, `not_applied` and `abandon` are about the step that stands in the way, not about the saga: that goes on by
itself afterwards, with the next delivery or by a recovery worker.
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
from .journal import Direction, Journal, JournalEntry, Progress, done, not_done, turned, undone, with_line

GAVE_UP: Final = "a person gave it up"

HANDED_ON: Final = 0
"""The lease under which a person leaves a saga to whoever comes next. It waits like one whose owner fell silent,
for ever: a failure that may be repeated is given up after 30 days, and what a saga has done would be forgotten."""


class SagaDecision(Struct, frozen=True):
    """The journal afterwards; None: the saga begins anew. `over`: nothing more is done about it."""

    journal: Journal | None
    over: bool = False


def answered(journal: Journal, resolution: Resolution, result: bytes | None = None) -> SagaDecision:
    """Somebody has found out how the open step ended.

    applied       it is done (or, while compensating, undone)
    not applied   it is not; it gets all of its attempts again
    abandon       the saga is to be undone; if nobody knows of the step, it is settled first. Where there is no way back
                  any more, the saga ends as it stands

    Between two steps there is nothing to find out; only `abandon` says something then.
    """
    line = journal.open_step
    if line is None:
        return _given_up(journal) if resolution is Resolution.ABANDON else SagaDecision(journal)
    undo = line.progress is Progress.UNDOING
    if resolution is Resolution.APPLIED:
        if undo:
            return SagaDecision(undone(journal, line.name))
        return SagaDecision(done(journal, line.name, result))
    if resolution is Resolution.ABANDON:
        if journal.direction is Direction.COMPENSATING or line.kind is StepKind.RETRIABLE:
            return SagaDecision(journal, over=True)
        if line.kind is StepKind.PIVOT and line.progress is Progress.BEGUN:
            raise NotAcquired(
                f"step {line.name} is the pivot: if it was done, there is no way back, and nobody knows",
                hint="find out, and say applied or not applied; or that it was not, and give up (--not-applied --undo)",
            )
        settled_first = with_line(journal, replace(line, attempts=0))
        return SagaDecision(turned(settled_first, line.error_type or "Abandoned", line.error or GAVE_UP))
    return SagaDecision(with_line(journal, _afresh(line)))


def _given_up(journal: Journal) -> SagaDecision:
    if journal.direction is Direction.COMPENSATING:
        return SagaDecision(journal)
    if not journal.lines or any(line.kind is not StepKind.COMPENSATABLE for line in journal.lines):
        return SagaDecision(journal, over=True)
    return SagaDecision(turned(journal, "Abandoned", GAVE_UP))


def refused(journal: Journal) -> SagaDecision:
    """Somebody has found out that the open step was not done, and does not want it: the others are undone."""
    line = journal.open_step
    if line is None:
        return _given_up(journal)
    if journal.direction is Direction.COMPENSATING and line.progress is Progress.UNDOING:
        raise NotAcquired(
            f"it is being undone already, and step {line.name} is in the way", hint="retry, or resolve it"
        )
    if line.kind is StepKind.RETRIABLE:
        raise NotAcquired(
            f"step {line.name} is retriable: what came before it cannot be undone any more",
            hint="retry, or abandon: then it ends as it stands",
        )
    error = line.error_type or "Abandoned", line.error or GAVE_UP
    without = not_done(journal, line.name, *error, final=True)
    return SagaDecision(without if journal.direction is Direction.COMPENSATING else turned(without, *error))


def retried(journal: Journal) -> SagaDecision:
    """Try again: the open step gets all of its attempts again. What was undone begins anew, in another cycle."""
    if journal.undone:
        return SagaDecision(None)
    line = journal.open_step
    if line is None:
        return SagaDecision(journal)
    return SagaDecision(with_line(journal, replace(line, attempts=0, undo_attempts=0, final=False)))


def is_handed_on(record: Record) -> bool:
    """Whether a person has let this saga go on, and nobody has come since."""
    if record.state is not RecordState.PENDING or record.lease_until is None or not record.note.get(SAGA):
        return False
    return record.lease_until - record.renewed_at == HANDED_ON


def standing_effects(journal: Journal) -> list[str]:
    """The steps that have taken effect, or may have: what is left if nobody goes on with it."""
    return [line.name for line in journal.lines if line.progress not in (Progress.NOT_DONE, Progress.UNDONE)]


def _afresh(line: JournalEntry) -> JournalEntry:
    """Certainly not done (or not undone): as before its first attempt."""
    if line.progress is Progress.UNDOING:
        return replace(line, progress=Progress.DONE, undo_attempts=0)
    return replace(line, progress=Progress.NOT_DONE, attempts=0, final=False, unsure=False)
