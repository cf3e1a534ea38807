"""A Celery worker of a Django project that is killed (SIGKILL). The broker delivers its task again, with duplicates."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.chaos.process_tree import ProcessTree
from tests.integration.django_processes import EVERYTHING, Project, check_once, migrated_project
from tests.servers.redis import shared

APP = "tests.django_project.celery_app"
DATABASE_NUMBER = 9
DUPLICATES = 20
PATIENCE = 300.0
"""Seconds for a worker to start and to do its tasks, on a busy machine."""

SEND = f"""
import sys
from {APP} import app
for _ in range(int(sys.argv[2])):
    app.send_task("tests.django_project.shop.tasks.place_order_later", (sys.argv[1],))
"""
ALL = [(database, stage) for database in ("sqlite", "postgres") for stage in ("started", "written", "committed")]
CHOSEN = ALL if os.environ.get(EVERYTHING) else [("postgres", "committed")]


class Broker:
    """The queue of Celery on a Redis server, and the workers of one test."""

    def __init__(self, project: Project, folder: Path) -> None:
        self.project, self.folder = project, folder
        url = f"redis://127.0.0.1:{shared().port}/{DATABASE_NUMBER}"
        self.client = Redis.from_url(url)
        self.client.flushdb()
        project.environment["SHOP_BROKER"] = url
        self._workers: list[ProcessTree] = []

    def send(self, reference: str, times: int) -> None:
        self.project.run("-c", SEND, reference, str(times))

    def start_worker(self, concurrency: int, **variables: str) -> ProcessTree:
        command = ["-m", "celery", "-A", APP, "worker", "--concurrency", str(concurrency)]
        command += ["--without-gossip", "--without-mingle"]
        environment = {**self.project.environment, **variables}
        self._workers.append(ProcessTree([sys.executable, *command], environment, self.folder / "log"))
        return self._workers[-1]

    def is_idle(self) -> bool:
        return not self.client.llen("celery") and not self.client.hlen("unacked")

    def wait_until(self, wanted: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not wanted():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-3000:]
            time.sleep(0.05)

    def end(self) -> None:
        for worker in self._workers:
            worker.kill()
        self.client.flushdb()
        self.client.close()


@pytest.fixture
def broker(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Broker]:
    with migrated_project(database, tmp_path, request) as project:
        broker = Broker(project, tmp_path)
        try:
            yield broker
        finally:
            broker.end()


@pytest.mark.finding("N7")
@pytest.mark.fault("F30", "F31", "F34")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("database", "stage"), CHOSEN)
def test_a_task_of_a_killed_worker_is_delivered_again_and_takes_effect_once(broker: Broker, stage: str) -> None:
    reference, stopped = f"celery-{stage}", broker.folder / "stopped"
    orders = f"SELECT count(*) FROM shop_order WHERE reference = '{reference}'"
    broker.send(reference, 1)
    worker = broker.start_worker(1, SHOP_STOP_AT=stage, SHOP_STOPPED=str(stopped))
    broker.wait_until(stopped.exists)
    worker.kill()
    assert broker.project.sql(orders) == [(1 if stage == "committed" else 0,)]
    assert not broker.is_idle(), "the task was not acknowledged"

    broker.send(reference, DUPLICATES)
    worker = broker.start_worker(DUPLICATES if os.environ.get(EVERYTHING) else 4)
    broker.wait_until(lambda: broker.project.sql(orders) != [(0,)] and broker.is_idle())
    worker.terminate()  # it finishes the tasks that it holds
    check_once(broker.project, reference)
