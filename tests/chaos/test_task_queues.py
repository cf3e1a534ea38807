"""The examples under Celery, Dramatiq, RQ and Taskiq: real workers on a real server, killed in the middle."""

from __future__ import annotations

import importlib.util
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from redis import Redis

from onceward import Once
from tests.chaos.process_tree import ProcessTree
from tests.chaos.task_sender import CENTS
from tests.servers.process import missing
from tests.servers.redis import RedisServer

ORDERS = (1, 2, 3, 4)
LAST = 5  # sent after the kill: Taskiq reclaims abandoned messages only when a new one arrives
PATIENCE = 100.0  # seconds for a worker to reach the wanted point
LEASE = "2s"


def celery_is_idle(client: Redis) -> bool:
    return not client.llen("celery") and not client.hlen("unacked")


def dramatiq_is_idle(client: Redis) -> bool:
    return not client.hlen("dramatiq:default.msgs") and not client.hlen("dramatiq:default.DQ.msgs")


def rq_is_idle(client: Redis) -> bool:
    keys: Sequence[str] = ("rq:wip:default", "rq:scheduled:default", "rq:failed:default")
    return not client.llen("rq:queue:default") and not any(client.zcard(key) for key in keys)


def taskiq_is_idle(client: Redis) -> bool:
    groups: Any = client.xinfo_groups("taskiq")
    return all(not group["pending"] and not group["lag"] for group in groups)


class Kind(NamedTuple):
    """How its workers are started (two tasks at a time), and how to detect that nothing is left to do."""

    package: str
    workers: list[list[str]]
    is_idle: Callable[[Redis], bool]


WORKER = "tests.chaos.task_worker"
RQ = ["rq.cli", "worker", "--with-scheduler", "--config", WORKER]
KINDS = {
    "celery": Kind("celery", [["celery", "-A", WORKER, "worker", "--concurrency", "2"]], celery_is_idle),
    "dramatiq": Kind("dramatiq", [["dramatiq", WORKER, "--processes", "1", "--threads", "2"]], dramatiq_is_idle),
    "rq": Kind("rq", [RQ, RQ], rq_is_idle),
    "taskiq": Kind(
        "taskiq_redis",
        [["taskiq", "worker", f"{WORKER}:broker", "--workers", "1", "--max-async-tasks", "2"]],
        taskiq_is_idle,
    ),
}


class Shop:
    """A broker, a database, and their workers."""

    def __init__(self, name: str, folder: Path, server: RedisServer) -> None:
        self.kind = KINDS[name]
        self.folder = folder
        self.database = folder / "shop.db"
        self.client = Redis(port=server.port)
        self._environment = os.environ | {
            "TASK_QUEUE": name,
            "REDIS_URL": f"redis://127.0.0.1:{server.port}/0",
            "RQ_REDIS_URL": f"redis://127.0.0.1:{server.port}/0",
            "SHOP_DATABASE": str(self.database),
            "SHOP_LEASE": LEASE,
        }
        self._trees: list[ProcessTree] = []

    def send(self, *orders: int) -> None:
        command = [sys.executable, "-m", "tests.chaos.task_sender", *map(str, orders)]
        subprocess.run(command, env=self._environment, check=True, timeout=PATIENCE)

    def start(self, *, hanging: bool = False, one: bool = False, **more: str) -> list[ProcessTree]:
        if hanging:
            more["HANGING_IN"] = str(self.folder)
        started = [
            ProcessTree([sys.executable, "-m", *command], self._environment | more, self.folder / "log")
            for command in self.kind.workers[: 1 if one else None]
        ]
        self._trees += started
        return started

    def until(self, wanted: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not wanted():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-3000:]
            time.sleep(0.02)

    def charged(self) -> Counter[int]:
        """Count the charges of each order."""
        with closing(sqlite3.connect(self.database)) as shop:
            rows = shop.execute("SELECT order_id, cents FROM charges").fetchall()
        assert all(cents == CENTS * order for order, cents in rows)
        return Counter(order for order, _ in rows)

    def attempts(self) -> list[int]:
        with Once(f"sqlite:///{self.database}") as once:
            entries = [once.read(f"charge:{order}", name="charge") for order in ORDERS]
        return [0 if entry is None else entry.attempt for entry in entries]

    def end(self) -> None:
        for tree in self._trees:
            tree.kill()
        self.client.close()


@pytest.fixture
def shop(queue: str, tmp_path: Path) -> Iterator[Shop]:
    if importlib.util.find_spec(KINDS[queue].package) is None:
        missing(queue, "it is part of the dev extra")
    server = RedisServer().begin()
    shop = Shop(queue, tmp_path, server)
    try:
        yield shop
    finally:
        shop.end()
        server.end()


@pytest.mark.fault("F30", "F34", "F71")
@pytest.mark.parametrize("queue", KINDS)
def test_a_task_of_a_worker_that_was_killed_is_delivered_again_and_charged_once(shop: Shop) -> None:
    shop.send(*ORDERS, *ORDERS)
    workers = shop.start(hanging=True)
    shop.until(lambda: all((shop.folder / f"charge:{order}").exists() for order in (1, 2)))
    for worker in workers:
        worker.kill()
    assert 1 not in shop.charged(), "it should be killed before its charge"
    assert 2 in shop.charged(), "it should be killed after its charge"
    forget_the_heartbeat(shop.client)

    shop.send(LAST)
    shop.start(one=True)
    shop.until(
        lambda: LAST in shop.charged()
    )  # first, because for a moment Celery holds a task that its queue does not show
    shop.until(lambda: shop.kind.is_idle(shop.client))
    assert shop.charged() == dict.fromkeys((*ORDERS, LAST), 1)
    assert shop.attempts() == [2, 1, 1, 1], "only the first was begun again: the second was found done"


@pytest.mark.parametrize("queue", ["dramatiq"])
def test_without_once_the_same_kill_charges_twice(shop: Shop) -> None:
    shop.send(2)
    (worker,) = shop.start(hanging=True, UNGUARDED="1")
    shop.until((shop.folder / "charge:2").exists)
    worker.kill()

    shop.start(UNGUARDED="1")
    shop.until(lambda: shop.kind.is_idle(shop.client))
    assert shop.charged() == {2: 2}


def forget_the_heartbeat(client: Redis) -> None:
    """Simulate the minute of silence after which RQ gives up a job, because it cannot be configured."""
    entries: Any = client.zrange("rq:wip:default", 0, -1)
    for entry in entries:
        client.zadd("rq:wip:default", {entry: time.time() - 1})
