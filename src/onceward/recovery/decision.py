"""What a recovery worker does with a record: pure functions of the record and the store's time."""

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
"""The states that a recovery worker scans."""

SECOND: Final = 1_000_000
MAX_RETRY_DELAY: Final = 600 * SECOND
"""The longest delay between two attempts of work that keeps failing (µs), unless its `retry_delay` is longer."""

VERIFIED: Final = "verified"
"""The reason of a replay after `verify` found that the effect had happened."""

MAX_LISTED: Final = 100
"""How many records that need a redelivery are listed. All of them are counted."""


class RecoveryStatus(StrEnum):
    """What a recovery worker has to do with a record."""

    DUE = "due"
    RUNNING = "running"
    WAITING = "waiting"  # it failed, and its next attempt is not due yet
    PARKED = "parked"
    OVER = "over"  # settled, out of attempts, or not work but a lock


def recovery_status(record: Record, now: int) -> RecoveryStatus:
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
    """Return when the next attempt is due: as declared, but with a delay that doubles with each failure.

    Without that delay, a recovery worker would retry failing work continuously. Work that an operator released for
    another run has no owner in its record, and is due immediately.
    """
    declared = record.retry_at or 0
    if record.nonce == NO_OWNER:
        return declared
    delay = min(SECOND << min(max(record.attempt - 1, 0), 20), MAX_RETRY_DELAY)
    return max(declared, record.updated_at + delay)


def belongs_to(app: str, record: Record) -> bool:
    """Return whether the record is work of this application. Slots of schedules are not: their runners repeat them."""
    prefix = Scope(app, "x").text[:-1]
    return record.scope.startswith(prefix) and not record.scope.startswith(f"{prefix}{SCHEDULE_PREFIX}")


class Recovered(Struct, frozen=True):
    """The result of one record that a recovery worker handled, by its `key` and `scope`.

    `outcome` is that of the call. `error` is why it could not be tried.
    """

    key: str
    scope: str
    outcome: Outcome[Any] | None = None
    error: str = ""

    @property
    def elsewhere(self) -> bool:
        """Whether another worker was faster: it is running the work, or has done it."""
        outcome = self.outcome
        return isinstance(outcome, Running) or (isinstance(outcome, Replayed) and outcome.reason != VERIFIED)


class NeedsRedelivery(Struct, frozen=True):
    """A record that this worker cannot deliver: its input was not stored, or another program declares its function."""

    key: str
    scope: str
    state: str


_LAST_PASS_FIELDS: Final = ("unclear", "running", "waiting", "waiting_for_a_person", "needing_redelivery", "unreadable")


class Recovery(Struct):
    """The result of one pass, or of all passes of a recovery worker. All fields are numbers of records.

    - `done`, `failed`, `again`, `parked`: what the calls that it made led to. `again`: another attempt will follow.
    - `unclear`: the store or the call gave no clear answer.
    - `running`: another worker was faster. `waiting`: not due yet.
    - `waiting_for_a_person`: parked, until an operator resolves them.
    - `needing_redelivery`: this worker cannot call them; `needs_redelivery` lists the first ones.
    - `unreadable`: written by a newer version, or damaged.
    """

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
    needs_redelivery: list[NeedsRedelivery] = field(default_factory=list)

    @property
    def found_work(self) -> bool:
        """Whether this pass ran anything. Records that could not be tried would give the same in the next pass."""
        return self.done + self.failed + self.again + self.parked > 0

    @property
    def needs_attention(self) -> bool:
        """Whether records remain that no recovery worker can finish."""
        remaining = self.waiting_for_a_person + self.needing_redelivery + self.unreadable
        return remaining + self.failed + self.parked + self.unclear > 0

    def count(self, result: Recovered) -> None:
        if result.elsewhere:
            self.running += 1
            return
        match result.outcome:
            case Executed() | Replayed():
                self.done += 1
            case Failed(final=True):
                self.failed += 1
            case Failed():
                self.again += 1
            case Parked():
                self.parked += 1
            case _:
                self.unclear += 1

    def add_redelivery(self, record: Record) -> None:
        self.needing_redelivery += 1
        if len(self.needs_redelivery) < MAX_LISTED:
            self.needs_redelivery.append(NeedsRedelivery(record.key, record.scope, record.state.value))

    def add(self, other: Recovery) -> None:
        """Add a later pass: counts of finished work add up; of what remains, the later pass replaces the earlier."""
        for name in ("done", "failed", "again", "parked"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in (*_LAST_PASS_FIELDS, "needs_redelivery"):
            setattr(self, name, getattr(other, name))
