"""Keep the schedules of a client: look what is due, start it, rest until the next slot; again until told to stop.

Every runner does the same and none leads: the claim of a slot decides who runs it. The time is the store's, so that
machines whose clocks differ agree. A slot is claimed first and the cursor moves over it only when it is settled: a
runner that dies in between loses nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from onceward.engine.acquire import FIRST_PAUSE
from onceward.engine.engine import Engine
from onceward.engine.error_text import message_of
from onceward.errors import Stopping, StoreError
from onceward.protocol.outcome import Replayed, Running
from onceward.protocol.policy import SECOND
from onceward.protocol.requests import Answer
from onceward.protocol.runtime import WorkerPool

from .cursor import Cursor, cursor_of, move
from .definition import Missed, Ran, Schedule
from .due import Agenda, OpenSlot, agenda
from .slot_run import MakeJob, Run, run_slot
from .slots import moment

LONGEST_REST = 60.0
"""Seconds after which the store is asked for the time again: it may be set, and machines are suspended."""

AFTER_TROUBLE = 5.0  # seconds until a store that did not answer is asked again
AT_MOST = 10_000  # slots that are looked at after a long silence; earlier ones are missed, uncounted
BATCH = 256
LAGS = 8  # part of catch_up_age by which others may leave the cursor behind before we move it for them

Watcher = Callable[[Ran | Missed], None]


async def keep(
    engine: Engine, watches: Sequence[ScheduleRunner], pool: WorkerPool, *, longest_rest: float = LONGEST_REST
) -> None:
    """Run what is due until the engine stops; then wait for what is running."""
    try:
        while not engine.stopping:
            for watch in watches:
                if watch.is_due():
                    await watch.look(pool)
            rest = min([longest_rest, *(watch.seconds_left() for watch in watches)])
            await pool.rest(rest, lambda: engine.stopping)
    finally:
        await pool.finish()


class ScheduleRunner:
    """One schedule as one runner sees it."""

    def __init__(self, engine: Engine, schedule: Schedule, job: MakeJob, tell: Watcher | None = None) -> None:
        self.engine = engine
        self.schedule = schedule
        self.job = job
        self._tell = tell or (lambda _: None)
        self._ahead: int | None = None  # µs that the store's clock is ahead of our monotonic one
        self._cursor: Cursor | None = None
        self._considered = 0
        self._settled: set[int] = set()
        self._ours: set[int] = set()
        self._did_something = False
        self._next: int | None = None  # slot after the last look
        self._again = True  # a run has ended since the last look
        self._look_at = 0  # by our monotonic clock, in µs

    def is_due(self) -> bool:
        return self.seconds_left() == 0

    def seconds_left(self) -> float:
        return 0.0 if self._again else max(0.0, (self._look_at - self._monotonic()) / SECOND)

    def _monotonic(self) -> int:
        return int(self.engine.runtime.monotonic() * SECOND)

    async def look(self, pool: WorkerPool) -> None:
        """One look: start what is due, move the cursor, and say when to look again."""
        self._again = False
        try:
            self._look_at = await self._look(pool)
        except Stopping:
            return
        except StoreError as error:
            self.engine.emit("schedule_delayed", self.schedule.turn, error=message_of(error))
            self._look_at = self._monotonic() + int(AFTER_TROUBLE * SECOND)

    async def _look(self, pool: WorkerPool) -> int:
        await self.engine.ready()
        if self._cursor is None:
            await self._register()
        now, records, more = await self._read()
        due = agenda(records, self.schedule.slots, now, self._considered)
        for slot in due.now:
            self._start(pool, slot, late=False)
        if due.late is not None:
            self._start(pool, due.late, late=True)
        await self._advance(due, more=more)
        if self._next is None or self._next <= now:
            self._next = self.schedule.table.next(now)
        looks = [one for one in (self._next, due.look_at) if one is not None]
        return min(looks, default=now + int(LONGEST_REST * SECOND)) - (now - self._monotonic())

    async def _register(self) -> None:
        """Where the schedule has come to. A new one begins now."""
        keys = self.schedule.cursors
        while self._cursor is None:
            answers = await self._ask([key.id for key in keys])
            self._remember(answers)
            if self._cursor is None:
                begun = await move(self.engine, self.schedule, None, answers[0].now, 0)
                await self.engine.runtime.sleep(0 if begun else FIRST_PAUSE * (1 + self.engine.runtime.jitter()))

    async def _ask(self, ids: Sequence[bytes]) -> list[Answer]:
        answers: list[Answer] = []
        for start in range(0, len(ids), BATCH):
            some = ids[start : start + BATCH]
            answers += await self.engine.store.read(some, timeout=self.schedule.policy.call_timeout)
        self._ahead = answers[-1].now - self._monotonic()
        return answers

    def _remember(self, answers: Sequence[Answer]) -> None:
        cursor = cursor_of(answers[:2])
        if cursor is not None:
            self._cursor = cursor
            self._considered = max(self._considered, cursor.considered)
            self._settled = {slot for slot in self._settled if slot > self._considered}

    async def _read(self) -> tuple[int, list[OpenSlot], bool]:
        """The store's time, the slots up to it that are not settled, and whether there were too many to look at."""
        schedule = self.schedule
        until = (self._ahead or 0) + self._monotonic()
        slots = deque(islice(schedule.table.between(self._considered, until), AT_MOST))
        more = len(slots) == AT_MOST
        if more:
            recent = schedule.table.between(until - schedule.slots.catch_up_age, until)
            slots = deque(recent, maxlen=AT_MOST)
        unknown = [slot for slot in slots if slot not in self._settled]
        ids = [key.id for key in schedule.cursors] + [schedule.key(slot).id for slot in unknown]
        answers = await self._ask(ids)
        self._remember(answers)
        now = answers[-1].now
        records = dict(zip(unknown, (answer.record for answer in answers[2:]), strict=True))
        opened = [OpenSlot(slot, records.get(slot), ours=slot in self._ours, settled=slot in self._settled)
                  for slot in slots if self._considered < slot <= now]  # fmt: skip
        return now, opened, more

    async def _advance(self, due: Agenda, *, more: bool) -> None:
        """Move the cursor over what is settled. Whoever ran something does; the others only if nobody has for long."""
        self._settled.update(due.settled)
        cursor = self._cursor
        if cursor is None or due.considered <= cursor.considered:
            return
        lags = due.considered - cursor.considered > self.schedule.slots.catch_up_age // LAGS
        if not (self._did_something or due.missed or lags):
            return
        missed = cursor.missed + len(due.missed)
        if await move(self.engine, self.schedule, cursor, due.considered, missed):
            self._considered, self._did_something = due.considered, False
            self._tell_missed(due.missed, more=more)

    def _tell_missed(self, missed: Sequence[int], *, more: bool) -> None:
        if missed:
            told = Missed(self.schedule.name, len(missed), moment(missed[0]), moment(missed[-1]), more)
            self.engine.emit("missed", self.schedule.key(missed[-1]), reason=str(told))
            self._tell(told)

    def _start(self, pool: WorkerPool, slot: int, *, late: bool) -> None:
        self._ours.add(slot)
        pool.start(lambda: self._do(pool, slot, late=late))

    async def _do(self, pool: WorkerPool, slot: int, *, late: bool) -> None:
        """One run. Whatever it raises is told and ends nothing else."""
        schedule = self.schedule
        try:
            outcome = await run_slot(self.engine, Run(schedule, slot, self.job(slot), patient=late))
            self._did_something |= not isinstance(outcome, Running | Replayed)
            self._again = True
            self._tell(Ran(schedule.name, schedule.local(slot), outcome, late))
        except Stopping:
            return
        except Exception as error:  # noqa: BLE001 (the store's trouble, or a listener's: the slot is looked at again)
            self.engine.emit("schedule_delayed", schedule.key(slot), error=message_of(error))
            self._look_at = min(self._look_at, self._monotonic() + int(AFTER_TROUBLE * SECOND))
        finally:
            self._ours.discard(slot)
            pool.wake()
