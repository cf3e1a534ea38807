"""The journal of a saga, and what comes next: pure functions of the plan and the journal.

One record a saga. Its journal is one word of its note, written by `renew` with the owner's token and nonce: so every
line of it is fenced, durable before the next act, kept across a take-over and read by the claim itself, on every store,
without a table, a script or a second record. (A record for each step would need their claims, leases, windows and
purges kept in step with the saga's own, and a direction that no single write could turn.)

A line begins with the *intent*, which is written before `do` is called; its result is written after. An intent without
a result means that nobody knows. A step without a line was never begun, and is never undone. The direction turns once,
in a write of its own that comes before the first undo.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onceward.errors import ResultCorrupt, UnknownCodec
from onceward.protocol.note import SAGA
from onceward.protocol.record import AfterCrash

from .definition import Plan, PlannedStep, StepKind

VERSION: Final = 1


class Direction(StrEnum):
    """Where a saga goes. It turns at most once."""

    FORWARD = "forward"
    COMPENSATING = "compensating"


class Progress(StrEnum):
    """What is known of a step."""

    BEGUN = "begun"  # the intent: `do` may have been called, and may have taken effect
    DONE = "done"
    NOT_DONE = "not done"  # it was begun, and certainly has no effect
    UNDOING = "undoing"  # the intent of `undo`
    UNDONE = "undone"


class JournalEntry(Struct, frozen=True, omit_defaults=True):
    """One step, from its first intent on. A result of None was not stored: a stored None has bytes, too.

    `unsure`: of an attempt before this one nobody knows, so that this one's failure says nothing about the effect.
    """

    name: str
    progress: Progress
    token: int
    kind: StepKind = StepKind.COMPENSATABLE
    attempts: int = 1
    undo_attempts: int = 0
    result: bytes | None = None
    error_type: str = ""
    error: str = ""
    final: bool = False
    unsure: bool = False


class Journal(Struct, frozen=True, omit_defaults=True):
    """`cycle` is that of the derived keys. `error` is why it turned."""

    cycle: int
    direction: Direction = Direction.FORWARD
    lines: tuple[JournalEntry, ...] = ()
    error_type: str = ""
    error: str = ""
    version: int = VERSION

    def line(self, name: str) -> JournalEntry | None:
        return next((line for line in self.lines if line.name == name), None)

    @property
    def open_step(self) -> JournalEntry | None:
        """The step that stands in the way, if one does: begun or being undone, or failed and the last one."""
        unsettled = (Progress.BEGUN, Progress.UNDOING)
        for line in reversed(self.lines):
            if line.progress in unsettled:
                return line
        last = self.lines[-1] if self.lines else None
        forward = self.direction is Direction.FORWARD
        return last if last is not None and forward and last.progress is Progress.NOT_DONE else None

    @property
    def undone(self) -> bool:
        """Whether nothing of it is left."""
        gone = (Progress.UNDONE, Progress.NOT_DONE)
        return self.direction is Direction.COMPENSATING and all(line.progress in gone for line in self.lines)


# ── what comes next ─────────────────────────────────────────────────────────────────────────────────────────────


class Do(Struct, frozen=True):
    """Write the intent, then do this step: for the first time, or once more under the same derived key."""

    step: int


class VerifyStep(Struct, frozen=True):
    """Look whether this step has taken effect."""

    step: int


class Compensate(Struct, frozen=True):
    """Write that the saga compensates from now on."""

    step: int


class Undo(Struct, frozen=True):
    """Write the intent, then undo this step."""

    step: int


class ParkSaga(Struct, frozen=True):
    """Wait for a person."""

    step: int
    error_type: str
    why: str


class Finished(Struct, frozen=True):
    """All done, or all undone."""

    undone: bool


Move = Do | VerifyStep | Compensate | Undo | ParkSaga | Finished


def what_next(plan: Plan, journal: Journal) -> Move:
    """The next act of a saga that has come so far. Whoever reads the journal comes to the same."""
    if journal.direction is Direction.COMPENSATING:
        return _backward(plan, journal)
    for number, step in enumerate(plan):
        line = journal.line(step.name)
        if line is None:
            return Do(number)
        if line.progress is Progress.BEGUN:
            return _settle(plan, number, line)
        if line.progress is Progress.NOT_DONE:
            if not line.final and line.attempts < step.max_attempts:
                return Do(number)
            if step.kind is not StepKind.RETRIABLE:
                return Compensate(number)
            return ParkSaga(number, "AttemptsUsedUp", f"step {step.name} failed {line.attempts} times; {_last(line)}")
    return Finished(undone=False)


def _backward(plan: Plan, journal: Journal) -> Move:
    """The newest first. What is unknown is settled before it, or anything older, is undone."""
    for number in reversed(range(len(plan))):
        line = journal.line(plan[number].name)
        if line is None or line.progress in (Progress.NOT_DONE, Progress.UNDONE):
            continue
        if line.progress is Progress.BEGUN:
            return _settle(plan, number, line)
        if line.undo_attempts < plan[number].undo_attempts:
            return Undo(number)
        why = f"undoing step {line.name} failed {line.undo_attempts} times; {_last(line)}"
        return ParkSaga(number, "UndoFailed", why)
    return Finished(undone=True)


def _settle(plan: Plan, number: int, line: JournalEntry) -> Move:
    """An intent without a result: nobody knows."""
    step = plan[number]
    if step.after_crash is AfterCrash.VERIFY:
        return VerifyStep(number)
    if step.after_crash is AfterCrash.PARK:
        why = f"nobody knows whether step {step.name} has taken effect; {_last(line)}"
        return ParkSaga(number, "Unsettled", why)
    if line.attempts < step.max_attempts:
        return Do(number)
    why = f"nobody knows whether step {step.name} has taken effect in {line.attempts} attempts; {_last(line)}"
    hint = " → if that means that nothing happened, declare it: final= or not_applied=" if line.error_type else ""
    return ParkSaga(number, "AttemptsUsedUp", why + hint)


def _last(line: JournalEntry) -> str:
    return f"last: {line.error_type}: {line.error}" if line.error_type else "its owner fell silent"


def misfit(plan: Plan, journal: Journal) -> str:
    """Why this plan cannot go on with this journal; empty if it can.

    The steps that were begun are its first ones; later ones may have been added since. What could be undone still can.
    """
    names = [line.name for line in journal.lines]
    if names != [step.name for step in plan[: len(names)]]:
        return f"it was begun with other steps: {', '.join(names)}"
    for line, step in zip(journal.lines, plan, strict=False):
        if line.kind is StepKind.COMPENSATABLE and step.undo is None:
            return f"step {line.name} could be undone when it was begun, and now it is {step.kind}"
    return ""


# ── what is written ─────────────────────────────────────────────────────────────────────────────────────────────


def begun(journal: Journal, step: PlannedStep, token: int) -> Journal:
    """The intent of `do`."""
    before = journal.line(step.name)
    if before is None:
        return replace(journal, lines=(*journal.lines, JournalEntry(step.name, Progress.BEGUN, token, step.kind)))
    unsure = before.unsure or before.progress is Progress.BEGUN
    attempts = before.attempts + 1
    again = replace(before, progress=Progress.BEGUN, token=token, attempts=attempts, final=False, unsure=unsure)
    return with_line(journal, again)


def done(journal: Journal, name: str, result: bytes | None) -> Journal:
    return _changed(journal, name, progress=Progress.DONE, result=result, error_type="", error="", unsure=False)


def not_done(journal: Journal, name: str, error_type: str, error: str, *, final: bool = False) -> Journal:
    """It certainly has no effect, of this attempt or any before."""
    told = {"error_type": error_type, "error": error, "final": final}
    return _changed(journal, name, progress=Progress.NOT_DONE, unsure=False, **told)


def troubled(journal: Journal, name: str, error_type: str, error: str) -> Journal:
    """The attempt raised, and what that means is not known: of `do`, or of `undo`."""
    return _changed(journal, name, error_type=error_type, error=error)


def turned(journal: Journal, error_type: str, error: str) -> Journal:
    return replace(journal, direction=Direction.COMPENSATING, error_type=error_type, error=error)


def undoing(journal: Journal, name: str, token: int) -> Journal:
    """The intent of `undo`."""
    before = _line(journal, name)
    return with_line(
        journal, replace(before, progress=Progress.UNDOING, token=token, undo_attempts=before.undo_attempts + 1)
    )


def undone(journal: Journal, name: str) -> Journal:
    return _changed(journal, name, progress=Progress.UNDONE, error_type="", error="")


def without_results(journal: Journal) -> Journal:
    """For a saga that is over: its result has them."""
    return replace(journal, lines=tuple(replace(line, result=None) for line in journal.lines))


def _line(journal: Journal, name: str) -> JournalEntry:
    line = journal.line(name)
    if line is None:
        raise LookupError(f"step {name} was never begun")
    return line


def _changed(journal: Journal, name: str, **changes: object) -> Journal:
    return with_line(journal, replace(_line(journal, name), **changes))


def with_line(journal: Journal, line: JournalEntry) -> Journal:
    return replace(journal, lines=tuple(line if one.name == line.name else one for one in journal.lines))


# ── as text ─────────────────────────────────────────────────────────────────────────────────────────────────────

_json = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(Journal).decode


def noted(journal: Journal) -> dict[str, str]:
    """The note that keeps it."""
    return {SAGA: _json(journal).decode()}


def journal_in(note: Mapping[str, str]) -> Journal | None:
    """The journal on a record; None if there is none."""
    text = note.get(SAGA, "")
    if not text:
        return None
    try:
        journal = _read(text)
    except msgspec.DecodeError as error:
        raise ResultCorrupt("the journal of this saga cannot be read", hint="restore the record") from error
    if journal.version > VERSION:
        raise UnknownCodec(f"the journal has version {journal.version}", hint="it needs a newer Onceward to go on")
    return journal
