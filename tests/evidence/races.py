"""A race for one key whose lease has expired, on a SQLite file: two clients claim it, and its late owner still runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from onceward.protocol import transitions
from onceward.protocol.ports import Clock
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, AnySettlement, ClaimRequest, Complete, Fail, Renewal, Validity, Verdict
from onceward.protocol.runtime import Runtime
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore

ID = b"one key".ljust(32)
SECOND = 1_000_000
LEASE = 10 * SECOND
CLAIMED, LATER = 100 * SECOND, 200 * SECOND
"""The times of the owner's claim and of the race: by then its lease has long expired."""

TIMEOUT = 5.0
OWNER = "owner"
CLAIMANTS = ("anna", "bert")


class At(Clock):
    """A clock that stands still."""

    def __init__(self, now: int) -> None:
        self._now = now

    def now(self) -> int:
        return self._now


class Client:
    """One client of the race, on its own connection. Its name is its nonce."""

    def __init__(self, name: str, store: SQLiteStore) -> None:
        self.name = name
        self.nonce = name.encode()
        self.store = store
        self.verdict: Verdict | None = None
        run(store.open(ThreadRuntime()))
        run(store.read([ID], timeout=TIMEOUT))  # the setup of a first call is not part of the race

    def does(self, call: Coroutine[Any, Any, list[Answer]]) -> None:
        self.verdict = run(call)[0].verdict

    @property
    def won(self) -> bool:
        return self.verdict in {Verdict.ACQUIRED, Verdict.OK}


# ── actions of the clients ──


def claims(client: Client) -> None:
    request = ClaimRequest(id=ID, scope="race", key="one key", nonce=client.nonce, lease=LEASE)
    client.does(client.store.claim([request], timeout=TIMEOUT))


def completes(client: Client) -> None:
    settlement = Complete(
        id=ID, token=CLAIMED, nonce=client.nonce, result=b"late", digest=b"late", validity=Validity(lasting=LEASE)
    )
    client.does(client.store.settle([settlement], timeout=TIMEOUT))


def fails(client: Client) -> None:
    settlement = Fail(
        id=ID,
        token=CLAIMED,
        nonce=client.nonce,
        known=True,
        final=True,
        max_attempts=0,
        validity=Validity(lasting=LEASE),
    )
    client.does(client.store.settle([settlement], timeout=TIMEOUT))


def renews(client: Client) -> None:
    client.does(client.store.renew([Renewal(id=ID, token=CLAIMED, nonce=client.nonce, lease=LEASE)], timeout=TIMEOUT))


RACES: dict[str, Callable[[Client], None]] = {one.__name__: one for one in (completes, renews, fails, claims)}
"""What the owner does while the others claim. `claims`: the key has no owner yet, and all three claim it."""


def begin(path: Path, race: str) -> None:
    """Create the file, with the record of an owner that claimed the key and did not renew it."""
    owner = Client(OWNER, SQLiteStore(path, clock=At(CLAIMED)))
    if race != claims.__name__:
        claims(owner)
        assert owner.won
    run(owner.store.close())


def one_winner(path: Path, clients: Sequence[Client]) -> bool:
    """Whether exactly one client won, by its own answer and by the file; the others were refused or got a replay."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT nonce FROM onceward_records").fetchall()
    connection.close()
    return [(client.nonce,) for client in clients if client.won] == rows


# ── broken on purpose ──


class GetThenPut(SQLiteStore):
    """Reads, decides and writes its decision, although the record may have changed meanwhile."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        super().__init__(path, clock=clock)
        self._file = path

    async def open(self, runtime: Runtime) -> None:
        await super().open(runtime)
        self._own = sqlite3.connect(self._file, isolation_level=None, check_same_thread=False)

    async def close(self) -> None:
        self._own.close()
        await super().close()

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        (request,) = requests
        (seen,) = await self.read([request.id], timeout=timeout)
        record, verdict = transitions.claim(seen.record, request, seen.now)
        if record is not None and verdict is Verdict.ACQUIRED:
            self._put(record)
        return [Answer(verdict, record, seen.now)]

    def _put(self, record: Record) -> None:
        cursor = self._own.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        cursor.execute(
            "INSERT INTO onceward_records (id, scope, key, state, token, nonce, lease_until, updated_at)"
            " VALUES (?, '', '', 'PENDING', ?, ?, ?, 0) ON CONFLICT (id) DO UPDATE SET state = excluded.state,"
            " token = excluded.token, nonce = excluded.nonce, lease_until = excluded.lease_until",
            (record.id, record.token, record.nonce, record.lease_until),
        )
        cursor.execute("COMMIT")


class SettlesWithoutOwnerCheck(SQLiteStore):
    """Does not compare the caller of a settlement with the owner of the record."""

    async def settle(self, settlements: Sequence[AnySettlement], *, timeout: float, **_: Any) -> list[Answer]:
        (settlement,) = settlements
        (seen,) = await self.read([settlement.id], timeout=timeout)
        if seen.record is not None and isinstance(settlement, Complete | Fail):
            settlement = replace(settlement, token=seen.record.token, nonce=seen.record.nonce)
        return await super().settle([settlement], timeout=timeout)


STORES: dict[str, Callable[..., SQLiteStore]] = {
    one.__name__: one for one in (SQLiteStore, GetThenPut, SettlesWithoutOwnerCheck)
}
