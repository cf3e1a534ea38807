"""A worker that counts until it is killed: `python -m tests.chaos.counting_worker URL FILE`.

It logs its process id, each finished call, and how many of them the store has confirmed.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import count

from onceward import Once
from onceward.engine.totals import HourlyCounts
from onceward.runtime import background, counters

NAME = "count"
PAUSE = 0.002  # seconds between calls, to leave processor time for others
background.WRITE_INTERVAL = 0.02  # seconds: as often as if hours passed


class ReportingCounts(HourlyCounts):
    """Logs what the store has confirmed."""

    file = -1

    def __init__(self, process: bytes) -> None:
        super().__init__(process)
        say(self.file, "process", process.hex())

    def written(self) -> None:
        super().written()
        say(self.file, "written", sum(cell.get("executed", 0) for cell in self._entered.values()))


def say(file: int, *words: object) -> None:
    """Write one line with a single call, so that it is there even if the process is killed right after it."""
    os.write(file, (" ".join(map(str, words)) + "\n").encode())


def main(url: str, path: str) -> None:
    file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    ReportingCounts.file = file
    counters.HourlyCounts = ReportingCounts  # type: ignore[attr-defined]
    with Once(url, counters=True) as once:
        work = once(key="{me}:{number}", name=NAME)(lambda me, number: None)
        for number in count(1):
            work(os.getpid(), number)
            say(file, "done", number)
            time.sleep(PAUSE)


if __name__ == "__main__":
    main(*sys.argv[1:])
