"""A storm: messages with duplicates, workers killed at random instants, the broker once. Then the rows are counted."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.queues.brokers import Broker
from tests.queues.worker import is_ready

DUPLICATES = 0.3
ROUNDS = 10
PATIENCE = 120.0  # seconds without a new row after which no more are expected
LOOK = 0.1


class Restarts(Protocol):
    def kill(self) -> None: ...
    def begin(self) -> object: ...


class Storm(NamedTuple):
    """The result of a storm."""

    messages: int
    events: int
    effects: int
    doubled: int
    kills: int
    left: int
    ended_in_order: bool

    @property
    def passed(self) -> bool:
        return self.effects == self.events and not self.doubled and not self.left and self.ended_in_order


class WorkerPool:
    """The worker processes."""

    def __init__(self, broker: Broker, database: Path, size: int) -> None:
        place = (broker.kind, broker.url, broker.name, str(database))
        self._command = [sys.executable, "-m", "tests.queues.worker", *place]
        self._database = database
        self.members = [self.start() for _ in range(size)]

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=subprocess.DEVNULL)

    def kill_one(self, dice: random.Random) -> None:
        """Kill one worker and start another in its place."""
        place = dice.randrange(len(self.members))
        self.members[place].kill()
        self.members[place].wait()
        self.members[place] = self.start()

    def revive(self) -> None:
        """Restart workers that ended because the broker was down when they started, as a supervisor would."""
        self.members = [one if one.poll() is None else self.start() for one in self.members]

    def stop(self) -> list[int]:
        for member in self.members:
            while not is_ready(self._database, member.pid).exists():
                assert member.poll() is None, "a worker did not start"
                time.sleep(LOOK)
            member.send_signal(signal.SIGTERM)
        return [member.wait(PATIENCE) for member in self.members]

    def end(self) -> None:
        for member in self.members:
            if member.poll() is None:
                member.kill()
                member.wait()


def storm(
    broker: Broker, server: Restarts, database: Path, *, messages: int, kills: int, seed: int = 1, workers: int = 2
) -> Storm:
    dice = random.Random(seed)
    events = round(messages * (1 - DUPLICATES))
    ids = [*range(events), *(dice.randrange(events) for _ in range(messages - events))]
    dice.shuffle(ids)
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE effects (event INTEGER)")
    connection.close()
    asyncio.run(broker.make())
    asyncio.run(broker.send([(json.dumps({"id": id}).encode(), f"m{number}") for number, id in enumerate(ids)]))
    pool = WorkerPool(broker, database, workers)
    try:
        for blow in range(kills):
            _await_rows(pool, database, events * (blow + 1) // (kills + 1))
            time.sleep(dice.random() * 0.1)
            pool.kill_one(dice)
            if blow == kills // 2:
                server.kill()
                server.begin()
        _await_rows(pool, database, events)
        codes = pool.stop()
        rounds = 0
        while (left := asyncio.run(broker.remaining())) and rounds < ROUNDS:
            rounds += 1  # what a killed worker held becomes visible again later, and is a duplicate
            pool.members = [pool.start()]
            _await_empty(broker)
            codes += pool.stop()
    finally:
        pool.end()
    rows = Counter(_rows(database))
    doubled = sum(count > 1 for count in rows.values())
    return Storm(messages, events, len(rows), doubled, kills, left, set(codes) == {0})


def _rows(database: Path) -> list[int]:
    connection = sqlite3.connect(database, timeout=30)
    try:
        return [id for (id,) in connection.execute("SELECT event FROM effects")]
    finally:
        connection.close()


def _await_rows(pool: WorkerPool, database: Path, wanted: int) -> None:
    before, since = -1, time.monotonic()
    while (rows := len(set(_rows(database)))) < wanted:
        if rows != before:
            before, since = rows, time.monotonic()
        assert time.monotonic() < since + PATIENCE, f"{rows} of {wanted} rows, and no more come"
        time.sleep(LOOK)
        pool.revive()


def _await_empty(broker: Broker) -> None:
    deadline = time.monotonic() + PATIENCE
    while left := asyncio.run(broker.remaining()):
        assert time.monotonic() < deadline, f"{left} messages stay in the queue"
        time.sleep(5 * LOOK)
