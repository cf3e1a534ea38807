"""How long the first pages of the console take at a million records: `python -m bench --only console`.

Each page is requested several times from the console, without a network. Beside it stands what the database needs for
the latest fifty records, read by a bare `SELECT … LIMIT 50`. It reports medians in milliseconds.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Final

import psycopg

from onceward import Once
from onceward.console import Console
from tests.administration.many_records import fill_postgres, fill_sqlite, id_of
from tests.console.visitor import Visitor
from tests.servers.postgres import Postgres, found_binaries

RECORDS: Final = 1_000_000
QUICK: Final = 100_000
TIMES: Final = 15

BARE: Final = "SELECT id, scope, key, token, updated_at, state FROM onceward_records ORDER BY {order} DESC LIMIT 50"
PAGES: Final = {
    "overview": "/overview",
    "keys": "/keys",
    "keys, failed": "/keys?state=FAILED",
    "keys of a tenant": "/keys?tenant=acme",
    "keys by a prefix": "/keys?prefix=order:59",
    "keys, nothing matches": "/keys?prefix=none",
    "one key": f"/keys/{id_of(50)}",
    "parked": "/parked",
    "failures": "/failures",
    "audit trail": "/audit",
}

Times = dict[str, float]
Opened = Iterator[tuple[str, Callable[[], object]]]
"""The address of a filled store, and the bare query."""


def main(*, quick: bool, as_json: bool) -> int:
    records = QUICK if quick else RECORDS
    found = {store: measure(*one) for store, opened in STORES.items() for one in opened(records)}
    if as_json:
        print(json.dumps({"records": records, "milliseconds": found}, indent=2))
        return 0
    print(f"{records:,} records; median of {TIMES} requests, in ms")
    print(f"{'page':<24}" + "".join(f"{store:>12}" for store in found))
    for name in next(iter(found.values())):
        print(f"{name:<24}" + "".join(f"{times[name]:>12.1f}" for times in found.values()))
    return 0


def measure(url: str, bare: Callable[[], object]) -> Times:
    with Once(url) as once:
        visitor = Visitor(Console(once))
        times = {"bare SELECT … LIMIT 50": typical(bare)}
        for name, path in PAGES.items():
            assert visitor.get(path).status_code == 200, path
            times[name] = typical(lambda path=path: visitor.get(path))  # type: ignore[misc]  # the loop's own path
    return times


def typical(call: Callable[[], object]) -> float:
    """Return the median duration of a call, in milliseconds."""
    durations = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        call()
        durations.append((time.perf_counter() - begun) * 1000)
    return median(durations)


def on_sqlite(records: int) -> Opened:
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as folder:
        path = Path(folder, "keys.db")
        with Once(f"sqlite:///{path}") as once:
            once.migrate()
        fill_sqlite(path, records)
        with closing(sqlite3.connect(path)) as raw:
            yield f"sqlite:///{path}", lambda: raw.execute(BARE.format(order="rowid")).fetchall()


def on_postgres(records: int) -> Opened:
    binaries = found_binaries()
    if binaries is None:
        return
    server = Postgres(binaries)
    try:
        server.start()
        with Once(server.url) as once:
            once.migrate()
        fill_postgres(server.url, "public", records)
        with psycopg.connect(server.url, autocommit=True) as raw:
            statement = BARE.replace(" ORDER", " WHERE token > 0 ORDER").format(order="token").encode()
            yield server.url, lambda: raw.execute(statement).fetchall()
    finally:
        server.remove()


STORES: Final[dict[str, Callable[[int], Opened]]] = {"sqlite": on_sqlite, "postgres": on_postgres}
