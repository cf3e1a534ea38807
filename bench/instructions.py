"""The CPU instructions of one cycle in the client: `python -m bench --only instructions`.

Short times disappear in the noise of a shared machine; instruction counts do not. valgrind counts them (user space
only, without the kernel) in one run with few cycles and one with many, so that the cost of starting cancels out. The
count still varies with how many requests happen to share a batch.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import redis.asyncio

from bench import bare_redis
from bench.case import work
from onceward import AsyncOnce, Once
from tests.servers.redis import RedisServer

CALLERS = 64
FEW, MANY, QUICKLY = 1_280, 5_120, 2_560
HOW = "apt-get install valgrind"
_COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")


class Way(NamedTuple):
    """One way to call, and its instructions per cycle."""

    name: str
    instructions: int


def main(*, quick: bool, as_json: bool) -> int:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print(f"valgrind is not installed: {HOW}", file=sys.stderr)
        return 1
    server = RedisServer().begin()
    try:
        many = QUICKLY if quick else MANY
        found = [Way(name, count_instructions(valgrind, name, server.port, many)) for name in WAYS]
    finally:
        server.end()
    if as_json:
        print(json.dumps([one._asdict() for one in found], indent=2))
        return 0
    for one in found:
        print(f"{one.name:<40}{one.instructions:>12,} instructions per cycle")
    return 0


def count_instructions(valgrind: str, name: str, port: int, many: int) -> int:
    runs = [
        subprocess.Popen(
            [
                *(valgrind, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
                *(sys.executable, "-m", "bench.instructions", name, str(port), str(cycles)),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        for cycles in (FEW, many)
    ]
    few_count, many_count = (_parse_count(run.communicate()[1], run.returncode) for run in runs)
    return (many_count - few_count) // (many - FEW)


def _parse_count(text: str, code: int) -> int:
    found = _COUNTED.search(text)
    if code or found is None:
        raise RuntimeError(f"valgrind ended with {code}: {text[-400:]}")
    return int(found[1].replace(",", ""))


async def run_cycles(call: Callable[[str], Awaitable[object]], cycles: int) -> None:
    left = iter([f"order:{number}" for number in range(cycles)])

    async def caller() -> None:
        for key in left:
            await call(key)

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


async def on_redis(port: int, cycles: int) -> None:
    url = f"redis://127.0.0.1:{port}/0?unsafe_persistence=allow&prefix=instructions-{time.time_ns()}"
    async with AsyncOnce(url, window="24h") as once:

        @once(key="{key}", name="bench")
        async def call(key: str) -> str:
            return work(key)

        await run_cycles(call, cycles)


async def on_redis_by_hand(port: int, cycles: int) -> None:
    async with redis.asyncio.Redis(port=port) as client:
        await run_cycles(await bare_redis.awaiting(client, f"{time.time_ns()}:", work), cycles)


def in_memory(_port: int, cycles: int) -> None:
    with Once("memory://", window="24h") as once:
        call = once(key="{key}", name="bench")(work)
        for number in range(cycles):
            call(f"order:{number}")


WAYS: dict[str, Callable[[int, int], None]] = {
    "redis 64 tasks, fresh": lambda port, cycles: asyncio.run(on_redis(port, cycles)),
    "redis 64 tasks, fresh, bare redis.asyncio": lambda port, cycles: asyncio.run(on_redis_by_hand(port, cycles)),
    "memory, fresh": in_memory,
}

if __name__ == "__main__":
    name, port, cycles = sys.argv[1:]
    WAYS[name](int(port), int(cycles))
