"""A worker on a Redis that is killed and paused: `python -m tests.chaos.redis_worker URL FOLDER MODE KEYS`.

Each key's effect is one line in a file; each acknowledged delivery is one line in another. Like a broker, it repeats a
delivery when the store cannot answer.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from onceward import AsyncOnce, Executed, Once, Outcome, Replayed
from onceward.errors import StoreError

PAUSE = 0.02  # seconds until a broker delivers again
CHOICES = {"lease": "5s", "wait": "60s", "on_running": "wait"}


def append(file: Path, *words: object) -> None:
    """Append with one write, which the kernel does not interleave with others."""
    handle = os.open(file, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(handle, (" ".join(map(str, words)) + "\n").encode())
    os.close(handle)


class Worker:
    """Works through its deliveries in its own order."""

    def __init__(self, url: str, folder: Path, deliveries: list[str]) -> None:
        self.url = url
        self._effects = folder / "effects"
        self._acks = folder / "acks"
        self.deliveries = deliveries

    def work(self, key: str) -> str:
        append(self._effects, key)
        return f"result of {key}"

    async def work_async(self, key: str) -> str:
        return self.work(key)

    def is_done(self, key: str, outcome: Outcome[str]) -> bool:
        if not isinstance(outcome, Executed | Replayed):
            return False
        append(self._acks, key, type(outcome).__name__, outcome.value == f"result of {key}")
        return True

    def block(self) -> None:
        with Once(self.url, **CHOICES) as once:  # type: ignore[arg-type]
            work = once(key="{key}", name="work")(self.work)
            for key in self.deliveries:
                while True:
                    try:
                        if self.is_done(key, work.outcome(key)):
                            break
                    except StoreError:
                        time.sleep(PAUSE)

    async def loop(self) -> None:
        async with AsyncOnce(self.url, **CHOICES) as once:  # type: ignore[arg-type]
            work = once(key="{key}", name="work")(self.work_async)

            async def deliver(key: str) -> None:
                while True:
                    try:
                        if self.is_done(key, await work.outcome(key)):
                            break
                    except StoreError:
                        await asyncio.sleep(PAUSE)

            for first in range(0, len(self.deliveries), 8):
                await asyncio.gather(*map(deliver, self.deliveries[first : first + 8]))


def main() -> None:
    url, folder, mode, keys = sys.argv[1:]
    worker = Worker(url, Path(folder), keys.split(","))
    if mode == "async":
        asyncio.run(worker.loop())
    else:
        worker.block()


if __name__ == "__main__":
    main()
