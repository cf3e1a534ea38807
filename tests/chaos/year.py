"""Simulates ten runners for a year in seconds: `python -m tests.chaos.year '{"until": "2027-01-01T00:00:00Z"}'`.

The runners are real processes on one SQLite file, or on one Redis. Their time is a number in shared memory. It stands
still while any runner works; when all of them sleep, it jumps to the next moment at which a runner wakes up. Some are
killed with SIGKILL while they run a slot, before its effect, and replaced. Every run appends one line to a file. The
runs are compared with the calendar, not with the store.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import select
import signal
import socket
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, field, to_builtins

from onceward import Once
from onceward.protocol.ports import Store
from onceward.runtime.threads import ThreadGate, ThreadRuntime, run
from onceward.schedules.api import runners
from onceward.schedules.runner import run_loop
from onceward.schedules.slots import datetime_of, instant_of
from onceward.stores.redis import RedisStore
from onceward.stores.sqlite import SQLiteStore
from tests.chaos import broken_schedules
from tests.heartbeats import ThreadlessHeartbeat, use_heartbeat

INSTANT = struct.Struct("<q")
HOUR = 3600 * 1_000_000
PATTERNS = {"hourly": "0 * * * *", "nightly": "30 2 * * *"}


class Plan(Struct, frozen=True):
    """What to simulate. `deaths`: hours after the start whose slot kills its first runner.

    `awake`: so many of the runners that are due wake up, chosen at random; the others oversleep. Sometimes all wake up.
    """

    since: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    until: datetime = datetime(2027, 1, 1, tzinfo=UTC)
    runners: int = 10
    patterns: dict[str, str] = field(default_factory=lambda: dict(PATTERNS))
    zone: str = "Europe/Berlin"
    deaths: tuple[int, ...] = ()
    awake: int = 2
    variant: str = ""
    redis: str = ""  # its URL; else a file


class Result(Struct, frozen=True):
    """The slots that were run, by schedule, each as often as it was run."""

    runs: dict[str, list[str]]
    runners: int
    killed: int
    steps: int
    spread: list[int]  # runs of each runner

    def count(self, name: str) -> Counter[datetime]:
        return Counter(datetime.fromisoformat(at) for at in self.runs[name])


class SharedClock:
    """The time of all runners, in shared memory."""

    def __init__(self, start: int) -> None:
        self._memory = mmap.mmap(-1, INSTANT.size)
        self.set(start)

    def set(self, instant: int) -> None:
        INSTANT.pack_into(self._memory, 0, instant)

    def now(self) -> int:
        instant: int = INSTANT.unpack_from(self._memory)[0]
        return instant


class SimulatedRuntime(ThreadRuntime):
    """A runtime whose sleep asks the simulation to wake the runner at a given time."""

    def __init__(self, clock: SharedClock, channel: socket.socket) -> None:
        self._clock = clock
        self._channel = channel

    def monotonic(self) -> float:
        return self._clock.now() / 1_000_000

    def gate(self) -> ThreadGate:
        return SimulatedGate(self)

    async def sleep(self, seconds: float) -> None:
        self.sleep_until_woken(seconds)

    def sleep_until_woken(self, seconds: float) -> None:
        self._channel.sendall(INSTANT.pack(self._clock.now() + max(1, round(seconds * 1_000_000))))
        if not self._channel.recv(1):
            os._exit(0)  # the year is over


class SimulatedGate(ThreadGate):
    """Is never opened: the other runners are other processes."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        super().__init__()
        self._runtime = runtime

    async def wait(self, seconds: float) -> None:
        self._runtime.sleep_until_woken(seconds)


class SequentialPool:
    """A worker pool that runs each slot inline, which takes no time."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self._runtime = runtime
        self._again = False

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        run(work())

    def wake(self) -> None:
        self._again = True

    async def sleep(self, seconds: float, stopping: Callable[[], bool]) -> None:
        if seconds and not self._again:
            self._runtime.sleep_until_woken(seconds)
        self._again = False

    async def finish(self) -> None: ...


def store(plan: Plan, folder: Path, clock: SharedClock) -> Store:
    if plan.redis:
        return RedisStore(plan.redis, prefix=folder.name, clock=clock)
    return SQLiteStore(folder / "once.db", clock=clock, synchronous="NORMAL")


def client(plan: Plan, folder: Path, clock: SharedClock, runtime: ThreadRuntime) -> Once:
    once = Once(store(plan, folder, clock))
    once.engine.runtime = runtime
    use_heartbeat(once, ThreadlessHeartbeat, runtime.monotonic)  # no lease expires while its owner works
    doomed = {instant_of(plan.since) + hour * HOUR for hour in plan.deaths}
    effects = os.open(folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def declare(name: str, pattern: str) -> None:
        @once.schedule(pattern, tz=plan.zone, name=name, catch_up="all")
        def work(scheduled_at: datetime) -> None:
            slot = instant_of(scheduled_at)
            mark = folder / f"dead-{slot}"
            if slot in doomed and name == "hourly" and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(effects, f"{name} {datetime_of(slot).isoformat()} {os.getpid()}\n".encode())

    for name, pattern in plan.patterns.items():
        declare(name, pattern)
    return once


def runner(plan: Plan, folder: Path, clock: SharedClock, channel: socket.socket) -> None:
    """Run one runner until the simulation closes the channel."""
    if plan.variant:
        broken_schedules.VARIANTS[plan.variant]()
    runtime = SimulatedRuntime(clock, channel)
    once = client(plan, folder, clock, runtime)
    run(run_loop(once.engine, runners(once, None), SequentialPool(runtime), max_sleep=400 * 86_400))


class Simulation:
    """Starts the runners, and advances the time when all of them sleep."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._clock = SharedClock(instant_of(plan.since))
        self._channels: dict[socket.socket, int] = {}  # until when each runner sleeps
        self._pids: list[int] = []
        self._dice = random.Random(26)
        self.killed = self.steps = 0

    def start(self) -> None:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                for other in (ours, *self._channels):
                    other.close()
                runner(self._plan, self._folder, self._clock, theirs)
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                os._exit(1)
        theirs.close()
        self._pids.append(pid)
        self._channels[ours] = 0
        self._wait_until_asleep([ours])

    def _wait_until_asleep(self, awake: list[socket.socket]) -> None:
        """Wait until all of these runners sleep or are dead."""
        while awake:
            for channel in select.select(awake, [], [])[0]:
                awake.remove(channel)
                try:
                    message = channel.recv(INSTANT.size)
                except ConnectionError:
                    message = b""
                if message:
                    self._channels[channel] = INSTANT.unpack(message)[0]
                else:
                    del self._channels[channel]
                    channel.close()
                    self.killed += 1
                    self.start()

    def run(self) -> None:
        for _ in range(self._plan.runners):
            self.start()
        end = instant_of(self._plan.until)
        now = instant_of(self._plan.since)
        while (now := min((until for until in self._channels.values() if until > now), default=end)) < end:
            self.steps += 1
            self._clock.set(now)
            awake = [channel for channel, until in self._channels.items() if until <= now]
            if self.steps % 60 and len(awake) > self._plan.awake:
                awake = self._dice.sample(awake, self._plan.awake)
            for channel in awake:
                channel.sendall(b".")
            self._wait_until_asleep(awake)
        for channel in self._channels:
            channel.close()
        for pid in self._pids:
            os.waitpid(pid, 0)

    def result(self) -> Result:
        runs: dict[str, list[str]] = {name: [] for name in self._plan.patterns}
        spread: Counter[str] = Counter()
        for channel in (self._folder / "effects").read_text().splitlines():
            name, at, pid = channel.split()
            runs[name].append(at)
            spread[pid] += 1
        return Result(runs, len(self._pids), self.killed, self.steps, sorted(spread.values(), reverse=True))


def warm_up(plan: Plan) -> None:
    """Import once what every runner needs, instead of in each of them."""
    clock = SharedClock(instant_of(plan.since))
    with tempfile.TemporaryDirectory() as folder:
        once = client(plan, Path(folder), clock, ThreadRuntime())
        once.run("warm up", len, "")
        once.close()


def main() -> None:
    plan = convert(json.loads(sys.argv[1]), Plan)
    warm_up(plan)
    with tempfile.TemporaryDirectory() as folder:
        simulation = Simulation(plan, Path(folder))
        simulation.run()
        print(json.dumps(to_builtins(simulation.result())))


if __name__ == "__main__":
    main()
