"""Run commands of the Django project in tests/django_project, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.servers.postgres import URL

REPOSITORY = Path(__file__).parents[2]
SHOP = "tests.django_project.shop"
EVERYTHING = "ONCEWARD_DJANGO_KILLS"
"""If it is set (`make soak`), every kind of work is killed at every stage on both databases."""


class Project:
    """The project on one database, and plain SQL on the same database."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.environment = {
            **os.environ,
            "SHOP_DATABASE": database,
            "DJANGO_SETTINGS_MODULE": "tests.django_project.settings",
            "PYTHONPATH": str(REPOSITORY),
        }

    def manage(self, *arguments: str, check: bool = True) -> str:
        """Run `manage.py` and return what it printed."""
        return self.run("-m", "tests.django_project.manage", *arguments, check=check)

    def run(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=self.environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        printed = done.stdout + done.stderr
        assert not check or done.returncode == 0, printed
        return printed

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=self.environment,
            cwd=REPOSITORY,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Execute one statement, without Django and without Onceward."""
        if self.database.startswith("postgresql:"):
            with psycopg.connect(self.database, autocommit=True) as connection:
                cursor = connection.execute(statement)
                return cursor.fetchall() if cursor.description else []
        import sqlite3

        with closing(sqlite3.connect(self.database, timeout=60)) as connection:
            found = connection.execute(statement).fetchall()
            connection.commit()
            return found


@contextmanager
def postgres_database() -> Iterator[str]:
    """Create a database on the worker's server, and drop it in the end."""
    name = f"shop_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(os.environ[URL], autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield f"{os.environ[URL].rsplit('/', 1)[0]}/{name}"
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def empty_project(database: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Project]:
    """Yield the project on a database without tables: `sqlite` or `postgres`."""
    if database == "sqlite":
        yield Project(str(folder / "shop.sqlite3"))
        return
    request.getfixturevalue("postgres")
    with postgres_database() as url:
        yield Project(url)


@contextmanager
def migrated_project(database: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Project]:
    """Yield the project on a migrated database: `sqlite` or `postgres`."""
    with empty_project(database, folder, request) as project:
        project.manage("migrate", "-v", "0")
        yield project


def check_once(project: Project, reference: str) -> None:
    """Check by plain SQL that there is one row, and one receipt for it."""
    assert project.sql(f"SELECT count(*) FROM shop_order WHERE reference = '{reference}'") == [(1,)]
    keys = f"SELECT state, count(*) FROM onceward_keys WHERE key LIKE '%{reference}' GROUP BY state"
    assert project.sql(keys) == [("COMPLETED", 1)]
