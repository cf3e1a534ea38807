"""Eight workers on one PostgreSQL server, which is killed, restarted and paused while they work.

Every key is delivered to two workers. Half of the work runs within the worker's own transaction; the other half is
claimed first and completed in the transaction. Each worker logs a finished delivery in its own file, like an
acknowledgement to a broker. Failed deliveries are repeated.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from onceward import Once
from onceward.errors import AlreadyDone, ConfigurationError, OncewardError
from onceward.stores.postgres import PostgresStore
from tests.servers.postgres import Postgres, execute

WORKERS = 8
RETRY_PAUSE = 0.05  # seconds before failed deliveries are repeated
PATIENCE = 240.0  # seconds in which all workers must finish


class Report(NamedTuple):
    """What the tables and logs contain at the end."""

    keys: int
    acknowledged: int
    rows: int
    most: int
    completed: int
    failures: int


def work(url: str, first: int, keys: int, log: Path) -> None:
    """Run one worker: repeat its share of the deliveries until each is done."""
    failures = 0
    share = [number % keys for number in range(first * keys // WORKERS, first * keys // WORKERS + 2 * keys // WORKERS)]
    with Once(PostgresStore(url), lease="3s") as once, log.open("w") as done:
        waiting = share
        while waiting:
            again = []
            for number in waiting:
                try:
                    deliver(once, url, number)
                except ConfigurationError:
                    raise
                except (OncewardError, psycopg.Error):
                    failures += 1
                    again.append(number)
                else:
                    print(number, file=done, flush=True)
            waiting = again
            time.sleep(RETRY_PAUSE if again else 0)
        print(json.dumps({"failures": failures}), file=done, flush=True)


def deliver(once: Once, url: str, number: int) -> None:
    connection = _connections.get(url)
    if connection is None or connection.closed:
        connection = _connections[url] = psycopg.connect(url, connect_timeout=2, options="-c lock_timeout=5000")
    try:
        if number % 2:
            with connection, once.within(connection) as tx:
                tx.run(f"order {number}", lambda: insert(connection, number))
        else:
            with suppress(AlreadyDone), once.claim(f"order {number}") as claim, connection:
                insert(connection, number)
                claim.complete_in(connection, number)
    except BaseException:
        with suppress(psycopg.Error):
            connection.close()
        raise


_connections: dict[str, Any] = {}


def insert(connection: Any, number: int) -> int:
    connection.execute("INSERT INTO effects VALUES (%s)", (number,))
    return number


def run_workers(server: Postgres, folder: Path, *, keys: int, kills: int, pauses: int) -> Report:
    """Start the workers, disturb the server, and read the tables afterwards."""
    with Once(PostgresStore(server.url, migrate=True)) as once:
        once.run("ready", lambda: None)
    execute("CREATE TABLE effects (number bigint)", url=server.url)
    pool = [
        subprocess.Popen([sys.executable, "-m", __name__, server.url, str(n), str(keys), str(folder / f"{n}")])
        for n in range(WORKERS)
    ]
    try:
        for disturbance in range(1, kills + pauses + 1):
            await_done(server, pool, folder, disturbance * 2 * keys // (kills + pauses + 1))
            if disturbance % 2 and disturbance // 2 < pauses:
                with server.paused():
                    time.sleep(1.2)  # longer than a call may take
            else:
                server.kill()
                server.start()
        for one in pool:
            assert one.wait(PATIENCE) == 0, "a worker ended with an error"
    finally:
        for one in pool:
            one.send_signal(signal.SIGKILL)
            one.wait()
    return audit(server, folder, keys)


def await_done(server: Postgres, pool: list[subprocess.Popen[bytes]], folder: Path, deliveries: int) -> None:
    """Wait for so many acknowledged deliveries, so that disturbances come in the middle of the work."""
    deadline = time.monotonic() + PATIENCE
    while sum(len(acknowledged(folder / f"{n}")) for n in range(WORKERS)) < deliveries:
        assert time.monotonic() < deadline, "the workers make no progress"
        assert any(one.poll() is None for one in pool), "all workers have ended"
        time.sleep(0.02)


def acknowledged(log: Path) -> list[int]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [int(line) for line in lines if line.isdecimal()]


def audit(server: Postgres, folder: Path, keys: int) -> Report:
    delivered = {number for n in range(WORKERS) for number in acknowledged(folder / f"{n}")}
    failures = sum(json.loads((folder / f"{n}").read_text().splitlines()[-1])["failures"] for n in range(WORKERS))
    rows = Counter(number for (number,) in execute("SELECT number FROM effects", url=server.url))
    [(completed,)] = execute(
        "SELECT count(*) FROM onceward_records WHERE state IS NULL AND key LIKE 'order %'", url=server.url
    )
    return Report(keys, len(delivered), len(rows), max(rows.values()), completed, failures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("number", type=int)
    parser.add_argument("keys", type=int)
    parser.add_argument("log", type=Path)
    given = parser.parse_args()
    work(given.url, given.number, given.keys, given.log)
