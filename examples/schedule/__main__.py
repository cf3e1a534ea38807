"""Three runners, one of which is killed: `python -m examples.schedule`. Then check that every second ran once."""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

RUNNERS = 3


def main(arguments: Sequence[str] = ()) -> int:
    argparse.ArgumentParser("python -m examples.schedule", description=__doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "schedule.db"
        runners = [start(file) for _ in range(RUNNERS)]
        try:
            wait_for(file, 2, runners)
            runners[0].kill()
            print(f"runner {runners[0].pid}: SIGKILL")
            wait_for(file, len(heartbeats(file)) + 4, runners[1:])
            for runner in runners[1:]:
                runner.send_signal(signal.SIGTERM)
            codes = [runner.wait(30) for runner in runners[1:]]
        finally:
            for runner in runners:
                runner.kill()
                runner.wait()
        print(f"runners {', '.join(str(runner.pid) for runner in runners[1:])}: SIGTERM, exit codes {codes}")
        return audit(heartbeats(file))


def start(file: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "onceward.cli", "schedule", "examples.schedule.jobs:once"]
    return subprocess.Popen(command, env={**os.environ, "SCHEDULE_FILE": str(file)})


def heartbeats(file: Path) -> list[datetime]:
    try:
        with closing(sqlite3.connect(file, timeout=10)) as shop:
            rows = shop.execute("SELECT scheduled_at FROM runs WHERE job = 'heartbeat' ORDER BY 1").fetchall()
    except sqlite3.OperationalError:  # nothing has run yet
        return []
    return [datetime.fromisoformat(row[0]) for row in rows]


def wait_for(file: Path, count: int, runners: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + 60
    while len(heartbeats(file)) < count:
        ended = [runner.returncode for runner in runners if runner.poll() is not None]
        if ended:
            sys.exit(f'a runner exited unexpectedly with code {ended[0]} (it needs `pip install ".[cli,schedule]"`)')
        if time.monotonic() > deadline:
            raise TimeoutError("the runners do not run any job")
        time.sleep(0.05)


def audit(ran: list[datetime]) -> int:
    """Check that each second from the first to the last ran once."""
    expected = [ran[0] + timedelta(seconds=number) for number in range((ran[-1] - ran[0]).seconds + 1)]
    doubled, lost = len(ran) - len(set(ran)), len(set(expected) - set(ran))
    print(f"{len(expected)} seconds, {len(ran)} runs, {doubled} doubled, {lost} lost")
    return 1 if doubled or lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
