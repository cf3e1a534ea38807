"""A schedule runner for tests: the test decides when it checks, and runs execute one after another."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from onceward.schedules.definition import Missed, Ran
from onceward.schedules.runner import ScheduleRunner
from onceward.schedules.slots import instant_of
from onceward.testing.clock import FakeClock
from tests.clients import SyncClient

Work = Callable[[], Coroutine[Any, Any, None]]


def start_at(clock: FakeClock, at: datetime) -> None:
    """Set a fresh clock forward to this time."""
    clock.advance_microseconds(instant_of(at) - clock.now())


def freeze_time(client: SyncClient) -> None:
    """Let time move only with the test's clock, so that a runner wakes up exactly at a slot."""
    client.once.engine.runtime.monotonic = client.heartbeat.monotonic = lambda: client.clock.elapsed / 1_000_000


class ManualPool:
    """A worker pool that keeps started work until the test executes it."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def start(self, work: Work) -> None:
        self.works.append(work)

    def wake(self) -> None: ...
    async def sleep(self, seconds: float, stopping: Callable[[], bool]) -> None: ...
    async def finish(self) -> None: ...


class Runner:
    """One machine that runs one schedule, on the test's clock."""

    def __init__(self, client: SyncClient, fn: Callable[..., Any], pattern: str, **choices: Any) -> None:
        self.client = client
        freeze_time(client)
        self.planned: Any = client.once.schedule(pattern, **choices)(client.work(fn))
        self.reports: list[Ran | Missed] = []
        self.pool = ManualPool()
        self.runner: ScheduleRunner = self.planned.runner(self.reports.append)

    def look(self) -> None:
        """Check the schedule once; due runs wait in the pool."""
        self.client.drive(self.runner.check(self.pool))

    def work(self) -> None:
        """Execute the started runs, one after another."""
        works, self.pool.works = self.pool.works, []
        for work in works:
            self.client.drive(work())

    def run_due(self) -> None:
        """Check and execute until nothing is due."""
        self.look()
        while self.pool.works:
            self.work()
            self.look()

    def sleep_until(self, at: datetime) -> None:
        """Let time pass until then, and execute runs whenever the runner wants to check."""
        end = instant_of(at)
        clock = self.client.clock
        while True:
            left = max(1, round(self.runner.seconds_left() * 1_000_000))
            if clock.now() + left > end:
                clock.advance_microseconds(end - clock.now())
                return
            clock.advance_microseconds(left)
            self.run_due()

    def missed(self) -> list[Missed]:
        return [one for one in self.reports if isinstance(one, Missed)]

    def outcomes(self) -> list[str]:
        return [one.outcome.reason for one in self.reports if isinstance(one, Ran)]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]  # year, month, day, and what follows
