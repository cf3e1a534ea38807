"""A worker that counts until it is killed: `python -m tests.chaos.counting_worker URL FILE`.

It says in the file which process it counts as, each call that is done, and how many of them the store has for sure.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import count

from onceward import Once
from onceward.engine.totals import HourlyCounts
from onceward.runtime import counters

NAME = "count"
PAUSE = 0.002  # seconds between calls: what is left of two processors goes to others
counters.WRITE_INTERVAL = 0.02  # seconds: as often as if hours passed


class TellingBook(HourlyCounts):
    """Says what the store has confirmed."""

    file = -1

    def __init__(self, process: bytes) -> None:
        super().__init__(process)
        say(self.file, "process", process.hex())

    def written(self) -> None:
        super().written()
        say(self.file, "written", sum(cell.get("executed", 0) for cell in self._entered.values()))


def say(file: int, *words: object) -> None:
    """In one write, which is there even if we are killed at once."""
    os.write(file, (" ".join(map(str, words)) + "\n").encode())


def main(url: str, path: str) -> None:
    file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    TellingBook.file = file
    counters.HourlyCounts = TellingBook  # type: ignore[attr-defined]
    with Once(url, counters=True) as once:
        work = once(key="{me}:{number}", name=NAME)(lambda me, number: None)
        for number in count(1):
            work(os.getpid(), number)
            say(file, "done", number)
            time.sleep(PAUSE)


if __name__ == "__main__":
    main(*sys.argv[1:])
