"""One delivery of one piece of work, in each way that Onceward offers, by a process that may be killed anywhere in it.

`python -m tests.chaos.cycles FOLDER` waits for orders and forks a new process for each, so that Python starts and
imports only once. It runs under strace, which kills the process that makes the `WHEN`-th call of a kind on the files in
the folder. An order says at which call to die: the process first makes the remaining calls on a decoy file.

A process writes its progress to `report.txt`, which survives its death.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from onceward import AlreadyDone, Claim, Once
from onceward.protocol.ports import Clock
from onceward.protocol.record import AfterCrash
from onceward.protocol.requests import Answer, ClaimRequest
from onceward.stores.clock import WallClock
from onceward.stores.sqlite import SQLiteStore

WHEN = 256
"""More calls of one kind than any delivery makes."""

LEASE = 60
"""Seconds. No test waits for it: later deliveries have a clock that is ahead. Nothing is renewed meanwhile."""

KEY, RECEIPT = "order 7", "receipt"
PAGES = 6
"""Size of a row in pages. More than the user's connection may keep in memory, so some are written before the commit."""

TABLE = "CREATE TABLE ledger (item TEXT NOT NULL, bulk BLOB NOT NULL)"


class Order(NamedTuple):
    """What to deliver: the name of a cycle, seconds by which the clock is ahead, and the call to die in, if any."""

    cycle: str
    later: int
    call: str = ""
    number: int = 0


class RunFiles:
    """The files of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "once.db"
        self.ledger = folder / "ledger.txt"
        self.report_file = folder / "report.txt"
        self.decoy = folder / "decoy"

    @property
    def watched(self) -> list[Path]:
        """The files on which a call may be fatal."""
        sidecars = [self.database.with_name(self.database.name + end) for end in ("-journal", "-wal", "-shm")]
        return [self.folder, self.database, *sidecars, self.ledger, self.report_file, self.decoy]

    def say(self, *words: object) -> None:
        append(self.report_file, " ".join(map(str, words)))

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Open the user's own connection."""
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            connection.execute("PRAGMA cache_size = 2")
            yield connection

    def once(self, later: int, store: type[SQLiteStore] = SQLiteStore, **choices: Any) -> Once:
        clock = Ahead(later)
        return Once(
            store(self.database, clock=clock),
            app="kills",
            lease=LEASE,
            fingerprint="none",
            on_running="raise",
            **choices,
        )


class Ahead(Clock):
    """A clock that is `later` seconds ahead."""

    def __init__(self, later: int) -> None:
        self._wall, self._ahead = WallClock(), later * 1_000_000

    def now(self) -> int:
        return self._wall.now() + self._ahead


def append(path: Path, line: str) -> None:
    """Write a whole line with one call, without a buffer in which it could be lost."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{line}\n".encode())
    os.close(file)


# ── effects ──


def send(files: RunFiles) -> str:
    """Make an effect that no transaction can undo."""
    files.say("entered")
    append(files.ledger, "sent")
    return RECEIPT


def write_row(files: RunFiles, connection: sqlite3.Connection) -> str:
    files.say("entered")
    connection.execute("INSERT INTO ledger VALUES (?, zeroblob(?))", (KEY, PAGES * 4096))
    files.say("written")
    return RECEIPT


# ── cycles: each delivers once and reports the outcome ──


def plain(files: RunFiles, later: int) -> None:
    with files.once(later) as once:
        report_outcome(files, once.outcome(KEY, send, files))


def parking(files: RunFiles, later: int) -> None:
    with files.once(later, after_crash="park") as once:
        report_outcome(files, once.outcome(KEY, send, files))


def within(files: RunFiles, later: int) -> None:
    with files.once(later) as once, files.connection() as connection:
        with once.within(connection) as transaction:
            outcome = transaction.outcome(KEY, write_row, files, connection)
        connection.commit()
        report_outcome(files, outcome)


def complete_in(files: RunFiles, later: int) -> None:
    def work(claim: Claim, connection: sqlite3.Connection) -> None:
        write_row(files, connection)
        claim.complete_in(connection, RECEIPT)
        connection.commit()

    claimed(files, later, work)


def claimed(files: RunFiles, later: int, work: Callable[[Claim, sqlite3.Connection], None]) -> None:
    with files.once(later) as once, files.connection() as connection:
        try:
            with once.claim(KEY) as claim:
                work(claim, connection)
        except AlreadyDone as done:
            files.say("reported", "replayed", done.value)
        else:
            files.say("reported", "executed", RECEIPT, claim.attempt)


def report_outcome(files: RunFiles, outcome: Any) -> None:
    files.say("reported", outcome.kind, outcome.value, outcome.attempt)


# ── broken on purpose: the audit must catch these ──


def row_apart_from_its_record(files: RunFiles, later: int) -> None:
    """Two transactions: the row is committed before its record."""

    def work(claim: Claim, connection: sqlite3.Connection) -> None:
        write_row(files, connection)
        connection.commit()
        claim.complete(RECEIPT)

    claimed(files, later, work)


def record_before_its_row(files: RunFiles, later: int) -> None:
    """The message is marked as handled before it is handled."""

    def work(claim: Claim, connection: sqlite3.Connection) -> None:
        claim.complete(RECEIPT)
        write_row(files, connection)
        connection.commit()

    claimed(files, later, work)


def reported_before_the_commit(files: RunFiles, later: int) -> None:
    with files.once(later) as once, files.connection() as connection:
        with once.within(connection) as transaction:
            report_outcome(files, transaction.outcome(KEY, write_row, files, connection))
        connection.commit()


class ForgetsToPark(SQLiteStore):
    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return await super().claim([replace(one, after_crash=AfterCrash.RERUN) for one in requests], timeout=timeout)


def parking_forgotten(files: RunFiles, later: int) -> None:
    with files.once(later, ForgetsToPark, after_crash="park") as once:
        report_outcome(files, once.outcome(KEY, send, files))


class Careless(SQLiteStore):
    """Does not sync at every commit."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        super().__init__(path, clock=clock, synchronous="NORMAL")


def unsynced(files: RunFiles, later: int) -> None:
    with files.once(later, Careless) as once:
        report_outcome(files, once.outcome(KEY, send, files))


CYCLES: dict[str, Callable[[RunFiles, int], None]] = {
    one.__name__: one
    for one in (
        plain,
        parking,
        within,
        complete_in,
        row_apart_from_its_record,
        record_before_its_row,
        reported_before_the_commit,
        parking_forgotten,
        unsynced,
    )
}


# ── the server ──


def burn(files: RunFiles, call: str, count: int) -> None:
    """Make that many calls of the kind on the decoy, so that the intended later call is fatal."""
    file = os.open(files.decoy, os.O_RDWR)
    make: dict[str, Callable[[], object]] = {
        "pwrite64": lambda: os.pwrite(file, b"", 0),
        "write": lambda: os.write(file, b""),
        "fsync": lambda: os.fsync(file),
        "fdatasync": lambda: os.fdatasync(file),
        "ftruncate": lambda: os.ftruncate(file, 0),
        "openat": lambda: os.close(os.open(files.decoy, os.O_RDWR)),
        "unlink": lambda: files.decoy.unlink(missing_ok=True),
        "unlinkat": lambda: files.decoy.unlink(missing_ok=True),
        "fcntl": lambda: fcntl.lockf(file, fcntl.LOCK_UN),
    }
    for _ in range(count - (call == "openat")):  # one of those was made above
        make[call]()


def execute_order(files: RunFiles, order: Order) -> None:
    """Execute the order in the forked process, which ends here."""
    try:
        if order.call:
            burn(files, order.call, WHEN - order.number)
        CYCLES[order.cycle](files, order.later)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def warm_up() -> None:
    """Import once what every process needs, instead of in each of them."""
    with tempfile.TemporaryDirectory() as folder:
        plain(RunFiles(Path(folder)), 0)


def serve(files: RunFiles) -> None:
    warm_up()
    for line in sys.stdin:
        order = Order(*json.loads(line))
        child = os.fork()
        if not child:
            execute_order(files, order)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(child, status, flush=True)


if __name__ == "__main__":
    serve(RunFiles(Path(sys.argv[1])))
