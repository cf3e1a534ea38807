"""The cost of importing a file: `python -m bench --only files [--quick] [-o json]`.

A CSV file of users with e-mails is imported into a new SQLite file; then its next edition, with one more row and all
others unchanged. These alternate with what a program without Onceward would do: upserts of the same rows with the bare
driver, 1,000 per transaction. Wall and CPU seconds of this process; the ratios are between neighbouring runs.
"""

from __future__ import annotations

import csv
import json
import platform
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from onceward.imports import import_file
from onceward.people import People

BATCH = 1_000
BARS = {"first": 20_000, "ratio": 3.0}
"""Rows per second with e-mails only, and how many times faster an unchanged edition is than the first import."""


class RoundTimes(NamedTuple):
    """Wall and CPU seconds of each of the three runs."""

    bare: tuple[float, float]
    first: tuple[float, float]
    unchanged: tuple[float, float]


def main(*, quick: bool, as_json: bool) -> int:
    rows, rounds = (2_000, 2) if quick else (100_000, 7)
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as folder:
        times = [run_round(Path(folder), rows, number) for number in range(rounds)]
    found = {
        name: {
            "wall": rows / median(one[index][0] for one in times),
            "cpu": rows / median(one[index][1] for one in times),
        }
        for index, name in enumerate(RoundTimes._fields)
    }
    ratio = median(one.first[1] / one.unchanged[1] for one in times)
    if as_json:
        result = {
            "python": platform.python_version(),
            "rows": rows,
            "rows_a_second": found,
            "ratio": ratio,
            "bars": BARS,
        }
        print(json.dumps(result, indent=2))
        return 0
    print(f"{f'{rows:,} rows, e-mail only':<32}{'rows/s':>12}{'rows/CPU s':>14}")
    for name, rates in found.items():
        print(f"{name:<32}{rates['wall']:>12,.0f}{rates['cpu']:>14,.0f}")
    print(f"an unchanged edition is {ratio:.1f} times faster (CPU); bars: {BARS['first']:,} rows/s, {BARS['ratio']:g}")
    if quick:
        print("quick: do not quote these figures")
    return 0


def run_round(folder: Path, rows: int, number: int) -> RoundTimes:
    file = folder / f"users-{number}.csv"
    url = f"sqlite:///{folder}/people-{number}.db?synchronous=NORMAL"
    write(file, rows)
    bare = measure_time(lambda: upsert_all(file, folder / f"bare-{number}.db"))
    with People(url) as people:
        first = measure_time(lambda: import_file(file, people))
        write(file, rows + 1)
        unchanged = measure_time(lambda: import_file(file, people))
    return RoundTimes(bare, first, unchanged)


def measure_time(work: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def write(file: Path, rows: int) -> None:
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["Email", "Team"])
        writer.writerows([f"user{number}@example.com", f"T{number % 100}"] for number in range(rows))


def upsert_all(file: Path, database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection, file.open(newline="") as source:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("CREATE TABLE users (email TEXT PRIMARY KEY, team TEXT)")
        reader = csv.reader(source)
        next(reader)
        while batch := list(islice(reader, BATCH)):
            connection.execute("BEGIN")
            connection.executemany(
                "INSERT INTO users VALUES (?, ?) ON CONFLICT (email) DO UPDATE SET team = excluded.team", batch
            )
            connection.execute("COMMIT")
