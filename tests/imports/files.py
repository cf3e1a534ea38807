"""Files to import, and what is in the database afterwards."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from onceward.people import People, Person

HEADER = ("Email", "Name", "Team")


def write(path: Path, rows: Iterable[Sequence[str]], header: Sequence[str] = HEADER) -> Path:
    with path.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([header, *rows])
    return path


def users(count: int, *, begin: int = 0) -> list[tuple[str, str, str]]:
    """Return rows of different people: no two names are similar."""
    return [(f"u{n}@example.com", f"{word(n)} {word(n * 7919 + 13)}", f"T{n % 7}") for n in range(begin, begin + count)]


def word(number: int) -> str:
    """Return a different name for each number."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    found = ""
    number = (number * 2_654_435_761) % (1 << 32)
    for _ in range(7):
        number, rest = divmod(number, 26)
        found += letters[rest]
    return found.capitalize()


def person(people: People, email: str) -> Person:
    found = people.find(email=email)
    assert found is not None, f"{email} is not there"
    return found


def dump(path: Path) -> list[tuple[Any, ...]]:
    """Return every column of the people tables, without the tables of the imports."""
    with closing(sqlite3.connect(path)) as database:
        return [
            row
            for table in ("onceward_people", "onceward_person_keys", "onceward_contributions")
            for row in database.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
        ]


def rejected(path: Path) -> list[list[str]]:
    """Return line, reason and cells of each rejected row."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]
