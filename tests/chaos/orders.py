"""The smallest system for a storm: each order is to be charged once. A row and its record are committed together."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from onceward import AlreadyDone, AlreadyRunning, Once
from onceward.testing.storm import Audit, Effect, HandlerResult, StormEvent, StormSetting

WAIT = "50ms"  # for a duplicate of an order that another worker is processing; most are done by then
BUSY = 10.0  # seconds to wait for SQLite's one writer before giving the delivery back
TABLE = "CREATE TABLE charges (order_id TEXT NOT NULL, cents INTEGER NOT NULL)"
"""No unique constraint: nothing in the database keeps an order from being charged twice."""


def database(setting: StormSetting) -> Path:
    return Path(setting.folder) / "orders.db"


def call_the_bank() -> None:
    """The part of the work that takes time."""
    time.sleep(random.uniform(0.001, 0.004))


class Orders:
    """With Onceward, or as it is often written: check for a charge, and charge if there is none."""

    name = "orders"
    effects = (Effect("row in charges", "exactly once: row and record in one transaction"),)

    @contextmanager
    def open(self, setting: StormSetting) -> Iterator[dict[str, str]]:
        with closing(sqlite3.connect(database(setting))) as connection, connection:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()  # as the store does
            connection.execute(TABLE)
            connection.execute("CREATE INDEX charges_by_order ON charges (order_id)")
        yield {}

    def events(self, dice: random.Random) -> Iterator[StormEvent]:
        number = 0
        while True:
            number += 1
            yield StormEvent(f"order-{number}", {"cents": dice.randrange(100, 50_000)})

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        return self._guarded(setting) if setting.guarded else self._unguarded(setting)

    def _guarded(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        path = database(setting)
        once = Once(f"sqlite:///{path}", app="orders", lease=setting.lease, wait=WAIT, window="forever")
        connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None)

        def charge(event: StormEvent) -> HandlerResult:
            try:
                with once.claim(event.id, name="charge", payload=event.body) as claim:
                    call_the_bank()
                    with connection:
                        connection.execute("BEGIN IMMEDIATE")
                        connection.execute("INSERT INTO charges VALUES (?, ?)", (event.id, event.body["cents"]))
                        claim.complete_in(connection, {"charged": event.body["cents"]})
                    return HandlerResult("executed", claim.attempt)
            except AlreadyDone:
                return HandlerResult("replayed")
            except AlreadyRunning:
                return HandlerResult("running")

        return charge

    def _unguarded(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        connection = sqlite3.connect(database(setting), timeout=BUSY, isolation_level=None)

        def charge(event: StormEvent) -> HandlerResult:
            if connection.execute("SELECT 1 FROM charges WHERE order_id = ?", (event.id,)).fetchall():
                return HandlerResult("replayed")
            call_the_bank()
            connection.execute("INSERT INTO charges VALUES (?, ?)", (event.id, event.body["cents"]))
            return HandlerResult("executed", 1)

        return charge

    def audit(self, setting: StormSetting, events: Sequence[StormEvent]) -> Audit:
        with closing(sqlite3.connect(database(setting))) as connection:
            rows = connection.execute("SELECT order_id, cents FROM charges").fetchall()
        ordered = {event.id: event.body["cents"] for event in events}
        wrong = [f"{order_id}: {cents} cents" for order_id, cents in rows if ordered.get(order_id) != cents]
        return Audit.of(events, [order_id for order_id, _ in rows], wrong=wrong)


class Impatient(Orders):
    """Its worker exits at the tenth order, with a message."""

    name = "impatient"

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        charge = super().worker(setting)

        def leave(event: StormEvent) -> HandlerResult:
            if event.id == "order-10":
                os.write(2, b"I have had enough\n")
                os._exit(3)
            return charge(event)

        return leave


class Hopeless(Orders):
    """Every order fails."""

    name = "hopeless"

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        def fail(event: StormEvent) -> HandlerResult:
            raise ValueError(f"{event.id} cannot be done")

        return fail


class Loud(Orders):
    """Uses the standard output and input, through which the harness talks to its workers."""

    name = "loud"

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        charge = super().worker(setting)

        def shout(event: StormEvent) -> HandlerResult:
            print("charging", event.id, flush=True)
            os.read(0, 1)
            return charge(event)

        return shout


SYSTEM = Orders()
IMPATIENT = Impatient()
HOPELESS = Hopeless()
LOUD = Loud()
