"""The view `onceward_keys`, with which people read the records in SQL."""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onceward import Once
from onceward.stores.postgres import PostgresStore
from tests.integration.postgres_backend import store
from tests.servers.postgres import URL

__all__ = ["store"]  # fixture, re-exported so that pytest finds it

SELECT = """
SELECT key, state, attempt, error_type, lease_until IS NULL, created_at, valid_until FROM onceward_keys ORDER BY key
"""


def use(once: Once) -> None:
    def fails() -> None:
        raise ValueError("no")

    once.run("done", int)
    with pytest.raises(ValueError, match="no"):
        once.run("failed", fails)
    with pytest.raises(ValueError, match="no"):
        once.run("failed", fails)


def check(rows: list[tuple[Any, ...]]) -> None:
    assert [row[:5] for row in rows] == [
        ("done", "COMPLETED", 1, "", 1),
        ("failed", "FAILED", 2, "ValueError", 1),
    ]


def test_sqlite_shows_states_and_times_as_text(tmp_path: Path) -> None:
    with Once(f"sqlite:///{tmp_path}/once.db", window="1h") as once:
        use(once)
    with closing(sqlite3.connect(tmp_path / "once.db")) as connection:
        rows = connection.execute(SELECT).fetchall()
    check(rows)
    created, end = (dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) for text in rows[0][5:])
    assert abs(dt.datetime.now(dt.UTC) - created) < dt.timedelta(minutes=10)
    assert dt.timedelta(minutes=59) < end - created < dt.timedelta(minutes=70)


def test_postgres_shows_states_and_times(store: PostgresStore, schema: str) -> None:
    with Once(store, window="1h") as once:
        use(once)
    with psycopg.connect(os.environ[URL], options=f"-c search_path={schema}") as connection:
        rows = connection.execute(SELECT).fetchall()
    check(rows)
    created, end = rows[0][5:]
    assert abs(dt.datetime.now(dt.UTC) - created) < dt.timedelta(minutes=10)
    assert dt.timedelta(minutes=59) < end - created < dt.timedelta(minutes=70)
