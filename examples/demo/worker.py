"""A worker: takes one delivery after another from its standard input, and answers each on its standard output.

It may die anywhere in here. The answer, which acknowledges the delivery, is only sent after the handler returned.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from examples.demo.traffic import Delivery
from onceward import AlreadyDone, AlreadyRunning, Once, OncewardError

WAIT = "250ms"  # for a duplicate of what another worker is at; most are done by then
BUSY = 10.0  # seconds to wait for SQLite's one writer before giving the delivery back


class Answer(NamedTuple):
    """`said`: executed, replayed, running (another worker is at it), or failed; the last two are no acknowledgement."""

    number: int
    said: str
    attempt: int = 0
    why: str = ""


Handler = Callable[[Delivery], Answer]


def call_the_bank() -> None:
    """The part of the work that takes time."""
    time.sleep(random.uniform(0.001, 0.004))


def guarded(path: str, lease: float) -> Handler:
    """Charge an order, with Onceward: the charge and the record of it are committed together."""
    once = Once(f"sqlite:///{path}", app="demo", lease=lease, wait=WAIT, window="forever")
    connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None)
    me = os.getpid()

    def charge(delivery: Delivery) -> Answer:
        order_id, amount = delivery.order_id, delivery.amount
        try:
            with once.claim(("order", order_id), name="charge", payload={"amount": amount}) as claim:
                call_the_bank()
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("INSERT INTO charges VALUES (?, ?, ?)", (order_id, amount, me))
                    claim.complete_in(connection, {"charged": amount})
                return Answer(delivery.number, "executed", claim.attempt)
        except AlreadyDone:
            return Answer(delivery.number, "replayed")
        except AlreadyRunning:
            return Answer(delivery.number, "running")

    return charge


def unguarded(path: str, _lease: float) -> Handler:
    """Charge an order, as it is often written: look whether it was charged, and charge it if not."""
    connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None)
    me = os.getpid()

    def charge(delivery: Delivery) -> Answer:
        order_id, amount = delivery.order_id, delivery.amount
        if connection.execute("SELECT 1 FROM charges WHERE order_id = ?", (order_id,)).fetchall():
            return Answer(delivery.number, "replayed")
        call_the_bank()
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO charges VALUES (?, ?, ?)", (order_id, amount, me))
        return Answer(delivery.number, "executed", 1)

    return charge


def work(handler: Handler) -> None:
    """Until the supervisor closes the pipe."""
    for line in sys.stdin.buffer:
        delivery = Delivery(*json.loads(line))
        try:
            answer = handler(delivery)
        except (OncewardError, sqlite3.Error) as error:
            logging.getLogger(__name__).exception("delivery %s", delivery)
            answer = Answer(delivery.number, "failed", why=repr(error))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    kind, path, lease = sys.argv[1:]
    work({"guarded": guarded, "unguarded": unguarded}[kind](path, float(lease)))
