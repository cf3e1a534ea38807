"""Counters: each process replaces its own row of an hour; the row with the highest number wins; old rows expire."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import SkipTest

from onceward.protocol.capabilities import Counters
from onceward.protocol.counters import COUNTS_RETENTION, HOUR, CounterRow, Counts, StoredCounts, add_up

from .factory import StoreFactory, check
from .harness import TIMEOUT, Harness, assert_equal

ONE, TWO = bytes(range(16)), bytes(range(100, 116))
SCOPE = "shop/charge"


class CountingProcess:
    """Simulates a process that writes counters, with its own store."""

    def __init__(self, store: Counters, process: bytes = ONE) -> None:
        self.store = store
        self.process = process

    async def now(self) -> int:
        return await self.store.save_counts([], timeout=TIMEOUT)

    async def hour(self) -> int:
        return await self.now() // HOUR

    def counter_row(self, hour: int, number: int, counts: Counts | None = None, **cell: int) -> CounterRow:
        return CounterRow(self.process, hour, number, {SCOPE: cell} if counts is None else counts)

    async def write(self, *counter_rows: CounterRow) -> int:
        return await self.store.save_counts(counter_rows, timeout=TIMEOUT)

    async def read_counts(self, since: int = 0) -> StoredCounts:
        return await self.store.read_counts(since, timeout=TIMEOUT)

    async def total(self, name: str = "executed", since: int = 0) -> int:
        return add_up(await self.read_counts(since), since).total(name)


async def counting_process(harness: Harness, process: bytes = ONE) -> CountingProcess:
    return CountingProcess((await harness.caller()).capability("counters"), process)


def seen(counted: StoredCounts) -> list[tuple[Any, ...]]:
    return sorted((one.hour, one.process, one.number, one.counts) for one in counted.counter_rows)


class CounterChecks(StoreFactory):
    """For stores with `counters`; skipped for others."""

    @check()
    async def test_counters_are_read_as_they_were_written(self, harness: Harness) -> None:
        one = await counting_process(harness)
        hour = await one.hour()
        counts = {SCOPE: {"executed": 3, "replayed": 2**40}, "a%2Fb/ü\u2028@\"t'": {"stale": 1}, "empty": {}}
        counter_rows = [one.counter_row(hour, 1, counts), one.counter_row(hour - 1, 2, executed=7)]
        await one.write(*counter_rows)
        written = seen(StoredCounts(counter_rows, 0))
        assert_equal(seen(await one.read_counts()), written, "the rows")
        written = [(*columns, {scope: dict(cell) for scope, cell in cells.items()}) for *columns, cells in written]
        counts[SCOPE]["executed"] += 1
        assert_equal(seen(await one.read_counts()), written, "the rows, after their process changed its own counters")

    @check()
    async def test_a_row_written_twice_counts_once(self, harness: Harness) -> None:
        """This happens when a reply was lost and the process sends the row again."""
        one = await counting_process(harness)
        counter_row = one.counter_row(await one.hour(), 1, executed=5)
        await one.write(counter_row)
        await one.write(counter_row)
        assert_equal(await one.total(), 5, "executions, after the same row was written twice")

    @check()
    async def test_a_later_row_of_an_hour_replaces_the_earlier_one(self, harness: Harness) -> None:
        one = await counting_process(harness)
        hour = await one.hour()
        await one.write(one.counter_row(hour, 1, executed=5))
        await one.write(one.counter_row(hour, 2, executed=8, failed=1))
        assert_equal(await one.total(), 8, "executions")
        assert_equal(await one.total("failed"), 1, "failures")

    @check()
    async def test_an_older_row_that_arrives_late_changes_nothing(self, harness: Harness) -> None:
        one = await counting_process(harness)
        hour = await one.hour()
        await one.write(one.counter_row(hour, 10, executed=8))
        await one.write(one.counter_row(hour, 9, executed=5))
        assert_equal(await one.total(), 8, "executions, after an older row arrived late")

    @check()
    async def test_processes_and_hours_do_not_overwrite_each_other(self, harness: Harness) -> None:
        one, two = await counting_process(harness), await counting_process(harness, TWO)
        hour = await one.hour()
        await one.write(one.counter_row(hour, 1, executed=5), one.counter_row(hour - 1, 1, executed=10))
        await two.write(two.counter_row(hour, 1, executed=100))
        assert_equal(await one.total(), 115, "executions of both processes in both hours")
        assert_equal(await two.total(since=hour), 105, "executions of both processes in the last hour")
        assert_equal(await two.total(since=hour + 1), 0, "executions in a future hour")

    @check()
    async def test_concurrent_writers_lose_no_counts(self, harness: Harness) -> None:
        processes = [await counting_process(harness, bytes([number]) * 16) for number in range(8)]
        hour = await processes[0].hour()

        async def count(one: CountingProcess) -> None:
            for number in range(1, 6):
                await one.write(one.counter_row(hour, number, executed=number))

        await harness.run_concurrently([partial(count, one) for one in processes])
        assert_equal(await processes[0].total(), 5 * len(processes), "executions of all processes")

    @check()
    async def test_saving_no_rows_returns_the_time_and_writes_nothing(self, harness: Harness) -> None:
        one = await counting_process(harness)
        before = self.written(harness)
        now = await one.now()
        assert_equal(self.written(harness), before, "writes, when there was nothing to write")
        assert_equal((await one.read_counts()).counter_rows, [], "rows")
        assert abs((await one.read_counts()).now - now) < HOUR, "read_counts must return the store's time"

    @check(needs=("fake_clock",))
    async def test_the_time_is_that_of_the_store(self, harness: Harness) -> None:
        one = await counting_process(harness)
        assert_equal(await one.now(), harness.clock.now(), "the store's time")
        harness.move_clock(5 * HOUR)
        assert_equal(await one.now(), harness.clock.now(), "the store's time, five hours later")

    @check(needs=("fake_clock",))
    async def test_old_rows_are_hidden_and_deleted(self, harness: Harness) -> None:
        one = await counting_process(harness)
        hour = await one.hour()
        await one.write(*(one.counter_row(hour + later, 1, executed=1) for later in range(3)))
        harness.move_clock(COUNTS_RETENTION)
        assert_equal(await one.total(), 3, "executions, just before the first hour expires")
        harness.move_clock(HOUR)
        assert_equal(await one.total(), 2, "executions, after the first hour has expired")
        await one.store.expire_counts(1_000, timeout=TIMEOUT)
        assert_equal(await one.total(), 2, "executions, after expired rows were deleted")
        assert_equal(await one.store.expire_counts(1_000, timeout=TIMEOUT), 0, "expired rows that are left")

    @check(needs=("durable",))
    async def test_counters_survive_reopening(self, harness: Harness) -> None:
        caller = await harness.caller()
        one = CountingProcess(caller.capability("counters"))
        await one.write(one.counter_row(await one.hour(), 1, executed=5))
        await harness.close_caller(caller)
        assert_equal(await (await counting_process(harness)).total(), 5, "executions, after reopening the store")

    def written(self, harness: Harness) -> int:
        try:
            return self.writes(harness.directory)
        except SkipTest:
            return 0
