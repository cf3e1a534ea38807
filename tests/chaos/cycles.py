"""One delivery of one piece of work, in each way that Onceward offers, by a process that may be killed anywhere in it.

`python -m tests.chaos.cycles FOLDER` waits for orders and forks a new process for each, so that Python starts and
imports only once. It runs under strace, which kills whoever makes the `WHEN`-th call of a kind on the files in the
folder. An order says after how many of them that shall be: the process first makes the others on a decoy.

What a process knows at its death is in `said.txt`, which it writes as it goes.
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
"""Seconds: nobody waits for it, since later deliveries have a clock that is ahead. Nothing is renewed meanwhile."""

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


class Place:
    """The files of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "once.db"
        self.ledger = folder / "ledger.txt"
        self.said = folder / "said.txt"
        self.decoy = folder / "decoy"

    @property
    def watched(self) -> list[Path]:
        """Where a call may be deadly."""
        beside = [self.database.with_name(self.database.name + end) for end in ("-journal", "-wal", "-shm")]
        return [self.folder, self.database, *beside, self.ledger, self.said, self.decoy]

    def say(self, *words: object) -> None:
        append(self.said, " ".join(map(str, words)))

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """The user's own."""
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
    """Tells the time of `later` seconds from now."""

    def __init__(self, later: int) -> None:
        self._wall, self._ahead = WallClock(), later * 1_000_000

    def now(self) -> int:
        return self._wall.now() + self._ahead


def append(path: Path, line: str) -> None:
    """One write of a whole line, and no buffer in which it could be lost."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{line}\n".encode())
    os.close(file)


# ── effects ──


def send(place: Place) -> str:
    """One that no transaction can take back."""
    place.say("entered")
    append(place.ledger, "sent")
    return RECEIPT


def write_row(place: Place, connection: sqlite3.Connection) -> str:
    place.say("entered")
    connection.execute("INSERT INTO ledger VALUES (?, zeroblob(?))", (KEY, PAGES * 4096))
    place.say("written")
    return RECEIPT


# ── cycles: each delivers once and tells its caller how it went ──


def plain(place: Place, later: int) -> None:
    with place.once(later) as once:
        tell(place, once.outcome(KEY, send, place))


def parking(place: Place, later: int) -> None:
    with place.once(later, after_crash="park") as once:
        tell(place, once.outcome(KEY, send, place))


def within(place: Place, later: int) -> None:
    with place.once(later) as once, place.connection() as connection:
        with once.within(connection) as transaction:
            outcome = transaction.outcome(KEY, write_row, place, connection)
        connection.commit()
        tell(place, outcome)


def complete_in(place: Place, later: int) -> None:
    def work(claim: Claim, connection: sqlite3.Connection) -> None:
        write_row(place, connection)
        claim.complete_in(connection, RECEIPT)
        connection.commit()

    claimed(place, later, work)


def claimed(place: Place, later: int, work: Callable[[Claim, sqlite3.Connection], None]) -> None:
    with place.once(later) as once, place.connection() as connection:
        try:
            with once.claim(KEY) as claim:
                work(claim, connection)
        except AlreadyDone as done:
            place.say("told", "replayed", done.value)
        else:
            place.say("told", "executed", RECEIPT, claim.attempt)


def tell(place: Place, outcome: Any) -> None:
    place.say("told", outcome.kind, outcome.value, outcome.attempt)


# ── broken on purpose: what the audit must not let pass ──


def row_apart_from_its_record(place: Place, later: int) -> None:
    """Two transactions: the row is there, and its record is not yet."""

    def work(claim: Claim, connection: sqlite3.Connection) -> None:
        write_row(place, connection)
        connection.commit()
        claim.complete(RECEIPT)

    claimed(place, later, work)


def record_before_its_row(place: Place, later: int) -> None:
    """Marked as seen before it is handled."""

    def work(claim: Claim, connection: sqlite3.Connection) -> None:
        claim.complete(RECEIPT)
        write_row(place, connection)
        connection.commit()

    claimed(place, later, work)


def told_before_the_commit(place: Place, later: int) -> None:
    with place.once(later) as once, place.connection() as connection:
        with once.within(connection) as transaction:
            tell(place, transaction.outcome(KEY, write_row, place, connection))
        connection.commit()


class ForgetsToPark(SQLiteStore):
    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return await super().claim([replace(one, after_crash=AfterCrash.RERUN) for one in requests], timeout=timeout)


def parking_forgotten(place: Place, later: int) -> None:
    with place.once(later, ForgetsToPark, after_crash="park") as once:
        tell(place, once.outcome(KEY, send, place))


class Careless(SQLiteStore):
    """Syncs only now and then."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        super().__init__(path, clock=clock, synchronous="NORMAL")


def unsynced(place: Place, later: int) -> None:
    with place.once(later, Careless) as once:
        tell(place, once.outcome(KEY, send, place))


CYCLES: dict[str, Callable[[Place, int], None]] = {
    one.__name__: one
    for one in (
        plain,
        parking,
        within,
        complete_in,
        row_apart_from_its_record,
        record_before_its_row,
        told_before_the_commit,
        parking_forgotten,
        unsynced,
    )
}


# ── the server ──


def burn(place: Place, call: str, count: int) -> None:
    """Make that many calls of the kind on the decoy, so that the right one of ours is deadly."""
    file = os.open(place.decoy, os.O_RDWR)
    make: dict[str, Callable[[], object]] = {
        "pwrite64": lambda: os.pwrite(file, b"", 0),
        "write": lambda: os.write(file, b""),
        "fsync": lambda: os.fsync(file),
        "fdatasync": lambda: os.fdatasync(file),
        "ftruncate": lambda: os.ftruncate(file, 0),
        "openat": lambda: os.close(os.open(place.decoy, os.O_RDWR)),
        "unlink": lambda: place.decoy.unlink(missing_ok=True),
        "unlinkat": lambda: place.decoy.unlink(missing_ok=True),
        "fcntl": lambda: fcntl.lockf(file, fcntl.LOCK_UN),
    }
    for _ in range(count - (call == "openat")):  # one of those was made above
        make[call]()


def obey(place: Place, order: Order) -> None:
    """In a process of its own, which ends here."""
    try:
        if order.call:
            burn(place, order.call, WHEN - order.number)
        CYCLES[order.cycle](place, order.later)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def warm_up() -> None:
    """Import once what every process needs, instead of in each of them."""
    with tempfile.TemporaryDirectory() as folder:
        plain(Place(Path(folder)), 0)


def serve(place: Place) -> None:
    warm_up()
    for line in sys.stdin:
        order = Order(*json.loads(line))
        child = os.fork()
        if not child:
            obey(place, order)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(child, status, flush=True)


if __name__ == "__main__":
    serve(Place(Path(sys.argv[1])))
