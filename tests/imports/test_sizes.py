"""What an import costs: memory that does not grow with the file, and statements that do not repeat what is known."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from onceward.imports import Counts, import_file
from onceward.people import Decision, People, SourceRecord
from onceward.people.on_sqlite import SQLiteTables
from onceward.people.people import JoinedPeople
from tests.imports.files import users, write

ROWS, WIDE = 700, 50_000  # 35 MB
MOST = 22_000_000  # bytes: a batch of 4 MB and its copies on the way into the database

MEASURED = """
import sys, tracemalloc
from onceward.imports import import_file
tracemalloc.start()
summary = import_file(sys.argv[1], sys.argv[2])
print(summary.counts.created, tracemalloc.get_traced_memory()[1])
"""


@pytest.mark.mission("D6")
def test_the_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    note = "x" * WIDE
    file = write(tmp_path / "users.csv", ((email, "", note) for email, _, _ in users(ROWS)))
    command = [sys.executable, "-c", MEASURED, str(file), f"sqlite:///{tmp_path}/people.db?synchronous=NORMAL"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    created, peak = map(int, done.stdout.split())
    assert created == ROWS
    assert peak < MOST < file.stat().st_size


class Counted:
    """Count executed statements; a statement for many rows counts as many."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        rows, many, near = SQLiteTables.run, SQLiteTables.run_many, SQLiteTables.candidates

        def counted_rows(tables: SQLiteTables, statement: str, *values: object) -> object:
            self.count += 1
            return rows(tables, statement, *values)

        def counted_many(tables: SQLiteTables, statement: str, values: list[tuple[object, ...]]) -> None:
            self.count += len(values)
            many(tables, statement, values)

        def counted_near(tables: SQLiteTables, blocks: list[int], most: int) -> object:
            self.count += len(blocks)
            return near(tables, blocks, most)

        monkeypatch.setattr(SQLiteTables, "run", counted_rows)
        monkeypatch.setattr(SQLiteTables, "run_many", counted_many)
        monkeypatch.setattr(SQLiteTables, "candidates", counted_near)

    def since(self, before: int) -> int:
        return self.count - before


@pytest.mark.mission("D3", "D6")
def test_an_unchanged_row_costs_no_statement_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    asked: list[int] = []
    add = JoinedPeople.add_many

    def counted_add(within: JoinedPeople, records: Iterable[SourceRecord]) -> list[Decision]:
        batch = list(records)
        asked.append(len(batch))
        return add(within, batch)

    monkeypatch.setattr(JoinedPeople, "add_many", counted_add)
    with People(f"sqlite:///{tmp_path}/people.db") as people:
        import_file(write(tmp_path / "users.csv", users(1_000)), people, batch=250)
        first = counted.count
        edition = write(tmp_path / "users.csv", [*users(999), ("new@example.com", "Somebody New", "T")])
        assert import_file(edition, people, batch=250).counts == Counts(created=1, skipped=999)
        again = counted.since(first)
        import_file(edition, people)
        replayed = counted.since(first + again)
    assert asked == [250] * 4 + [1], "the others are known by their fingerprints, so no person is looked up"
    assert first > 3_000
    assert again < 80, "a few per batch, and those for the new row"
    assert replayed < 10, "the same content: its rows are not read"
