"""Processes on one file, killed at random: `python -m tests.evidence.fleet FOLDER KIND SEED SECONDS WORKERS`.

The fleet itself opens no store: it forks workers, kills one after the other with SIGKILL and replaces it, until the
time is over. Each worker writes its own log into the folder. When a worker is dead, the fleet marks that in the log: an
unanswered request took effect before that, or never.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from onceward import Once, OncewardError
from onceward.protocol.ports import Store
from onceward.runtime.threads import run
from onceward.stores.sqlite import SQLiteStore
from onceward.testing.conformance.runtimes import RUNTIME_KINDS
from onceward.testing.history import FileLog, Operation, Recorder, mark_ended, read_logs
from onceward.testing.history.load import LoadWorker
from onceward.testing.history.storm import open_pair
from tests.evidence.clocks import SharedClock
from tests.evidence.tiny import TinyStore

ROOT = Path(__file__).resolve().parents[2]
MOMENT = 8_000  # µs: leases of some 10 ms, as long as a few calls
LIFE = (0.005, 0.12)  # seconds until the next kill: from the first call on, over a few leases
IDLENESS = 6  # pauses are divided by this: killing a sleeping worker tests little

KINDS: dict[str, Callable[[Path, SharedClock], Store]] = {
    "sqlite": lambda folder, clock: SQLiteStore(folder / "once.db", clock=clock),
    "client": lambda folder, clock: SQLiteStore(folder / "once.db", clock=clock),
    "locked": lambda folder, clock: TinyStore(folder / "tiny.db", clock, locked=True),
    "unlocked": lambda folder, clock: TinyStore(folder / "tiny.db", clock, locked=False),
}


def work(store: Store, dice: random.Random) -> None:
    """Send random requests to the store as long as the fleet runs."""
    mode = RUNTIME_KINDS["blocking"]
    fleet = os.getppid()

    async def work_while_the_fleet_runs() -> None:
        async with open_pair(store, mode) as (own, heartbeat, runtime):

            async def pause(microseconds: int) -> None:
                await runtime.sleep(microseconds / 1_000_000 / IDLENESS)

            worker = LoadWorker(own, heartbeat, dice, pause, time_unit=MOMENT)
            while os.getppid() == fleet:
                await worker.step()

    run(work_while_the_fleet_runs())


def use(store: Store, dice: random.Random) -> None:
    """Run small jobs through the client as long as the fleet runs: with renewals, waiting, and a very short lease."""
    fleet = os.getppid()
    logging.disable()  # jobs fail by the hundred, on purpose
    once = Once(store, lease="50ms", window="40ms", wait="100ms", max_attempts=5)

    def job() -> int:
        time.sleep(dice.choice([0, 0.001, 0.02, 0.08]))
        if dice.random() < 0.2:
            raise ValueError("this one failed")
        return dice.randrange(100)

    while os.getppid() == fleet:
        try:
            once.run(f"job {dice.randrange(3)}", job)
        except (OncewardError, ValueError):
            continue


class Fleet:
    """The live workers, by process id."""

    def __init__(self, folder: Path, kind: str, seed: int) -> None:
        self.kills = 0
        self._folder = folder
        self._kind = kind
        self._seed = seed
        self._clock = SharedClock()
        self._logs: dict[int, Path] = {}
        self._number = 0

    def launch(self) -> None:
        self._number += 1
        log = self._folder / f"worker {self._number}.jsonl"
        pid = os.fork()
        if not pid:
            self._live(log)
        self._logs[pid] = log

    def _live(self, log: Path) -> NoReturn:
        try:
            dice = random.Random(f"{self._seed} {self._number}")
            store = KINDS[self._kind](self._folder, self._clock)
            recorder = Recorder(store, FileLog(log), by=f"process {self._number}", late_effects=False)
            (use if self._kind == "client" else work)(recorder, dice)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)

    def kill(self, dice: random.Random) -> None:
        pid = dice.choice(list(self._logs))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        log = self._logs.pop(pid)
        if not os.WIFSIGNALED(status):
            raise SystemExit(f"{log.stem} exited, with {os.waitstatus_to_exitcode(status)}")
        if log.exists():
            mark_ended(log)
        self.kills += 1

    def __len__(self) -> int:
        return len(self._logs)


def main(arguments: list[str]) -> None:
    folder, kind, seed, seconds, workers = arguments
    fleet = Fleet(Path(folder), kind, int(seed))
    dice = random.Random(seed)
    ends = time.monotonic() + float(seconds)
    try:
        while time.monotonic() < ends:
            while len(fleet) < int(workers):
                fleet.launch()
            time.sleep(dice.uniform(*LIFE))
            fleet.kill(dice)
    finally:
        while len(fleet):
            fleet.kill(dice)
    print(json.dumps({"kills": fleet.kills}))


def run_fleet(folder: Path, kind: str, seed: int, *, seconds: float, workers: int) -> tuple[list[Operation], int]:
    """Run a fleet in a separate process. Return the history and the number of kills."""
    arguments = [str(folder), kind, str(seed), str(seconds), str(workers)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.evidence.fleet", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
        capture_output=True,
        text=True,
        timeout=60 + 2 * seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return read_logs(sorted(folder.glob("worker *.jsonl"))), int(json.loads(done.stdout)["kills"])


if __name__ == "__main__":
    main(sys.argv[1:])
