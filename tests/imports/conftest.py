"""A file to import, and people on SQLite to import it into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.people import People


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "people.db"


@pytest.fixture
def people(database: Path) -> Iterator[People]:
    with People(f"sqlite:///{database}") as people:
        yield people


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users.csv"
