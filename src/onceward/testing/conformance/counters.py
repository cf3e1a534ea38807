"""Counters: a sheet is written over, never added to; each process has its own; the newest counts, and old ones go."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import SkipTest

from onceward.protocol.capabilities import KeepsCounters
from onceward.protocol.counters import COUNTS_RETENTION, HOUR, CounterRow, Counts, StoredCounts, add_up

from .factory import StoreFactory, check
from .stage import TIMEOUT, Caller, Stage, assert_equal

ONE, TWO = bytes(range(16)), bytes(range(100, 116))
SCOPE = "shop/charge"


class Counting:
    """A process that counts, with a store of its own."""

    def __init__(self, store: KeepsCounters, process: bytes = ONE) -> None:
        self.store = store
        self.process = process

    async def now(self) -> int:
        return await self.store.save_counts([], timeout=TIMEOUT)

    async def hour(self) -> int:
        return await self.now() // HOUR

    def sheet(self, hour: int, number: int, counts: Counts | None = None, **cell: int) -> CounterRow:
        return CounterRow(self.process, hour, number, {SCOPE: cell} if counts is None else counts)

    async def write(self, *sheets: CounterRow) -> int:
        return await self.store.save_counts(sheets, timeout=TIMEOUT)

    async def read_counts(self, since: int = 0) -> StoredCounts:
        return await self.store.read_counts(since, timeout=TIMEOUT)

    async def total(self, name: str = "executed", since: int = 0) -> int:
        return add_up(await self.read_counts(since), since).total(name)


def keeper_of(caller: Caller) -> KeepsCounters:
    if not isinstance(caller.store, KeepsCounters):
        raise SkipTest("this store keeps no counters")
    return caller.store


async def counting(stage: Stage, process: bytes = ONE) -> Counting:
    return Counting(keeper_of(await stage.caller()), process)


def seen(counted: StoredCounts) -> list[tuple[Any, ...]]:
    return sorted((one.hour, one.process, one.number, one.counts) for one in counted.sheets)


class CounterChecks(StoreFactory):
    """For stores that keep counters; skipped where one does not."""

    @check()
    async def test_what_was_counted_is_there_as_it_was_written(self, stage: Stage) -> None:
        one = await counting(stage)
        hour = await one.hour()
        counts = {SCOPE: {"executed": 3, "replayed": 2**40}, "a%2Fb/ü\u2028@\"t'": {"stale": 1}, "empty": {}}
        sheets = [one.sheet(hour, 1, counts), one.sheet(hour - 1, 2, executed=7)]
        await one.write(*sheets)
        written = seen(StoredCounts(sheets, 0))
        assert_equal(seen(await one.read_counts()), written, "the sheets")
        written = [(*place, {scope: dict(cell) for scope, cell in cells.items()}) for *place, cells in written]
        counts[SCOPE]["executed"] += 1
        assert_equal(seen(await one.read_counts()), written, "the sheets, while their process goes on counting")

    @check()
    async def test_a_sheet_that_is_written_twice_counts_once(self, stage: Stage) -> None:
        """A reply was lost, so it was sent again."""
        one = await counting(stage)
        sheet = one.sheet(await one.hour(), 1, executed=5)
        await one.write(sheet)
        await one.write(sheet)
        assert_equal(await one.total(), 5, "executions, after the same sheet came twice")

    @check()
    async def test_a_later_sheet_of_an_hour_takes_the_place_of_the_earlier_one(self, stage: Stage) -> None:
        one = await counting(stage)
        hour = await one.hour()
        await one.write(one.sheet(hour, 1, executed=5))
        await one.write(one.sheet(hour, 2, executed=8, failed=1))
        assert_equal(await one.total(), 8, "executions")
        assert_equal(await one.total("failed"), 1, "failures")

    @check()
    async def test_a_sheet_that_was_overtaken_on_its_way_changes_nothing(self, stage: Stage) -> None:
        one = await counting(stage)
        hour = await one.hour()
        await one.write(one.sheet(hour, 10, executed=8))
        await one.write(one.sheet(hour, 9, executed=5))
        assert_equal(await one.total(), 8, "executions, after an older sheet came late")

    @check()
    async def test_processes_and_hours_do_not_write_over_each_other(self, stage: Stage) -> None:
        one, two = await counting(stage), await counting(stage, TWO)
        hour = await one.hour()
        await one.write(one.sheet(hour, 1, executed=5), one.sheet(hour - 1, 1, executed=10))
        await two.write(two.sheet(hour, 1, executed=100))
        assert_equal(await one.total(), 115, "executions of both processes in both hours")
        assert_equal(await two.total(since=hour), 105, "executions of both processes in the last hour")
        assert_equal(await two.total(since=hour + 1), 0, "executions in an hour that is still to come")

    @check()
    async def test_many_write_at_once_and_nothing_is_lost(self, stage: Stage) -> None:
        processes = [await counting(stage, bytes([number]) * 16) for number in range(8)]
        hour = await processes[0].hour()

        async def count(one: Counting) -> None:
            for number in range(1, 6):
                await one.write(one.sheet(hour, number, executed=number))

        await stage.together([partial(count, one) for one in processes])
        assert_equal(await processes[0].total(), 5 * len(processes), "executions of all")

    @check()
    async def test_without_sheets_only_the_time_is_told(self, stage: Stage) -> None:
        one = await counting(stage)
        before = self.written(stage)
        now = await one.now()
        assert_equal(self.written(stage), before, "writes, when nothing was to be written")
        assert_equal((await one.read_counts()).sheets, [], "sheets")
        assert abs((await one.read_counts()).now - now) < HOUR, "the store's time is told with what was counted"

    @check(needs=("fake_clock",))
    async def test_the_time_is_the_stores(self, stage: Stage) -> None:
        one = await counting(stage)
        assert_equal(await one.now(), stage.clock.now(), "the store's time")
        stage.turn(5 * HOUR)
        assert_equal(await one.now(), stage.clock.now(), "the store's time, five hours later")

    @check(needs=("fake_clock",))
    async def test_old_sheets_are_not_shown_and_go(self, stage: Stage) -> None:
        one = await counting(stage)
        hour = await one.hour()
        await one.write(*(one.sheet(hour + later, 1, executed=1) for later in range(3)))
        stage.turn(COUNTS_RETENTION)
        assert_equal(await one.total(), 3, "executions that are just kept")
        stage.turn(HOUR)
        assert_equal(await one.total(), 2, "executions, after the first hour is too old")
        await one.store.expire_counts(1_000, timeout=TIMEOUT)
        assert_equal(await one.total(), 2, "executions, after what is too old was deleted")
        assert_equal(await one.store.expire_counts(1_000, timeout=TIMEOUT), 0, "old sheets that are left")

    @check(needs=("durable",))
    async def test_counters_outlive_the_store(self, stage: Stage) -> None:
        caller = await stage.caller()
        one = Counting(keeper_of(caller))
        await one.write(one.sheet(await one.hour(), 1, executed=5))
        await stage.dismiss(caller)
        assert_equal(await (await counting(stage)).total(), 5, "executions, after closing and opening again")

    def written(self, stage: Stage) -> int:
        try:
            return self.writes(stage.place)
        except SkipTest:
            return 0
