"""Run the schedules of a client: check what is due, start it, sleep until the next slot; repeat until stopped.

Every runner does the same, and there is no leader: the claim of a slot decides which runner runs it. The time is the
store's, so that machines with different clocks agree. A slot is claimed first, and the cursor moves over it only when
it is settled. So nothing is lost if a runner crashes in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from onceward.engine.acquire import FIRST_PAUSE
from onceward.engine.engine import Engine
from onceward.engine.error_text import error_for_log
from onceward.errors import Stopping, StoreError
from onceward.protocol.outcome import Replayed, Running
from onceward.protocol.policy import SECOND
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer
from onceward.protocol.runtime import WorkerPool

from .cursor import Cursor, cursor_of, move
from .definition import Missed, Ran, Schedule
from .due import Agenda, OpenSlot, SlotStatus, agenda, status_of
from .operator_requests import is_paused, requested_slot
from .slot_run import MakeJob, SlotRun, run_slot
from .slots import datetime_of

MAX_SLEEP = 60.0
"""Seconds after which the runner asks the store for the time again: clocks are set, and machines are suspended."""

STORE_RETRY_DELAY = 5.0  # seconds until a runner asks a store again that did not answer
MAX_SLOTS = 10_000  # slots that are checked after a long outage; earlier ones are missed, and not counted
READ_BATCH = 256
CURSOR_LAG_PARTS = 8  # if the cursor is behind by this part of catch_up_age, any runner moves it

OnResult = Callable[[Ran | Missed], None]


async def run_loop(
    engine: Engine, runners: Sequence[ScheduleRunner], pool: WorkerPool, *, max_sleep: float = MAX_SLEEP
) -> None:
    """Run what is due until the engine stops; then wait for the runs that have not ended."""
    try:
        while not engine.stopping:
            for runner in runners:
                if runner.is_due():
                    await runner.check(pool)
            seconds = min([max_sleep, *(runner.seconds_left() for runner in runners)])
            await pool.sleep(seconds, lambda: engine.stopping)
    finally:
        await pool.finish()


class ScheduleRunner:
    """The state of one schedule in one process."""

    def __init__(self, engine: Engine, schedule: Schedule, job: MakeJob, on_result: OnResult | None = None) -> None:
        self.engine = engine
        self.schedule = schedule
        self.job = job
        self._on_result = on_result or (lambda _: None)
        self._clock_offset: int | None = None  # µs: the store's clock minus our monotonic one
        self.cursor: Cursor | None = None
        self._considered = 0
        self._settled: set[int] = set()
        self._own_slots: set[int] = set()
        self._has_run = False
        self._paused = False
        self._request: Record | None = None  # an operator's request for a run outside the pattern
        self._next_slot: int | None = None  # the first slot after the last check
        self._run_ended = True  # a run has ended since the last check
        self._check_at = 0  # by our monotonic clock, in µs

    def is_due(self) -> bool:
        return self.seconds_left() == 0

    def seconds_left(self) -> float:
        return 0.0 if self._run_ended else max(0.0, (self._check_at - self._monotonic()) / SECOND)

    def _monotonic(self) -> int:
        return int(self.engine.runtime.monotonic() * SECOND)

    async def check(self, pool: WorkerPool) -> None:
        """Start what is due, move the cursor, and set the time of the next check."""
        self._run_ended = False
        try:
            self._check_at = await self._check(pool)
        except Stopping:
            return
        except StoreError as error:
            self.engine.emit("schedule_delayed", self.schedule.overlap_lock, error=error_for_log(error))
            self._check_at = self._monotonic() + int(STORE_RETRY_DELAY * SECOND)

    async def _check(self, pool: WorkerPool) -> int:
        await self.engine.ready()
        if self.cursor is None:
            await self._register()
        now, records, more = await self._read_open_slots()
        for slot in await self._requested_slots(now):
            self._start(pool, slot, late=False)
        if self._paused:  # the open slots are late when it is resumed: catch_up decides then
            return self._monotonic() + int(MAX_SLEEP * SECOND)
        due = agenda(records, self.schedule.slots, now, self._considered)
        for slot in due.now:
            self._start(pool, slot, late=False)
        if due.late is not None:
            self._start(pool, due.late, late=True)
        await self._advance(due, more=more)
        if self._next_slot is None or self._next_slot <= now:
            self._next_slot = self.schedule.table.next(now)
        checks = [at for at in (self._next_slot, due.check_at) if at is not None]
        return min(checks, default=now + int(MAX_SLEEP * SECOND)) - (now - self._monotonic())

    async def _register(self) -> None:
        """Read the cursor of the schedule. A new schedule begins now."""
        keys = self.schedule.cursors
        while self.cursor is None:
            answers = await self._read_records([key.id for key in keys])
            self._update_cursor(answers)
            if self.cursor is None:
                moved = await move(self.engine, self.schedule, None, answers[0].now, 0)
                await self.engine.runtime.sleep(0 if moved else FIRST_PAUSE * (1 + self.engine.runtime.jitter()))

    async def _read_records(self, ids: Sequence[bytes]) -> list[Answer]:
        answers: list[Answer] = []
        for start in range(0, len(ids), READ_BATCH):
            batch = ids[start : start + READ_BATCH]
            answers += await self.engine.store.read(batch, timeout=self.schedule.policy.call_timeout)
        self._clock_offset = answers[-1].now - self._monotonic()
        return answers

    def _update_cursor(self, answers: Sequence[Answer]) -> None:
        cursor = cursor_of(answers[:2])
        if cursor is not None:
            self.cursor = cursor
            self._considered = max(self._considered, cursor.considered)
            self._settled = {slot for slot in self._settled if slot > self._considered}

    async def _read_open_slots(self) -> tuple[int, list[OpenSlot], bool]:
        """Return the store's time, the slots up to it that are not settled, and whether some were left out."""
        schedule = self.schedule
        until = (self._clock_offset or 0) + self._monotonic()
        slots = deque(islice(schedule.table.between(self._considered, until), MAX_SLOTS))
        more = len(slots) == MAX_SLOTS
        if more:
            recent = schedule.table.between(until - schedule.slots.catch_up_age, until)
            slots = deque(recent, maxlen=MAX_SLOTS)
        unknown = [slot for slot in slots if slot not in self._settled]
        own = [*schedule.cursors, schedule.pause, schedule.requested]
        answers = await self._read_records([key.id for key in own] + [schedule.key(slot).id for slot in unknown])
        self._update_cursor(answers)
        now = answers[-1].now
        self._paused = is_paused(answers[2].record)
        self._request = answers[3].record
        records = dict(zip(unknown, (answer.record for answer in answers[len(own) :]), strict=True))
        open_slots = [OpenSlot(slot, records.get(slot), ours=slot in self._own_slots, settled=slot in self._settled)
                  for slot in slots if self._considered < slot <= now]  # fmt: skip
        return now, open_slots, more

    async def _requested_slots(self, now: int) -> list[int]:
        """Return the slot that an operator has requested, if no runner has started it."""
        slot = requested_slot(self._request, self.schedule, now)
        if slot is None or slot in self._own_slots or slot in self._settled:
            return []
        [answer] = await self._read_records([self.schedule.key(slot).id])
        status = status_of(OpenSlot(slot, answer.record), answer.now)
        if status is SlotStatus.SETTLED:
            self._settled.add(slot)
        return [slot] if status in (SlotStatus.NOT_STARTED, SlotStatus.EXPIRED) else []

    async def _advance(self, due: Agenda, *, more: bool) -> None:
        """Move the cursor over settled slots.

        A runner does this if it ran or missed a slot. Others do it only if the cursor has not moved for long.
        """
        self._settled.update(due.settled)
        cursor = self.cursor
        if cursor is None or due.considered <= cursor.considered:
            return
        lagging = due.considered - cursor.considered > self.schedule.slots.catch_up_age // CURSOR_LAG_PARTS
        if not (self._has_run or due.missed or lagging):
            return
        missed = cursor.missed + len(due.missed)
        if await move(self.engine, self.schedule, cursor, due.considered, missed):
            self._considered, self._has_run = due.considered, False
            if due.missed:
                first, last = datetime_of(due.missed[0]), datetime_of(due.missed[-1])
                result = Missed(self.schedule.name, len(due.missed), first, last, more)
                self.engine.emit("missed", self.schedule.key(due.missed[-1]), reason=str(result))
                self._on_result(result)

    def _start(self, pool: WorkerPool, slot: int, *, late: bool) -> None:
        self._own_slots.add(slot)
        pool.start(lambda: self._run(pool, slot, late=late))

    async def _run(self, pool: WorkerPool, slot: int, *, late: bool) -> None:
        """Run one slot. Any exception is logged, and stops nothing else."""
        schedule = self.schedule
        try:
            outcome = await run_slot(self.engine, SlotRun(schedule, slot, self.job(slot), wait_for_lock=late))
            self._has_run |= not isinstance(outcome, Running | Replayed)
            self._run_ended = True
            self._on_result(Ran(schedule.name, schedule.local(slot), outcome, late))
        except Stopping:
            return
        except Exception as error:  # noqa: BLE001 (from the store or from on_result: the slot is checked again)
            self.engine.emit("schedule_delayed", schedule.key(slot), error=error_for_log(error))
            self._check_at = min(self._check_at, self._monotonic() + int(STORE_RETRY_DELAY * SECOND))
        finally:
            self._own_slots.discard(slot)
            pool.wake()
