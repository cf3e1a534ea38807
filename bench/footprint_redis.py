"""How many bytes a completed key takes on Redis and Valkey: `python -m bench.footprint_redis [keys]`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import redis

from onceward import AsyncOnce
from tests.servers.redis import RedisServer, binary

KEYS = 100_000
TASKS = 256  # concurrent calls; they share round trips
SERVERS = ("valkey", "redis7")


def redis_bytes_per_key(keys: int = KEYS, kind: str = "redis7") -> float:
    """Return how many bytes of the server's memory each completed key with a tiny result takes, everything included."""
    server = RedisServer(kind).begin()
    try:
        with redis.Redis(port=server.port) as raw:
            asyncio.run(_complete(server.url(), range(-TASKS, 0)))  # the scripts and the connections take memory, too
            before = _used_memory(raw)
            asyncio.run(_complete(server.url(), range(keys)))
            return (_used_memory(raw) - before) / keys
    finally:
        server.end()


async def _complete(url: str, numbers: range) -> None:
    async with AsyncOnce(url, window="1d") as once:

        @once(key="order:{number}", name="charge")
        async def charge(number: int) -> int:
            return number

        left = iter(numbers)

        async def call_all() -> None:
            for number in left:
                await charge(number)

        await asyncio.gather(*(call_all() for _ in range(TASKS)))


def _used_memory(raw: Any) -> int:
    return int(raw.info("memory")["used_memory"])


def main(keys: int = KEYS) -> None:
    for kind in SERVERS:
        if binary(kind) is not None:
            print(f"{kind}: {redis_bytes_per_key(keys, kind):.0f} bytes per completed key ({keys:,} keys)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else KEYS)
