"""How long an event loop waits for us: `python -m bench --only loop`.

A task that only wants to tick each millisecond runs beside the calls; told is the longest time that it was late, and
how much of that the loop's own thread was computing (its CPU time, which other programs cannot lengthen). The rest it
waited: for the interpreter, which another thread of ours held, or for the machine. The first row does nothing at all:
that much is the machine's own.
"""

from __future__ import annotations

import asyncio
import json
import platform
import tempfile
import time
from collections.abc import Callable, Coroutine
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from onceward import AsyncOnce, Content

PAUSE = 0.001  # not 0: a loop that never rests keeps every other thread from the interpreter
MB = 1_000_000

Call = Callable[[AsyncOnce, int], Coroutine[Any, Any, object]]


class Gap(NamedTuple):
    """The longest gap of a round in milliseconds, in the best and in the middle one, and the longest computation."""

    case: str
    least: float
    median: float
    computing: float


def main(*, quick: bool, as_json: bool) -> int:
    if as_json:
        found = [gap._asdict() for gap in measure(quick=quick, tell=lambda _: None)]
        print(json.dumps({"python": platform.python_version(), "gaps": found}, indent=2))
        return 0
    print(f"{'longest gap of the loop':<40}{'least':>10}{'median':>10}{'computing':>12}")
    measure(quick=quick, tell=_print_row)
    return 0


def measure(*, quick: bool, tell: Callable[[Gap], None]) -> list[Gap]:
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as folder:
        return asyncio.run(_measure(Path(folder), tell, rounds=1 if quick else 15, quick=quick))


def _print_row(gap: Gap) -> None:
    print(f"{gap.case:<40}{gap.least:>7.1f} ms{gap.median:>7.1f} ms{gap.computing:>9.1f} ms", flush=True)


async def _measure(folder: Path, tell: Callable[[Gap], None], *, rounds: int, quick: bool) -> list[Gap]:
    found = []
    async with AsyncOnce(f"sqlite:///{folder}/loop.db", window="forever", max_result_bytes=200 * MB) as once:
        await once.run("warm", number, 0)
        for name, call in cases(folder, quick=quick).items():
            late, computed = zip(*[await longest_gap(call, once, each) for each in range(rounds)], strict=True)
            found.append(Gap(name, min(late), median(late), median(computed)))
            tell(found[-1])
    return found


async def longest_gap(call: Call, once: AsyncOnce, each: int) -> tuple[float, float]:
    """In milliseconds: how late the latest tick was, and how long the loop's own thread computed between two."""
    late, computed = [0.0], [0.0]

    async def tick() -> None:
        while True:
            wall, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(PAUSE)
            late.append(time.perf_counter() - wall - PAUSE)
            computed.append(time.thread_time() - cpu)

    task = asyncio.create_task(tick())
    await asyncio.sleep(2 * PAUSE)
    value = await call(once, each)  # noqa: F841 (kept until after the last tick: to drop it is not our doing)
    await asyncio.sleep(2 * PAUSE)
    task.cancel()
    return max(late) * 1000, max(computed) * 1000


def cases(folder: Path, *, quick: bool) -> dict[str, Call]:
    """By name. Each makes its keys anew from the number of the round, unless it is to replay."""
    found: dict[str, Call] = {
        "nothing": lambda once, each: asyncio.sleep(0.05),  # noqa: ARG005 (the others need them)
        "200 claims by ten workers": ten_workers,
        "200 claims in one gather": one_gather,
        "a map of 2,000": lambda once, each: once.map(number, range(each * 2_000, each * 2_000 + 2_000), key="{x}"),
        "a file of 100 MB as the key": hashed_file(folder / "large", 100 * MB),
    }
    for size in (1,) if quick else (1, 10, 100):
        found |= of_value(f"{size} MB of bytes", incompressible(size * MB))
    for items in (10_000,) if quick else (10_000, 50_000, 200_000):
        found |= of_value(f"{items:,} dicts", [{"id": x, "name": f"n{x}", "price": x / 4} for x in range(items)])
    for items in (2_000,) if quick else (2_000, 20_000):  # which JSON does not know, so that all is done in Python
        found |= of_value(f"{items:,} tuples", [(x, f"n{x}", Decimal(x) / 4) for x in range(items)])
    return found


def incompressible(size: int) -> bytes:
    """As files are: what compresses well is smaller by the time that anybody has to hold it."""
    import random

    return random.Random(1).randbytes(size)


def of_value(what: str, value: object) -> dict[str, Call]:
    """The same value as a result, as a stored result, and as an argument."""

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
