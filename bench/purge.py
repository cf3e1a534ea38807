"""What a purge costs other callers: `python -m bench --only purge`.

A store holds many expired records. One caller runs new keys, one after the other; then it does so again while another
client purges. It reports the records purged per second, and how long a call takes: the median and the longest, alone
and beside the purge.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import psycopg

from onceward import Once
from tests.servers.postgres import Postgres, found_binaries

RECORDS: Final = 200_000
QUICK: Final = 5_000
CALLS: Final = 200
"""Calls of the lone caller before the purge."""

COLUMNS: Final = "id, scope, key, token, updated_at, valid_until, owner, result"
SQLITE_ROWS: Final = f"""
WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < ?)
INSERT INTO onceward_records ({COLUMNS})
SELECT randomblob(32), 'default/bench', 'key ' || n, n, n, n, 'bench:1', randomblob(20) FROM series
"""
POSTGRES_ROWS: Final = f"""
INSERT INTO onceward_records ({COLUMNS})
SELECT sha256(n::text::bytea), 'default/bench', 'key ' || n, n, n, n, 'bench:1', '01234567890123456789'
FROM generate_series(1, %s) AS n
"""

_numbers = count()


class Cost(NamedTuple):
    """Records per second, and milliseconds per call."""

    store: str
    purged_per_second: float
    alone_median: float
    alone_longest: float
    beside_median: float
    beside_longest: float


def main(*, quick: bool, as_json: bool) -> int:
    records = QUICK if quick else RECORDS
    found = [measure(store, url, records) for store, opened in STORES.items() for url in opened(records)]
    if as_json:
        print(json.dumps({"records": records, "stores": [one._asdict() for one in found]}, indent=2))
        return 0
    print(f"{records:,} expired records; calls with new keys, in ms")
    print(f"{'store':<12}{'purged/s':>10}{'alone: median':>16}{'longest':>10}{'beside: median':>17}{'longest':>10}")
    for one in found:
        print(
            f"{one.store:<12}{one.purged_per_second:>10,.0f}{one.alone_median:>16.1f}{one.alone_longest:>10.1f}"
            f"{one.beside_median:>17.1f}{one.beside_longest:>10.1f}"
        )
    return 0


def measure(store: str, url: str, records: int) -> Cost:
    with Once(url) as once, Once(url) as purger:
        alone = [call(once) for _ in range(CALLS)]
        seconds: list[float] = []

        def purge() -> None:
            begun = time.perf_counter()
            while purger.purge():
                pass
            seconds.append(time.perf_counter() - begun)

        thread = threading.Thread(target=purge)
        thread.start()
        beside = [call(once)]
        while thread.is_alive():
            beside.append(call(once))
        thread.join()
    return Cost(store, records / seconds[0], median(alone), max(alone), median(beside), max(beside))


def call(once: Once) -> float:
    """Run one new key. Return the milliseconds that it took."""
    key = f"new {next(_numbers)}"
    begun = time.perf_counter()
    once.run(key, int)
    return (time.perf_counter() - begun) * 1000


def create_tables(url: str) -> None:
    with Once(url) as once:
        once.migrate()


def on_sqlite(records: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as folder:
        path = Path(folder, "keys.db")
        create_tables(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute(SQLITE_ROWS, (records,))
        yield f"sqlite:///{path}"


def on_postgres(records: int) -> Iterator[str]:
    binaries = found_binaries()
    if binaries is None:
        return
    server = Postgres(binaries)
    try:
        server.start()
        create_tables(server.url)
        with psycopg.connect(server.url, autocommit=True) as raw:
            raw.execute(POSTGRES_ROWS, (records,))
            raw.execute("VACUUM ANALYZE onceward_records")
        yield server.url
    finally:
        server.remove()


STORES: Final[dict[str, Callable[[int], Iterator[str]]]] = {"sqlite": on_sqlite, "postgres": on_postgres}
