"""Eight processes that count, each killed at a random moment; then the stored counts are compared with their work."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.registry import open_store

WORKERS = 8
PATIENCE = 60.0  # seconds until a silent worker counts as stuck


class Worked(NamedTuple):
    """What one worker logged before it was killed, and what the store has of it."""

    done: int
    written: int
    stored: int


def run_and_kill_workers(url: str, folder: Path, seed: int, calls: int) -> list[Worked]:
    """Start the workers, and kill each after a random number of calls, at any point of its work."""
    dice = random.Random(seed)
    files = [folder / f"worker {number}" for number in range(WORKERS)]
    limits = [dice.randint(3, calls) for _ in files]
    command = [sys.executable, "-m", "tests.chaos.counting_worker", url]
    workers = [subprocess.Popen([*command, str(file)]) for file in files]
    try:
        for worker, file, limit in sorted(zip(workers, files, limits, strict=True), key=lambda one: one[2]):
            until(lambda: last(file, "done") >= limit, worker)  # noqa: B023 (called immediately)
            time.sleep(dice.random() * 0.01)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    stored = stored_by_process(url)
    return [Worked(last(file, "done"), last(file, "written"), stored.get(process_of(file), 0)) for file in files]


def until(wanted: Callable[[], bool], worker: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not wanted():
        assert time.monotonic() < deadline, "a worker makes no progress"
        assert worker.poll() is None, "a worker has failed"
        time.sleep(0.002)


def log_lines(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def last(file: Path, word: str) -> int:
    return max((int(number) for said, number in log_lines(file) if said == word), default=0)


def process_of(file: Path) -> str:
    return next(name for said, name in log_lines(file) if said == "process")


def stored_by_process(url: str) -> dict[str, int]:
    store = open_store(url)
    run(store.open(ThreadRuntime()))
    try:
        assert store.counters is not None
        found: dict[str, int] = {}
        for counter_row in run(store.counters.read_counts(0, timeout=30)).counter_rows:
            executed = sum(cell.get("executed", 0) for cell in counter_row.counts.values())
            found[counter_row.process.hex()] = found.get(counter_row.process.hex(), 0) + executed
        return found
    finally:
        run(store.close())


def complaints(pool: list[Worked]) -> list[str]:
    """A worker may be killed after a call is counted and before it is logged, so one more call may be stored."""
    found = [f"counted twice: {one}" for one in pool if one.stored > one.done + 1]
    return found + [f"lost although the store had it: {one}" for one in pool if one.stored < one.written]
