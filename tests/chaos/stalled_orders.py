"""Orders whose first stays in the middle of its work until another worker has charged it.

Its lease is renewed, so it stalls until its worker is paused or killed. If the worker was paused and continues, it
writes to the table after another worker, with a claim that it no longer owns.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from onceward import AlreadyDone, AlreadyRunning, Claim, LeaseLost, Once
from onceward.engine.attempt import Attempt
from onceward.protocol import transitions
from onceward.protocol.record import Record
from onceward.protocol.requests import Verdict
from onceward.testing.storm import HandlerResult, StormEvent, StormSetting
from tests.chaos.orders import BUSY, WAIT, Orders, database

FIRST = "order-1"
POLL_INTERVAL = 0.01
BEGUN = "begun"  # a file that exists as soon as a worker has begun the first order


def is_charged(path: Path) -> bool:
    """Whether the first order is charged."""
    with closing(sqlite3.connect(path, timeout=BUSY)) as connection:
        return bool(connection.execute("SELECT 1 FROM charges WHERE order_id = ?", (FIRST,)).fetchall())


class Fenced(Orders):
    """Row and record in one transaction: a replaced owner can commit neither."""

    name = "fenced"

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        path = database(setting)
        once = Once(f"sqlite:///{path}", app="orders", lease=setting.lease, wait=WAIT, window="forever")
        connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None)

        def charge(event: StormEvent) -> HandlerResult:
            try:
                with once.claim(event.id, name="charge", payload=event.body) as claim:
                    while event.id == FIRST and claim.attempt == 1 and not is_charged(path):
                        path.with_name(BEGUN).touch()
                        time.sleep(POLL_INTERVAL)
                    with connection:
                        connection.execute("BEGIN IMMEDIATE")
                        connection.execute("INSERT INTO charges VALUES (?, ?)", (event.id, event.body["cents"]))
                        self.settle(claim, connection)
                    return HandlerResult("executed", claim.attempt)
            except AlreadyDone:
                return HandlerResult("replayed")
            except AlreadyRunning:
                return HandlerResult("running")

        return charge

    def settle(self, claim: Claim, connection: sqlite3.Connection) -> None:
        claim.complete_in(connection, "charged")


class Unfenced(Fenced):
    """Broken: it commits its row although it has lost the lease. A kill does not show this."""

    name = "unfenced"

    def settle(self, claim: Claim, connection: sqlite3.Connection) -> None:
        with suppress(LeaseLost):
            claim.complete_in(connection, "charged")


class Unaware(Fenced):
    """Does not check its own clock, as if it were paused right after its last check: only the token protects it."""

    name = "unaware"

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        Attempt.check = lambda self: None  # type: ignore[method-assign]  # in this process, which is a worker's
        return super().worker(setting)


class Tokenless(Unaware):
    """Broken: its store completes without checking the token."""

    name = "tokenless"

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        settle = transitions.settle

        def without_owner_check(record: Record | None, request: Any, now: int) -> tuple[Record | None, Verdict]:
            owned = replace(request, token=record.token, nonce=record.nonce) if record else request
            return settle(record, owned, now)

        transitions.settle = without_owner_check
        return super().worker(setting)


FENCED, UNFENCED, UNAWARE, TOKENLESS = Fenced(), Unfenced(), Unaware(), Tokenless()
