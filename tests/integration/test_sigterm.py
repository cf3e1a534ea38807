"""SIGTERM under load: calls in flight finish or are released, and no key stays locked. The leases are an hour long."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
import redis

from onceward import RecordState
from onceward.protocol.ports import Filter
from onceward.protocol.record import Record
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from tests.clients import TOO_LONG
from tests.servers.process import free_port
from tests.servers.redis import shared

pytestmark = [pytest.mark.finding("N69")]

WORKERS = "tests.integration.stopped_workers"
EFFECTS = 30  # until the process is stopped


@contextmanager
def process(folder: Path, *command: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "FOLDER": str(folder), **variables}
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen([sys.executable, "-m", *command], env=environment, stdout=log, stderr=log)
        try:
            yield started
        finally:
            started.kill()
            started.wait(TOO_LONG)


def stop_under_load(folder: Path, started: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM after some effects, and check what is left."""
    deadline = time.monotonic() + TOO_LONG
    while len(effects(folder)) < EFFECTS:
        assert started.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.01)
    started.send_signal(signal.SIGTERM)
    started.wait(4 * TOO_LONG)  # a worker of Celery stops its children one after another
    found = records(folder)
    assert [one.key for one in found if one.state is RecordState.PENDING and not one.released] == []
    assert {one.state for one in found} <= {RecordState.COMPLETED, RecordState.FREE}, (folder / "log").read_text()
    completed = [one for one in found if one.state is RecordState.COMPLETED]
    assert len(completed) == len(effects(folder)), "what was done is recorded"


def effects(folder: Path) -> list[Path]:
    return list(folder.glob("effect-*"))


def records(folder: Path) -> list[Record]:
    store = SQLiteStore(folder / "once.db")
    run(store.open(ThreadRuntime()))
    page = run(store.scan(Filter(), cursor=None, limit=10_000, timeout=TOO_LONG))
    run(store.close())
    return list(page.records)


@pytest.mark.parametrize("kind", ["threads", "tasks", "closed threads", "closed tasks"])
def test_a_worker_stops_without_leaving_a_key_locked(tmp_path: Path, kind: str) -> None:
    with process(tmp_path, WORKERS, kind) as started:
        stop_under_load(tmp_path, started)
        assert started.returncode == 0


SERVERS: dict[str, Callable[[int], list[str]]] = {
    "uvicorn": lambda port: ["uvicorn", f"{WORKERS}:asgi", "--port", f"{port}"],
    "gunicorn": lambda port: [
        "gunicorn", f"{WORKERS}:wsgi", "-c", f"python:{WORKERS}", "-b", f"127.0.0.1:{port}", "-w", "2",
        "-k", "gthread", "--threads", "4",
    ],
}  # fmt: skip


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_stops_without_leaving_a_key_locked(tmp_path: Path, server: str) -> None:
    port, stopped, numbers = free_port(), threading.Event(), count()

    def post_until_stopped() -> None:
        while not stopped.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TOO_LONG)
            try:
                name = f"{next(numbers)}"
                connection.request("POST", f"/{name}", b"{}", {"Idempotency-Key": f'"{name}"'})
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)  # not up yet, or stopping
            finally:
                connection.close()

    with process(tmp_path, *SERVERS[server](port)) as started, ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(post_until_stopped) for _ in range(8)]
        try:
            stop_under_load(tmp_path, started)
        finally:
            stopped.set()
        for client in clients:
            client.result(TOO_LONG)


def test_a_celery_worker_stops_without_leaving_a_key_locked(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{shared().port}/7"
    sending = f"from {WORKERS} import task\nfor number in range(400): task.delay(str(number))"
    environment = {**os.environ, "FOLDER": str(tmp_path), "BROKER_URL": url}
    subprocess.run([sys.executable, "-c", sending], env=environment, check=True, timeout=TOO_LONG)
    command = ("celery", "-A", WORKERS, "worker", "--concurrency", "2", "--without-gossip", "--without-mingle")
    with process(tmp_path, *command, BROKER_URL=url) as started, redis.Redis.from_url(url) as broker:
        stop_under_load(tmp_path, started)
        broker.flushdb()
