"""A runner of schedules for tests: the test says when it looks, and what was started runs one after another."""

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
    """Time moves with the test's clock alone, so that a runner wakes up at a slot and not a moment before it."""
    client.once.engine.runtime.monotonic = client.heartbeat._monotonic = lambda: client.clock.elapsed / 1_000_000


class ManualPool:
    """A crew that keeps what it was given until the test lets it be done."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def start(self, work: Work) -> None:
        self.works.append(work)

    def wake(self) -> None: ...
    async def sleep(self, seconds: float, stopping: Callable[[], bool]) -> None: ...
    async def finish(self) -> None: ...


class Runner:
    """One machine that looks after one schedule, on the test's clock."""

    def __init__(self, client: SyncClient, fn: Callable[..., Any], pattern: str, **choices: Any) -> None:
        self.client = client
        freeze_time(client)
        self.planned: Any = client.once.schedule(pattern, **choices)(client._work(fn))
        self.reports: list[Ran | Missed] = []
        self.pool = ManualPool()
        self.runner: ScheduleRunner = self.planned.runner(self.reports.append)

    def look(self) -> None:
        """One look; what is due waits in the crew."""
        self.client.drive(self.runner.check(self.pool))

    def work(self) -> None:
        """Do what was started, one after another."""
        works, self.pool.works = self.pool.works, []
        for work in works:
            self.client.drive(work())

    def run_due(self) -> None:
        """Look and work until nothing is left to do now."""
        self.look()
        while self.pool.works:
            self.work()
            self.look()

    def sleep_until(self, at: datetime) -> None:
        """Live on until then, working whenever the watch wants to look."""
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
