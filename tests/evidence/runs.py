"""Recorded runs with real concurrency: `test_histories` checks short ones and `histories` long ones."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from onceward import AsyncOnce, Once, OncewardError, StoreUnavailable
from onceward.protocol.ports import Store
from onceward.protocol.requests import Verdict
from onceward.protocol.runtime import Runtime
from onceward.stores import MemoryStore
from onceward.stores.sqlite import SQLiteStore
from onceward.testing.history import MemoryLog, Operation, Recorder, storm
from tests.evidence.clocks import SharedClock
from tests.evidence.fleet import run_fleet
from tests.faulty import FaultyNetwork, FaultyStore

EAGER = 1e-5
"""Thread switch interval in seconds: five hundred times shorter than usual, so that threads switch inside of calls."""


class Recorded(Struct, frozen=True):
    """A history, and how many processes were killed for it."""

    operations: list[Operation]
    kills: int = 0

    @property
    def taken_over(self) -> int:
        """The number of claims that took over another owner's attempt."""
        answers = [one.answer for one in self.operations if one.verb == "claim" and one.answer is not None]
        return sum(
            answer.verdict is Verdict.ACQUIRED
            and answer.record is not None
            and answer.record.attempt > 1
            and answer.record.claimed_at == answer.now
            for answer in answers
        )


Run = Callable[[Path, int, float], Recorded]
"""Takes an empty folder, a seed, and a relative length: 1 for the tests."""


@contextmanager
def eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(EAGER)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


# ── workers at the port of a store ──────────────────────────────────────────────────────────────────────────────────


def memory(mode: str, wrapped: Callable[[Store, int], Store] | None = None, *, tick: int = 1) -> Run:
    def run(_folder: Path, seed: int, size: float) -> Recorded:
        store = MemoryStore(clock=SharedClock(tick=tick))

        def open_store() -> Store:
            return store if wrapped is None else wrapped(store, seed)

        with eager_threads():
            return Recorded(storm(open_store, seed=seed, mode=mode, workers=6, steps=int(200 * size)))

    return run


def sqlite(
    mode: str,
    wrapped: Callable[[Store, int], Store] | None = None,
    *,
    workers: int = 4,
    shared: bool = False,
    late_effects: bool = False,
) -> Run:
    def run(folder: Path, seed: int, size: float) -> Recorded:
        clock = SharedClock()

        def open_store() -> Store:
            store = SQLiteStore(folder / "once.db", clock=clock)
            return store if wrapped is None else wrapped(store, seed)

        how: dict[str, Any] = {"workers": workers, "steps": int(600 * size / workers), "time_unit": 10_000}
        return Recorded(storm(open_store, seed=seed, mode=mode, shared=shared, late_effects=late_effects, **how))

    return run


class Distant(FaultyStore):
    """Simulates network latency for requests and replies, so that calls overlap for long."""

    def __init__(self, store: Store, seed: int) -> None:
        super().__init__(store, FaultyNetwork())
        self._dice = random.Random(seed)

    async def open(self, runtime: Runtime) -> None:
        self._runtime = runtime
        await super().open(runtime)

    async def _through(self, verb: Any, call: Callable[..., Any], requests: Any, timeout: float) -> Any:
        await self._runtime.sleep(self._dice.uniform(0, 0.001))
        answers = await super()._through(verb, call, requests, timeout)
        await self._runtime.sleep(self._dice.uniform(0, 0.001))
        return answers


class ShakyNetwork(FaultyNetwork):
    """Sometimes loses a request or a reply."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = random.Random(seed)

    def next(self, verb: str) -> str:
        return self._dice.choices(["", "request", "reply"], [8, 1, 2])[0]


def shaky(store: Store, seed: int) -> Store:
    return FaultyStore(store, ShakyNetwork(seed))


class Impatient(FaultyStore):
    """Gives up soon: the call continues, and its answer is ignored."""

    def __init__(self, store: Store, seed: int) -> None:
        super().__init__(store, FaultyNetwork())
        self._seed = seed
        self._dice = random.Random(seed)

    def clone(self) -> Store:
        return Impatient(self.inner.clone(), self._seed + 1)

    async def _through(self, verb: Any, call: Callable[..., Any], requests: Any, timeout: float) -> Any:
        patience = 10.0 if self._dice.random() < 0.7 else self._dice.uniform(0, 0.0005)
        try:
            return await asyncio.wait_for(super()._through(verb, call, requests, timeout), patience)
        except TimeoutError:
            raise StoreUnavailable(f"{verb}: gave up") from None


# ── clients ─────────────────────────────────────────────────────────────────────────────────────────────────────────

SETTINGS: dict[str, Any] = {
    "lease": "50ms",
    "window": "30ms",
    "wait": "200ms",
    "max_attempts": 4,
    "fingerprint": "none",
}
LASTING = 0.8
"""Seconds that the clients run."""

JOB_SECONDS = (0.0, 0.0, 0.001, 0.01, 0.07)
"""Seconds that a job takes: nothing, or less than the lease, or more."""


class Silent(logging.Filter):
    """Jobs fail by the hundred, on purpose."""

    def filter(self, record: logging.LogRecord) -> bool:
        return False


@contextmanager
def silence() -> Iterator[None]:
    silent = Silent()
    logger = logging.getLogger("onceward")
    logger.addFilter(silent)
    try:
        yield
    finally:
        logger.removeFilter(silent)


def a_store(kind: str, folder: Path, clock: SharedClock, shared: MemoryStore) -> Store:
    return shared if kind == "memory" else SQLiteStore(folder / "once.db", clock=clock)


def clients_in_threads(kind: str) -> Run:
    def run(folder: Path, seed: int, size: float) -> Recorded:
        clock, log = SharedClock(), MemoryLog()
        shared = MemoryStore(clock=clock)

        ends = time.monotonic() + LASTING * size

        def use(number: int) -> None:
            dice = random.Random(f"{seed} {number}")
            with Once(Recorder(a_store(kind, folder, clock, shared), log, late_effects=False), **SETTINGS) as once:
                while time.monotonic() < ends:
                    seconds = dice.choice(JOB_SECONDS)
                    fails = dice.random() < 0.2

                    def job(seconds: float = seconds, fails: bool = fails) -> float:
                        time.sleep(seconds)
                        if fails:
                            raise ValueError("this one failed")
                        return seconds

                    try:
                        once.run(f"job {dice.randrange(2)}", job)
                    except (OncewardError, ValueError):
                        continue

        with eager_threads(), silence():
            threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return Recorded(log.operations())

    return run


def clients_in_tasks(kind: str) -> Run:
    async def use(once: AsyncOnce, dice: random.Random, ends: float) -> None:
        while time.monotonic() < ends:
            seconds = dice.choice(JOB_SECONDS)
            fails = dice.random() < 0.2

            async def job(seconds: float = seconds, fails: bool = fails) -> float:
                await asyncio.sleep(seconds)
                if fails:
                    raise ValueError("this one failed")
                return seconds

            try:
                async with asyncio.timeout(0.03 if dice.random() < 0.1 else None):  # simulates a cancellation
                    await once.run(f"job {dice.randrange(2)}", job)
            except (OncewardError, ValueError, TimeoutError):
                continue

    def run(folder: Path, seed: int, size: float) -> Recorded:
        clock, log = SharedClock(), MemoryLog()
        shared = MemoryStore(clock=clock)

        async def use_all() -> None:
            async with (
                AsyncOnce(Recorder(a_store(kind, folder, clock, shared), log), **SETTINGS) as one,
                AsyncOnce(Recorder(a_store(kind, folder, clock, shared), log), **SETTINGS) as two,
            ):
                dices = [random.Random(f"{seed} {number}") for number in range(6)]
                ends = time.monotonic() + LASTING * size
                await asyncio.gather(*(use(two if n % 2 else one, dice, ends) for n, dice in enumerate(dices)))

        with silence():
            asyncio.run(use_all())
        return Recorded(log.operations())

    return run


# ── processes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def processes(kind: str) -> Run:
    def run(folder: Path, seed: int, size: float) -> Recorded:
        operations, kills = run_fleet(folder, kind, seed, seconds=1.5 * size, workers=4)
        return Recorded(operations, kills)

    return run


RUNS: dict[str, Run] = {
    "memory, threads": memory("blocking"),
    "memory, threads, at a distance": memory("blocking", Distant),
    "memory, threads, a clock that ticks in ms": memory("blocking", tick=1_000),
    "memory, tasks, at a distance": memory("asyncio", Distant),
    "memory, clients in threads": clients_in_threads("memory"),
    "memory, clients in tasks": clients_in_tasks("memory"),
    "sqlite, threads": sqlite("blocking"),
    "sqlite, threads, one store for all": sqlite("blocking", workers=12, shared=True),
    "sqlite, threads, requests and replies lost": sqlite("blocking", shaky),
    "sqlite, tasks": sqlite("asyncio"),
    "sqlite, tasks, one store for all": sqlite("asyncio", workers=12, shared=True),
    "sqlite, tasks, requests and replies lost": sqlite("asyncio", shaky),
    "sqlite, tasks that do not wait for the answer": sqlite("asyncio", Impatient, late_effects=True),
    "sqlite, clients in threads": clients_in_threads("sqlite"),
    "sqlite, clients in tasks": clients_in_tasks("sqlite"),
    "sqlite, processes killed": processes("sqlite"),
    "sqlite, clients in processes killed": processes("client"),
    "a tiny store with a lock, processes killed": processes("locked"),
}
