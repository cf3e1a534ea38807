"""SIGKILL at one system call after another: strace kills, and the files are looked at before and after.

with Stage(folder) as stage:
    for kill in stage.kills("within"):
        assert stage.strike("within", [kill]).violations == []
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
from tests.chaos.aftermath import Look, Promise, Step, look, told, violations
from tests.chaos.cycles import LEASE, TABLE, WHEN, Order, Place

ROOT = Path(__file__).parents[2]
KILLED = -signal.SIGKILL

WRITES = ("pwrite64", "write")
SYNCS = ("fdatasync", "fsync")
"""Which of them SQLite makes depends on how it was built."""

CALLS = (*WRITES, *SYNCS, "ftruncate", "openat", "unlink", "unlinkat")
"""All by which SQLite and the cycles change files, or make changes last. Not every machine has all of them."""

LOCKS = ("fcntl",)
"""No change of a file, but between two of them SQLite changes what all processes share in memory."""

PROMISES = {
    "plain": Promise.AT_LEAST_ONCE,
    "parking": Promise.AT_MOST_ONCE,
    "within": Promise.EXACTLY_ONCE,
    "complete_in": Promise.EXACTLY_ONCE,
    "row_apart_from_its_record": Promise.EXACTLY_ONCE,
    "record_before_its_row": Promise.EXACTLY_ONCE,
    "told_before_the_commit": Promise.EXACTLY_ONCE,
    "parking_forgotten": Promise.AT_MOST_ONCE,
}


class Kill(NamedTuple):
    """Before the `number`-th call of this kind, which goes to this file."""

    call: str
    number: int
    file: str

    def __str__(self) -> str:
        return f"{self.call} {self.number} ({self.file})"


class Struck(NamedTuple):
    """What became of one piece of work."""

    kills: tuple[Kill, ...]
    steps: tuple[Step, ...]
    violations: list[str]


def missing() -> str | None:
    """Why nobody can be killed by strace here, or None."""
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed (Debian: apt-get install strace)"
    tried = subprocess.run(
        [strace, "-f", "-o", os.devnull, "-e", "trace=write", "true"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"strace must not trace here: {tried.stderr.strip()}"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder, in memory where that can be had: nobody pulls the plug here, so a sync may as well take no time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


class Server:
    """`tests.chaos.cycles` in a process of its own."""

    def __init__(self, place: Place, *before: str) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        self._process = subprocess.Popen(
            [*before, sys.executable, "-m", "tests.chaos.cycles", str(place.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def deliver(self, order: Order) -> tuple[int, int]:
        """Process id and exit status of who did it."""
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


class Stage:
    """A folder in which one delivery after another is struck. `fresh`: each time there is no database yet."""

    def __init__(self, folder: Path, *, fresh: bool = False, beside: bool = False, locks: bool = False) -> None:
        folder = folder.resolve()
        self._logs, self._copy, self._template = folder / "logs", Place(folder / "copy"), Place(folder / "template")
        self.place = Place(folder / "place")
        for one in (self._logs, self._copy.folder, self._template.folder, self.place.folder):
            one.mkdir()
        self._beside = beside
        self.torn = 0
        self._calls = CALLS + (LOCKS if locks else ())
        if not fresh:
            _make_database(self._template)
        self._template.decoy.touch()

    def __enter__(self) -> Self:
        calls = ",".join(f"?{call}" for call in self._calls)
        paths = [part for path in self.place.watched for part in ("-P", str(path))]
        self._free = Server(self.place)
        self._deadly = Server(
            self.place,
            *("strace", "-ff", "-q", "-y", "-s", "0", "-o", str(self._logs / "log"), *paths),
            *("-e", f"trace={calls}", "-e", f"inject={calls}:signal=SIGKILL:when={WHEN}"),
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._deadly.close()
        self._free.close()

    # ── where ──

    def kills(self, cycle: str) -> list[Kill]:
        """Every call that this cycle makes on its files, in their order."""
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
        """What strace has written about it, once it is the whole of it: its last line is about the end."""
        path = self._logs / f"log.{process}"
        patience = time.monotonic() + 10
        while not (text := path.read_text()).endswith("+++\n"):
            assert time.monotonic() < patience, f"strace does not say how {process} ended"
            time.sleep(0.001)
        return text

    def _made(self, log: str) -> list[tuple[str, str]]:
        """The calls in a log: what, and to which file."""
        found = re.findall(r'^(\w+)\((?:AT_FDCWD<[^>]*>, )?(?:\d+<([^>]*)>|"([^"]*)")', log, re.MULTILINE)
        made = [(call, Path(opened or named).name) for call, opened, named in found if call in self._calls]
        return [(call, file) for call, file in made if file != self.place.decoy.name]

    def _clear_logs(self) -> None:
        for log in self._logs.iterdir():
            log.unlink()

    # ── and what becomes of it ──

    def strike(self, cycle: str, kills: Sequence[Kill], *, torn: bool = False) -> Struck:
        """Deliver until nobody kills it any more, and once again. Each time one lease later."""
        promise = PROMISES[cycle]
        with self._set_up():
            steps = []
            before = self._look()
            for number, kill in enumerate((*kills, None, None)):
                step = self._deliver(Order(cycle, number * 2 * LEASE), kill, before, torn=torn)
                steps.append(step)
                before = step.after
        return Struck(tuple(kills), tuple(steps), violations(promise, steps))

    def _deliver(self, order: Order, kill: Kill | None, before: Look, *, torn: bool) -> Step:
        self.place.said.unlink(missing_ok=True)
        if kill is None:
            process, status = self._free.deliver(order)
        else:
            self.place.decoy.touch()
            process, status = self._deadly.deliver(order._replace(call=kill.call, number=kill.number))
            log = self._log(process)
            self._clear_logs()
            if status == KILLED:
                last = self._made(log)[-1]
                assert last[0] == kill.call, f"killed at {last} instead of {kill}"
            if status == KILLED and torn:
                self._tear(log)
        assert status in {0, KILLED}, f"it ended with {status}"
        said = self.place.said.read_text().splitlines() if self.place.said.exists() else []
        return Step(before, status == KILLED, told(said), self._look())

    def _look(self) -> Look:
        """At a copy, so that whoever comes next finds the files as they were left.

        With a neighbour, what counts is what the neighbour sees: the log as far as the shared memory knows it.
        """
        if self._beside:
            return look(self.place)
        for old in self._copy.folder.iterdir():
            old.unlink()
        for path in self.place.folder.iterdir():
            shutil.copy(path, self._copy.folder)
        return look(self._copy)

    @contextlib.contextmanager
    def _set_up(self) -> Iterator[None]:
        for old in self.place.folder.iterdir():
            old.unlink()
        for path in self._template.folder.iterdir():
            shutil.copy(path, self.place.folder)
        with _neighbour(self.place) if self._beside else contextlib.nullcontext():
            yield

    def _tear(self, log: str) -> None:
        """The last write before the end was not the whole of it."""
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
def _neighbour(place: Place) -> Iterator[None]:
    """Another process that has the file open meanwhile: then no newcomer starts the log anew, and none ends it."""
    program = (
        "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1]);"
        "connection.execute('SELECT count(*) FROM ledger').fetchall(); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program, str(place.database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


def _make_database(place: Place) -> None:
    """With all tables in it, and closed by everybody."""
    with contextlib.closing(sqlite3.connect(place.database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(TABLE)
    with Once(SQLiteStore(place.database)) as once:
        once.read("opens the store")
