"""What a recovery worker makes of a record: pure functions of the record and the store's time."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, field

from onceward.engine.lock_record import is_lock
from onceward.keys.key import Scope
from onceward.protocol.cells import attempts_used_up
from onceward.protocol.operation_names import SCHEDULE_PREFIX
from onceward.protocol.outcome import Executed, Failed, Outcome, Parked, Replayed, Running
from onceward.protocol.record import NO_OWNER, Record, RecordState
from onceward.protocol.transitions import Row, row_of

UNFINISHED: Final = (RecordState.PENDING, RecordState.FAILED, RecordState.PARKED)
"""Where there is anything to look for."""

SECOND: Final = 1_000_000
LONGEST_REST: Final = 600 * SECOND
"""Between two attempts of work that keeps failing and declares no `retry_delay` of its own."""

VERIFIED: Final = "verified"
"""The reason of a replay that came of looking whether the effect had happened."""

MOST_LISTED: Final = 100
"""Of those that need a redelivery. All are counted."""


class RecoveryStatus(StrEnum):
    """What is to be done about a record."""

    DUE = "due"
    RUNNING = "running"
    WAITING = "waiting"  # it failed, and its next attempt is due later
    PARKED = "parked"
    OVER = "over"  # settled, given up, or not work at all


def standing_of(record: Record, now: int) -> RecoveryStatus:
    row = row_of(record, now)
    if is_lock(record):
        return RecoveryStatus.OVER
    if row is Row.PENDING_LIVE:
        return RecoveryStatus.RUNNING
    if row in (Row.PENDING_LAPSED, Row.RELEASED_UNVERIFIED):
        return RecoveryStatus.DUE
    if row is Row.PARKED:
        return RecoveryStatus.PARKED
    if row is not Row.FAILED_RETRYABLE or attempts_used_up(record.attempt, record.max_attempts):
        return RecoveryStatus.OVER
    return RecoveryStatus.DUE if now >= next_attempt_at(record) else RecoveryStatus.WAITING


def next_attempt_at(record: Record) -> int:
    """When it was declared to be due; and later the more often it failed, as nobody else paces a worker.

    What a person let run again has no owner in its record, and is due at once.
    """
    declared = record.retry_at or 0
    if record.nonce == NO_OWNER:
        return declared
    rest = min(SECOND << min(max(record.attempt - 1, 0), 20), LONGEST_REST)
    return max(declared, record.updated_at + rest)


def belongs_to(app: str, record: Record) -> bool:
    """Whether it is work of this application. Slots of schedules are their runners' to repeat."""
    own = Scope(app, "x").text[:-1]
    return record.scope.startswith(own) and not record.scope.startswith(f"{own}{SCHEDULE_PREFIX}")


class Recovered(Struct, frozen=True):
    """One piece of work that a recovery worker had a hand in. `error`: why it could not even be tried."""

    key: str
    scope: str
    outcome: Outcome[Any] | None = None
    error: str = ""

    @property
    def elsewhere(self) -> bool:
        """Somebody else was faster: it runs there, or is done by now."""
        outcome = self.outcome
        return isinstance(outcome, Running) or (isinstance(outcome, Replayed) and outcome.reason != VERIFIED)


class Left(Struct, frozen=True):
    """One that is left for others: nobody kept its input, or it is declared elsewhere."""

    key: str
    scope: str
    state: str


_LEFT: Final = ("unclear", "running", "waiting", "waiting_for_a_person", "needing_redelivery", "unreadable")


class Recovery(Struct):
    """What one pass, or all passes of a worker, came to."""

    done: int = 0
    failed: int = 0
    again: int = 0
    parked: int = 0
    unclear: int = 0
    running: int = 0
    waiting: int = 0
    waiting_for_a_person: int = 0
    needing_redelivery: int = 0
    unreadable: int = 0
    needs_redelivery: list[Left] = field(default_factory=list)

    @property
    def found_work(self) -> bool:
        """Whether this pass got anything further: what could not even be tried would be the same in the next."""
        return self.done + self.failed + self.again + self.parked > 0

    @property
    def needs_attention(self) -> bool:
        """Whether something is left that no recovery worker can finish."""
        left = self.waiting_for_a_person + self.needing_redelivery + self.unreadable
        return left + self.failed + self.parked + self.unclear > 0

    def count(self, told: Recovered) -> None:
        if told.elsewhere:
            self.running += 1
            return
        match told.outcome:
            case Executed():
                self.done += 1
            case Failed(final=True):
                self.failed += 1
            case Failed():
                self.again += 1
            case Parked():
                self.parked += 1
            case Replayed():
                self.done += 1
            case _:
                self.unclear += 1

    def leave(self, record: Record) -> None:
        self.needing_redelivery += 1
        if len(self.needs_redelivery) < MOST_LISTED:
            self.needs_redelivery.append(Left(record.key, record.scope, record.state.value))

    def add(self, other: Recovery) -> None:
        """A later pass: what was done adds up, what is left is what it found."""
        for name in ("done", "failed", "again", "parked"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in (*_LEFT, "needs_redelivery"):
            setattr(self, name, getattr(other, name))
