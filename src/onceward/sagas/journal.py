"""The journal of a saga, and its next move: pure functions of the plan and the journal.

Each saga has one record. Its journal is one field of the record's note and is written by `renew` with the owner's token
and nonce. So each entry is fenced, durable before the next call, preserved when another worker takes over, and returned
by the claim. This works on every store without another table, script or record. (With one record per step, the claims,
leases, windows and purges of the steps would have to match those of the saga, and no single write could change the
direction.)

An entry begins with the *intent*, which is written before `do` is called. The result is written afterwards. An intent
without a result means that the effect is unknown. A step without an entry was never begun, and is never undone. The
direction changes at most once, in a write of its own before the first undo.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from onceward.errors import ResultCorrupt, UnknownCodec
from onceward.protocol.note import SAGA
from onceward.protocol.record import AfterCrash

from .definition import Plan, PlannedStep, StepKind

VERSION: Final = 1


class Direction(StrEnum):
    """Whether a saga does or undoes its steps. It changes at most once, from FORWARD to COMPENSATING."""

    FORWARD = "forward"
    """The saga does its steps, in order."""
    COMPENSATING = "compensating"
    """The saga undoes the steps that were done, in reverse order."""


class StepProgress(StrEnum):
    """What the journal knows about a step."""

    BEGUN = "begun"
    """The intent is stored: `do` may have been called, and may have taken effect."""
    DONE = "done"
    """`do` returned, and its result is stored."""
    NOT_DONE = "not done"
    """The step was begun, and certainly had no effect."""
    UNDOING = "undoing"
    """The intent of `undo` is stored: it may have been called, and may have taken effect."""
    UNDONE = "undone"
    """`undo` returned."""


class JournalEntry(Struct, frozen=True, omit_defaults=True):
    """One step, from its first intent on. `result` is None if no result was stored: a stored None has bytes.

    `unsure` is true if the effect of an earlier attempt is unknown. Then a failure of this attempt does not prove that
    the step had no effect.
    """

    name: str
    """The step, as it was passed to `Step`."""
    progress: StepProgress
    """How far the step has come."""
    token: int
    """The token of the owner that stored the latest intent."""
    kind: StepKind = StepKind.COMPENSATABLE
    """The kind of the step when it was begun: `compensatable`, `pivot` or `retriable`."""
    attempts: int = 1
    """How often `do` was begun since the first time, or since an operator reset it."""
    undo_attempts: int = 0
    """How often `undo` was begun."""
    result: bytes | None = None
    error_type: str = ""
    """The class of the last exception of `do` or `undo`. Empty if there was none, and again once `do` succeeded."""
    error: str = ""
    """The message of that exception."""
    final: bool = False
    """True if the step gets no further attempt: its exception is declared as `final`, or an operator said so."""
    unsure: bool = False


class Journal(Struct, frozen=True, omit_defaults=True):
    """How far a saga has come. `cycle` is part of its derived keys; `error` is why the saga compensates.

    `direction` is forward or compensating. `entries` are the steps that have begun, in order; they are stored under the
    name `lines`. `error_type` is the type of the exception. `version` is that of the format.
    """

    cycle: int
    direction: Direction = Direction.FORWARD
    entries: tuple[JournalEntry, ...] = field(default=(), name="lines")
    error_type: str = ""
    error: str = ""
    version: int = VERSION

    def entry(self, name: str) -> JournalEntry | None:
        """Return the entry of the step with this `name`, or None if it has not begun."""
        return next((entry for entry in self.entries if entry.name == name), None)

    @property
    def open_step(self) -> JournalEntry | None:
        """Return the step that blocks the saga, or None: begun, being undone, or the last one if it failed."""
        for entry in reversed(self.entries):
            if entry.progress in (StepProgress.BEGUN, StepProgress.UNDOING):
                return entry
        if self.direction is Direction.COMPENSATING or not self.entries:
            return None
        return self.entries[-1] if self.entries[-1].progress is StepProgress.NOT_DONE else None

    @property
    def undone(self) -> bool:
        """Whether the saga was compensated and no effect of it is left."""
        gone = (StepProgress.UNDONE, StepProgress.NOT_DONE)
        return self.direction is Direction.COMPENSATING and all(entry.progress in gone for entry in self.entries)


# ── the next move ─────────────────────────────────────────────────────────────────────────────────────────────


class Do(Struct, frozen=True):
    """Write the intent, then do this step: for the first time, or again under the same derived key."""

    step: int


class VerifyStep(Struct, frozen=True):
    """Call the step's `find` to check whether the step has taken effect."""

    step: int


class Compensate(Struct, frozen=True):
    """Write that the saga compensates from now on. `step` is the one that failed."""

    step: int


class Undo(Struct, frozen=True):
    """Write the intent, then undo this step."""

    step: int


class ParkSaga(Struct, frozen=True):
    """Park the saga: an operator must resolve it."""

    step: int
    error_type: str
    why: str


class Finished(Struct, frozen=True):
    """All steps are done, or all are undone."""

    undone: bool


Move = Do | VerifyStep | Compensate | Undo | ParkSaga | Finished


def next_move(plan: Plan, journal: Journal) -> Move:
    """Return the next move of a saga with this journal. Every worker that reads the same journal gets the same move."""
    if journal.direction is Direction.COMPENSATING:
        return _next_undo(plan, journal)
    for number, step in enumerate(plan):
        entry = journal.entry(step.name)
        if entry is None:
            return Do(number)
        if entry.progress is StepProgress.BEGUN:
            return _settle(plan, number, entry)
        if entry.progress is StepProgress.NOT_DONE:
            if not entry.final and entry.attempts < step.max_attempts:
                return Do(number)
            if step.kind is not StepKind.RETRIABLE:
                return Compensate(number)
            return ParkSaga(
                number, "AttemptsUsedUp", f"step {step.name} failed {entry.attempts} times; {_last_error(entry)}"
            )
    return Finished(undone=False)


def _next_undo(plan: Plan, journal: Journal) -> Move:
    """Undo the latest step first. If its effect is unknown, settle it before it, or any earlier step, is undone."""
    for number in reversed(range(len(plan))):
        entry = journal.entry(plan[number].name)
        if entry is None or entry.progress in (StepProgress.NOT_DONE, StepProgress.UNDONE):
            continue
        if entry.progress is StepProgress.BEGUN:
            return _settle(plan, number, entry)
        if entry.undo_attempts < plan[number].undo_attempts:
            return Undo(number)
        why = f"undoing step {entry.name} failed {entry.undo_attempts} times; {_last_error(entry)}"
        return ParkSaga(number, "UndoFailed", why)
    return Finished(undone=True)


def _settle(plan: Plan, number: int, entry: JournalEntry) -> Move:
    """Return the move for an intent without a result: whether the step took effect is unknown."""
    step = plan[number]
    if step.policy.after_crash is AfterCrash.VERIFY:
        return VerifyStep(number)
    if step.policy.after_crash is AfterCrash.PARK:
        why = f"it is unknown whether step {step.name} took effect; {_last_error(entry)}"
        return ParkSaga(number, "Unsettled", why)
    if entry.attempts < step.max_attempts:
        return Do(number)
    why = f"it is unknown whether step {step.name} took effect in {entry.attempts} attempts; {_last_error(entry)}"
    hint = (
        " → if this error means that nothing happened, declare it: final= or not_applied=" if entry.error_type else ""
    )
    return ParkSaga(number, "AttemptsUsedUp", why + hint)


def _last_error(entry: JournalEntry) -> str:
    return f"last: {entry.error_type}: {entry.error}" if entry.error_type else "its worker stopped responding"


def incompatibility(plan: Plan, journal: Journal) -> str:
    """Return why this plan cannot continue this journal, or an empty string if it can.

    The steps in the journal must be the first ones of the plan; later steps may have been added since. A step that
    could be undone when it was begun must still have an undo.
    """
    names = [entry.name for entry in journal.entries]
    if names != [step.name for step in plan[: len(names)]]:
        return f"the saga was begun with other steps: {', '.join(names)}"
    for entry, step in zip(journal.entries, plan, strict=False):
        if entry.kind is StepKind.COMPENSATABLE and step.undo is None:
            return f"step {entry.name} could be undone when it was begun, and now it is {step.kind}"
    return ""


# ── changes of the journal ──────────────────────────────────────────────────────────────────────────────────────────


def step_begun(journal: Journal, step: PlannedStep, token: int) -> Journal:
    """Write the intent of `do`."""
    before = journal.entry(step.name)
    if before is None:
        return replace(
            journal, entries=(*journal.entries, JournalEntry(step.name, StepProgress.BEGUN, token, step.kind))
        )
    unsure = before.unsure or before.progress is StepProgress.BEGUN
    attempts = before.attempts + 1
    again = replace(before, progress=StepProgress.BEGUN, token=token, attempts=attempts, final=False, unsure=unsure)
    return with_entry(journal, again)


def step_done(journal: Journal, name: str, result: bytes | None) -> Journal:
    return _changed(journal, name, progress=StepProgress.DONE, result=result, error_type="", error="", unsure=False)


def step_not_done(journal: Journal, name: str, error_type: str, error: str, *, final: bool = False) -> Journal:
    """Write that the step certainly had no effect, in this attempt or any before."""
    failure = {"error_type": error_type, "error": error, "final": final}
    return _changed(journal, name, progress=StepProgress.NOT_DONE, unsure=False, **failure)


def attempt_failed(journal: Journal, name: str, error_type: str, error: str) -> Journal:
    """Write that an attempt of `do` or `undo` raised. Whether it took effect stays unknown."""
    return _changed(journal, name, error_type=error_type, error=error)


def compensating(journal: Journal, error_type: str, error: str) -> Journal:
    return replace(journal, direction=Direction.COMPENSATING, error_type=error_type, error=error)


def step_undoing(journal: Journal, name: str, token: int) -> Journal:
    """Write the intent of `undo`."""
    before = _entry(journal, name)
    return with_entry(
        journal, replace(before, progress=StepProgress.UNDOING, token=token, undo_attempts=before.undo_attempts + 1)
    )


def step_undone(journal: Journal, name: str) -> Journal:
    return _changed(journal, name, progress=StepProgress.UNDONE, error_type="", error="")


def without_results(journal: Journal) -> Journal:
    """Remove the results of the steps: the record of a completed saga has them in its own result."""
    return replace(journal, entries=tuple(replace(entry, result=None) for entry in journal.entries))


def _entry(journal: Journal, name: str) -> JournalEntry:
    entry = journal.entry(name)
    if entry is None:
        raise LookupError(f"step {name} was never begun")
    return entry


def _changed(journal: Journal, name: str, **changes: object) -> Journal:
    return with_entry(journal, replace(_entry(journal, name), **changes))


def with_entry(journal: Journal, entry: JournalEntry) -> Journal:
    return replace(journal, entries=tuple(entry if one.name == entry.name else one for one in journal.entries))


# ── the journal in a note ───────────────────────────────────────────────────────────────────────────────────────────

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Journal).decode


def note_of(journal: Journal) -> dict[str, str]:
    """Return the note that stores the journal."""
    return {SAGA: _encode(journal).decode()}


def journal_from(note: Mapping[str, str]) -> Journal | None:
    """Return the journal stored in a record's note, or None."""
    text = note.get(SAGA, "")
    if not text:
        return None
    try:
        journal = _decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ResultCorrupt("the journal of this saga cannot be read", hint="restore the record") from error
    if journal.version > VERSION:
        raise UnknownCodec(f"the journal has version {journal.version}", hint="continue it with a newer Onceward")
    return journal
