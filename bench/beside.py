"""Compare this tree with another version of Onceward: `python -m bench.beside PATH-TO-ITS-src [--rounds 4]`.

Every case calls one decorated function with new keys. The two versions run in turn, each in its own process. The
output is the ratio of their times: the median, the smallest and the largest.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from uuid import uuid4

from onceward import AsyncOnce, Once

SOURCE = Path(__file__).resolve().parents[1] / "src"
CALLS = {
    "memory": 18_000,
    "sqlite": 240,
    "sqlite, 64 threads": 3_600,
    "redis": 1_800,
    "redis, 64 tasks": 7_200,
    "postgres": 480,
    "postgres, 64 tasks": 4_800,
}
"""The cases, and how many calls each makes."""

CALLERS = 64


def work(key: str) -> str:
    return key


def measure(case: str, url: str) -> float:
    """Return the microseconds per call, after a tenth of the calls as a warm-up."""
    keys = [f"order:{uuid4()}" for _ in range(CALLS[case])]
    warm_up, measured = keys[: len(keys) // 10], keys[len(keys) // 10 :]
    if case.endswith("tasks"):
        seconds = asyncio.run(in_tasks(url, warm_up, measured))
    else:
        seconds = in_threads(url, warm_up, measured, CALLERS if case.endswith("threads") else 1)
    return seconds / len(measured) * 1_000_000


def in_threads(url: str, warm_up: list[str], measured: list[str], callers: int) -> float:
    with Once(url, window="24h") as once:
        call = once(key="{key}", name="bench")(work)
        for key in warm_up:
            call(key)
        threads = [
            threading.Thread(target=lambda own: [call(key) for key in own], args=(measured[first::callers],))
            for first in range(callers)
        ]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began


async def in_tasks(url: str, warm_up: list[str], measured: list[str]) -> float:
    async with AsyncOnce(url, window="24h") as once:

        @once(key="{key}", name="bench")
        async def call(key: str) -> str:
            return work(key)

        async def call_all(keys: list[str]) -> None:
            left = iter(keys)

            async def caller() -> None:
                for key in left:
                    await call(key)

            await asyncio.gather(*(caller() for _ in range(CALLERS)))

        await call_all(warm_up)
        began = time.perf_counter()
        await call_all(measured)
        return time.perf_counter() - began


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.beside", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("other", type=Path, help="the src folder of the other version, for example in a git worktree")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--measure", nargs=2, metavar=("CASE", "URL"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        print(measure(*options.measure))
        return 0
    from tests.servers.postgres import Postgres, found_binaries  # not in the measured processes
    from tests.servers.redis import RedisServer

    binaries, redis = found_binaries(), RedisServer().begin()
    postgres = None if binaries is None else Postgres(binaries)
    try:
        if postgres is not None:
            postgres.start()
        for case in CALLS:
            if postgres is None and case.startswith("postgres"):
                print(f"{case:<22}PostgreSQL is not installed")
                continue
            pairs = []
            for number in range(options.rounds):
                sides = [SOURCE, options.other.resolve()]
                times = {
                    side: measured_in(side, case, redis.url(), "" if postgres is None else postgres.url)
                    for side in (sides if number % 2 else sides[::-1])
                }
                pairs.append((times[sides[0]], times[sides[1]]))
            print(row(case, pairs), flush=True)
    finally:
        redis.end()
        if postgres is not None:
            postgres.remove()
    return 0


def measured_in(source: Path, case: str, redis: str, postgres: str) -> float:
    """Measure in a process that imports Onceward from this folder."""
    unique = uuid4().hex[:8]
    with tempfile.TemporaryDirectory(prefix="onceward-beside-") as folder:
        urls = {
            "memory": "memory://",
            "sqlite": f"sqlite:///{folder}/once.db",
            "redis": f"{redis}&prefix={unique}",
            "postgres": f"{postgres}{'&' if '?' in postgres else '?'}migrate=1&schema=s{unique}",
        }
        command = [sys.executable, "-W", "ignore", "-m", "bench.beside", ".", "--measure", case]
        done = subprocess.run(
            [*command, urls[case.partition(",")[0]]],
            env={**os.environ, "PYTHONPATH": str(source)},
            cwd=SOURCE.parent,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return float(done.stdout)


def row(case: str, pairs: list[tuple[float, float]]) -> str:
    ratios = sorted(ours / theirs for ours, theirs in pairs)
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"
    return f"{case:<22}{ours:>10.1f} µs{theirs:>10.1f} µs there   ratio {spread}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
