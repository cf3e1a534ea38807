"""Collect the history of keys: what happened to them in this process, until `runtime.history` writes it to the store.

In the mode `problems` a call that runs and completes, and its replays, are not collected at all. The engine checks
`all` and the attempt before it calls a method here, so that such a call costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final

from onceward.protocol.history import PROBLEMS, SUMMED, HistoryEvent, HistoryMode
from onceward.protocol.record import CompletedRecord, Record, RecordState
from onceward.protocol.requests import Answer, Verdict

MAX_PENDING: Final = 10_000
"""Events that wait to be written. Beyond this number, new ones are dropped until the next write."""

MAX_OWNERS: Final = 1_000
"""Owners of keys that this process has seen, to say later from whom a key was taken over."""

MAX_NAMED_ARGUMENTS: Final = 10

MAX_DETAIL: Final = 500
"""Characters of the names of arguments: they come from the payload, and may be of any length."""

Slot = tuple[bytes, int, str]
"""What identifies an event: the id and the token of its record, and its name."""

_ENDS: Final = {RecordState.COMPLETED: "completed", RecordState.PARKED: "parked", RecordState.FAILED: "failed"}


class PendingEvent:
    """An event that is not written yet. `at` is the store's time, if it is known; `first` and `last` are monotonic.

    It does not keep the record, whose result may be large.
    """

    __slots__ = (
        "at", "attempt", "count", "detail", "error", "error_type", "first", "last", "owner", "retry_at", "slot"
    )  # fmt: skip

    def __init__(self, slot: Slot, record: Record, at: int, moment: float) -> None:
        self.slot = slot
        self.attempt = record.attempt
        self.owner = record.owner
        self.at = at
        self.first = self.last = moment
        self.count = 1
        self.error_type = self.error = self.detail = ""
        self.retry_at = 0

    def event(self, offset: int) -> HistoryEvent:
        """Return the event to write. `offset` is the store's time at the monotonic time 0, in µs."""
        at = self.at or offset + int(self.first * 1_000_000)
        last_at = at if self.first == self.last else at + int((self.last - self.first) * 1_000_000)
        return HistoryEvent(
            *self.slot, at, last_at, self.count, self.attempt, self.owner,
            self.error_type, self.error, self.retry_at, self.detail,
        )  # fmt: skip


class HistoryCollector:
    """Collects the events of one client.

    `begin` is called for each new event that waits to be written. `new_lock` returns a reentrant lock: a signal handler
    may end a call.
    """

    def __init__(
        self,
        mode: HistoryMode,
        begin: Callable[[], None],
        monotonic: Callable[[], float],
        new_lock: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.mode = mode
        self.all = mode == "all"
        self._begin = begin
        self._monotonic = monotonic
        self._new_lock = new_lock
        self.clear()

    def clear(self) -> None:
        """Drop everything: in a forked child, the parent writes it."""
        self.pending: dict[Slot, PendingEvent] = {}
        self._owners: dict[bytes, Record] = {}
        self._lock = self._new_lock()

    # ── what the engine reports ──

    def claimed(self, record: Record) -> None:
        """Note that this process owns the key now. Call it if `all`, or if it is not the first attempt."""
        before = self._owners.pop(record.id, None)
        if before is not None and before.token >= record.token:
            before = None
        if before is not None and record.attempt > 1:
            self._add("claimed", before, before.claimed_at, needed=True)
        taken_over = record.attempt > 1 and (not record.error_type or _crashed(before, record))
        event = self._add("taken_over" if taken_over else "claimed", record, record.claimed_at)
        if event is not None and taken_over and before is not None and _follows(before, record):
            event.detail = before.owner

    def saw_owner(self, record: Record | None) -> None:
        """Remember the owner of a key that another worker is processing."""
        if record is not None and record.state is RecordState.PENDING:
            with self._lock:
                self._owners.pop(record.id, None)
                self._owners[record.id] = record
                if len(self._owners) > MAX_OWNERS:
                    del self._owners[next(iter(self._owners))]

    def settled(self, claimed: Record, settled: Record, answer: Answer, state: RecordState) -> None:
        """Note how an attempt ended. `claimed` is its record before, `settled` its record now, if it is known."""
        if answer.verdict is Verdict.LOST:
            self._problem("lost", claimed, answer.now)
            return
        if state is RecordState.FREE:
            self._add("released", claimed, answer.now)
            return
        name = "completed" if state is RecordState.COMPLETED else _ENDS.get(settled.state, "failed")
        at = settled.updated_at if settled.state is not RecordState.PENDING else answer.now
        self._problem(name, settled, at)

    def failed_later(self, record: Record, error_type: str) -> None:
        """Note a failure that the heartbeat's thread recorded."""
        event = self._problem("failed", record, 0)
        if event is not None:
            event.error_type = error_type

    def refused(self, answer: Answer, arguments: Iterable[str] = ()) -> None:
        """Note a claim that was refused: a replay, another payload, or a crash that parked the record just now."""
        record = answer.record
        if record is None:
            return
        if answer.verdict is Verdict.RUNNING:
            self.saw_owner(record)
        elif answer.verdict is Verdict.REPLAY and self.all:
            self._add("replayed", record, answer.now)
        elif answer.verdict is Verdict.MISMATCH:
            event = self._add("mismatch", record, answer.now)
            if event is not None:
                event.detail = ", ".join(list(arguments)[:MAX_NAMED_ARGUMENTS])[:MAX_DETAIL]
        elif answer.verdict is Verdict.PARKED and record.updated_at == answer.now:
            self._problem("parked", record, answer.now)

    def replayed(self, id: bytes, done: CompletedRecord) -> None:
        """Note a replay without a claim. Call it only if `all`."""
        record = Record(id, "", "", RecordState.COMPLETED, done.token, attempt=done.attempt, owner=done.owner)
        self._add("replayed", record, 0)

    def renewed(self, record: Record, now: int) -> None:
        """Note a renewal. Renewals of first attempts are collected only if `all`."""
        self._add("renewed", record, now)

    def lost(self, record: Record, now: int) -> None:
        """Note that the heartbeat found another owner."""
        self._problem("lost", record, now)

    # ── collecting ──

    def _problem(self, name: str, record: Record, at: int) -> PendingEvent | None:
        """Add an ending, and the claim that it belongs to: the record forgets both with the next attempt."""
        if name in PROBLEMS and record.claimed_at:
            self._add("claimed", record, record.claimed_at, needed=True)
        event = self._add(name, record, at)
        if event is not None and name in ("failed", "parked"):
            event.error_type, event.error = record.error_type, record.error
            event.retry_at = record.retry_at or 0
            event.detail = "final" if record.final else ""
        return event

    def _add(self, name: str, record: Record, at: int, *, needed: bool = False) -> PendingEvent | None:
        if not (self.all or needed or name in PROBLEMS or record.attempt > 1):
            return None
        moment, slot = self._monotonic(), (record.id, record.token, name)
        with self._lock:
            event = self.pending.get(slot)
            if event is not None:
                if name in SUMMED:
                    event.count += 1
                    event.last = moment
                return event
            if len(self.pending) >= MAX_PENDING:
                return None
            if name == "claimed" and (record.id, record.token, "taken_over") in self.pending:
                return None
            event = self.pending[slot] = PendingEvent(slot, record, at, moment)
        self._begin()
        return event

    # ── writing ──

    def take(self) -> list[PendingEvent]:
        """Remove and return the events that are not written yet, in the order in which they happened."""
        with self._lock:
            taken, self.pending = self.pending, {}
        return list(taken.values())

    def put_back(self, events: Iterable[PendingEvent]) -> None:
        """Keep events that could not be written for the next try."""
        with self._lock:
            for event in events:
                newer = self.pending.get(event.slot)
                if newer is not None:
                    event.count += newer.count
                    event.last = newer.last
                elif len(self.pending) >= MAX_PENDING:
                    continue
                self.pending[event.slot] = event

    def has_events(self) -> bool:
        return bool(self.pending)


def _crashed(before: Record | None, record: Record) -> bool:
    """Return whether the owner that was seen before crashed. If it failed instead, the error differs or came early.

    A claim keeps the error of the last failure, so a record with an error may be a retry or a takeover.
    """
    return (
        before is not None
        and _follows(before, record)
        and before.lease_until is not None
        and before.lease_until <= record.claimed_at
        and (before.error_type, before.error) == (record.error_type, record.error)
    )


def _follows(before: Record, record: Record) -> bool:
    """Return whether no other attempt was between the two."""
    return before.cycle == record.cycle and before.attempt == record.attempt - 1
