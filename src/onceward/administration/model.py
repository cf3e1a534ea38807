"""What `Admin` returns. Times are aware datetimes in UTC, by the store's clock; ids are hexadecimal texts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

from msgspec import Struct

from onceward.observe.rules import Broken
from onceward.protocol.audit import AuditEntry
from onceward.protocol.record import RecordState

T = TypeVar("T")


class KeyRow(Struct, frozen=True, kw_only=True):
    """One record in a list."""

    id: str
    scope: str
    operation: str
    tenant: str
    key: str
    state: RecordState
    standing: str
    """The state as text, and whether its lease or window has expired: "PENDING lapsed", "FAILED final"."""

    attempt: int
    token: int
    owner: str
    created_at: datetime
    claimed_at: datetime
    updated_at: datetime
    renewed_at: datetime
    lease_until: datetime | None
    retry_at: datetime | None
    valid_until: datetime | None
    error_type: str
    error: str
    error_frame: str
    """The application's function that raised, `module.function:line`; "" if it is not known."""

    note: dict[str, str]


class KeyPage(Struct, frozen=True):
    """A page of keys, newest first. `cursor` is None on the last page.

    A page may be short although it has a cursor: a search visits a limited number of records per page.
    `searched_back_to` is then how far back it has searched.
    """

    rows: list[KeyRow]
    cursor: str | None
    now: datetime
    searched_back_to: datetime | None = None
    unreadable: tuple[str, ...] = ()


class StoredValue(Struct, frozen=True):
    """A stored result or input. `value` is JSON; it is None if `problem` says why it is not shown."""

    size: int
    """Bytes as stored; 0 if nothing is stored."""

    value: Any = None
    problem: str = ""


class TimelineEvent(Struct, frozen=True):
    """One event in the life of a key. `who` is a worker or an operator."""

    at: datetime
    what: str
    """created, claimed, taken_over, renewed, completed, replayed, failed, released, mismatch, parked, lost, freed,
    step, retry, window, lease, or the operator's verb."""

    text: str
    who: str = ""
    planned: bool = False
    """Whether it lies in the future, such as the end of the lease."""


class ActionOption(Struct, frozen=True):
    """An action, and whether the record allows it now. `reason` says why not."""

    action: str
    allowed: bool
    reason: str = ""


class StepRow(Struct, frozen=True):
    """One step of a saga."""

    name: str
    kind: str
    progress: str
    attempts: int
    undo_attempts: int
    error_type: str
    error: str


class SagaRow(Struct, frozen=True):
    """A saga and its steps. `blocked_by` is the step that an operator has to resolve; "" if there is none."""

    row: KeyRow
    direction: str
    undone: bool
    blocked_by: str
    steps: list[StepRow]
    error_type: str = ""
    error: str = ""


class KeyDetail(Struct, frozen=True, kw_only=True):
    """Everything about one key."""

    row: KeyRow
    now: datetime
    explanation: list[str]
    policy: list[str]
    """The policy in words: of this record, and of its operation as it was declared last, if that is known."""

    timeline: list[TimelineEvent]
    """The life of the key: history, record, audit trail and saga steps in one list, the latest last, then plans."""

    gaps: list[str]
    """What the timeline does not show, in sentences."""

    audit: list[AuditEntry]
    actions: list[ActionOption]
    result: StoredValue
    input: StoredValue
    cycle: int
    fingerprint: str
    attempt_state: str
    """The state in the life of an attempt (see `engine/attempt.py`) that matches the record; "" if there is none."""

    saga: SagaRow | None = None


class Evidence(Struct, frozen=True):
    """A parked record and what is known about it, for the operator who decides."""

    row: KeyRow
    explanation: list[str]
    audit: list[AuditEntry]
    actions: list[ActionOption]


class Page(Struct, Generic[T], frozen=True):
    """A page of a list, the latest first. It may be short although it has a cursor, as in `KeyPage`."""

    rows: list[T]
    cursor: str | None
    now: datetime


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Failures with one exception type, raised in one function of the application."""

    id: str
    """Identifies the group in URLs; pass it to `Admin.failure_group`."""

    error_type: str
    frame: str
    """`module.function` that raised; "" if the record does not say."""

    count: int
    final: int
    """How many of them are not retried."""

    first_seen: datetime
    last_seen: datetime
    scopes: tuple[str, ...]
    sample: KeyRow


class FailureGroups(Struct, frozen=True):
    """The groups, the largest first. `more`: only the latest `visited` failures were read."""

    groups: list[FailureGroup]
    visited: int
    more: bool
    now: datetime


class HourFigures(Struct, frozen=True):
    """The counters of one hour, by name. `counters.COUNTER_NAMES` describes the names."""

    hour: datetime
    counts: dict[str, int]


class ScopeFigures(Struct, frozen=True):
    """The counters of one scope in the period, and the share of replays (None without calls)."""

    scope: str
    counts: dict[str, int]
    replay_rate: float | None
    hours: list[HourFigures]


class Capped(Struct, frozen=True):
    """A number of records. `more`: there are more; counting stopped here, so that it stays fast."""

    number: int
    more: bool = False


class ScheduleRow(Struct, frozen=True, kw_only=True):
    """A schedule. Fields of the pattern are empty if no application is loaded that declares it."""

    name: str
    scope: str
    pattern: str = ""
    pattern_text: str = ""
    """The pattern in words: "at 03:00 every day"."""

    tz: str = ""
    overlap: str = ""
    catch_up: str = ""
    next_slot: datetime | None = None
    considered: datetime | None = None
    """All slots up to this time are settled or missed."""

    missed: int = 0
    overdue: bool = False
    paused: bool = False
    running: bool = False
    last_run: KeyRow | None = None
    """The record of its latest slot that was started."""

    declared: bool = False

    @property
    def standing(self) -> str:
        """Its state in one word: paused, overdue, running, failing (the last run failed or is parked), new, or ok.

        `new` means that no runner has started it yet.
        """
        if self.paused:
            return "paused"
        if self.overdue:
            return "overdue"
        if self.running:
            return "running"
        unfinished = (RecordState.FAILED, RecordState.PARKED)
        if self.last_run is not None and self.last_run.state in unfinished:
            return "failing"
        return "new" if self.declared and self.considered is None else "ok"


class ScheduleDetail(Struct, frozen=True):
    """A schedule, its latest slots with their records (None: not started), and the next ones."""

    row: ScheduleRow
    slots: list[tuple[datetime, KeyRow | None]]
    upcoming: list[datetime]


class Overview(Struct, frozen=True, kw_only=True):
    """The figures of the first page. Without counters (`counters=True`), `hours` and `scopes` are empty."""

    now: datetime
    since: datetime
    states: dict[RecordState, Capped]
    running: Capped
    """PENDING records whose lease has not expired."""

    failed_final: Capped
    oldest_pending: KeyRow | None
    totals: dict[str, int]
    replay_rate: float | None
    hours: list[HourFigures]
    scopes: list[ScopeFigures]
    schedules: list[ScheduleRow]
    broken: list[Broken]
    counters: bool
    partial: bool
    """Whether the figures about failed or running records cover only the latest ones, because there are too many."""


class WorkerRow(Struct, frozen=True):
    """A worker that holds a lease now. Idle workers hold none, so they are not known to the store."""

    owner: str
    running: int
    renewed_at: datetime
    oldest: KeyRow


class Workers(Struct, frozen=True):
    """The workers that hold leases. `more`: there are more PENDING records than were read."""

    rows: list[WorkerRow]
    more: bool
    now: datetime


class EntityRow(Struct, frozen=True):
    """The latest state of an entity."""

    id: str
    scope: str
    entity: str
    updated_at: datetime
    value: StoredValue


class EntityPage(Struct, frozen=True):
    """A page of entities; `cursor` is None on the last page."""

    rows: list[EntityRow]
    cursor: str | None


class DeadLetters(Struct, frozen=True):
    """Messages that could not be processed.

    `parked` are those that were parked in a record, because there is no dead letter queue. `moved` counts those that
    were moved to a dead letter queue in the last day, by scope: the store does not know them, their broker does.
    """

    parked: list[KeyRow]
    cursor: str | None
    moved: dict[str, int]


class ImportRow(Struct, frozen=True):
    """How far the import of a file has come."""

    name: str
    state: str
    done: int
    created: int
    updated: int
    skipped: int
    rejected: int
    to_review: int
    rejects: str


class RuleRow(Struct, frozen=True):
    """A rule: its limits, and where it is broken."""

    name: str
    todo: str
    by_counters: bool
    broken: list[Broken]
