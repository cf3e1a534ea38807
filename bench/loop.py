"""How long calls with the default limits block an event loop: `python -m bench --only loop`. The goal is under 10 ms.

A task that ticks every millisecond runs beside the calls. Reported are its longest delay, and how much of that the
loop's own thread was computing (its CPU time, which other programs cannot increase). For the rest it waited: for the
interpreter lock, which another thread of ours held, or for the machine. The first row does nothing at all: it shows the
noise of the machine.
"""

from __future__ import annotations

import asyncio
import json
import logging
import platform
import tempfile
import time
from collections.abc import Callable, Coroutine
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from onceward import AsyncOnce, Content

PAUSE = 0.001  # not 0: a loop that never sleeps keeps other threads from running
MB = 1_000_000

Call = Callable[[AsyncOnce, int], Coroutine[Any, Any, object]]


class Gap(NamedTuple):
    """The longest gap in milliseconds: the best and the median of all rounds, and the longest computation."""

    case: str
    least: float
    median: float
    computing: float


def main(*, quick: bool, as_json: bool) -> int:
    logging.getLogger("onceward").setLevel(logging.ERROR)  # results over the limit are reported
    if as_json:
        found = [gap._asdict() for gap in measure(quick=quick, report=lambda _: None)]
        print(json.dumps({"python": platform.python_version(), "gaps": found}, indent=2))
        return 0
    print(f"{'longest gap of the loop':<40}{'least':>10}{'median':>10}{'computing':>12}")
    measure(quick=quick, report=_print_row)
    return 0


def measure(*, quick: bool, report: Callable[[Gap], None]) -> list[Gap]:
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as folder:
        return asyncio.run(_measure(Path(folder), report, rounds=1 if quick else 15, quick=quick))


def _print_row(gap: Gap) -> None:
    print(f"{gap.case:<40}{gap.least:>7.1f} ms{gap.median:>7.1f} ms{gap.computing:>9.1f} ms", flush=True)


async def _measure(folder: Path, report: Callable[[Gap], None], *, rounds: int, quick: bool) -> list[Gap]:
    found = []
    async with AsyncOnce(f"sqlite:///{folder}/loop.db", window="forever") as once:
        await once.run("warm", number, 0)
        for name, call in cases(folder, quick=quick).items():
            delays, computed = zip(*[await longest_gap(call, once, each) for each in range(rounds)], strict=True)
            found.append(Gap(name, min(delays), median(delays), median(computed)))
            report(found[-1])
    return found


async def longest_gap(call: Call, once: AsyncOnce, each: int) -> tuple[float, float]:
    """Return, in milliseconds, the longest delay of a tick, and the longest computation of the loop's own thread."""
    delays, computed = [0.0], [0.0]

    async def tick() -> None:
        while True:
            wall, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(PAUSE)
            delays.append(time.perf_counter() - wall - PAUSE)
            computed.append(time.thread_time() - cpu)

    task = asyncio.create_task(tick())
    await asyncio.sleep(2 * PAUSE)
    value = await call(once, each)  # noqa: F841 (kept until after the last tick: freeing it is not our cost)
    await asyncio.sleep(2 * PAUSE)
    task.cancel()
    return max(delays) * 1000, max(computed) * 1000


def cases(folder: Path, *, quick: bool) -> dict[str, Call]:
    """Return the cases by name. Each uses new keys per round, except for replays."""
    found: dict[str, Call] = {
        "nothing": lambda once, each: asyncio.sleep(0.05),  # noqa: ARG005 (the others need them)
        "200 claims by ten workers": ten_workers,
        "200 claims in one gather": one_gather,
        "a map of 2,000": lambda once, each: once.map(number, range(each * 2_000, each * 2_000 + 2_000), key="{x}"),
        "a file of 100 MB as the key": hashed_file(folder / "large", 100 * MB),
    }
    found |= of_value("1 MB of bytes", incompressible(MB))  # the default limit of a result, 1 MiB
    # 30,000 dicts are 1 MB of MessagePack; 150,000 are 5 MB, over the limit: not stored, so there is no replay.
    for items in (10_000,) if quick else (10_000, 30_000, 150_000):
        calls = of_value(f"{items:,} dicts", [{"id": x, "name": f"n{x}", "price": x / 4} for x in range(items)])
        found |= {name: call for name, call in calls.items() if items < 150_000 or "replay" not in name}
    for items in (2_000,) if quick else (2_000, 20_000):  # tuples are not a JSON type, so they are encoded in Python
        found |= of_value(f"{items:,} tuples", [(x, f"n{x}", Decimal(x) / 4) for x in range(items)])
    return found


def incompressible(size: int) -> bytes:
    """Return random bytes: results that compress well would be smaller when they are stored."""
    import random

    return random.Random(1).randbytes(size)


def of_value(what: str, value: object) -> dict[str, Call]:
    """Return cases with the same value as a result, as a replayed result, and as an argument."""

    async def give() -> object:
        return value

    async def take(value: object) -> None: ...

    return {
        f"{what}: result": lambda once, each: once.run((what, each), give),
        f"{what}: replay": lambda once, each: once.run((what, 0), give),  # noqa: ARG005 (always the first round's)
        f"{what}: argument": lambda once, each: once.run((what, "argument", each), take, value),
    }


async def number(x: int) -> int:
    return x


async def ten_workers(once: AsyncOnce, each: int) -> None:
    async def worker(name: int) -> None:
        for x in range(20):
            await once.run(f"worker:{each}:{name}:{x}", number, x)

    await asyncio.gather(*(worker(name) for name in range(10)))


async def one_gather(once: AsyncOnce, each: int) -> None:
    await asyncio.gather(*(once.run(f"gather:{each}:{x}", number, x) for x in range(200)))


def hashed_file(path: Path, size: int) -> Call:
    with path.open("wb") as file:
        file.truncate(size)

    async def extract(path: Path, each: int) -> None: ...

    return lambda once, each: once(name="extract", key=Content("path"))(extract)(path, each)
