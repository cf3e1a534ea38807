"""SIGKILL at one system call after another: strace kills, and the files are checked before and after.

with KillHarness(folder) as harness:
    for kill in harness.kills("within"):
        assert harness.run_with_kills("within", [kill]).violations == []
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from onceward import Once
from onceward.stores.sqlite import SQLiteStore
from tests.chaos.aftermath import Promise, Snapshot, Step, last_outcome, take_snapshot, violations
from tests.chaos.cycles import LEASE, TABLE, WHEN, Order, RunFiles

ROOT = Path(__file__).parents[2]
KILLED = -signal.SIGKILL

WRITES = ("pwrite64", "write")
SYNCS = ("fdatasync", "fsync")
"""Which of them SQLite uses depends on how it was built."""

CALLS = (*WRITES, *SYNCS, "ftruncate", "openat", "unlink", "unlinkat")
"""All calls with which SQLite and the cycles change or sync files. Not every machine has all of them."""

LOCKS = ("fcntl",)
"""They change no file, but between two of them SQLite changes the memory that all processes share."""

PROMISES = {
    "plain": Promise.AT_LEAST_ONCE,
    "parking": Promise.AT_MOST_ONCE,
    "within": Promise.EXACTLY_ONCE,
    "complete_in": Promise.EXACTLY_ONCE,
    "row_apart_from_its_record": Promise.EXACTLY_ONCE,
    "record_before_its_row": Promise.EXACTLY_ONCE,
    "reported_before_the_commit": Promise.EXACTLY_ONCE,
    "parking_forgotten": Promise.AT_MOST_ONCE,
}


class Kill(NamedTuple):
    """A kill before the `number`-th call of this kind, which is on this file."""

    call: str
    number: int
    file: str

    def __str__(self) -> str:
        return f"{self.call} {self.number} ({self.file})"


class KilledRun(NamedTuple):
    """The result of one piece of work that was killed."""

    kills: tuple[Kill, ...]
    steps: tuple[Step, ...]
    violations: list[str]


def missing() -> str | None:
    """Return why strace cannot be used on this machine, or None."""
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed (Debian: apt-get install strace)"
    tried = subprocess.run(
        [strace, "-f", "-o", os.devnull, "-e", "trace=write", "true"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"strace is not permitted to trace here: {tried.stderr.strip()}"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Create a folder, in memory if possible: there is no power loss here, so a sync need not take time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


class Server:
    """`tests.chaos.cycles` in a process of its own."""

    def __init__(self, files: RunFiles, *before: str) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        self._process = subprocess.Popen(
            [*before, sys.executable, "-m", "tests.chaos.cycles", str(files.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def deliver(self, order: Order) -> tuple[int, int]:
        """Return process id and exit status of the delivering process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        assert len(answer) == 2, f"the server has died ({self._process.poll()})"
        return int(answer[0]), int(answer[1])

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class KillHarness:
    """A folder in which one delivery after another is killed. `fresh`: each starts without a database."""

    def __init__(self, folder: Path, *, fresh: bool = False, neighbour: bool = False, locks: bool = False) -> None:
        folder = folder.resolve()
        self._logs, self._copy, self._template = (
            folder / "logs",
            RunFiles(folder / "copy"),
            RunFiles(folder / "template"),
        )
        self.files = RunFiles(folder / "files")
        for one in (self._logs, self._copy.folder, self._template.folder, self.files.folder):
            one.mkdir()
        self._with_neighbour = neighbour
        self.torn = 0
        self._calls = CALLS + (LOCKS if locks else ())
        if not fresh:
            _make_database(self._template)
        self._template.decoy.touch()

    def __enter__(self) -> Self:
        calls = ",".join(f"?{call}" for call in self._calls)
        paths = [part for path in self.files.watched for part in ("-P", str(path))]
        self._free = Server(self.files)
        self._deadly = Server(
            self.files,
            *("strace", "-ff", "-q", "-y", "-s", "0", "-o", str(self._logs / "log"), *paths),
            *("-e", f"trace={calls}", "-e", f"inject={calls}:signal=SIGKILL:when={WHEN}"),
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._deadly.close()
        self._free.close()

    # ── the calls at which to kill ──

    def kills(self, cycle: str) -> list[Kill]:
        """Return every call that this cycle makes on its files, in order."""
        with self._set_up():
            process, status = self._deadly.deliver(Order(cycle, 0))
        assert status == 0
        calls = self._made(self._log(process))
        elsewhere = [path for path in self._logs.iterdir() if path.name != f"log.{process}"]
        assert not any(self._made(path.read_text()) for path in elsewhere), "only its main thread touches the files"
        self._clear_logs()
        counts: Counter[str] = Counter()
        found = []
        for call, file in calls:
            counts[call] += 1
            found.append(Kill(call, counts[call], file))
        assert max(counts.values()) < WHEN
        return found

    def _log(self, process: int) -> str:
        """Return strace's log of the process once it is complete: its last line is about the exit."""
        path = self._logs / f"log.{process}"
        patience = time.monotonic() + 60
        while not (text := path.read_text()).endswith("+++\n"):
            assert time.monotonic() < patience, f"strace does not log how {process} ended"
            time.sleep(0.001)
        return text

    def _made(self, log: str) -> list[tuple[str, str]]:
        """Return the calls in a log with their files."""
        found = re.findall(r'^(\w+)\((?:AT_FDCWD<[^>]*>, )?(?:\d+<([^>]*)>|"([^"]*)")', log, re.MULTILINE)
        made = [(call, Path(opened or named).name) for call, opened, named in found if call in self._calls]
        return [(call, file) for call, file in made if file != self.files.decoy.name]

    def _clear_logs(self) -> None:
        for log in self._logs.iterdir():
            log.unlink()

    # ── the runs ──

    def run_with_kills(self, cycle: str, kills: Sequence[Kill], *, torn: bool = False) -> KilledRun:
        """Deliver once for each kill, and twice without. Each delivery comes one lease later."""
        promise = PROMISES[cycle]
        with self._set_up():
            steps = []
            before = self._snapshot()
            for number, kill in enumerate((*kills, None, None)):
                step = self._deliver(Order(cycle, number * 2 * LEASE), kill, before, torn=torn)
                steps.append(step)
                before = step.after
        return KilledRun(tuple(kills), tuple(steps), violations(promise, steps))

    def _deliver(self, order: Order, kill: Kill | None, before: Snapshot, *, torn: bool) -> Step:
        self.files.report_file.unlink(missing_ok=True)
        if kill is None:
            process, status = self._free.deliver(order)
        else:
            self.files.decoy.touch()
            process, status = self._deadly.deliver(order._replace(call=kill.call, number=kill.number))
            log = self._log(process)
            self._clear_logs()
            if status == KILLED:
                last = self._made(log)[-1]
                assert last[0] == kill.call, f"killed at {last} instead of {kill}"
            if status == KILLED and torn:
                self._tear(log)
        assert status in {0, KILLED}, f"it ended with {status}"
        lines = self.files.report_file.read_text().splitlines() if self.files.report_file.exists() else []
        return Step(before, status == KILLED, last_outcome(lines), self._snapshot())

    def _snapshot(self) -> Snapshot:
        """Read a copy, so that the next process finds the files unchanged.

        With a neighbour process, read the files as it sees them: the log as far as the shared memory knows it.
        """
        if self._with_neighbour:
            return take_snapshot(self.files)
        for old in self._copy.folder.iterdir():
            old.unlink()
        for path in self.files.folder.iterdir():
            shutil.copy(path, self._copy.folder)
        return take_snapshot(self._copy)

    @contextlib.contextmanager
    def _set_up(self) -> Iterator[None]:
        for old in self.files.folder.iterdir():
            old.unlink()
        for path in self._template.folder.iterdir():
            shutil.copy(path, self.files.folder)
        with _neighbour(self.files) if self._with_neighbour else contextlib.nullcontext():
            yield

    def _tear(self, log: str) -> None:
        """Overwrite half of the last write before the kill, as if it was not completed."""
        lines = [line for line in log.splitlines() if not line.startswith("+++")]
        write = re.match(r'pwrite64\(\d+<([^>]*)>, ""\.\.\., (\d+), (\d+)\)\s+= \d+$', lines[-2]) if lines[1:] else None
        if write is None or not write[1].endswith(("once.db", "-wal")):
            return
        half = int(write[2]) // 2
        with Path(write[1]).open("r+b") as file:
            file.seek(int(write[3]) + half)
            file.write(b"\xa5" * half)
        self.torn += 1


@contextlib.contextmanager
def _neighbour(files: RunFiles) -> Iterator[None]:
    """Start another process that keeps the file open: then no process restarts or removes the log."""
    program = (
        "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1]);"
        "connection.execute('SELECT count(*) FROM ledger').fetchall(); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program, str(files.database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


def _make_database(files: RunFiles) -> None:
    """Create the database with all tables, and close it."""
    with contextlib.closing(sqlite3.connect(files.database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(TABLE)
    with Once(SQLiteStore(files.database)) as once:
        once.read("opens the store")
